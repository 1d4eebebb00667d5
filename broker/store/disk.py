"""The store on disk: a journal for the groups, pages for what outlives it, a directory of the pages.

The owner's thread hands over records and seals groups; the journal's thread writes and syncs them;
the keeper, a third thread, prepares journal files and makes checkpoints (``jobs``). What the threads have
done reaches the owner through ``attend``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import lmdb

from broker.errors import OperatorError
from broker.store.backup import StoreCopy
from broker.store.cell import APPLIED, LOADING, STREAM_NOTE, retained_in
from broker.store.checkpoint import Taken, adopt, write
from broker.store.directory import DIRECTORY, CheckpointChange, Directory, Meta, make, try_to_read
from broker.store.faults import (
    DamagedStore,
    HalfLoaded,
    NoRoom,
    SyncFault,
    described,
    is_lack_of_room,
)
from broker.store.files import BLOCK_BYTES, JournalFiles, fitting_bytes, sync_file
from broker.store.jobs import Done, StoreJobs
from broker.store.journal import WRITERS, Journal
from broker.store.largefiles import LargeFile, larges_of, verify
from broker.store.lock import lock
from broker.store.logs import DiskQueueLog, Shelves
from broker.store.pagefile import PAGES, PageFile
from broker.store.pager import empty_runs
from broker.store.pages import StoredPage
from broker.store.pending import PendingChanges
from broker.store.port import FAILED, FULL, LARGE_NOTE, WRITING, QueueLog, StreamLog
from broker.store.records import DEFINE, NOTE, REMOVE
from broker.store.recovered import Recovered, RecoveredStream, recovered_log
from broker.store.replay import Found, Progress, Replayed, is_unwritten, name_and, replay
from broker.store.reserve import Reserve
from broker.store.shortage import Shortage
from broker.store.streamlog import DiskStreamLog
from broker.store.streamlogs import StreamLogs, is_stream, unmarked

log = logging.getLogger("sluice.store")

# Closed journal files after which their messages move to pages.
CLOSED_FILES = 2
Opened = TypeVar("Opened")


class DiskStore(Shelves):
    """A data directory, opened. OperatorError says why it can't be; nothing was changed then.

    Of a ``lazy`` one the journal is synced when a file of it is full, before each checkpoint and at the end,
    and ``synced`` says that a group was written: a power cut may take the last groups, never one before them.
    ``written`` is the last group in the journal's files.
    """

    def __init__(
        self, path: Path, file_bytes: int | None, progress: Progress | None, lazy: bool = False
    ) -> None:
        super().__init__()
        self._lazy = lazy
        self._taken: Taken | None = None
        # Notes of large messages as they were, by the group that changes them, until that is synced.
        self._unsynced_larges: deque[tuple[int, str, bytes]] = deque()
        self._streams = StreamLogs(path)
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._opened = contextlib.ExitStack()
        self._lock = lock(path)
        self._opened.callback(os.close, self._lock)
        try:
            self._open(file_bytes, progress)
        except BaseException:
            self._opened.close()
            raise

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        file_bytes: int | None = None,
        progress: Progress | None = None,
        lazy: bool = False,
    ) -> Self:
        """Open a data directory and read what survived in it (``recovered``).

        ``progress`` is told (done, total). DamagedStore where something is missing that had been
        confirmed, StoreInUse where another broker has it.
        """
        return opened(path, lambda: cls(path, file_bytes, progress, lazy))

    def _open(self, file_bytes: int | None, progress: Progress | None) -> None:
        empty_runs(self.path)
        self.file_bytes = file_bytes or fitting_bytes(self.path)
        self.files = JournalFiles(self.path, self.file_bytes)
        self._opened.callback(self.files.close)
        if not (self.path / DIRECTORY).exists():
            make(self.path / DIRECTORY)
        try_to_read(self.path / DIRECTORY, to_write=True)
        self.directory = Directory(self.path / DIRECTORY)
        self._opened.callback(self.directory.close)
        found = replay(self.directory, self.files, progress)
        if found.notes.get(LOADING):
            raise HalfLoaded(self.path, 0, "a snapshot was being loaded, and only part of it is there")
        if not found.clean:
            self._keep_what_was_read(found.meta.oldest)
        self._check_bodies(found.notes)
        self.pages = PageFile(self.path / PAGES)
        self._opened.callback(self.pages.close)
        self._reserve = Reserve(self.files, self.pages, self.directory)
        rows = [*(page for each in found.shelves.values() for page in each.pages), *found.gone_pages]
        self.pages.claim([page.place for page in rows])
        self._opened.callback(self._streams.close)
        self._adopt(found)
        self._begin(found)
        self._streams.discard_strangers()
        self._join_or_leave_cell()

    def _check_bodies(self, notes: dict[str, bytes]) -> None:
        """DamagedStore where the file of a large message isn't there."""
        for each in larges_of(notes, self.path):
            verify(each, whole=False)

    def _join_or_leave_cell(self) -> None:
        """Take away, with the first group of its own, the note that this is a prefix of a replicated log."""
        if self._notes.get(APPLIED):
            self.note(APPLIED, b"")

    # --- the port

    def open_log(self, name: str, definition: bytes) -> QueueLog:
        shelf = DiskQueueLog(self, self._next_shelf, name, definition, 0)
        self._next_shelf += 1
        self._shelves[shelf.id] = shelf
        self.record(DEFINE, shelf.id, 0, name_and(name, definition))
        return shelf

    def open_stream(self, name: str, definition: bytes) -> StreamLog:
        try:
            stream = self._streams.create(self, self._next_shelf, name, definition)
        except OSError as fault:
            raise OperatorError(f"{self.path}: no stream can be begun: {described(fault)}") from fault
        self._next_shelf += 1
        self.record(DEFINE, stream.id, 0, name_and(stream.name, definition))
        return stream

    def redefine(self, shelf: QueueLog, definition: bytes) -> None:
        assert isinstance(shelf, DiskQueueLog | DiskStreamLog)
        if shelf.definition != definition:
            shelf.definition = definition
            shelf.changed = True
            self.record(DEFINE, shelf.id, 0, name_and(shelf.name, definition))

    def remove(self, shelf: QueueLog) -> None:
        assert isinstance(shelf, DiskQueueLog | DiskStreamLog)
        if isinstance(shelf, DiskStreamLog):
            self._streams.forget(shelf)
            self._pending.removed_ids.append(shelf.id)
            # As a cell's directory has it, now or before.
            self.note(f"{STREAM_NOTE}{shelf.id}", b"")
        else:
            shelf.removed = True
            del self._shelves[shelf.id]
            self._pending.removed.append(shelf)
        self.record(REMOVE, shelf.id, 0, b"")

    def note(self, key: str, value: bytes) -> None:
        before = self._notes.get(key, b"")
        if before == value and key:
            return
        if before and key.startswith(LARGE_NOTE):
            self._unsynced_larges.append((self.group, key, before))
        if value:
            self._notes[key] = value
        else:
            # Keys that are never used again would stay, and be walked whenever bodies are counted.
            self._notes.pop(key, None)
        self._pending.notes[key] = value
        self.record(NOTE, 0, 0, name_and(key, value))

    def attend(self) -> int:
        silence(self.bell)
        if self.state != FAILED:
            self._take_note()
        if self.state != FAILED:
            self._append_to_streams()
            if self._taken is not None and self._taken.group <= self.written:
                taken, self._taken = self._taken, None
                self._jobs.make_checkpoint(taken)
            self._look_after_files()
        return self.synced

    def _take_note(self) -> None:
        """Of what the threads have done."""
        self.synced = self.written = self.journal.written
        while self._unsynced_larges and self._unsynced_larges[0][0] <= self.written:
            self._unsynced_larges.popleft()
        self.behind_bytes = self.journal.pending_bytes + self._streams.behind_bytes
        self.syncs = self.journal.writes
        self.sync_ns = self.journal.sync_ns
        self.groups_written = self.journal.groups
        self.written_bytes = self.journal.written_bytes
        while self.state != FAILED and (done := self._jobs.next_done()) is not None:
            self._finish(done)
        self._judge()

    def close(self) -> None:
        self.seal()
        self._stop_threads()
        if self.state != FAILED:
            self._take_note()
        if self.state != FAILED and self._taken is not None:
            # A picture that will not be written any more.
            self._pending.put_back(self._taken)
        if self.state != FAILED and self.written == self.group - 1:
            try:
                self._jobs.sync_journal()
                self._streams.hand_over(self.written)
                taken = self._take(range(0), self.group - 1)
                write(taken, self.files, self.pages, self.directory, self._streams)
            except (OSError, lmdb.Error, SyncFault) as fault:
                log.error("%s: can't note that the broker stops in order: %s", self.path, described(fault))
        self._opened.close()

    def abandon(self) -> None:
        """Let go of everything at once, as a crash would; for tests of what survives one."""
        self._stop_threads()
        self._opened.close()

    # --- for operators

    def load(self, shelf: QueueLog, page: StoredPage) -> bytes:
        """A page's records as they were written; any thread may ask. DamagedStore, OSError."""
        return self.pages.read(page.place)

    def stats(self) -> dict[str, int]:
        """Sizes in bytes, and what the journal's writer has measured; times in nanoseconds."""
        journal = self.journal
        return {
            "journal_bytes": self.files.nbytes(),
            "journal_file_bytes": self.file_bytes,
            "page_bytes": self.pages.size_bytes,
            "page_bytes_used": self.pages.used_bytes,
            "stream_bytes": self._streams.nbytes(),
            **self.directory.stats(),
            "messages": sum(shelf.live() for shelf in self._shelves.values()) + self._streams.count(),
            "writes": journal.writes,
            "groups": journal.groups,
            "written_bytes": journal.written_bytes,
            "sync_ns": journal.sync_ns,
            "slowest_sync_ns": journal.slowest_ns,
            "last_sync_ns": journal.last_ns,
            "checkpoints": self.checkpoints,
        }

    def large_numbers(self) -> set[int]:
        """The files of large messages that something on a shelf refers to."""
        return {each.number for each in self._larges()}

    def body_bytes(self) -> int:
        """What the files of large messages take that something on a shelf refers to."""
        return sum(each.size for each in self._larges())

    def _larges(self) -> list[LargeFile]:
        return larges_of(self._notes, self.path)

    def backup(
        self, target: Path, done: Callable[[Exception | None], None], *, with_bodies: bool = True
    ) -> None:
        """Copy all of it, as of one moment, into a new directory; ``done`` is called on the keeper's thread.

        Without ``with_bodies`` the files of large messages are left out: for whoever wants to read the rest.

        The moment is what is on disk now. The caller sees to it that until then no file of a large message
        goes of which the store has a note, or had one whose end isn't synced.
        """
        self.seal()
        number, offset = self.journal.place()
        if offset == 0 and self._prepared > number:
            # Nothing was written since the start: of this run's first file no more than its head is copied,
            # for the journal may begin to write behind it meanwhile.
            number, offset = number + 1, BLOCK_BYTES
        unsynced = {key: note for _, key, note in self._unsynced_larges}
        larges = larges_of(self._notes | unsynced, self.path) if with_bodies else []
        copy = StoreCopy(self.directory, self.pages, self.files, self._streams, larges, number, offset)
        self._jobs.ask(lambda: done(copy.make(target)))

    # --- inside

    def _keep_what_was_read(self, oldest: int) -> None:
        """A broker that was killed may have left writes that no sync had reached: they were read as all
        else was, and what comes now is built on them, so they are synced before anything is.
        """
        needed = [self.files.path(number) for number in self.files.numbers() if number >= oldest]
        try:
            for path in (self.path / DIRECTORY, *needed):
                sync_file(path)
            self.files.sync_directory()
        except OSError as fault:
            raise OperatorError(f"{self.path}: what is there can't be synced: {fault.strerror}") from fault

    def _adopt(self, found: Replayed) -> None:
        self._shelves: dict[int, DiskQueueLog] = {}
        self._notes = {key: value for key, value in found.notes.items() if value}
        self._pending = PendingChanges(self, self._shelves, self._streams, found)
        self._next_shelf = found.next_shelf
        every = found.shelves.values()
        logs = [recovered_log(self, each) for each in every if not is_stream(each.row.name)]
        self._shelves.update((each.shelf.id, each.shelf) for each in logs)
        streams = [self._stream(each) for each in every if is_stream(each.row.name)]
        self.recovered = Recovered(found.clean, dict(self._notes), logs, streams)

    def _stream(self, found: Found) -> RecoveredStream:
        noted = self._notes.get(f"{STREAM_NOTE}{found.row.id}")
        first_offset = retained_in(noted)[0] if noted else 0
        try:
            stream = self._streams.recover(self, found, first_offset)
        except OSError as fault:
            if not is_lack_of_room(fault):
                raise
            # The journal had room for messages that the stream's segments had none for.
            self._reserve.give_up()
            stream = self._streams.recover(self, found, first_offset)
        return RecoveredStream(stream, unmarked(found.row.name), found.definition)

    def _begin(self, found: Replayed) -> None:
        """Start the threads on a journal file of our own; old files are only read from now on."""
        numbers = self.files.numbers()
        self.file = max([*numbers, found.meta.oldest - 1]) + 1
        self._oldest = min([number for number in numbers if number >= found.meta.oldest], default=self.file)
        # The last one, unless something was found in it; the oldest has to be there.
        spare = numbers[-1] if numbers and numbers[-1] > found.meta.oldest else 0
        unwritten = spare if found.first_groups.get(spare) == found.last_group + 1 else 0
        for number in numbers:
            if number < found.meta.oldest:
                self.files.retire(number)
        fd, lacking = self._first_file(unwritten)
        self._first_groups = {**found.first_groups, self.file: found.last_group + 1}
        self.group = found.last_group + 1
        self.synced = self.written = found.last_group
        self.file_used = 2 * 4096
        self._runs = found.meta.runs + 1
        self._busy = False
        self._prepared = self.file if fd >= 0 else self.file - 1
        # The last checkpoint had no room for what it was to move.
        self._modest = False
        self._shortage = Shortage(self.path)
        self._shortage.file = lacking
        # Of a lazy journal, the last file for which the keeper was asked for a sync.
        self._closing_from = self.file
        self.checkpoints = 0
        self.on_checkpoint: Callable[[], None] | None = None
        self.directory.write(CheckpointChange(self._meta(self._oldest, 0)))
        self.journal = Journal(self._runs, found.last_group, self.file, self._lazy)
        if fd >= 0:
            self.journal.provide(self.file, fd)
        self.bell = self.journal.bell
        parts = (self.files, self.pages, self.directory, self._streams, self._reserve)
        self._jobs = StoreJobs(self.journal, *parts, self.file)
        self._writers = [
            threading.Thread(target=self.journal.run_until_stopped, args=(number,), name="sluice-journal")
            for number in range(WRITERS)
        ]
        for writer in self._writers:
            writer.daemon = True
            writer.start()
        self._opened.callback(self._stop_threads)
        self._look_after_files()
        if fd < 0:
            # What nobody needs any more may be all the room there is to be had.
            self._judge()
            if not self._busy:
                self.begin_checkpoint()
        self._jobs.restock()

    def _first_file(self, unwritten: int) -> tuple[int, str]:
        """The descriptor of the first file of this run: a new one or, on a full disk, one that an earlier
        run had prepared and never came to. Where there is neither, -1 and why: the store begins as full.
        """
        try:
            return self._reserve.prepare_file(self.file, urgent=True), ""
        except (OSError, SyncFault) as fault:
            if not is_lack_of_room(fault):
                what = f"no journal file can be made: {described(fault)}"
                raise OperatorError(f"{self.path}: {what}") from fault
            if unwritten and is_unwritten(self.files, unwritten):
                self.file = unwritten
                return self.files.reopen(unwritten), ""
            return -1, described(fault)

    def next_file(self) -> None:
        self.file += 1
        self.file_used = 2 * 4096
        self._first_groups[self.file] = self.group

    def _look_after_files(self) -> None:
        """One file more than the present one is always there; closed ones make way. Where there was no
        room for it, ``maintain`` tries again.
        """
        if not self._shortage.file:
            self._order_file()
        if self._lazy and self.journal.file > self._closing_from:
            self._closing_from = self.journal.file
            self._jobs.sync_closed()
        closed = min(self.file, self.journal.file) - self._oldest
        if closed >= CLOSED_FILES and not self._busy and not self._shortage.checkpoint:
            self.begin_checkpoint()

    def maintain(self) -> None:
        """Once a second: let pages that are empty go, and what fills the notes; on a full disk, find room."""
        if self.state == FAILED:
            return
        is_full = self.state == FULL
        if is_full:
            self._order_file()
            self._jobs.restock()
        if is_full or self._streams.needs_turn():
            # There may be room by now, something old, or little that waits to be appended.
            self._jobs.append_to_streams()
        dirty = self._pending.has_any()
        if self._busy:
            return
        if is_full and not dirty and not self._movable():
            # One that moves nothing has nothing to free: there may be room by now for one that does.
            self._modest = False
        if dirty or (is_full and (self._movable() or self._streams.has_changed())):
            self.begin_checkpoint()

    def _order_file(self) -> None:
        if self._prepared <= self.file:
            # Settlements need it soon, and nothing else gives room for one.
            urgent = self._prepared < self.file or self.file_used > self.file_bytes // 2
            self._jobs.prepare_file(self._prepared + 1, urgent)

    def begin_checkpoint(self) -> None:
        """Take a picture of what is live; it is written once all that led to it is on disk."""
        if self.state == FAILED:
            return
        if self.on_checkpoint is not None:
            self.on_checkpoint()
        self.seal()
        self._busy = True
        if self._taken is not None:
            # One that isn't begun yet: this one says all that it was to say.
            self._pending.put_back(self._taken)
        self._taken = self._take(self._movable(), 0)
        if self._taken.group <= self.journal.written:
            # Nothing is under way that would ring the bell.
            os.eventfd_write(self.bell, 1)

    def _append_to_streams(self) -> None:
        """Have what the journal has appended to streams."""
        # Each attempt rings the bell: where there is no room, ``maintain`` tries again, once a second.
        if self._streams.hand_over(self.written) and not self._shortage.streams:
            self._jobs.append_to_streams()

    def _movable(self) -> range:
        """The closed files a checkpoint may give up: all of them, or on a full disk one after the other.

        What is live in them needs room in pages. Where there was none, only those at the beginning in
        which nothing is live are given up, until a checkpoint that moved nothing has freed pages.
        """
        end = min(self.file, self.journal.file)
        if not self._shortage.checkpoint:
            return range(self._oldest, end)
        live = {
            extent.file
            for shelf in self._shelves.values()
            for extent in shelf.extents
            if extent.place is None and extent.live
        }
        emptied = min([end, *live])
        return range(self._oldest, emptied if self._modest else max(emptied, min(self._oldest + 1, end)))

    def _take(self, numbers: range, clean_group: int) -> Taken:
        oldest = numbers.stop if numbers else self._oldest
        taken = Taken(self.group - 1, numbers, self._meta(oldest, clean_group))
        self._pending.take(taken)
        return taken

    def _meta(self, oldest: int, clean_group: int) -> Meta:
        return Meta(oldest, self._first_groups[oldest], clean_group, self._runs, self._next_shelf)

    def _finish(self, done: Done) -> None:
        if done.fault is not None and not is_lack_of_room(done.fault):
            self._fail(described(done.fault))
            return
        lacking = "" if done.fault is None else described(done.fault)
        if done.taken is not None:
            self._busy = False
            if lacking:
                self._shortage.checkpoint = lacking
                self._pending.put_back(done.taken)
            else:
                self._adopt_pages(done.taken)
            # On a full disk one that moves nothing comes between two that do.
            self._modest = bool(lacking)
        elif done.prepared:
            self._shortage.file = lacking
            if not lacking:
                self._prepared = done.prepared
        elif done.streams:
            self._shortage.streams = lacking
        else:
            self._shortage.reserve = lacking

    def _adopt_pages(self, taken: Taken) -> None:
        self.checkpoints += 1
        self._oldest = taken.meta.oldest
        adopt(taken, [*self._shelves.values(), *self._pending.removed])
        if not self._modest or min(self.file, self.journal.file) - self._oldest < CLOSED_FILES:
            self._shortage.checkpoint = ""
        if taken.files and self._shortage.file:
            # The files it gave up may be used again.
            self._order_file()

    def _judge(self) -> None:
        """What the threads found decides whether the store writes, waits for room, or has failed."""
        if self.journal.fault and self.state != FAILED:
            what = "sync" if self.journal.fault_at_sync else "write"
            self._fail(f"{what} of {self.files.path(self.journal.file)}: {os.strerror(self.journal.fault)}")
        if self.state == FAILED:
            return
        lacking = self._shortage.judge(self.journal.full)
        self.state = FULL if lacking else WRITING
        self.reason = f"{self.path}: {lacking}" if lacking else ""

    def _fail(self, what: str) -> None:
        """Nothing is confirmed from now on, and nothing on disk is touched: neither by the journal nor by a
        checkpoint, for each would build on what nobody knows.
        """
        self._jobs.halted = True
        self.journal.halt()
        self.state = FAILED
        self.reason = (
            f"{what}; nothing more is confirmed, for nobody knows what is on disk."
            " Look after the disk, then start the broker again"
        )
        log.critical("the store has failed: %s", self.reason)

    def _stop_threads(self) -> None:
        """Everything sealed is written, everything the keeper was asked for is done."""
        self.journal.stop()
        self._streams.stop()
        self._jobs.stop()
        for writer in self._writers:
            writer.join()


def opened(path: Path, make: Callable[[], Opened]) -> Opened:
    """Open a data directory by ``make``; what can be wrong with it is an OperatorError that says so."""
    try:
        return make()
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError) as fault:
        raise DamagedStore(path / DIRECTORY, 0, f"its pages are damaged ({fault})") from fault
    except (OSError, lmdb.Error, SyncFault) as fault:
        if is_lack_of_room(fault):
            raise NoRoom(f"{path}: no room: {described(fault)}") from fault
        raise OperatorError(f"{path}: can't be opened: {described(fault)}") from fault
    except MemoryError as fault:
        raise OperatorError(f"{path}: there is not enough memory to open it") from fault
    except (ValueError, LookupError, OverflowError, struct.error) as fault:
        # The checksums were right, so no disk did it; what no broker writes is refused all the same.
        raise DamagedStore(path, 0, f"what is there makes no sense ({fault!r})") from fault


def silence(bell: int) -> None:
    """Take the bell's ring away, if there is one."""
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(bell)
