"""Transacted sessions of Qpid JMS, what rolls back and why, recover and redelivery policies."""

from __future__ import annotations

import re

import pytest

from broker.server.cells.directory import heaviest
from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME, Ran
from tests.wire.conftest import RunningBroker, StartBroker, cells_for, in_one_cell

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

SOURCE = programs.HERE / "jms/src/main/java/sluice/clients/jms/Jms.java"
FEATURES = re.findall(r'"(transacted-[a-z-]+)"', SOURCE.read_text())
LIMITED = {f"transacted-{name}" for name in ("full", "too-large", "too-many", "timeout", "idle")}
POLICIES = """policies:
  - {match: "*.news.>", kind: topic}
  - {match: "*.small.*", flow_stop_count: 10, flow_resume_count: 5}
  - {match: "*.tx.failing", max_delivery_count: 3, dead_letter_address: p.tx.dead}
  - {match: "*.tx.>", durable: true}
"""
# Where there are several cells: of these features all nodes are in one.
NEAR = {f"transacted-{name}" for name in ("several", "relay", "dead-letter", "redelivery-policy")}
LIMITS = """limits:
  max_transactions: 20
  max_transaction_size: 1 MB
  transaction_timeout: 4s
"""


@pytest.mark.parametrize("feature", FEATURES)
def test_qpid_jms(clients: Clients, start_broker: StartBroker, feature: str) -> None:
    if feature == "transacted-temporary" and cells_for("", ()) > 1:
        pytest.skip("a temporary queue is in its connection's cell, and the other queue perhaps not")
    policies = POLICIES + (in_one_cell("p.>", "DLQ") if feature in NEAR else "")
    ran = _run(clients, start_broker(LIMITS if feature in LIMITED else "", policies), feature)
    assert [line["result"] for line in ran.lines] == ["pass"], (ran.lines, ran.stderr[-3000:])


@pytest.mark.parametrize("feature", ["transacted-several", "transacted-relay"])
def test_a_session_over_several_cells_is_rolled_back(
    clients: Clients, start_broker: StartBroker, feature: str
) -> None:
    broker = start_broker(policies=POLICIES, args=("--cells", "3"))
    queues = [f"p.tx.{end}{number}" for number in (1, 2) for end in ("from", "to")]
    relayed = [f"p.tx.relay{number}" for number in range(3)]
    names = queues if feature == "transacted-several" else relayed
    assert len({heaviest(name, 3) for name in names}) > 1
    [line] = _run(clients, broker, feature).lines
    assert "JmsTransactionInDoubtException" in str(line["why"])
    assert "a transaction takes those of one cell" in str(line["why"])


def _run(clients: Clients, broker: RunningBroker, feature: str) -> Ran:
    program = clients.built(BY_NAME["qpid-jms"])
    env = programs.environment(broker.url, "")
    return programs.ran(programs.start(program, env, "features", "p", feature), 60)
