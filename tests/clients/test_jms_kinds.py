"""Kinds of queue by Qpid JMS: delay, priorities, message groups, last values, streams, what comes again."""

from __future__ import annotations

import re

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME
from tests.wire.conftest import StartBroker, in_one_cell

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

SOURCE = programs.HERE / "jms/src/main/java/sluice/clients/jms/Jms.java"
FEATURES = re.findall(r'"((?:delay|priority|groups|last|stream|again)-[a-z-]+)"', SOURCE.read_text())
POLICIES = """policies:
  - {match: "*.news.>", kind: topic}
  - {match: "*.strict.>", priority: strict}
  - {match: "*.strict.windowed", consumer_flow_limit: 10}
  - {match: "*.fair.>", priority: fair}
  - {match: "*.groups.>", message_groups: sticky}
  - {match: "*.groups.moving", group_rebalance: true}
  - {match: "*.groups.marked", group_first_key: JMSXGroupFirstForConsumer}
  - {match: "*.last.>", last_value_key: share, durable: true}
  - {match: "*.last.kept", last_value_position: kept, durable: false}
  - {match: "*.last.read", non_destructive: true}
  - {match: "*.stream.>", kind: stream}
  - {match: "*.later.>", redelivery_delay: 800ms}
  - {match: "*.later.recover", max_delivery_count: 3, dead_letter_address: p.again.dead}
  - match: "*.later.failing"
    redelivery_multiplier: 2
    max_delivery_count: 3
    dead_letter_address: p.again.dead
"""


@pytest.mark.parametrize("feature", FEATURES)
def test_qpid_jms(clients: Clients, start_broker: StartBroker, feature: str) -> None:
    program = clients.built(BY_NAME["qpid-jms"])
    broker = start_broker(policies=POLICIES + in_one_cell("p.later.>", "p.again.dead"))
    env = programs.environment(broker.url, "")
    ran = programs.ran(programs.start(program, env, "features", "p", feature), 60)
    assert [line["result"] for line in ran.lines] == ["pass"], (ran.lines, ran.stderr[-3000:])
