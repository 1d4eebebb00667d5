"""Operators' gates (FLOW §2 rule 11): by node, pattern and all, over restarts, and shown as the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import codec
from broker.client.errors import ClientTimeoutError
from broker.client.link import Connection
from tests.crash.conftest import Broker
from tests.wire.conftest import wait_until

pytestmark = [pytest.mark.wire, pytest.mark.flow]

BODY = codec.text_body("hello")
POLICIES = "policies:\n  - {match: 'news.>', kind: topic}\n"


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Broker]:
    """A running broker that can be started again on its data."""
    broker = Broker(tmp_path / "broker", POLICIES, "events: {sample_interval: 100ms}\n")
    broker.start()
    yield broker
    assert broker.process is not None
    if broker.process.poll() is None:
        broker.stop()
    assert "Traceback" not in broker.read_log()


def sluice(broker: Broker, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"SLUICE_BROKER": f"amqp://127.0.0.1:{broker.port}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(broker: Broker, *words: str) -> Any:
    return json.loads(sluice(broker, *words, "--json"))


def is_held(broker: Broker, address: str) -> bool:
    """Whether a producer that attaches now gets no credit for a while; one message else."""
    with Connection(f"amqp://127.0.0.1:{broker.port}") as connection:
        sender = connection.sender(address)
        try:
            sender.send(BODY, 0.5)
            sender.flush(10)
        except ClientTimeoutError:
            return True
    return False


def killed(broker: Broker) -> None:
    broker.kill()
    broker.start()


def restarted(broker: Broker) -> None:
    assert broker.stop() == 0
    broker.start()


def test_one_node_a_pattern_or_all(gated: Broker) -> None:
    sluice(gated, "producers", "stop", "orders.eu")
    assert [is_held(gated, each) for each in ("orders.eu", "orders.us")] == [True, False]
    assert sluice(gated, "producers", "stop", "orders.>") == "producers stopped: orders.eu, orders.us\n"
    assert [is_held(gated, each) for each in ("orders.eu", "orders.us", "stock")] == [True, True, False]
    sluice(gated, "producers", "stop", "--all")
    assert [is_held(gated, each) for each in ("stock", "news.eu")] == [True, True]
    sluice(gated, "producers", "start", "orders.us")
    assert [is_held(gated, each) for each in ("orders.us", "orders.eu", "stock")] == [False, True, True]
    sluice(gated, "producers", "start", "--all")
    assert [is_held(gated, each) for each in ("orders.eu", "stock", "news.eu")] == [False] * 3


def test_a_producer_that_has_credit_loses_it_and_gets_it_back(gated: Broker) -> None:
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        sender = connection.sender("orders")
        sender.send(BODY, 10)
        sender.flush(10)
        sluice(gated, "producers", "stop", "orders")
        connection.wait(lambda: sender.credit == 0, 10)
        sluice(gated, "producers", "start", "orders")
        connection.wait(lambda: sender.credit > 0, 10)


@pytest.mark.parametrize("again", [restarted, killed])
def test_a_stop_survives_and_so_does_its_end(gated: Broker, again: Callable[[Broker], None]) -> None:
    sluice(gated, "producers", "stop", "orders.>")
    sluice(gated, "producers", "start", "orders.us")
    again(gated)
    # None of the nodes was there when it was stopped, nor survived: they are made by who attaches.
    assert [is_held(gated, each) for each in ("orders.eu", "orders.us", "stock")] == [True, False, False]
    assert asked(gated, "explain", "orders.fr")["held_by"] == "orders.>"
    sluice(gated, "producers", "start", "orders.>")
    again(gated)
    assert not is_held(gated, "orders.eu")


def test_a_durable_node_is_held_from_the_first_instant(gated: Broker) -> None:
    sluice(gated, "config", "add", "queue", "orders", "--durable")
    sluice(gated, "producers", "stop", "orders")
    killed(gated)
    assert is_held(gated, "orders")
    sluice(gated, "config", "del", "queue", "orders")
    sluice(gated, "config", "add", "queue", "orders")
    assert is_held(gated, "orders")


def test_it_stands_above_a_threshold_that_opens(gated: Broker) -> None:
    words = ("--flow-stop-count", "2", "--flow-resume-count", "1")
    sluice(gated, "config", "add", "queue", "orders", *words)
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        sender = connection.sender("orders")
        for _ in range(2):
            sender.send(BODY, 10)
        sender.flush(10)
        sluice(gated, "producers", "stop", "orders")
        receiver = connection.receiver("orders", credit=2)
        assert len(receiver.take(2, 10)) > 0
        wait_until(lambda: is_held(gated, "orders"), 10, "an operator's gate")
        [why] = asked(gated, "why", sender.address or "")[:1]
        assert why["cause"] == "operator"


def test_the_operator_is_the_reason_everywhere(gated: Broker) -> None:
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        sender = connection.sender("orders.eu")
        sender.send(BODY, 10)
        sender.flush(10)
        sluice(gated, "producers", "stop", "orders.>")
        connection.wait(lambda: sender.credit == 0, 10)
        why = asked(gated, "why", "orders.eu")
        assert [each["cause"] for each in why] == ["operator"]
        assert "an operator" in why[0]["sentence"]
        assert "orders.>" in why[0]["sentence"]
        [row] = asked(gated, "stat", "-f")["flow"]
        assert (row["flowStopped"], row["flowStoppedBy"]) == (True, "operator")
        series = _get(gated, "/metrics").decode()
        assert 'sluice_queue_held_by_operator{queue="orders.eu"} 1.0' in series
        assert 'sluice_queue_flow_stopped{queue="orders.eu"} 1.0' in series
    events = [json.loads(line) for line in (gated.data / "events.jsonl").read_text().splitlines()]
    stopped = next(event for event in events if event["event"] == "stopped")
    assert (stopped["node"], stopped["reason"], stopped["held_by"]) == ("orders.eu", "operator", "orders.>")
    told = next(event for event in events if event["event"] == "operator")
    assert (told["action"], told["target"], told["nodes"]) == ("stop", "orders.>", 1)
    shown = json.loads(_get(gated, "/api/v1/events?samples=false"))
    assert stopped in shown


def _get(broker: Broker, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}{path}", timeout=10) as response:
        found: bytes = response.read()
    return found
