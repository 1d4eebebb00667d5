"""A broker with a stream is killed again and again: no hole, no offset twice, nothing accepted is lost."""

from __future__ import annotations

import random
import time
from functools import partial
from itertools import count
from typing import Any

import pytest
from proton import Delivery, Described, Message, symbol, ulong

from broker.client.request import Management
from tests.crash.conftest import Broker
from tests.crash.peers import Books, Id, Peer, Producer, turn_all
from tests.crash.watching import until

CONFIG = "store: {journal_file_size: 1MB}\n"
POLICIES = "policies:\n  - {match: 's', kind: stream, durable: true}\n"
SPEC = symbol("rabbitmq:stream-offset-spec")
OFFSET = symbol("x-opt-sluice-offset")

_numbers = count(1)


class StreamReader(Peer):
    """Reads from an offset on; ``seen`` has the id at each offset, over all lives of the broker."""

    def __init__(self, books: Books, seen: dict[int, Id], start: int) -> None:
        super().__init__(books, "s")
        self.seen = seen
        self.start = self.next = start

    def attach(self, session: Any) -> Any:
        link = session.receiver(f"reader{next(_numbers)}")
        link.source.address = self.address
        link.source.filter.put_dict({SPEC: Described(SPEC, ulong(self.start))})
        link.flow(500)
        return link

    def on_delivery(self, delivery: Delivery) -> None:
        if not delivery.readable or delivery.partial:
            return
        message = Message()
        message.decode(self.link.recv(delivery.pending) or b"")
        self.link.advance()
        producer, number, _ = str(message.body).split(":")
        assert message.annotations is not None
        offset, id_ = int(message.annotations[OFFSET]), (int(producer), int(number))
        assert offset == self.next, "a hole, or an offset again"
        assert self.seen.setdefault(offset, id_) == id_, "an offset has another message than it had"
        self.next += 1
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.link.flow(1)


class NamedReader(StreamReader):
    """Reads as `s::billing`, and settles only some of what it gets; ``dealt`` is what it settled in order."""

    def __init__(self, books: Books, seen: dict[int, Id], chance: random.Random) -> None:
        super().__init__(books, seen, 0)
        self.chance = chance
        self.dealt = 0
        self.begun_at = -1

    def attach(self, session: Any) -> Any:
        link = session.receiver("billing")
        link.source.address = "s::billing"
        link.source.filter.put_dict({SPEC: Described(SPEC, "first")})
        link.flow(500)
        self.begun_at = -1
        return link

    def on_delivery(self, delivery: Delivery) -> None:
        if not delivery.readable or delivery.partial:
            return
        message = Message()
        message.decode(self.link.recv(delivery.pending) or b"")
        self.link.advance()
        assert message.annotations is not None
        offset = int(message.annotations[OFFSET])
        if self.begun_at < 0:
            self.begun_at = self.next = offset
            assert offset <= self.dealt, "what it has not dealt with was passed over"
            self.keeps = self.chance.choice((0, 1, 5))
        assert offset == self.next, "a hole, or an offset again"
        self.next += 1
        if offset % 1000 < self.keeps:
            # It holds this one, and with it all behind it, until the broker ends.
            return
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        if offset == self.dealt:
            self.dealt += 1
        self.link.flow(1)


def committed(broker: Broker) -> int:
    """The offset that the broker says to be committed; -1 where the reader isn't known."""
    with Management(f"amqp://127.0.0.1:{broker.port}") as management:
        body: Any = management.call("readers", name="s").body
    found = body["readers"]
    return int(found[0]["committed_offset"]) if found else -1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_a_committed_offset_never_goes_back(crashing: Broker, kills: int) -> None:
    broker = Broker(crashing.folder, POLICIES, CONFIG)
    books = Books()
    chance = random.Random(kills)
    reader = NamedReader(books, {}, chance)
    told = -1
    for life in range(kills):
        broker.start()
        if life:
            assert told <= committed(broker) <= reader.dealt
        producer = Producer(books, "s", life, filler=100)
        for peer in (producer, reader):
            peer.connect(broker.port)
        enough = reader.next + chance.choice((10, 300, 2000))
        until([producer, reader], partial(has_read, reader, enough), 60, what=books)
        told = committed(broker)
        assert told <= reader.dealt
        turn_all([producer, reader], chance.choice((0.0, 0.05)))
        broker.kill()
        for peer in (producer, reader):
            peer.drop()
    broker.start()
    assert told <= committed(broker) <= reader.dealt
    broker.kill()


def has_read(reader: StreamReader, upto: int) -> bool:
    return reader.next >= upto


def read_all(reader: StreamReader, books: Books) -> None:
    """Read until all that was accepted was seen; comparing that takes longer than reading for a moment."""
    deadline = time.monotonic() + 240
    while not books.accepted <= set(reader.seen.values()):
        assert time.monotonic() < deadline, f"{books}; read up to {reader.next}"
        turn_all([reader], min(1.0, 0.02 + len(books.accepted) / 100_000))


def has_accepted(books: Books, msgs: int) -> bool:
    return len(books.accepted) > msgs


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_no_offset_is_used_twice(crashing: Broker, kills: int) -> None:
    broker = Broker(crashing.folder, POLICIES, CONFIG)
    books = Books()
    seen: dict[int, Id] = {}
    chance = random.Random(kills)
    for life in range(kills):
        broker.start()
        producers = [Producer(books, "s", 2 * life + at, filler=chance.choice((10, 800))) for at in range(2)]
        readers = [StreamReader(books, seen, chance.choice((0, len(seen) // 2, len(seen)))) for _ in range(2)]
        for peer in (*producers, *readers):
            peer.connect(broker.port)
        enough = len(books.accepted) + chance.choice((50, 500, 3000))
        until([*producers, *readers], partial(has_accepted, books, enough), 60, what=books)
        broker.kill()
        for peer in (*producers, *readers):
            peer.drop()
    broker.start()
    last = StreamReader(books, seen, 0)
    last.connect(broker.port)
    read_all(last, books)
    turn_all([last], 0.5)
    assert last.next == len(seen)
    assert len(set(seen.values())) == len(seen), "a message stands twice"
    assert broker.stop() == 0
    last.drop()
    broker.start()
    again = StreamReader(books, seen, 0)
    again.connect(broker.port)
    until([again], lambda: again.next == len(seen), 240)
    again.drop()
    broker.kill()
