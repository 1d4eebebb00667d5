"""A disk that is full: producers wait or are rejected, consumers are served, and it goes on by itself.

Twice: on a small file system that really is full, where the tests may mount one, and with a directory
whose files can't grow, which fails at every first byte too many.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.crash.conftest import Broker
from tests.crash.peers import Books, Consumer, Id, Producer, turn_all
from tests.crash.shim import Shim
from tests.crash.test_streams_killed import StreamReader
from tests.crash.watching import in_trouble, ready, stalled, stat, until

CONFIG = "store: {journal_file_size: 1MB}\n"
LIMITS = "flow_control: false, overflow: reject, max_size: 1GB"
POLICIES = f"policies:\n  - {{match: '>', durable: true, {LIMITS}}}\n"
STREAM = "policies:\n  - {match: s, kind: stream, durable: true}\n"
DISK_BYTES = 32 << 20
NO_ROOM = "No space left on device"


class Room(Protocol):
    """What the disk has left."""

    env: dict[str, str]

    def take(self) -> None:
        """All of it is gone."""

    def give(self) -> None:
        """There is some again."""


class ShimRoom:
    """No file under the directory can grow."""

    def __init__(self, shim: Shim) -> None:
        self.shim = shim
        self.env = shim.env

    def take(self) -> None:
        self.shim.on("full")

    def give(self) -> None:
        self.shim.off("full")


class Ballast:
    """A file that takes all there is of a small file system."""

    def __init__(self, disk: Path) -> None:
        self.file = disk / "ballast"
        self.env: dict[str, str] = {}

    def take(self) -> None:
        with self.file.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def give(self) -> None:
        self.file.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small file system")
    yield place
    # A process that died a moment ago may have it open still: it goes when the last one lets go.
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.umount2(str(place).encode(), 2) == 0, os.strerror(ctypes.get_errno())


@pytest.fixture(params=["shim", "mounted"])
def full(request: pytest.FixtureRequest, crashing: Broker, tmp_path: Path) -> Iterator[tuple[Broker, Room]]:
    """A broker not started yet, and the room its directory has."""
    broker = Broker(crashing.folder, POLICIES, CONFIG)
    room: Room
    if request.param == "mounted":
        place: Path = request.getfixturevalue("disk")
        broker.data = place / "data"
        room = Ballast(place)
    else:
        room = ShimRoom(Shim(tmp_path, broker.data))
    yield broker, room
    if broker.process is not None and broker.process.poll() is None:
        broker.kill()


def test_producers_wait_and_consumers_drain(full: tuple[Broker, Room]) -> None:
    broker, room = full
    broker.start(env=room.env)
    books = Books()
    producer = Producer(books, "q", 1, filler=1000)
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) > 2000)
    room.take()
    until([producer], lambda: in_trouble(broker, NO_ROOM), what="the broker to notice")
    assert stat(broker)["storeState"] == "full"
    assert f"no room: {NO_ROOM}" in broker.read_log()
    until([producer], lambda: stalled(producer, books), what="producers to be blocked")
    assert producer.sock is not None
    assert all("amqp:resource-limit-exceeded" in why for why in producer.rejected.values())
    assert producer.rejected or producer.link.credit - producer.link.queued <= 0

    # What was accepted is there, and consuming it works though nothing more can be stored. On a real disk
    # that makes room, the producer goes on, and what it sends now is behind.
    held = set(books.accepted)
    consumer = Consumer(books, "q", second=True, name="c")
    consumer.connect(broker.port)
    until([producer, consumer], lambda: held <= books.received and len(books.confirmed) > 1000, what=books)

    room.give()
    accepted = len(books.accepted)
    until([producer, consumer], lambda: len(books.accepted) > accepted + 1000, what="it to go on by itself")
    until([producer, consumer], lambda: ready(broker)[0] == 200, what="the broker to say so")
    producer.paused = True
    until([producer, consumer], lambda: not books.lost and producer.unsettled == 0)
    broker.kill()
    consumer.drop()
    broker.start()
    again = Consumer(books, "q", second=False, name="again")
    again.connect(broker.port)
    turn_all([again], 0.5)
    assert (books.lost, books.confirmed_again, books.unflagged_again) == (set(), [], [])
    for peer in (producer, again):
        peer.drop()


def test_a_broker_killed_on_a_full_disk_starts_when_there_is_room(full: tuple[Broker, Room]) -> None:
    broker, room = full
    broker.start(env=room.env)
    books = Books()
    producer = Producer(books, "q", 1, filler=1000)
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) > 2000)
    room.take()
    until([producer], lambda: in_trouble(broker, NO_ROOM), what="the broker to notice")
    until([producer], lambda: stalled(producer, books, 0.2), what="producers to be blocked")
    broker.kill()
    producer.drop()

    # It starts all the same, says what it lacks, and goes on by itself.
    broker.start(env=room.env)
    until([], lambda: in_trouble(broker, NO_ROOM), what="it to say that it is full")
    assert "Traceback" not in broker.said

    room.give()
    consumer = Consumer(books, "q", second=True, name="c")
    consumer.connect(broker.port)
    until([consumer], lambda: not books.lost, what=books)
    consumer.drop()


def on_small_disk(folder: Path, disk: Path) -> tuple[Broker, Ballast]:
    """A broker not started yet, on a file system that can really be full."""
    broker = Broker(folder / "small", POLICIES, CONFIG)
    broker.data = disk / "data"
    return broker, Ballast(disk)


def filled(broker: Broker, room: Ballast, books: Books, messages: int = 8000, address: str = "q") -> Producer:
    """Until the broker has so many messages, and the disk no room at all."""
    producer = Producer(books, address, 1, filler=1000)
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) > messages, seconds=40, what=books)
    room.take()
    until([producer], lambda: in_trouble(broker, NO_ROOM), what="the broker to notice")
    until([producer], lambda: stalled(producer, books, 0.2), what="producers to be blocked")
    return producer


def free_bytes(disk: Path) -> int:
    """What the file system has left."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def consumed(broker: Broker, books: Books, wanted: int, second: bool = True) -> None:
    """Let a consumer have so many messages more, and see them settled."""
    consumer = Consumer(books, "q", second=second, name="c")
    consumer.connect(broker.port)
    target = len(books.confirmed) + wanted
    until([consumer], lambda: len(books.confirmed) >= target, seconds=40, what=books)
    consumer.drop()


