"""A checkpoint: what is live in old files of the journal moves to pages, and the files are free.

Three steps, each on the thread that owns what it touches:

1. ``take``, on the owner's: a picture of what is live and of what changed since the last time. It
   may be written once every group that led to it is on disk.
2. ``write``, on the keeper's: live messages are copied from the files to pages, the pages are synced,
   and one transaction makes the directory say so. Until it is committed nothing has happened.
3. ``adopt``, on the owner's: the shelves' extents are those of the pages from now on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.store.directory import CheckpointChange, Directory, Meta, PageRow, QueueLogRow
from broker.store.faults import DamagedStore, SyncFault, is_lack_of_room
from broker.store.files import BLOCK_BYTES, JournalFiles
from broker.store.journal import group_at
from broker.store.logs import DiskQueueLog, Extent, OpenPage, join_sharing, live_records
from broker.store.pagefile import BlobPlace, PageFile
from broker.store.streamlogs import StreamLogs

# A page's records, so that with its head it fills whole blocks.
PAGE_BYTES = (1 << 16) - 64
# The same where more logs than ``FEW_PLACES`` share it: each has a row of about 100 bytes for each page.
SHARED_BYTES = (1 << 18) - 64
FEW_PLACES = 64


class GonePage(NamedTuple):
    """A page with nothing live: its shelf's number, its first message's, and the room it leaves."""

    shelf: int
    first: int
    place: BlobPlace


@dataclass(slots=True)
class Taken:
    """The picture, to be written once ``group`` is synced. ``old``: by file, by shelf, what is live there."""

    group: int
    files: range
    meta: Meta
    old: dict[int, dict[int, Extent]] = field(default_factory=dict)
    updates: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    shelves: list[QueueLogRow] = field(default_factory=list)
    gone_shelves: list[int] = field(default_factory=list)
    pages: list[PageRow] = field(default_factory=list)
    gone_pages: list[GonePage] = field(default_factory=list)
    notes: dict[str, bytes] = field(default_factory=dict)
    written: list[PageRow] = field(default_factory=list)


def take(shelves: Iterable[DiskQueueLog], taken: Taken) -> None:
    """Add to the picture what these shelves hold."""
    for shelf in shelves:
        if shelf.changed:
            taken.shelves.append(QueueLogRow(shelf.id, shelf.name, shelf.definition, shelf.last_seq))
            shelf.changed = False
        for extent in shelf.extents:
            if extent.place is not None:
                if extent.changed:
                    _take_page(taken, shelf, extent)
            elif extent.live and extent.file in taken.files:
                taken.old.setdefault(extent.file, {})[shelf.id] = extent.copy()
        if shelf.updates:
            taken.updates |= {(shelf.id, seq): update for seq, update in shelf.updates.items()}


def _take_page(taken: Taken, shelf: DiskQueueLog, extent: Extent) -> None:
    assert extent.place is not None
    extent.changed = False
    if not extent.live:
        taken.gone_pages.append(GonePage(shelf.id, extent.first, extent.place))
        return
    row = (extent.first, extent.last, extent.place, extent.bitmap(), max(extent.nbytes, 0))
    taken.pages.append(PageRow(shelf.id, *row, _updates_of(extent, shelf.updates)))


def _updates_of(extent: Extent, updates: dict[int, tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Return what changed of an extent's live messages, of all that changed of its log's.

    It looks at the fewer of both: a log can have many pages, and updates of each message in them.
    """
    if len(updates) <= extent.last - extent.first:
        return tuple((seq, *update) for seq, update in updates.items() if extent.has(seq))
    return tuple(
        (seq, *updates[seq])
        for seq in range(extent.first, extent.last + 1)
        if seq in updates and extent.has(seq)
    )


def write(
    taken: Taken, files: JournalFiles, pages: PageFile, directory: Directory, streams: StreamLogs
) -> None:
    """Make it so.

    Where ``is_lack_of_room`` says so of the exception, nothing has happened and it may be tried again.
    After any other (OSError, lmdb.Error, SyncFault, DamagedStore) nobody knows, and nothing is touched
    any more: of two directories, the one before and the one after, either may be what the next start
    finds, and what either refers to must be there.
    """
    try:
        for number in taken.files:
            if number in taken.old:
                _Copy(taken, files, pages).run(number)
        if taken.written:
            _sync(pages)
        streams.sync(taken.shelves)
        directory.write(
            CheckpointChange(
                taken.meta,
                taken.shelves,
                taken.gone_shelves,
                taken.pages + taken.written,
                [(page.shelf, page.first) for page in taken.gone_pages],
                taken.notes,
            )
        )
    except Exception as fault:
        if is_lack_of_room(fault):
            for row in taken.written:
                pages.free(row.place)
            taken.written.clear()
        raise
    # It is made now, whatever comes.
    for page in taken.gone_pages:
        pages.free(page.place)


