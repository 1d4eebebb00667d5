"""Operators' gates (FLOW §2 rule 11): by node, pattern and all, over restarts, and shown as the reason."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from tests.crash.conftest import Broker
from tests.wire.conftest import START_SECONDS, wait_until
from tests.wire.forked import run_sluice

pytestmark = [pytest.mark.wire, pytest.mark.flow]

BODY = sections.text_body("hello")
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
    done = run_sluice(*words, env={"SLUICE_BROKER": f"amqp://127.0.0.1:{broker.port}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(broker: Broker, *words: str) -> Any:
    return json.loads(sluice(broker, *words, "--json"))


def producers(broker: Broker, action: str, target: str = ">") -> list[str]:
    """Stop or start them; the nodes there are that it concerns."""
    with Management(f"amqp://127.0.0.1:{broker.port}") as management:
        body = management.call(f"{action}-producers", type="org.sluice.broker", body={"target": target}).body
    assert isinstance(body, dict)
    found: list[str] = body["nodes"]
    return found


def held(broker: Broker, *addresses: str) -> None:
    """Producers that attach now get no credit: for a while at least, and the broker knows why."""
    with Connection(f"amqp://127.0.0.1:{broker.port}") as connection:
        senders = [connection.sender(each) for each in addresses]
        assert not connection.wait_until(lambda: any(sender.credit for sender in senders), 0.2)
        with Management(f"amqp://127.0.0.1:{broker.port}") as management:
            for address in addresses:
                body = management.call("why", type="org.sluice.broker", body={"address": address}).body
                assert isinstance(body, dict)
                assert [each["cause"] for each in body["answers"]] == ["operator"]


def free(broker: Broker, *addresses: str) -> None:
    """A producer that attaches now gets rid of a message."""
    with Connection(f"amqp://127.0.0.1:{broker.port}") as connection:
        for address in addresses:
            sender = connection.sender(address)
            sender.send(BODY, 10)
            sender.flush(10)


def killed(broker: Broker) -> None:
    broker.kill()
    broker.start()


def restarted(broker: Broker) -> None:
    assert broker.stop() == 0
    broker.start()


def test_one_node_a_pattern_or_all(gated: Broker) -> None:
    producers(gated, "stop", "orders.eu")
    held(gated, "orders.eu")
    free(gated, "orders.us", "stock")
    assert producers(gated, "stop", "orders.>") == ["orders.eu", "orders.us"]
    held(gated, "orders.eu", "orders.us")
    free(gated, "stock")
    producers(gated, "stop")
    held(gated, "stock", "news.eu")
    producers(gated, "start", "orders.us")
    free(gated, "orders.us")
    held(gated, "orders.eu", "stock", "news.eu")
    producers(gated, "start")
    free(gated, "orders.eu", "stock", "news.eu")


def test_a_producer_that_has_credit_loses_it_and_gets_it_back(gated: Broker) -> None:
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        sender = connection.sender("orders")
        sender.send(BODY, 10)
        sender.flush(10)
        producers(gated, "stop", "orders")
        connection.wait(lambda: sender.credit == 0, 10)
        producers(gated, "start", "orders")
        connection.wait(lambda: sender.credit > 0, 10)


@pytest.mark.parametrize("again", [restarted, killed])
def test_a_stop_survives_and_so_does_its_end(gated: Broker, again: Callable[[Broker], None]) -> None:
    producers(gated, "stop", "orders.>")
    producers(gated, "start", "orders.us")
    again(gated)
    # None of the nodes was there when it was stopped, nor survived: they are made by who attaches.
    held(gated, "orders.eu")
    free(gated, "orders.us", "stock")
    assert asked(gated, "explain", "orders.fr")["held_by"] == "orders.>"
    producers(gated, "start", "orders.>")
    again(gated)
    free(gated, "orders.eu")


@pytest.mark.parametrize("again", [None, restarted, killed])
def test_consumers_go_on_while_producers_are_stopped(
    gated: Broker, again: Callable[[Broker], None] | None
) -> None:
    sluice(gated, "config", "add", "queue", "orders", "--durable")
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        sender = connection.sender("orders")
        for _ in range(10):
            sender.send(sections.header(durable=True) + BODY, 10)
        sender.flush(10)
    sluice(gated, "producers", "stop", "--all")
    if again is not None:
        again(gated)
    held(gated, "orders")
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        assert len(connection.receiver("orders", credit=10).take(10, timeout_s=20)) == 10
    sluice(gated, "producers", "start", "--all")
    free(gated, "orders")


def test_a_durable_node_is_held_from_the_first_instant(gated: Broker) -> None:
    sluice(gated, "config", "add", "queue", "orders", "--durable")
    producers(gated, "stop", "orders")
    killed(gated)
    held(gated, "orders")
    wait_until(lambda: _since_start(gated)[:1] == ["stopped"], 10, "the gate that was shut from the start")
    sluice(gated, "config", "del", "queue", "orders")
    held(gated, "orders")


def test_it_stands_above_a_threshold_that_opens(gated: Broker) -> None:
    words = ("--flow-stop-count", "2", "--flow-resume-count", "1")
    sluice(gated, "config", "add", "queue", "orders", *words)
    free(gated, "orders", "orders")
    producers(gated, "stop", "orders")
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        receiver = connection.receiver("orders", credit=2)
        got = 0
        while got < 2:
            got += len(receiver.take(2, 10))
    held(gated, "orders")
    producers(gated, "start", "orders")
    free(gated, "orders")


def test_the_operator_is_the_reason_everywhere(gated: Broker) -> None:
    with Connection(f"amqp://127.0.0.1:{gated.port}") as connection:
        sender = connection.sender("orders.eu")
        sender.send(BODY, 10)
        sender.flush(10)
        assert sluice(gated, "producers", "stop", "orders.>") == "producers stopped: orders.eu\n"
        connection.wait(lambda: sender.credit == 0, 10)
        why = asked(gated, "why", "orders.eu")
        assert [each["cause"] for each in why] == ["operator"]
        assert "an operator" in why[0]["sentence"]
        assert "orders.>" in why[0]["sentence"]
        [row] = asked(gated, "stat", "-f")["flow"]
        assert (row["flowStopped"], row["flowStoppedBy"]) == (True, "operator")
        series = _get(gated, "/metrics").decode()
        assert 'sluice_queue_held_by_operator{queue="orders.eu"} 1' in series
        assert 'sluice_queue_flow_stopped{queue="orders.eu"} 1' in series
    kinds = {"stopped", "operator"}
    wait_until(lambda: kinds <= {event["event"] for event in _events(gated)}, 10, "the events to be written")
    events = _events(gated)
    stopped = next(event for event in events if event["event"] == "stopped")
    assert (stopped["node"], stopped["reason"], stopped["held_by"]) == ("orders.eu", "operator", "orders.>")
    told = next(event for event in events if event["event"] == "operator")
    assert (told["action"], told["target"], told["nodes"]) == ("stop", "orders.>", 1)
    shown = json.loads(_get(gated, "/api/v1/events?samples=false"))
    assert stopped in shown


def _get(broker: Broker, path: str) -> bytes:
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    with urllib.request.urlopen(url, timeout=START_SECONDS) as response:
        found: bytes = response.read()
    return found


def _events(broker: Broker) -> list[dict[str, Any]]:
    """Those that are written; the last line may be half of one still."""
    whole, _, _ = (broker.data / "events.jsonl").read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def _since_start(broker: Broker) -> list[str]:
    """The kinds of event since the broker was started the last time."""
    kinds = [event["event"] for event in _events(broker)]
    return kinds[len(kinds) - kinds[::-1].index("started") :]
