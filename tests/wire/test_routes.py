"""Routes to a second broker of our own: at least once, with credit respected, over kills of either end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench import contenders
from broker.cli import main
from broker.client.link import Connection
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, credit_comes, number_of, numbers_of, queue_of
from tests.wire.test_bridges_wire import body, receive, send, text_of

pytestmark = [pytest.mark.flow, pytest.mark.wire]

DURABLE_POLICIES = "policies:\n  - {match: '#', durable: true}\n"
SECRET = "tr0ub4dor"

Entity = dict[str, object]
Show = Callable[[RunningBroker], Entity]


@pytest.fixture
def free_port() -> int:
    """A port on which a broker will listen, or listens again."""
    return contenders.free_port()


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """The first route of a broker, as `sluice stat -r` shows it."""

    def shown(broker: RunningBroker) -> Entity:
        capsys.readouterr()
        assert main.main(["stat", "-r", "--json", "-b", broker.url]) == 0
        found = json.loads(capsys.readouterr().out)["routes"]
        return dict(found[0])

    return shown


def route(port: int, **words: object) -> str:
    given = {
        "name": "hq",
        "url": f"amqp://127.0.0.1:{port}",
        "address": "orders",
        "retry_max": "200 ms",
        **words,
    }
    return "routes:\n  - " + json.dumps(given) + "\n"


def start_again(start: StartBroker, old: RunningBroker, port: int) -> RunningBroker:
    """A broker on a killed one's data, and on a port."""
    config = old.config_file.read_text()
    args: Sequence[str] = [
        "--data",
        str(old.config_file.parent / "data"),
        "--listen",
        f"amqp://127.0.0.1:{port}",
    ]
    return start(config, DURABLE_POLICIES, args)


def kill(broker: RunningBroker) -> None:
    broker.process.kill()
    broker.process.wait()


def depth(broker: RunningBroker, address: str, capsys: pytest.CaptureFixture[str]) -> int:
    capsys.readouterr()
    if main.main(["stat", "-q", "-a", address, "--json", "-b", broker.url]) != 0:
        # The route hasn't made it yet.
        return 0
    found = json.loads(capsys.readouterr().out)["queues"]
    return int(found[0]["depth_msgs"]) if found else 0


def test_a_queue_goes_out_in_order_and_shows_what_went(start_broker: StartBroker, show: Show) -> None:
    there = start_broker()
    here = start_broker(route(there.port))
    wanted = [f"{i}" for i in range(300)]
    send(here, "orders", *wanted)
    assert receive(there, "orders", 300) == wanted
    wait_until(lambda: show(here)["forwarded"] == 300, 20, "300 forwarded")
    shown = show(here)
    assert (shown["state"], shown["backlog"], shown["unsettled"]) == ("up", 0, 0)
    assert shown["since"] is not None


def test_a_queue_comes_in(start_broker: StartBroker, show: Show) -> None:
    there = start_broker()
    here = start_broker(route(there.port, direction="in", local="copies"))
    send(there, "orders", *(f"{i}" for i in range(100)))
    assert receive(here, "copies", 100) == [f"{i}" for i in range(100)]
    wait_until(lambda: show(here)["forwarded"] == 100, 20, "100 forwarded")


def test_no_password_is_shown_anywhere(start_broker: StartBroker, show: Show, free_port: int) -> None:
    here = start_broker(route(free_port, url=f"amqp://guest:{SECRET}@127.0.0.1:{free_port}"))
    wait_until(lambda: show(here)["state"] == "down", 20, "the failure")
    here.wait_for_log("route 'hq' is down")
    assert SECRET not in json.dumps(show(here)) + here.log
    assert "cannot connect" in str(show(here)["lastError"])


def test_a_wrong_route_is_refused_without_showing_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text(f"routes:\n  - {{name: a, url: 'http://u:{SECRET}@h', address: x}}\n  - {{name: b}}\n")
    assert main.main(["serve", "--check", "--config", str(config)]) != 0
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert f"{config}:2:5: routes: url: expected something like amqp://user:password@host:5672" in said.err
    assert f"{config}:3:5: routes: 'url' is missing" in said.err


@pytest.mark.parametrize("killed", ["remote", "local"])
def test_no_message_is_lost_when_a_broker_is_killed(
    start_broker: StartBroker, killed: str, free_port: int
) -> None:
    there = start_broker("", DURABLE_POLICIES, ["--listen", f"amqp://127.0.0.1:{free_port}"])
    here = start_broker(route(free_port), DURABLE_POLICIES)
    wanted = [f"{i}" for i in range(3000)]
    send(here, "orders", *wanted[:2000], durable=True)
    receive_one = receive(there, "orders", 1)
    kill(there if killed == "remote" else here)
    if killed == "remote":
        there = start_again(start_broker, there, free_port)
    else:
        here = start_again(start_broker, here, 0)
    send(here, "orders", *wanted[2000:], durable=True)
    seen = set(receive_one)
    with Connection(there.url) as connection:
        receiver = connection.receiver("orders")
        while len(seen) < len(wanted):
            taken = receiver.take(1000, 10)
            assert taken, f"{len(seen)} of {len(wanted)} came"
            seen |= {text_of(each) for each in taken}
    assert seen == set(wanted)


def test_a_topics_messages_wait_for_a_broker_that_is_not_there_yet(
    start_broker: StartBroker, show: Show, free_port: int
) -> None:
    policies = "policies:\n  - {match: news, kind: topic}\n"
    here = start_broker(route(free_port, address="news", remote="news"), policies)
    send(here, "news", *(f"{i}" for i in range(20)))
    assert show(here)["backlog"] == 20
    there = start_broker("", "", ["--listen", f"amqp://127.0.0.1:{free_port}"])
    assert receive(there, "news", 20) == [f"{i}" for i in range(20)]