@pytest.mark.timeout(120)
def test_consuming_half_makes_room_and_it_goes_on(tmp_path: Path, disk: Path) -> None:
    broker, room = on_small_disk(tmp_path, disk)
    broker.start()
    books = Books()
    producer = filled(broker, room, books)
    before = free_bytes(disk)
    accepted = len(books.accepted)
    consumed(broker, books, accepted // 2)
    # Nobody else gives anything: what was consumed is what there is.
    until([producer], lambda: free_bytes(disk) > before + (1 << 20), what="room on the disk")
    until([producer], lambda: len(books.accepted) > accepted + 500, what="it to go on by itself")
    assert "there is room again" in broker.read_log()
    broker.kill()
    producer.drop()
    room.give()
    broker.start()
    survives(broker, books)
    broker.kill()


@pytest.mark.timeout(120)
def test_a_broker_killed_on_a_full_disk_is_drained_and_goes_on(tmp_path: Path, disk: Path) -> None:
    broker, room = on_small_disk(tmp_path, disk)
    broker.start()
    books = Books()
    filled(broker, room, books, 4000).drop()
    for _ in range(3):
        broker.kill()
        room.take()
        assert free_bytes(disk) == 0
        broker.start()
        until([], lambda: in_trouble(broker, NO_ROOM), what="it to say that it is full")
        consumed(broker, books, 300)
    producer = Producer(books, "q", 2, filler=1000)
    producer.connect(broker.port)
    consumer = Consumer(books, "q", second=True, name="d")
    consumer.connect(broker.port)
    until([producer, consumer], lambda: len(books.confirmed) > 3500, seconds=40, what=books)
    until([producer, consumer], lambda: (2, 500) in books.accepted, what="it to go on by itself")
    broker.kill()
    for peer in (producer, consumer):
        peer.drop()
    room.give()
    broker.start()
    survives(broker, books)
    broker.kill()


@pytest.mark.timeout(120)
def test_a_broker_with_a_stream_killed_on_a_full_disk_starts(tmp_path: Path, disk: Path) -> None:
    """The journal has room for messages that the stream's own files have none for."""
    broker = Broker(tmp_path / "small", STREAM, CONFIG)
    broker.data = disk / "data"
    room = Ballast(disk)
    broker.start()
    books = Books()
    filled(broker, room, books, 4000, "s").drop()
    broker.kill()
    room.take()
    assert free_bytes(disk) == 0
    broker.start()
    room.give()
    producer = Producer(books, "s", 2, filler=1000)
    producer.connect(broker.port)
    seen: dict[int, Id] = {}
    reader = StreamReader(books, seen, 0)
    reader.connect(broker.port)
    until([producer, reader], lambda: (2, 500) in books.accepted, seconds=40, what="it to go on by itself")
    producer.drop()
    until([reader], lambda: books.accepted <= set(seen.values()), seconds=40, what=books)
    broker.kill()
    reader.drop()


@pytest.mark.timeout(120)
def test_settled_one_by_one_on_a_full_disk(tmp_path: Path, disk: Path) -> None:
    """Each settlement takes a block of the journal, far more than its message frees at once."""
    broker, room = on_small_disk(tmp_path, disk)
    broker.start()
    books = Books()
    producer = filled(broker, room, books, 4000)
    producer.paused = True
    consumer = Consumer(books, "q", second=True, name="one")
    consumer.credit = 1
    consumer.connect(broker.port)
    until([producer, consumer], lambda: len(books.confirmed) > 1500, seconds=80, what=books)
    broker.kill()
    for peer in (producer, consumer):
        peer.drop()
    broker.start()
    survives(broker, books)
    broker.kill()


def survives(broker: Broker, books: Books) -> None:
    """All that was accepted is there, and nothing that was confirmed comes again."""
    last = Consumer(books, "q", second=False, name="last")
    last.connect(broker.port)
    until([last], lambda: not books.lost, seconds=40, what=books)
    turn_all([last], 0.3)
    assert (books.lost, books.confirmed_again, books.unflagged_again) == (set(), [], [])
    last.drop()
