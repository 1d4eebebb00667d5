"""Messages that were handed out in vain, and what becomes of them over many restarts.

A message that came back to its queue is noted as such on disk; from then on it has to be as durable as
before, wherever a later broker reads it from. A large one is never delivered without its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.codec.message import LETTER_REASON
from broker.engine.transfer import BODY_LOST
from broker.store.disk import DiskStore
from broker.store.port import LARGE_NOTE, REDELIVERED
from tests.crash.conftest import Broker
from tests.crash.contents import FILE_BYTES, contents
from tests.crash.peers import Books, Consumer, Producer, identified
from tests.crash.watching import until
from tests.wire.apiclient import Api

COUNT = 10
CONFIG = "store: {journal_file_size: 1MB}\nlimits: {max_frame_size: 4KB, large_message_size: 4KB}\n"
POLICIES = "policies:\n  - {match: '>', durable: true}\n"
NO_LETTERS = "policies:\n  - {match: q, durable: true, dead_letter_address: ''}\n"
LETTERS = (
    "policies:\n  - {match: q, durable: true, dead_letter_address: dead}\n  - {match: dead, durable: true}\n"
)
# Starts after which no message is in the journal any more: each begins a file of its own.
STARTS = 3
# More than is read at once, or it would be in memory as a whole.
FILLER = 200_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker", POLICIES, CONFIG)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


class Vanishing(Consumer):
    """Takes messages and says nothing of them."""

    def on_delivery(self, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            self.books.received.add(identified(bytes(self.link.recv(delivery.pending)))[0])
            self.link.advance()


class Reading(Consumer):
    """Accepts messages and keeps them."""

    def __init__(self, books: Books, address: str) -> None:
        super().__init__(books, address, second=False, name="reading")
        self.messages: list[bytes] = []

    def on_delivery(self, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            self.messages.append(bytes(self.link.recv(delivery.pending)))
            self.link.advance()
            delivery.update(delivery.ACCEPTED)
            delivery.settle()


def hand_out_in_vain(broker: Broker, books: Books, filler: int = 0) -> None:
    """Messages of one producer, delivered to a consumer that vanishes before it has settled any."""
    producer = Producer(books, "q", 1, filler)
    producer.limit = COUNT
    if filler:
        # One that comes behind another is in memory as a whole before it is looked at.
        producer.window = 1
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) == COUNT)
    producer.drop()
    vanishing = Vanishing(books, "q", second=True, name="vanishing")
    vanishing.connect(broker.port)
    until([vanishing], lambda: len(books.received) == COUNT)
    vanishing.drop()
    assert len(list((broker.data / "large").iterdir())) == (COUNT if filler else 0)


def settle_all(broker: Broker, books: Books) -> None:
    """Take all of them, each confirmed by the broker."""
    consumer = Consumer(books, "q", second=True, name="settling")
    consumer.connect(broker.port)
    until([consumer], lambda: len(books.confirmed) == COUNT, what=books)
    consumer.drop()


def everything(broker: Broker, address: str) -> list[bytes]:
    """All messages of a queue, taken."""
    reading = Reading(Books(), address)
    reading.connect(broker.port)
    api = Api(broker)  # type: ignore[arg-type]
    until([reading], lambda: api.get(f"/queues/{address}")["depth_msgs"] == 0)
    reading.drop()
    return reading.messages


def restart(broker: Broker, times: int = STARTS) -> None:
    for _ in range(times):
        assert broker.stop() == 0
        broker.start()


def forge(broker: Broker, change: Callable[[DiskStore], None]) -> None:
    """Change what a stopped broker has left."""
    store = DiskStore.open(broker.data, file_bytes=FILE_BYTES)
    change(store)
    store.close()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("filler", [0, FILLER], ids=["small", "large"])
def test_messages_given_back_and_settled_later_are_gone(broker: Broker, filler: int, killed: bool) -> None:
    broker.start()
    books = Books()
    hand_out_in_vain(broker, books, filler)
    restart(broker)
    settle_all(broker, books)
    if killed:
        broker.kill()
    else:
        assert broker.stop() == 0
    assert contents(broker.data) == set()


def test_large_messages_given_back_again_and_again_keep_their_bodies(broker: Broker) -> None:
    broker.start()
    books = Books()
    hand_out_in_vain(broker, books, FILLER)
    restart(broker)
    again = Vanishing(Books(), "q", second=True, name="again")
    again.connect(broker.port)
    until([again], lambda: again.books.received == books.accepted)
    again.drop()
    restart(broker, times=1)
    found = [identified(data) for data in everything(broker, "q")]
    assert found == [((1, number), True) for number in range(COUNT)]


def test_what_an_earlier_version_has_noted_is_as_durable(broker: Broker) -> None:
    """It noted of a message that came back nothing but that, as if it weren't durable any more."""
    broker.start()
    books = Books()
    hand_out_in_vain(broker, books)
    restart(broker)
    assert broker.stop() == 0

    def as_before(store: DiskStore) -> None:
        for each in store.recovered.shelves:
            for seq in each.shelf.updates:
                each.shelf.updates[seq] = (REDELIVERED, 1)
            for extent in each.shelf.extents:
                extent.changed = True
            store.touched.add(each.shelf)

    forge(broker, as_before)
    broker.start()
    settle_all(broker, books)
    broker.kill()
    assert contents(broker.data) == set()


def lose_bodies(store: DiskStore) -> None:
    for key in [key for key in store.recovered.notes if key.startswith(LARGE_NOTE)]:
        store.note(key, b"")


@pytest.mark.parametrize(
    ("policies", "paged"),
    [(NO_LETTERS, False), (LETTERS, True)],
    ids=["dropped", "dead letters, from a page"],
)
def test_a_large_message_without_its_body_is_delivered_to_nobody(
    tmp_path: Path, policies: str, paged: bool
) -> None:
    broker = Broker(tmp_path / "broker", policies, CONFIG)
    broker.start()
    try:
        books = Books()
        hand_out_in_vain(broker, books, FILLER)
        if paged:
            restart(broker)
        assert broker.stop() == 0
        forge(broker, lose_bodies)
        broker.start()
        assert everything(broker, "q") == []
        assert broker.read_log().count("is lost: it is not delivered") == COUNT
        if policies == LETTERS:
            letters = everything(broker, "dead")
            assert len(letters) == COUNT
            assert all(LETTER_REASON in data and BODY_LOST.encode() in data for data in letters)
        broker.kill()
        assert contents(broker.data) == set()
    finally:
        if broker.process is not None and broker.process.poll() is None:
            broker.kill()


def test_a_large_message_whose_file_is_missing_keeps_the_broker_from_starting(broker: Broker) -> None:
    broker.start()
    hand_out_in_vain(broker, Books(), FILLER)
    assert broker.stop() == 0
    gone = sorted((broker.data / "large").iterdir())[0]
    body = gone.read_bytes()
    gone.unlink()
    for _ in range(2):
        broker.start(wait=False)
        assert broker.wait_exit() == 1
        assert f"{gone}" in broker.said
        assert "the file of a large message is missing" in broker.said
    gone.write_bytes(body)
    broker.start()
    assert len(everything(broker, "q")) == COUNT
