"""What a data directory holds, read without changing it while no broker has it."""

from __future__ import annotations

from pathlib import Path

from broker.engine.large import noted
from broker.store.directory import DIRECTORY, Directory
from broker.store.files import JournalFiles
from broker.store.largefiles import LARGE, name_of
from broker.store.lock import locked
from broker.store.logs import Extent
from broker.store.pagefile import PAGES, PageFile
from broker.store.port import LARGE_NOTE, REDELIVERED
from broker.store.records import read
from broker.store.replay import Found, replay
from tests.crash.chaos.books import Kept
from tests.crash.chaos.messages import understood


def contents(path: Path) -> dict[str, list[Kept]]:
    """By place, its messages in order. DamagedStore where it is refused."""
    with locked(path):
        directory = Directory(path / DIRECTORY, readonly=True)
        pages = PageFile(path / PAGES, readonly=True)
        try:
            found = replay(directory, JournalFiles(path, 0))
            bodies = _bodies(found.notes)
            return {
                each.row.name: _messages(path, pages, each, bodies.get(each.row.name, {}))
                for each in found.shelves.values()
            }
        finally:
            pages.close()
            directory.close()


def _bodies(notes: dict[str, bytes]) -> dict[str, dict[int, int]]:
    """By node and message, the number of the file."""
    bodies: dict[str, dict[int, int]] = {}
    for key, value in notes.items():
        if value and key.startswith(LARGE_NOTE):
            number, seq, node, _, _ = noted(key, value)
            bodies.setdefault(node, {})[seq] = number
    return bodies


def _messages(path: Path, pages: PageFile, shelf: Found, bodies: dict[int, int]) -> list[Kept]:
    kept: list[Kept] = []
    for row in shelf.pages:
        extent = Extent.of(row.first, row.last, row.place, row.bitmap)
        for seq in shelf.gone:
            extent.drop_one(seq)
        if extent.live:
            blob = pages.read(row.place)
            kept += [
                _kept(path, shelf, seq, flags, data, bodies)
                for _, _, seq, flags, _, _, data in read(blob, node=shelf.row.id)
                if extent.has(seq)
            ]
    kept += [
        _kept(path, shelf, seq, flags, data, bodies) for seq, (_, flags, _, _, data) in shelf.messages.items()
    ]
    return sorted(kept, key=lambda each: each.seq)


def _kept(path: Path, shelf: Found, seq: int, flags: int, data: bytes, bodies: dict[int, int]) -> Kept:
    if seq in bodies:
        file = path / LARGE / name_of(bodies[seq])
        data += file.read_bytes() if file.exists() else b""
    id_, _, sound = understood(data)
    flags |= shelf.updates.get(seq, (0, 0))[0]
    return Kept(id_, seq, bool(flags & REDELIVERED), sound)
