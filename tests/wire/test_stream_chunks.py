"""Chunks of a stream: many messages in one delivery, for readers that read fast."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from proton import Described, Message, Timeout, symbol, ulong
from proton.reactor import AtLeastOnce, AtMostOnce, Filter
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number

pytestmark = pytest.mark.wire

POLICIES = """\
policies:
  - match: "flights"
    kind: stream
    durable: true
  - match: "memory"
    kind: stream
"""
SPEC, CHUNK = symbol("rabbitmq:stream-offset-spec"), symbol("sluice:stream-chunk-spec")
OFFSET, COUNT = symbol("x-opt-sluice-offset"), symbol("x-opt-sluice-chunk")
SELECTOR = symbol("apache.org:selector-filter:string")
STREAMS = ("flights", "memory")

_numbers = count(1)


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=30)
    try:
        yield made
    finally:
        made.close()


def write(connection: BlockingConnection, stream: str, first: int, msgs: int, size: int = 100) -> None:
    sender = connection.create_sender(stream)
    for number in range(first, first + msgs):
        sender.send(Message(f"{number:0{size}}", durable=True))
    sender.close()  # type: ignore[no-untyped-call]


def reader(
    connection: BlockingConnection,
    stream: str,
    offset: Any,
    chunk: Any,
    credit: int = 1,
    mode: type[AtMostOnce | AtLeastOnce] = AtMostOnce,
    **more: Any,
) -> BlockingReceiver:
    filters: dict[symbol, Any] = {SPEC: Described(SPEC, offset), CHUNK: Described(CHUNK, chunk)}
    filters |= {symbol(key): Described(SELECTOR, value) for key, value in more.items()}
    name = f"reader{next(_numbers)}"
    options: list[Any] = [Filter(filters), mode()]
    return connection.create_receiver(stream, credit=credit, name=name, options=options)


def applied(receiver: BlockingReceiver) -> list[str]:
    data = receiver.link.remote_source.filter
    data.rewind()
    return sorted(map(str, data.get_dict())) if data.next() else []


def body_of(message: Message) -> bytes:
    assert isinstance(message.body, (bytes, memoryview))
    return bytes(message.body)


def came(receiver: BlockingReceiver) -> int:
    """How many deliveries have come that nobody has taken."""
    assert receiver.fetcher is not None
    return len(receiver.fetcher.incoming)


def unpacked(message: Message) -> list[tuple[int, str]]:
    """The messages of a chunk, each with its offset; what is said twice is compared."""
    data = body_of(message)
    [msgs] = struct.unpack_from(">I", data)
    assert message.annotations is not None
    assert message.annotations[COUNT] == msgs
    at, found = 4 + 4 * msgs, []
    for number, size in enumerate(struct.unpack_from(f">{msgs}I", data, 4)):
        each = Message()
        each.decode(data[at : at + size])
        assert each.annotations is not None
        assert each.annotations[OFFSET] == message.annotations[OFFSET] + number
        found.append((int(each.annotations[OFFSET]), str(each.body)))
        at += size
    assert at == len(data)
    return found


def read_to(receiver: BlockingReceiver, end: int, most: int) -> list[tuple[int, str]]:
    """What comes up to an offset, in chunks of so many bytes at most, asked for one by one."""
    found: list[tuple[int, str]] = []
    while not found or found[-1][0] < end - 1:
        message = receiver.receive(timeout=30)
        here = unpacked(message)
        assert len(body_of(message)) <= most + 4 + 4 * len(here)
        found += here
    return found


def nothing_comes(receiver: BlockingReceiver) -> bool:
    try:
        receiver.receive(timeout=0.3)
    except Timeout:
        return True
    return False


@pytest.mark.parametrize("stream", STREAMS)
def test_chunks_have_each_message_once_and_in_order(start_broker: StartBroker, stream: str) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, stream, 0, 500)
        found = read_to(reader(client, stream, "first", [4096, ulong(500)]), 500, 4096)
        assert found == [(number, f"{number:0100}") for number in range(500)]
        # One begins anywhere, and what comes later comes in chunks too.
        receiver = reader(client, stream, ulong(490), 4096)
        assert [offset for offset, _ in read_to(receiver, 500, 4096)] == list(range(490, 500))
        assert nothing_comes(receiver)
        write(client, stream, 500, 3)
        assert [offset for offset, _ in read_to(receiver, 503, 4096)] == [500, 501, 502]


def test_nothing_comes_from_the_end_on_that_was_asked_for_and_a_drain_is_answered(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 50)
        receiver = reader(client, "flights", ulong(10), [1 << 20, ulong(20)], credit=5)
        assert [offset for offset, _ in unpacked(receiver.receive(timeout=30))] == list(range(10, 20))
        assert nothing_comes(receiver)
        # The broker gives back what credit is left though there is more in the stream.
        receiver.link.drain(0)
        client.wait(lambda: receiver.link.credit == 0, timeout=30)


def test_credit_counts_chunks_and_no_more_come_than_it_says(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 300)
        receiver = reader(client, "flights", "first", 4096, credit=0)
        receiver.flow(2)
        client.wait(lambda: came(receiver) == 2, timeout=30)
        assert nothing_comes(reader(client, "flights", "next", 4096))
        assert came(receiver) == 2


def test_a_message_that_is_larger_than_a_chunk_comes_alone(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 3, 10_000)
        receiver = reader(client, "flights", "first", 4096)
        for number in range(3):
            assert unpacked(receiver.receive(timeout=30)) == [(number, f"{number:010000}")]


def test_chunks_go_on_over_what_is_on_disk_alone_and_over_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 3000, 1500)
        await_number(broker, "flights", "stream_msgs", 3000)
        receiver = reader(client, "flights", "first", [1 << 16, ulong(3000)])
        assert [offset for offset, _ in read_to(receiver, 3000, 1 << 16)] == list(range(3000))
    broker.signal(signal.SIGKILL)
    broker.process.wait(20)
    broker.stop()
    again = start_broker("", POLICIES, ("--data", str(broker.config_file.parent / "data")))
    with connected(again) as client:
        receiver = reader(client, "flights", ulong(100), [1 << 20, ulong(3000)])
        assert [offset for offset, _ in read_to(receiver, 3000, 1 << 20)] == list(range(100, 3000))


def test_a_receiver_that_settles_itself_gets_chunks_too(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 200)
        receiver = reader(client, "flights", "first", 4096, credit=1, mode=AtLeastOnce)
        found: list[int] = []
        while len(found) < 200:
            found += [offset for offset, _ in unpacked(receiver.receive(timeout=30))]
            receiver.accept()
        assert found == list(range(200))


def test_it_is_not_applied_beside_a_selector_a_name_or_at_a_queue(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 3)
        chosen = reader(client, "flights", "first", 4096, selector="JMSPriority >= 0")
        assert applied(chosen) == ["rabbitmq:stream-offset-spec", "selector"]
        assert str(chosen.receive(timeout=30).body) == f"{0:0100}"
        named = reader(client, "flights::billing", "first", 4096)
        assert applied(named) == ["rabbitmq:stream-offset-spec"]
        assert str(named.receive(timeout=30).body) == f"{0:0100}"
        assert applied(reader(client, "queue", "first", 4096)) == []
        plain = reader(client, "flights", "first", 4096)
        assert applied(plain) == ["rabbitmq:stream-offset-spec", "sluice:stream-chunk-spec"]


@pytest.mark.parametrize("value", [0, -1, "much", [], [4096, ulong(9), 1], [True]])
def test_a_size_that_is_none_is_refused(start_broker: StartBroker, value: Any) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        write(client, "flights", 0, 1)
        with pytest.raises(LinkDetached, match="stream-chunk-spec' has to be a number of bytes"):
            reader(client, "flights", "first", value)
