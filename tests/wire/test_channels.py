"""Channels: a topic as datagrams on the loopback, at no more than their rate."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from broker.cli import main
from broker.client.link import Connection
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of
from tests.wire.test_bridges_wire import body, text_of

pytestmark = [pytest.mark.flow, pytest.mark.wire]

TOPIC = "policies:\n  - {match: ticks, kind: topic}\n"
FREE = "policies:\n  - {match: ticks, kind: topic, flow_control: false}\n"

Show = Callable[[RunningBroker], dict[str, object]]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Who receives the datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        yield sock


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """The first channel of a broker, as `sluice stat -r` shows it."""

    def shown(broker: RunningBroker) -> dict[str, object]:
        capsys.readouterr()
        assert main.main(["stat", "-r", "--json", "-b", broker.url]) == 0
        return dict(json.loads(capsys.readouterr().out)["channels"][0])

    return shown


def channel(listener: socket.socket, **words: object) -> str:
    port = listener.getsockname()[1]
    given = {"name": "feed", "topic": "ticks", "to": f"127.0.0.1:{port}", "max_rate": "10 MB", **words}
    return "channels:\n  - " + json.dumps(given) + "\n"


def large(size: int) -> bytes:
    """A message of so many bytes in all."""
    return b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4, "big") + bytes(size - 8)


def test_every_message_is_one_datagram(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    broker = start_broker(channel(listener), TOPIC)
    wanted = [f"{i}" for i in range(200)]
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for text in wanted:
            sender.send(body(text), 20)
        sender.flush(20)
    assert [text_of(listener.recv(65_536)) for _ in wanted] == wanted
    shown = show(broker)
    assert (shown["sent"], shown["backlog"], shown["waiting"], shown["state"]) == (200, 0, 0, "open")


def test_the_rate_holds_over_the_whole_time(start_broker: StartBroker, listener: socket.socket) -> None:
    """What arrived never passes rate times time, and a burst; the clock is the receiver's."""
    rate, size = 100_000, 1000
    broker = start_broker(channel(listener, max_rate=rate), TOPIC)
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        begun = time.monotonic()
        for _ in range(100):
            sender.send(large(size), 10)
        sender.flush(10)
        took = time.monotonic() - begun
    for _ in range(100):
        assert len(listener.recv(65_536)) == size
    assert 100 * size <= rate * took + max(rate // 100, 1472) + size


def test_with_flow_control_a_settlement_waits_until_the_backlog_is_cleared(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    """The topic's thresholds play no part: all of it is taken, and none of it is settled before it is out."""
    broker = start_broker(
        channel(listener, max_rate=1000),
        "policies:\n  - {match: ticks, kind: topic, flow_stop_count: 2, flow_resume_count: 1}\n",
    )
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(10):
            sender.send(large(1000), 20)
        # It takes the channel some ten seconds: long enough to be seen.
        wait_until(lambda: connection.pump() and show(broker)["backlog"] != 0, 10, "the backlog")
        assert sender.accepted < 10
        sender.flush(60)
        assert sender.accepted == 10
    assert show(broker)["sent"] == 10


def test_without_flow_control_the_backlog_is_buffered_and_shown(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    broker = start_broker(channel(listener, max_rate=100), FREE)
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(50):
            sender.send(large(1000), 20)
        sender.flush(20)
        assert sender.accepted == 50
    shown = show(broker)
    assert shown["flow_control"] is False
    assert int(str(shown["backlog"])) >= 40
    assert shown["waiting"] == 0


def test_what_fits_no_datagram_is_counted_and_nothing_waits_for_it(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    broker = start_broker(channel(listener, max_rate="100 MB"), TOPIC)
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for size in (65_507, 65_508, 3_000_000, 100):
            sender.send(large(size), 20)
        sender.flush(10)
        assert sender.accepted == 4
    assert [len(listener.recv(70_000)) for _ in range(2)] == [65_507, 100]
    assert show(broker)["too_large"] == 2


def test_a_producer_that_goes_away_leaves_nothing_behind(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    # Forty seconds for all of them: nobody waits any more long before that.
    broker = start_broker(channel(listener, max_rate=500), TOPIC)
    connection = Connection(broker.url)
    sender = connection.sender("ticks")
    for _ in range(20):
        sender.send(large(1000), 20)
    wait_until(lambda: connection.pump() and int(str(show(broker)["waiting"])) > 5, 15, "held settlements")
    connection.close()
    wait_until(lambda: show(broker)["waiting"] == 0, 15, "nobody to wait")
    with Connection(broker.url) as other:
        second = other.sender("ticks")
        second.send(large(100), 20)


def test_a_deleted_topic_comes_back_with_its_channel(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    broker = start_broker(channel(listener), TOPIC)
    assert main.main(["config", "del", "topic", "ticks", "-b", broker.url]) == 0
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        sender.send(body("again"), 20)
        sender.flush(20)
    assert text_of(listener.recv(65_536)) == "again"
    assert show(broker)["sent"] == 1


def test_a_multicast_group_on_the_loopback(start_broker: StartBroker, listener: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as group:
        group.bind(("", 0))
        port = group.getsockname()[1]
        joined = socket.inet_aton("239.7.7.7") + socket.inet_aton("127.0.0.1")
        try:
            group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        except OSError as fault:
            pytest.skip(f"no multicast on the loopback here: {fault}")
        group.settimeout(10)
        broker = start_broker(channel(listener, to=f"239.7.7.7:{port}", interface="127.0.0.1", ttl=0), TOPIC)
        with Connection(broker.url) as connection:
            sender = connection.sender("ticks")
            sender.send(body("all"), 20)
            sender.flush(20)
        assert text_of(group.recv(65_536)) == "all"


def switch(broker: RunningBroker, policies: str) -> None:
    """Have the broker take other policies from its file."""
    before = broker.log.count("settings and policies reloaded")
    broker.policy_file.write_text(policies)
    broker.signal(signal.SIGHUP)
    wait_until(lambda: broker.log.count("settings and policies reloaded") > before, 30, "the new policies")


def test_with_flow_control_nothing_is_dropped_however_small_the_topic_s_limit(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    """Its producers' windows bound the backlog: each message that is accepted was sent."""
    limited = "policies:\n  - {match: ticks, kind: topic, max_count: 20, max_size: 20KB}\n"
    broker = start_broker(channel(listener, max_rate=200_000), limited)
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(200):
            sender.send(large(1000), 20)
        sender.flush(30)
        assert sender.accepted == 200
    assert [len(listener.recv(65_536)) for _ in range(200)] == [1000] * 200
    assert show(broker)["sent"] == 200
    assert number_of(broker, "ticks/channel.feed", "dropped", "subscription") == 0


@pytest.mark.parametrize("overflow", ["", ", overflow: reject"])
def test_without_flow_control_or_settled_by_the_sender_the_newest_are_dropped_at_the_topic_s_limit(
    start_broker: StartBroker, listener: socket.socket, show: Show, overflow: str
) -> None:
    limits = f"max_count: 20{overflow}"
    broker = start_broker(
        channel(listener, max_rate=1),
        f"policies:\n  - {{match: ticks, kind: topic, flow_control: false, {limits}}}\n",
    )
    name = "ticks/channel.feed"
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(50):
            sender.send(large(1000), 20)
        sender.flush(20)
        assert sender.accepted == 50
        dropped = number_of(broker, name, "dropped", "subscription")
        # One left before the limit was reached.
        kept = number_of(broker, name, "depth_msgs", "subscription")
        assert (kept, dropped) in ((19, 30), (20, 29))
        switch(broker, f"policies:\n  - {{match: ticks, kind: topic, {limits}}}\n")
        settled = connection.sender("ticks", presettled=True)
        for _ in range(50):
            settled.send(large(1000), 20)
        settled.flush(20)
        await_number(broker, name, "dropped", dropped + 30 + kept, "subscription")
        assert number_of(broker, name, "depth_msgs", "subscription") == 20


def test_a_topic_s_own_switch_is_heeded_at_once_in_both_directions(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    """The broker's is on throughout. Off: settled at once; on: held; off again: those are let go."""
    broker = start_broker(channel(listener, max_rate=1), FREE)
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(10):
            sender.send(large(1000), 20)
        sender.flush(20)
        assert sender.accepted == 10
        switch(broker, TOPIC)
        for _ in range(10):
            sender.send(large(1000), 20)
        wait_until(lambda: connection.pump() and show(broker)["waiting"] == 10, 20, "held settlements")
        assert sender.accepted == 10
        switch(broker, FREE)
        sender.flush(20)
        assert sender.accepted == 20
        assert show(broker)["waiting"] == 0
        for _ in range(10):
            sender.send(large(1000), 20)
        sender.flush(20)
        assert sender.accepted == 30


def test_the_broker_s_switch_lets_go_what_a_channel_held_back(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    config = channel(listener, max_rate=1)
    broker = start_broker(config, TOPIC.replace("topic}", "topic, flow_control: true}"))
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(10):
            sender.send(large(1000), 20)
        wait_until(
            lambda: connection.pump() and int(str(show(broker)["waiting"])) >= 9, 20, "held settlements"
        )
        broker.config_file.write_text(config + "flow: {flow_control: false}\n")
        switch(broker, broker.policy_file.read_text())
        sender.flush(20)
        assert sender.accepted == 10


def test_a_channel_receives_where_flow_control_needs_somebody_who_does(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    broker = start_broker(
        channel(listener, max_rate=1), TOPIC.replace("topic}", "topic, enforce_flow: with_active_consumers}")
    )
    with Connection(broker.url) as connection:
        sender = connection.sender("ticks")
        for _ in range(10):
            sender.send(large(1000), 20)
        wait_until(
            lambda: connection.pump() and int(str(show(broker)["waiting"])) >= 9, 20, "held settlements"
        )
        assert sender.accepted <= 1


def test_what_was_parked_first_is_settled_when_it_is_sent_as_well(
    start_broker: StartBroker, listener: socket.socket, show: Show
) -> None:
    """A subscriber's threshold keeps it out; once it is let in, its sender waits for the channel."""
    policies = TOPIC.replace("topic}", "topic, flow_stop_count: 2, when_full: {reject_after: 60s}}")
    broker = start_broker(channel(listener, max_rate=1000), policies)
    with Connection(broker.url) as reading, Connection(broker.url) as connection:
        receiver, sender = reading.receiver("ticks", credit=10), connection.sender("ticks")
        for _ in range(8):
            sender.send(large(1000), 20)
        connection.pump()
        got = 0
        while got < 8:
            got += len(receiver.take(10, timeout_s=20))
            reading.pump()
        connection.pump()
        accepted = sender.accepted
        assert accepted <= int(str(show(broker)["sent"])) < 8
        sender.flush(60)
        assert sender.accepted == 8
    assert show(broker)["sent"] == 8
