"""A data directory looked at without changing it, and copied; for operators, on a stopped broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.cell import APPLIED, position_in
from broker.store.directory import DIRECTORY, Directory, PageRow, try_to_read
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.files import JournalFiles
from broker.store.largefiles import larges_of, verify
from broker.store.lock import locked
from broker.store.logs import Extent
from broker.store.pagefile import PAGES, BlobPlace, PageFile
from broker.store.records import DamagedRecord, read
from broker.store.replay import Progress, Replayed, replay
from broker.store.streamlogs import check as check_streams
from broker.store.streamlogs import is_stream, messages_in, unmarked


@dataclass(frozen=True, slots=True)
class QueueLogReport:
    """One durable node's messages: all, those in pages, and how many pages."""

    name: str
    messages: int
    in_pages: int
    pages: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a data directory holds; sizes in bytes. ``log_epoch`` and ``log_group`` say how much of a cell's
    replicated log it has applied, both 0 where it has followed none.
    """

    clean: bool
    shelves: tuple[QueueLogReport, ...]
    notes: int
    large_files: int
    large_bytes: int
    groups: int
    journal_bytes: int
    page_bytes: int
    page_bytes_used: int
    directory_bytes: int
    log_epoch: int
    log_group: int


def stats(path: Path, progress: Progress | None = None) -> Report:
    """What is in it. DamagedStore at the first fault, StoreInUse while a broker has it."""
    with _opened(path) as (directory, files, pages):
        return _report(replay(directory, files, progress), path, directory, files, pages)


def check(path: Path, progress: Progress | None = None) -> Report:
    """The same after reading every page and every large message's file; DamagedStore at the first that
    isn't what was written.
    """
    with _opened(path) as (directory, files, pages):
        found = replay(directory, files)
        rows: dict[BlobPlace, list[PageRow]] = {}
        for shelf in found.shelves.values():
            for page in shelf.pages:
                rows.setdefault(page.place, []).append(page)
        for large in larges_of(found.notes, path):
            verify(large)
        check_streams(path, [shelf.row for shelf in found.shelves.values()])
        for done, (place, sharing) in enumerate(rows.items()):
            try:
                there = {(record[1], record[2]) for record in read(pages.read(place))}
            except DamagedRecord as fault:
                raise DamagedStore(pages.path, place.offset + fault.offset, str(fault)) from None
            for row in sharing:
                _check_row(row, there, pages.path)
            if progress is not None:
                progress(done + 1, len(rows))
        return _report(found, path, directory, files, pages)


def _check_row(row: PageRow, there: set[tuple[int, int]], path: Path) -> None:
    """DamagedStore where a page doesn't have what its row says of one queue log."""
    extent = Extent.of(row.first, row.last, row.place, row.bitmap)
    missing = sum(extent.has(seq) and (row.shelf, seq) not in there for seq in range(row.first, row.last + 1))
    if missing:
        raise DamagedStore(path, row.place.offset, f"{missing} of {extent.live} messages can't be read back")


def detach(path: Path) -> tuple[int, int]:
    """Make a member's directory that of a single broker, which a cell's new log may begin with.

    Returns the epoch and the group of the log that it had applied. OperatorError where it has followed none.
    """
    with _opened(path) as (directory, files, _):
        epoch, group = position_in(replay(directory, files).notes.get(APPLIED, b""))
    if not epoch:
        raise OperatorError(f"{path}: it has followed no log of a cell")
    # A store that follows no log takes the note of one away.
    store = DiskStore.open(path)
    store.close()
    return epoch, group


def copy(path: Path, target: Path) -> None:
    """A backup of a directory no broker has."""
    with _opened(path):
        if target.exists():
            raise OperatorError(f"{target} exists already")
        shutil.copytree(
            path, target, ignore=shutil.ignore_patterns("temp", "lock", "spare-*", "*-lock", "backups")
        )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Directory, JournalFiles, PageFile]]:
    if not (path / DIRECTORY).exists():
        raise OperatorError(f"{path}: no store here ({DIRECTORY} is missing)")
    with locked(path):
        try_to_read(path / DIRECTORY)
        directory = Directory(path / DIRECTORY, readonly=True)
        pages = PageFile(path / PAGES, readonly=True)
        try:
            yield directory, JournalFiles(path, 0), pages
        finally:
            pages.close()
            directory.close()


def _live(page: PageRow, gone: Mapping[int, int]) -> int:
    """Messages of a page that are not done with; what is gone may be known to its row already."""
    extent = Extent.of(page.first, page.last, page.place, page.bitmap)
    for seq in gone:
        extent.drop_one(seq)
    return extent.live


def _report(
    found: Replayed, path: Path, directory: Directory, files: JournalFiles, pages: PageFile
) -> Report:
    larges = larges_of(found.notes, path)
    pages.claim([page.place for shelf in found.shelves.values() for page in shelf.pages])
    log_epoch, log_group = position_in(found.notes.get(APPLIED, b""))
    shelves = []
    for shelf in found.shelves.values():
        in_pages = sum(_live(page, shelf.gone) for page in shelf.pages)
        messages = in_pages + len(shelf.messages)
        if is_stream(shelf.row.name):
            messages = messages_in(path, shelf)
        shelves.append(QueueLogReport(unmarked(shelf.row.name), messages, in_pages, len(shelf.pages)))
    return Report(
        clean=found.clean,
        shelves=tuple(shelves),
        notes=sum(bool(value) for value in found.notes.values()),
        large_files=len(larges),
        large_bytes=sum(each.size for each in larges),
        groups=found.last_group,
        journal_bytes=files.nbytes(),
        page_bytes=pages.size_bytes,
        page_bytes_used=pages.used_bytes,
        directory_bytes=directory.stats()["directory_bytes"],
        log_epoch=log_epoch,
        log_group=log_group,
    )