def test_a_limit_on_the_receiving_side_holds_messages_back(
    start_broker: StartBroker, show: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is forwarded beyond the credit of the other end; what isn't stays here."""
    there = start_broker("", "policies:\n  - {match: orders, flow_stop_count: 10, flow_resume_count: 10}\n")
    here = start_broker(route(there.port), "")
    send(here, "orders", *(f"{i}" for i in range(50)))
    wait_until(lambda: depth(there, "orders", capsys) == 10, 20, "10 messages there")
    wait_until(lambda: show(here)["unsettled"] == 0, 20, "what is not wanted to stay here")
    assert depth(there, "orders", capsys) == 10
    assert show(here)["backlog"] == 40
    got = [*receive(there, "orders", 25), *receive(there, "orders", 25)]
    assert got == [f"{i}" for i in range(50)]


def test_a_limit_on_the_sending_side_blocks_publishers(
    start_broker: StartBroker, show: Show, free_port: int
) -> None:
    policies = "policies:\n  - {match: news, kind: topic}\n"
    limits = {"flow_stop_count": 8, "flow_resume_count": 8}
    here = start_broker(route(free_port, address="news", **limits), policies)
    with Connection(here.url) as connection:
        sender = connection.sender("news")
        sent = 0
        # Up to the line credit comes, however late; beyond it none does.
        while connection.wait_until(sender.may_send, 20 if sent < 8 else 0.3):
            sender.send(body(str(sent)))
            sent += 1
        assert sent == 8
        there = start_broker("", "", ["--listen", f"amqp://127.0.0.1:{free_port}"])
        connection.wait(sender.may_send, 20)
        sender.send(body("8"))
        sender.flush(20)
    assert receive(there, "news", 9) == [f"{i}" for i in range(9)]


def test_what_the_other_end_rejects_becomes_a_dead_letter(start_broker: StartBroker, show: Show) -> None:
    there = start_broker(
        "", "policies:\n  - {match: orders, max_count: 5, when_full: reject, flow_stop_count: 5}\n"
    )
    here = start_broker(route(there.port), "policies:\n  - {match: orders, dead_letter_address: dlq}\n")
    send(here, "orders", *(f"{i}" for i in range(8)))
    wait_until(lambda: show(here)["rejected"] == 3, 20, "3 rejected")
    assert receive(here, "dlq", 3) == ["5", "6", "7"]
    assert receive(there, "orders", 5) == ["0", "1", "2", "3", "4"]


def test_routes_follow_the_file(start_broker: StartBroker, show: Show) -> None:
    import signal

    there = start_broker()
    here = start_broker(route(there.port))
    wait_until(lambda: show(here)["state"] == "up", 20, "the route")
    here.config_file.write_text(route(there.port, remote="others"))
    here.signal(signal.SIGHUP)
    wait_until(lambda: show(here)["remote"] == "others", 20, "the new route")
    send(here, "orders", "one")
    assert receive(there, "others", 1) == ["one"]


FAR, NEAR = 10, 8


def test_a_slow_subscriber_of_the_topic_there_holds_the_publisher_here(start_broker: StartBroker) -> None:
    """Through the route, and not one message passes either threshold; once it is gone it holds nobody."""
    stop = f"flow_stop_count: {FAR}, flow_resume_count: {FAR}"
    there = start_broker("", f"policies:\n  - {{match: news, kind: topic, {stop}}}\n")
    limits = {"flow_stop_count": NEAR, "flow_resume_count": NEAR}
    here = start_broker(
        route(there.port, address="news", remote_kind="topic", **limits),
        "policies:\n  - {match: news, kind: topic}\n",
    )
    with Connection(there.url) as slow, Connection(here.url) as source:
        receiver, sender = slow.receiver("news", credit=2), source.sender("news")

        def publish_until_held() -> int:
            before = sender.sent
            while sender.sent - before < 100 and credit_comes(here, source, sender):
                sender.send(body(str(sender.sent)))
            sender.flush(20)
            return int(sender.sent) - before

        assert publish_until_held() == FAR + NEAR
        near = next(name for name in numbers_of(here, "depth_msgs", "subscription"))
        far = next(name for name in numbers_of(there, "depth_msgs", "subscription"))
        assert queue_of(here, "news", "topic")["flowStopped"] is True
        assert queue_of(there, "news", "topic")["flowStopped"] is True
        got: list[str] = []
        while len(got) < 6:
            got += [text_of(each) for each in receiver.take(2, timeout_s=20)]
            slow.pump()
        # What it was sent and hasn't settled is still part of its backlog.
        assert source.wait_until(sender.may_send, 20), "it caught up a little: so many may be sent"
        assert publish_until_held() == 6
        for broker, name, most in ((here, near, NEAR), (there, far, FAR)):
            assert number_of(broker, name, "peak_msgs", "subscription") == most
            assert number_of(broker, name, "depth_msgs", "subscription") == most
        assert got == [f"{i}" for i in range(6)]
        slow.close()
        for _ in range(300):
            sender.send(body("more"), 20)
        sender.flush(20)
        assert sender.accepted == FAR + NEAR + 6 + 300
        await_number(here, near, "depth_msgs", 0, "subscription")
    assert number_of(here, near, "peak_msgs", "subscription") == NEAR
