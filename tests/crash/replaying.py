"""What a power loss leaves of files whose every write and sync was recorded.

The model of the disk is the weakest a broker may count on. What was written before a sync began is
there once that sync has ended; of the rest any part may be, torn between sectors. A name that was
made, changed or removed is as it was last when its directory was synced; of later changes the first
few may have happened, in their order, as journaling file systems keep it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HEAD = struct.Struct("=qqqq")
WRITE, SYNC, TRUNCATE, RENAME, UNLINK, DIRSYNC, BEGIN, KEPT, CREATE = range(1, 10)
SECTOR_BYTES = 512
BLOCK_BYTES = 4096


@dataclass(slots=True)
class Event:
    """One entry of the record, and where in it the entry ends."""

    type: int
    path: str
    offset: int
    payload: bytes
    end: int


def events(log: Path, begin: int = 0) -> Iterator[Event]:
    """The record from one of its bytes on; an entry that was cut short by a kill is left out."""
    with log.open("rb") as file:
        file.seek(begin)
        record = file.read()
    at = 0
    while at + HEAD.size <= len(record):
        kind, length, offset, size = HEAD.unpack_from(record, at)
        start = at + HEAD.size + length
        size = size if kind in (WRITE, KEPT, RENAME) else 0
        at = start + size
        if at > len(record):
            return
        yield Event(kind, record[start - length : start].decode(), offset, record[start:at], begin + at)


@dataclass(slots=True, eq=False)
class File:
    """``kept`` is on disk for sure; ``waiting`` was written since; ``seen`` is what a program reads."""

    kept: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    waiting: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Renamed:
    """A change of names: the file has its new one; None where it had or has none."""

    old: str | None
    new: str | None
    file: File


class Disk:
    """The files of one directory, event by event."""

    def __init__(self) -> None:
        self.names: dict[str, File] = {}
        self.kept_names: dict[str, File] = {}
        self.waiting_names: list[Renamed] = []
        # What had been written when each sync began that has not ended yet.
        self._begun: dict[int, tuple[list[Event], list[Renamed]]] = {}

    def apply(self, event: Event) -> None:
        """One more event happened."""
        if event.type == CREATE:
            self._file(event.path)
        elif event.type in (WRITE, TRUNCATE):
            file = self._file(event.path)
            file.waiting.append(event)
            put(file.seen, event)
        elif event.type == KEPT:
            file = self._file(event.path)
            self._keep(file, [each for each in file.waiting if each.offset == event.offset][-1:])
        elif event.type == BEGIN:
            waiting = self.names[event.path].waiting if event.path in self.names else []
            self._begun[event.offset] = (list(waiting), list(self.waiting_names))
        elif event.type == SYNC:
            self._keep(self._file(event.path), self._begun.pop(event.offset)[0])
        elif event.type == DIRSYNC:
            self._keep_names(self._begun.pop(event.offset)[1])
        elif event.type == RENAME:
            self._rename(event.path, event.payload.decode())
        elif event.type == UNLINK:
            self._rename(event.path, None)

    def restart(self) -> None:
        """The program was killed: what it wrote is as it was, syncs under way never ended."""
        self._begun.clear()

    def unseen(self, path: str, actual: bytes) -> list[Event]:
        """What a program that was killed had written and not recorded any more, by blocks."""
        seen = bytes(self._file(path).seen)
        found = []
        if len(seen) > len(actual):
            found.append(Event(TRUNCATE, path, len(actual), b"", 0))
        for at in range(0, len(actual), BLOCK_BYTES):
            block = actual[at : at + BLOCK_BYTES]
            if seen[at : at + BLOCK_BYTES] != block:
                found.append(Event(WRITE, path, at, block, 0))
        return found

    def left(self, dice: random.Random) -> dict[str, bytearray]:
        """What a power loss now could leave: each file by its name."""
        names = dict(self.kept_names)
        for change in self.waiting_names[: dice.randint(0, len(self.waiting_names))]:
            _rename(names, change)
        return {name: _left(file, dice) for name, file in names.items()}

    def _file(self, path: str) -> File:
        file = self.names.get(path)
        if file is None:
            file = self.names[path] = File()
            self.waiting_names.append(Renamed(None, path, file))
        return file

    def _rename(self, old: str, new: str | None) -> None:
        if old in self.names:
            change = Renamed(old, new, self.names[old])
            _rename(self.names, change)
            self.waiting_names.append(change)

    def _keep(self, file: File, written: list[Event]) -> None:
        """Two syncs may end in any order: what the other one kept already is not written again."""
        done = {id(event) for event in written}
        still = {id(event) for event in file.waiting}
        for event in written:
            if id(event) in still:
                put(file.kept, event)
        file.waiting = [event for event in file.waiting if id(event) not in done]

    def _keep_names(self, changes: list[Renamed]) -> None:
        done = {id(change) for change in changes}
        for change in self.waiting_names:
            if id(change) in done:
                _rename(self.kept_names, change)
        self.waiting_names = [change for change in self.waiting_names if id(change) not in done]


def _rename(names: dict[str, File], change: Renamed) -> None:
    if change.old is not None:
        names.pop(change.old, None)
    if change.new is not None:
        names[change.new] = change.file


def _left(file: File, dice: random.Random) -> bytearray:
    """What is sure, and any part of the rest: now nothing of it, now all, mostly something between."""
    left = bytearray(file.kept)
    keep = dice.choice((0.0, 0.3, 0.6, 0.9, 1.0))
    tear = dice.choice((0.0, 0.3))
    for event in file.waiting:
        if dice.random() < keep:
            if event.type == WRITE and len(event.payload) > SECTOR_BYTES and dice.random() < tear:
                _put_torn(left, event, dice)
            else:
                put(left, event)
    return left


def _put_torn(file: bytearray, event: Event, dice: random.Random) -> None:
    """Some sectors of a write, in no order; what is not written of it is as it was."""
    for at in range(0, len(event.payload), SECTOR_BYTES):
        if dice.random() < 0.5:
            sector = event.payload[at : at + SECTOR_BYTES]
            put(file, Event(WRITE, event.path, event.offset + at, sector, event.end))


def put(file: bytearray, event: Event) -> None:
    """Make a write or a truncation happen."""
    if event.type == TRUNCATE:
        del file[event.offset :]
        file.extend(bytes(event.offset - len(file)))
        return
    end = event.offset + len(event.payload)
    if len(file) < end:
        file.extend(bytes(end - len(file)))
    file[event.offset : end] = event.payload
