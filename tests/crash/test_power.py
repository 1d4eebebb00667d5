"""Power loss: of what was written, only what was synced is sure to be there, the rest in part.

One broker runs under load with every write and sync of its data directory recorded. From the record
the directory is rebuilt as a power loss at any moment could have left it: all that was synced before
the cut, and of what was written since then a random part, some of it torn between sectors. Each of
these directories must open, hold all that had been accepted, and none of what had been confirmed.
"""

from __future__ import annotations

import random
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.store.disk import DiskStore
from broker.store.pages import StoredPage, messages_of
from tests.crash.conftest import Broker
from tests.crash.peers import Books, Consumer, Id, Peer, Producer, identified, turn_all
from tests.crash.shim import Shim

HEAD = struct.Struct("=qqqq")
WRITE, SYNC, TRUNCATE, RENAME, UNLINK, DIRSYNC = range(1, 7)
SECTOR = 512
CUTS = 200


@dataclass(slots=True)
class Event:
    """One entry of the record, and where in it the entry ends."""

    type: int
    path: str
    offset: int
    data: bytes
    end: int


def events(log: Path) -> Iterator[Event]:
    data = log.read_bytes()
    at = 0
    while at + HEAD.size <= len(data):
        kind, length, offset, size = HEAD.unpack_from(data, at)
        at += HEAD.size
        path = data[at : at + length].decode()
        at += length
        payload = data[at : at + size]
        at += len(payload)
        yield Event(kind, path, offset, payload, at)


@dataclass(slots=True)
class Disk:
    """Files as they are for sure, and what was written to each since its last sync.

    Names change at once: a rename that is not synced yet is tried as done, as ext4 orders it.
    """

    files: dict[str, bytearray] = field(default_factory=dict)
    unsynced: dict[str, list[Event]] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """One more event happened."""
        if event.type in (WRITE, TRUNCATE):
            self.unsynced.setdefault(event.path, []).append(event)
            self.files.setdefault(event.path, bytearray())
        elif event.type == SYNC:
            for each in self.unsynced.pop(event.path, []):
                _put(self.files[each.path], each)
        elif event.type == RENAME:
            target = event.data.decode()
            self.files[target] = self.files.pop(event.path, bytearray())
            moved = self.unsynced.pop(event.path, [])
            for each in moved:
                each.path = target
            self.unsynced[target] = moved
        elif event.type == UNLINK:
            self.files.pop(event.path, None)
            self.unsynced.pop(event.path, None)

    def left(self, dice: random.Random) -> dict[str, bytearray]:
        """What a power loss now could leave."""
        found = {path: bytearray(data) for path, data in self.files.items()}
        for path, waiting in self.unsynced.items():
            for event in waiting:
                chance = dice.random()
                if chance < 0.4:
                    continue
                if chance < 0.6 and event.type == WRITE and len(event.data) > SECTOR:
                    _put(found[path], _torn(event, dice))
                else:
                    _put(found[path], event)
        return found


def _torn(event: Event, dice: random.Random) -> Event:
    """Some sectors of a write, not in any order."""
    data = bytearray(event.data)
    kept = [at for at in range(0, len(data), SECTOR) if dice.random() < 0.5]
    last = max(kept, default=0) + SECTOR
    torn = bytearray(last)
    for at in kept:
        torn[at : at + SECTOR] = data[at : at + SECTOR]
    return Event(event.type, event.path, event.offset, bytes(torn[: len(data)]), event.end)


def _put(file: bytearray, event: Event) -> None:
    if event.type == TRUNCATE:
        del file[event.offset :]
        file.extend(bytes(event.offset - len(file)))
        return
    end = event.offset + len(event.data)
    if len(file) < end:
        file.extend(bytes(end - len(file)))
    file[event.offset : end] = event.data


class Diary(Books):
    """Books that know how much of the record there was when something was told."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log
        self.accepted_at: dict[Id, int] = {}
        self.confirmed_at: dict[Id, int] = {}

    def look(self) -> None:
        """Note what is new; the record is at least as long as it was when the broker told it."""
        size = self.log.stat().st_size if self.log.exists() else 0
        for id_ in self.accepted - self.accepted_at.keys():
            self.accepted_at[id_] = size
        for id_ in self.confirmed - self.confirmed_at.keys():
            self.confirmed_at[id_] = size


def recorded(tmp_path: Path) -> tuple[Broker, Diary]:
    """A run under load, with checkpoints on the way."""
    log = tmp_path / "writes"
    broker = Broker(tmp_path / "broker", config="store: {journal_file_size: 1MB}\n")
    shim = Shim(tmp_path, broker.data, log)
    broker.start(env=shim.env)
    diary = Diary(log)
    producers = [Producer(diary, queue, number, filler=400) for number, queue in enumerate(("a", "b"))]
    consumers = [Consumer(diary, "a", second=True, name="c")]
    peers: list[Peer] = [*producers, *consumers]
    for peer in peers:
        peer.connect(broker.port)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        # The book is kept in small steps, for what is told within one counts as told at its end.
        turn_all(peers, 0.005)
        diary.look()
    for peer in peers:
        peer.drop()
    broker.kill()
    return broker, diary


def contents(directory: Path) -> set[Id]:
    """Every message of the directory, which must open."""
    store = DiskStore.open(directory, file_bytes=1 << 20)
    found: set[Id] = set()
    for shelf in store.recovered.shelves:
        for part in shelf.parts:
            messages = (
                messages_of(shelf.shelf, store.load(shelf.shelf, part))
                if isinstance(part, StoredPage)
                else part
            )
            found |= {identified(data)[0] for *_, data in messages}
    store.abandon()
    return found


@pytest.mark.timeout(400)
def test_every_moment_of_power_loss_leaves_what_was_accepted(tmp_path: Path) -> None:
    broker, diary = recorded(tmp_path)
    happened = list(events(tmp_path / "writes"))
    assert sum(event.type == SYNC for event in happened) > 200
    assert any(event.type == RENAME and "spare" in event.data.decode() for event in happened), (
        "no file was retired"
    )
    dice = random.Random(7)
    cuts = sorted(dice.sample(range(len(happened)), CUTS))
    disk = Disk()
    position = 0
    lost = back = 0
    for cut in cuts:
        while position < cut:
            disk.apply(happened[position])
            position += 1
        told = happened[cut - 1].end if cut else 0
        rebuilt = tmp_path / "rebuilt"
        shutil.rmtree(rebuilt, ignore_errors=True)
        rebuilt.mkdir()
        for path, data in disk.left(dice).items():
            file = rebuilt / Path(path).relative_to(broker.data)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
        present = contents(rebuilt)
        # Accepted before the cut, and not yet consumed at all: it must be there.
        wanted = {id_ for id_, at in diary.accepted_at.items() if at <= told} - diary.received
        gone = {id_ for id_, at in diary.confirmed_at.items() if at <= told}
        lost += len(wanted - present)
        back += len(gone & present)
    print(
        f"\n{CUTS} cuts of {len(happened):,} writes and syncs:"
        f" {len(diary.accepted_at):,} accepted, lost {lost};"
        f" {len(diary.confirmed_at):,} confirmed, back {back}"
    )
    assert (lost, back) == (0, 0)
