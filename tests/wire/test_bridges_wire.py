"""Bridges of a running broker: defined by file, command line and management, kept over a kill."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from broker.cli import main
from broker.client.link import Connection
from tests.wire.conftest import RunningBroker, StartBroker, wait_until

pytestmark = [pytest.mark.flow, pytest.mark.wire]

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"


def body(text: str, durable: bool = False) -> bytes:
    raw = text.encode()
    return (DURABLE if durable else b"") + b"\x00\x53\x75\xa0" + bytes([len(raw)]) + raw


def text_of(message: bytes) -> str:
    at = message.index(b"\x00\x53\x75\xa0")
    return message[at + 5 :].decode()


def sluice(broker: RunningBroker, *words: str) -> int:
    return main.main([*words, "-b", broker.url])


def send(broker: RunningBroker, address: str, *texts: str, durable: bool = False) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for text in texts:
            sender.send(body(text, durable), 20)
        sender.flush(20)


def receive(broker: RunningBroker, address: str, count: int) -> list[str]:
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address, limit=count)
        got: list[bytes] = []
        while len(got) < count:
            taken = receiver.take(count, 20)
            assert taken, f"{len(got)} of {count} messages came"
            got += taken
        return [text_of(each) for each in got]


def bridges(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert sluice(broker, "stat", "-r", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    return {str(each["name"]): each for each in found["bridges"]}


def test_a_bridge_of_the_command_line(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert sluice(broker, "config", "add", "bridge", "orders", "audit", "--selector", "JMSPriority >= 0") == 0
    assert "created bridge orders->audit" in capsys.readouterr().out
    send(broker, "orders", "one", "two")
    assert receive(broker, "orders", 2) == receive(broker, "audit", 2) == ["one", "two"]
    shown = bridges(broker, capsys)["orders->audit"]
    assert (shown["state"], shown["copied"], shown["crosses"]) == ("open", 2, True)
    assert sluice(broker, "config", "add", "bridge", "audit", "orders") == 1
    assert "would close a cycle: audit -> orders -> audit" in capsys.readouterr().err
    assert sluice(broker, "config", "add", "bridge", "orders", "other", "--selector", "=") == 1
    assert "the selector is none" in capsys.readouterr().err
    assert sluice(broker, "config", "del", "bridge", "orders", "audit") == 0
    send(broker, "orders", "three")
    assert bridges(broker, capsys) == {}
    assert sluice(broker, "config", "del", "bridge", "orders", "audit") == 1


def test_a_bridge_of_the_file_comes_and_goes_with_it(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker("bridges:\n  - {from: orders, to: audit}\n")
    send(broker, "orders", "one")
    assert receive(broker, "audit", 1) == ["one"]
    broker.config_file.write_text("bridges:\n  - {from: orders, to: copies}\n")
    broker.signal(signal.SIGHUP)
    wait_until(lambda: list(bridges(broker, capsys)) == ["orders->copies"], 10, "the new bridge")
    send(broker, "orders", "two")
    assert receive(broker, "copies", 1) == ["two"]


def test_a_durable_bridge_and_its_copies_survive_a_kill(
    start_broker: StartBroker, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = "policies:\n  - {match: '#', durable: true}\n"
    broker = start_broker("", policies)
    assert sluice(broker, "config", "add", "bridge", "orders", "audit") == 0
    send(broker, "orders", *(f"{i}" for i in range(50)), durable=True)
    broker.process.kill()
    broker.process.wait()
    again = start_broker("", policies, ["--data", str(broker.config_file.parent / "data")])
    assert bridges(again, capsys)["orders->audit"]["durable"] is True
    send(again, "orders", "last", durable=True)
    wanted = [f"{i}" for i in range(50)] + ["last"]
    assert receive(again, "orders", 51) == receive(again, "audit", 51) == wanted


def blocked(check: Callable[[], bool]) -> None:
    wait_until(check, 15, "the credit")


def test_credit_is_the_least_room_of_both_ends(start_broker: StartBroker) -> None:
    broker = start_broker(
        "bridges:\n  - {from: orders, to: audit}\n",
        "policies:\n  - {match: audit, flow_stop_count: 10, flow_resume_count: 10}\n",
    )
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        for _ in range(10):
            sender.send(body("x"), 10)
        assert not connection.wait_until(sender.may_send, 0.3)
        receive(broker, "audit", 4)
        for _ in range(4):
            sender.send(body("x"), 10)
        assert not connection.wait_until(sender.may_send, 0.5)
        sender.flush(10)
        assert sender.accepted == 14


def test_a_relay_is_answered_once_the_target_has_room(start_broker: StartBroker) -> None:
    """Credit can't know the destination: the settlement waits instead (FLOW §2 rule 6)."""
    broker = start_broker(
        "bridges:\n  - {from: orders, to: audit}\n",
        "policies:\n  - {match: audit, flow_stop_count: 3, flow_resume_count: 3}\n",
    )
    to_orders = b"\x00\x53\x73\xc0\x0b\x03\x40\x40\xa1\x06orders"
    with Connection(broker.url) as connection:
        relay = connection.sender(None)
        for _ in range(5):
            relay.send(to_orders + body("x"), 20)
        connection.wait(lambda: relay.accepted == 3, 10)
        assert not connection.wait_until(lambda: relay.accepted > 3, 0.2)
        receive(broker, "audit", 2)
        connection.wait(lambda: relay.accepted == 5, 10)