def _sync(pages: PageFile) -> None:
    try:
        pages.sync()
    except OSError as fault:
        raise SyncFault(f"{pages.path}: {fault.strerror}") from fault


class _Copy:
    """One file's live messages on their way to pages: those of logs that have messages in common to common
    pages, so that a message is there once.
    """

    def __init__(self, taken: Taken, files: JournalFiles, pages: PageFile) -> None:
        self.taken = taken
        self.files = files
        self.pages = pages
        self.open: dict[int, OpenPage] = {}
        self.updates: dict[int, dict[int, tuple[int, int]]] = {}
        for (shelf, seq), update in taken.updates.items():
            self.updates.setdefault(shelf, {})[seq] = update

    def run(self, number: int) -> None:
        data = self.files.read(number)
        groups = list(_groups(data, number))
        live = self.taken.old[number]
        roots: dict[int, int] = {}
        for start, end in groups:
            join_sharing(data, start, end, roots)
        for start, end in groups:
            live_records(data, start, end, live, roots, self._page_for)
        for page in self.open.values():
            self._flush(page)
        self.open.clear()
        self._check(number, live)

    def _page_for(self, root: int, size: int, places: int) -> OpenPage:
        """Where the next message of these logs goes, which takes so many bytes, and has so many places."""
        page = self.open.get(root)
        if page is None:
            page = self.open[root] = OpenPage()
        elif page.size and page.size + size > (SHARED_BYTES if places > FEW_PLACES else PAGE_BYTES):
            self._flush(page)
        return page

    def _flush(self, page: OpenPage) -> None:
        blob, extents = page.take()
        place = self.pages.write(blob)
        self.pages.share(place, len(extents))
        for shelf, extent in extents.items():
            row = (extent.first, extent.last, place, extent.bitmap(), extent.nbytes)
            self.taken.written.append(PageRow(shelf, *row, _updates_of(extent, self.updates.get(shelf, {}))))

    def _check(self, number: int, live: dict[int, Extent]) -> None:
        """Every live message must have been there: the file is given up on the strength of this copy."""
        wanted = sum(extent.live for extent in live.values())
        copied = 0
        for row in self.taken.written:
            source = live.get(row.shelf)
            if source is not None and source.first <= row.first <= source.last:
                copied += Extent.of(row.first, row.last, None, row.bitmap).live
        if copied != wanted:
            what = f"{wanted - copied} of {wanted} messages can't be read back"
            raise DamagedStore(self.files.path(number), 0, what)


def _groups(data: bytes, number: int) -> Iterator[tuple[int, int]]:
    """Yield where the records of each group of a journal file begin and end."""
    at = BLOCK_BYTES
    while (group := group_at(data, at, number)) is not None and group.end >= 0:
        yield group.start, group.end
        at = group.end if not group.is_last else -(-max(group.end, at + 1) // BLOCK_BYTES) * BLOCK_BYTES


def adopt(taken: Taken, shelves: Iterable[DiskQueueLog]) -> None:
    """The files of the picture are nobody's any more; what has left since then is left out."""
    written: dict[int, list[PageRow]] = {}
    for row in taken.written:
        written.setdefault(row.shelf, []).append(row)
    gone = {(page.shelf, page.first) for page in taken.gone_pages}
    for shelf in shelves:
        kept: list[Extent] = []
        moved: list[Extent] = []
        for extent in shelf.extents:
            if extent.place is not None:
                if (shelf.id, extent.first) not in gone:
                    kept.append(extent)
            elif extent.file in taken.files:
                moved.append(extent)
        rows = written.get(shelf.id, [])
        if not moved and not rows and len(kept) == len(shelf.extents):
            continue
        given_back = [
            seq for seq, update in shelf.updates.items() if taken.updates.get((shelf.id, seq)) != update
        ]
        pages = [_page(row, moved, given_back) for row in rows]
        later = [
            extent for extent in shelf.extents if extent.place is None and extent.file not in taken.files
        ]
        shelf.replace(kept + pages + later)


def _page(row: PageRow, moved: list[Extent], given_back: list[int]) -> Extent:
    """A page that was written, as it is now; of ``given_back`` it doesn't say yet that they came back."""
    for extent in moved:
        if extent.first <= row.first <= extent.last:
            page: Extent = extent.part(row.first, row.last, row.place)
            page.changed = page.bitmap() != row.bitmap or any(page.has(seq) for seq in given_back)
            # What left meanwhile had about the size of the others; whoever loads the page knows.
            before = max(Extent.of(row.first, row.last, None, row.bitmap).live, 1)
            page.nbytes = row.nbytes * page.live // before
            return page
    raise RuntimeError(f"page {row.first} of shelf {row.shelf} comes from no file")
