"""Transacted sessions of Qpid JMS, what rolls back and why, recover and redelivery policies."""

from __future__ import annotations

import re

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME
from tests.wire.conftest import StartBroker

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
LIMITS = """limits:
  max_transactions: 20
  max_transaction_size: 1 MB
  transaction_timeout: 4s
"""


@pytest.mark.parametrize("feature", FEATURES)
def test_qpid_jms(clients: Clients, start_broker: StartBroker, feature: str) -> None:
    program = clients.built(BY_NAME["qpid-jms"])
    broker = start_broker(LIMITS if feature in LIMITED else "", POLICIES)
    env = programs.environment(broker.url, "")
    ran = programs.ran(programs.start(program, env, "features", "p", feature), 60)
    assert [line["result"] for line in ran.lines] == ["pass"], (ran.lines, ran.stderr[-3000:])
