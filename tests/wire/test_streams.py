"""Streams on the wire, with Proton's own clients: any offset, any number of readers, retention, restarts."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest
from proton import Delivery, Described, Message, symbol, timestamp, ulong
from proton.reactor import AtLeastOnce, AtMostOnce, Filter, ReceiverOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached, SendException

from broker.cli.main import main
from broker.client.request import Management
from broker.errors import OperatorError
from broker.manage.definitions import Definition
from tests.store.test_set_aside import redefine
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of, update

pytestmark = pytest.mark.wire

POLICIES = """\
policies:
  - match: "flights"
    kind: stream
    durable: true
  - match: "short"
    kind: stream
    durable: true
    max_size: 8MB
  - match: "memory"
    kind: stream
    max_count: 100
  - match: "news"
    kind: topic
    durable: true
  - match: "parted"
    kind: stream
    partitions: 2
    durable: true
"""
OFFSET = symbol("x-opt-sluice-offset")
SPEC = symbol("rabbitmq:stream-offset-spec")

_numbers = count(1)


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=30)
    try:
        yield made
    finally:
        made.close()


def starting(value: Any, described: bool = True) -> ReceiverOption:
    given: dict[symbol, Any] = {SPEC: Described(SPEC, value) if described else value}
    return Filter(given)


def reader(
    client: BlockingConnection, address: str, start: object = "first", *options: ReceiverOption
) -> BlockingReceiver:
    """A receiver of its own name that begins there; None for no word on it."""
    given: list[ReceiverOption] = [*options] if start is None else [starting(start), *options]
    return client.create_receiver(address, credit=50, name=f"reader{next(_numbers)}", options=given)


def offsets(receiver: BlockingReceiver, msgs: int) -> list[int]:
    found = []
    for _ in range(msgs):
        message = receiver.receive(timeout=30)
        assert message.annotations is not None
        found.append(int(message.annotations[OFFSET]))
        assert message.annotations[symbol("x-stream-offset")] == found[-1]
        receiver.accept()
    return found


def nothing_comes(receiver: BlockingReceiver, seconds: float = 0.3) -> bool:
    with suppress(Exception):
        receiver.receive(timeout=seconds)
        return False
    return True


def fill(client: BlockingConnection, address: str, msgs: int, size: int = 10) -> None:
    sender = client.create_sender(address)
    for number in range(msgs):
        sender.send(Message(body=f"{number}:{'.' * size}", durable=True, properties={"number": number}))
    sender.close()  # type: ignore[no-untyped-call]


def test_readers_begin_anywhere_and_take_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 20)
        later = int(time.time() * 1000) + 1
        time.sleep(0.02)
        fill(client, "flights", 5)
        waiting = [reader(client, "flights", start) for start in ("next", None)]
        found = {
            "first": offsets(reader(client, "flights", "first"), 25),
            "again": offsets(reader(client, "flights", "first"), 25),
            "last": offsets(reader(client, "flights", "last"), 1),
            "offset": offsets(reader(client, "flights", ulong(22)), 3),
            "long": offsets(reader(client, "flights", 23), 2),
            "time": offsets(reader(client, "flights", timestamp(later)), 5),
            "span": offsets(reader(client, "flights", "1h"), 25),
        }
        everything = list(range(25))
        assert found == {
            "first": everything,
            "again": everything,
            "last": [24],
            "offset": [22, 23, 24],
            "long": [23, 24],
            "time": [20, 21, 22, 23, 24],
            "span": everything,
        }
        assert all(nothing_comes(each) for each in waiting)
        fill(client, "flights", 1)
        assert [offsets(each, 1) for each in waiting] == [[25], [25]]
    await_number(broker, "flights", "stream_msgs", 26)
    assert number_of(broker, "flights", "next_offset") == 26


def test_a_bare_value_and_the_answer_that_it_is_applied(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 3)
        receiver = client.create_receiver("flights", credit=5, options=starting("first", described=False))
        assert offsets(receiver, 3) == [0, 1, 2]
        applied = receiver.link.remote_source.filter
        applied.rewind()
        applied.next()
        assert applied.get_object() == {SPEC: "first"}
        # A queue has no offsets: the answer says so.
        queue = client.create_receiver("other", credit=5, options=starting("first"))
        queue.link.remote_source.filter.rewind()
        assert queue.link.remote_source.filter.next() is None


@pytest.mark.parametrize("wrong", ["yesterday", -1, True, 1.5, ["first"]])
def test_a_start_that_makes_no_sense_is_refused(start_broker: StartBroker, wrong: object) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, pytest.raises(LinkDetached, match="first, last, next"):
        reader(client, "flights", wrong)


def test_a_selector_reads_what_it_wants(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 1000)
        wanted = Filter(
            {
                SPEC: Described(SPEC, ulong(300)),
                symbol("selector"): Described(
                    symbol("apache.org:selector-filter:string"), "number BETWEEN 700 AND 702 OR number = 5"
                ),
            }
        )
        receiver = client.create_receiver("flights", credit=10, options=wanted)
        assert offsets(receiver, 3) == [700, 701, 702]


def test_each_reader_has_its_own_credit(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 200)
        slow = client.create_receiver("flights", credit=3, name="slow", options=starting("first"))
        fast = reader(client, "flights", "first")
        assert offsets(fast, 200) == list(range(200))
        assert offsets(slow, 3) == [0, 1, 2]
        assert offsets(slow, 197) == list(range(3, 200))


def end(broker: RunningBroker, how: str) -> None:
    if how == "killed":
        broker.signal(signal.SIGKILL)
        broker.process.wait(20)
    broker.stop()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_offsets_and_messages_survive(start_broker: StartBroker, how: str) -> None:
    broker = start_broker(policies=POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    with connected(broker) as client:
        fill(client, "flights", 300)
    end(broker, how)
    for life in range(1, 4):
        again = start_broker("", POLICIES, data)
        assert number_of(again, "flights", "next_offset") == 300 * life
        with connected(again) as client:
            receiver = reader(client, "flights", "first")
            assert offsets(receiver, 300 * life) == list(range(300 * life))
            fill(client, "flights", 300)
        end(again, how)


def identities(broker: RunningBroker) -> list[int]:
    """Of a durable stream, of one in memory, and of the partitions of one, each made by its first look."""
    with connected(broker) as client:
        for name in ("flights", "memory", "parted"):
            client.create_receiver(name, credit=0).close()  # type: ignore[no-untyped-call]
    return [number_of(broker, name, "stream_id") for name in ("flights", "memory", "parted/0", "parted/1")]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_stream_stays_the_same_over_restarts_if_it_is_on_disk(start_broker: StartBroker, how: str) -> None:
    before = int(time.time() * 1000) - 1
    broker = start_broker(policies=POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    first = identities(broker)
    now = int(time.time() * 1000) + 1
    assert all(before <= each <= now for each in first), (before, first, now)
    assert len(set(first)) == 4
    with connected(broker) as client:
        fill(client, "flights", 5)
    # Settings that change are noted with it.
    update(broker, "flights", max_age="7D")
    end(broker, how)
    again = start_broker("", POLICIES, data)
    second = identities(again)
    assert (second[0], second[2:]) == (first[0], first[2:])
    assert second[1] > now, "one in memory is another stream after a restart"
    assert number_of(again, "flights", "max_age_ms") == 7 * 86_400_000
    end(again, how)
    assert identities(start_broker("", POLICIES, data))[0] == first[0]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_stream_that_is_made_anew_is_another_one(start_broker: StartBroker, how: str) -> None:
    broker = start_broker(policies=POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    first = identities(broker)
    for name, kind in (("flights", "queue"), ("memory", "queue"), ("parted", "topic")):
        with Management(broker.url) as management:
            management.call("DELETE", f"org.sluice.{kind}", name)
    second = identities(broker)
    assert min(second) > max(first)
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "declared", {"queue_type": "stream", "durable": True})
    declared = number_of(broker, "declared", "stream_id")
    assert declared > max(second)
    assert number_of(broker, "parted", "stream_id", "topic") == 0, "a topic is no stream"
    end(broker, how)
    again = start_broker("", POLICIES, data)
    third = identities(again)
    assert (third[0], third[2:]) == (second[0], second[2:])
    assert number_of(again, "declared", "stream_id") == declared


def test_a_stream_of_an_older_version_has_no_identity_and_stays(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    folder = broker.config_file.parent / "data"
    with connected(broker) as client:
        fill(client, "flights", 5)
    end(broker, "stopped")
    redefine(folder, "flights", Definition("queue").encode())
    for _ in range(2):
        again = start_broker("", POLICIES, ("--data", str(folder)))
        assert number_of(again, "flights", "stream_id") == 0
        assert number_of(again, "flights", "next_offset") == 5
        end(again, "stopped")


def test_old_messages_are_read_from_disk_and_go_by_retention(start_broker: StartBroker) -> None:
    """More than the tail in memory, several journal files and more than is kept."""
    broker = start_broker("store: {journal_file_size: 1MB}\n", POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("short")
        body = "." * 20_000
        for _ in range(200):
            sender.send(Message(body=body, durable=True))
        everything = offsets(reader(client, "short", "first"), 200)
        assert everything == list(range(200))
        for _ in range(600):
            sender.send(Message(body=body, durable=True))
        deadline = time.monotonic() + 30
        while number_of(broker, "short", "first_offset") == 0:
            assert time.monotonic() < deadline
            sender.send(Message(body=body, durable=True))
            time.sleep(0.02)
        last = int(number_of(broker, "short", "next_offset"))
        receiver = reader(client, "short", "first")
        first = offsets(receiver, 1)[0]
        assert 0 < first <= number_of(broker, "short", "first_offset")
        rest = offsets(receiver, last - first - 1)
        # Retention may have gone on meanwhile: what is left comes in order, to the end.
        assert rest == sorted(rest)
        # An offset that is gone begins with what there is.
        assert offsets(reader(client, "short", ulong(0)), 1)[0] >= first


def test_without_a_disk_a_stream_is_as_long_as_it_may_be(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "memory", 250)
        assert offsets(reader(client, "memory", "first"), 100) == list(range(150, 250))
        assert offsets(reader(client, "memory", ulong(3)), 1) == [150]


def test_a_topic_feeds_a_stream(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Management(broker.url) as management:
        client.create_sender("flights").close()  # type: ignore[no-untyped-call]
        client.create_sender("news").close()  # type: ignore[no-untyped-call]
        management.call("CREATE", "org.sluice.binding", attributes={"source": "news", "target": "flights"})
        fill(client, "news", 10)
        assert offsets(reader(client, "flights", "first"), 10) == list(range(10))


def test_what_a_stream_cannot_do_is_said(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Management(broker.url) as management:
        fill(client, "flights", 2)
        calls: dict[str, dict[str, Any]] = {
            "purge": {"name": "flights"},
            "move": {"source": "flights", "target": "other"},
        }
        for verb, arguments in calls.items():
            with pytest.raises(OperatorError, match="is a stream"):
                management.call(verb, **arguments)
        sender = client.create_sender("flights")
        most = sender.link.remote_max_message_size
        with pytest.raises((LinkDetached, SendException)):
            sender.send(Message(body=bytes(most + 1)))
    assert number_of(broker, "flights", "next_offset") == 2


TOO_LARGE = Message(body=bytes(2 << 20), durable=True)
SIZE_EXCEEDED = "amqp:link:message-size-exceeded"


def outcome(client: BlockingConnection, sender: BlockingSender, message: Message) -> tuple[int, str, str]:
    """The outcome of a message, with its condition and what that says."""
    delivery = sender.link.send(message)
    assert isinstance(delivery, Delivery)
    client.wait(lambda: delivery.remote_state != 0, timeout=30)
    condition = delivery.remote.condition
    delivery.settle()
    return (
        delivery.remote_state,
        "" if condition is None else condition.name,
        "" if condition is None else str(condition.description),
    )


@pytest.mark.parametrize(
    ("address", "stream", "by_relay"),
    [
        ("flights", "flights", True),
        ("parted", "parted/[01]", True),
        ("news", "flights", True),
        ("news", "flights", False),
    ],
)
def test_what_no_stream_can_take_is_refused_on_the_way_there(
    start_broker: StartBroker, address: str, stream: str, by_relay: bool
) -> None:
    """By an anonymous relay and through a topic: nobody gets it, and its sender hears of the limit."""
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Management(broker.url) as management:
        for each in ("flights", "news", "orders", "parted"):
            client.create_sender(each).close()  # type: ignore[no-untyped-call]
        for each in ("flights", "orders"):
            management.call("CREATE", "org.sluice.binding", attributes={"source": "news", "target": each})
        sender = client.create_sender(None if by_relay else address, options=AtLeastOnce())
        TOO_LARGE.address = address
        for _ in range(3):
            state, condition, text = outcome(client, sender, TOO_LARGE)
            assert (state, condition) == (Delivery.REJECTED, SIZE_EXCEEDED)
            assert re.search(rf"'{stream}' is a stream: its messages have at most \d+ bytes", text), text
        accepted = outcome(client, sender, Message(body="small", durable=True, address=address))
        assert accepted[0] == Delivery.ACCEPTED
        msgs = 1 if address == "news" else 0
        assert number_of(broker, "orders", "depth_msgs") == msgs
        kind = "queue" if address == "flights" else "topic"
        assert number_of(broker, address, "refused", kind) == 3
        names = ("flights", "parted/0", "parted/1")
        assert sum(number_of(broker, name, "next_offset") for name in names) == 1
        assert sum(number_of(broker, name, "dropped") for name in names) == 0


def test_a_pre_settled_message_too_large_for_a_stream_ends_its_link(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender(None, options=AtMostOnce())
        TOO_LARGE.address = "flights"
        sender.link.send(TOO_LARGE)
        with pytest.raises(LinkDetached, match=SIZE_EXCEEDED):
            client.wait(lambda: False, timeout=20)


def test_a_bridge_counts_what_its_stream_cannot_take(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Management(broker.url) as management:
        for each in ("flights", "orders"):
            client.create_sender(each).close()  # type: ignore[no-untyped-call]
        management.call("CREATE", "org.sluice.bridge", "orders->flights")
        sender = client.create_sender("orders", options=AtLeastOnce())
        assert outcome(client, sender, TOO_LARGE)[0] == Delivery.ACCEPTED
        assert outcome(client, sender, Message(body="small", durable=True))[0] == Delivery.ACCEPTED
        bridge = management.call("READ", "org.sluice.bridge", "orders->flights").body
        assert isinstance(bridge, dict)
        assert (bridge["copied"], bridge["refused"]) == (1, 1)
        assert number_of(broker, "orders", "depth_msgs") == 2


def test_a_deleted_stream_begins_anew(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    with connected(broker) as client, Management(broker.url) as management:
        fill(client, "flights", 10)
        watcher = reader(client, "flights", "next")
        management.call("DELETE", "org.sluice.queue", "flights")
        with pytest.raises(LinkDetached):
            watcher.receive(timeout=10)
    with connected(broker) as client:
        fill(client, "flights", 2)
        assert offsets(reader(client, "flights", "first"), 2) == [0, 1]
    broker.stop()
    again = start_broker("", POLICIES, data)
    with connected(again) as client:
        assert offsets(reader(client, "flights", "first"), 2) == [0, 1]


def test_a_stream_stays_one_whatever_a_policy_says(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    with connected(broker) as client:
        fill(client, "flights", 5)
    broker.stop()
    again = start_broker("", POLICIES.replace("    kind: stream\n", "", 1), data)
    assert "is stream and stays so" in again.log
    with connected(again) as client:
        assert offsets(reader(client, "flights", "first"), 5) == list(range(5))


def test_the_command_line_reads_from_any_offset(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 20, size=0)
    for start, first in (("first", 0), ("7", 7), ("last", 19), ("1h", 0)):
        words = ["receive", "flights", "-b", broker.url, "--offset", start, "--timeout", "1s"]
        assert main([*words, "--count", str(20 - first)]) == 0
        assert capsys.readouterr().out.split() == [f"{number}:" for number in range(first, 20)]
