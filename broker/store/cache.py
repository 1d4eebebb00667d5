"""The store of a standby: a data directory that follows a replicated log, group by group.

It has what the owner's directory has, by the same numbers of queue logs and messages; journal files, pages
and checkpoints are its own. Nothing but ``apply`` and ``load_snapshot`` changes what it holds.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.blocks import StreamMessage
from broker.store.cell import (
    APPLIED,
    LOADING,
    STREAM_NOTE,
    Position,
    position,
    position_in,
    retained,
    retained_in,
)
from broker.store.faults import DamagedStore, SyncFault
from broker.store.files import BLOCK_BYTES
from broker.store.journal import group_at
from broker.store.largefiles import LARGE, BodyNotes, LargeFile, named_bodies, verify
from broker.store.logs import DiskQueueLog, Extent, copy_live, scan_group, spans_too_far
from broker.store.port import DURABLE, FAILED, FULL, LARGE_NOTE, QueueLog, StreamLog
from broker.store.prefix import PrefixStore
from broker.store.records import DEFINE, FORGET, MESSAGE, NOTE, STREAM, Buffer, DamagedRecord, read
from broker.store.recovered import Recovered
from broker.store.replay import Progress, name_and, named
from broker.store.streamlog import DiskStreamLog
from broker.store.streamlogs import is_stream, unmarked

# The largest blob of a snapshot, unless one message is larger.
SNAPSHOT_BYTES = 512 << 10
# Of one queue log in one journal file, the most numbers between its first message and its last in a snapshot:
# a file's messages of one log share a bit for each.
SPAN = 1 << 18
# What the journal may have yet to write while a snapshot is loaded.
LOAD_BEHIND_BYTES = 16 << 20
# How long the journal may write nothing meanwhile.
PATIENCE_S = 60.0
RECORD_BYTES = 48

# Verified records from one offset to another.
Stretch = tuple[bytes, int, int]


class RefusedGroup(OperatorError):  # noqa: N818 - as DamagedStore
    """A group is damaged, or not the next one of the log. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A page, or a file of the journal: where it is, and what is live of it, by shelf id."""

    path: Path
    offset: int
    extents: dict[int, Extent]
    stretches: Iterator[Stretch]


class CacheStore(PrefixStore):
    """A data directory that is a prefix of a replicated log, opened to follow it; ``open`` opens it.

    All of it is for one thread, which calls ``attend`` when the bell rings, and ``maintain`` once a second.
    It calls ``apply`` only while ``state`` is ``writing``, and stops for a while where ``behind_bytes`` is
    more than it wants in memory: nothing here waits for the disk but ``load_snapshot`` and ``settle``. Beside
    a bit a message, what it needs of memory depends on nothing that it holds. ``recovered`` is empty.

    Large messages. The file of one is ``DATA/large/NUMBER`` (eight digits; the owner's number), which notes
    ``large/NUMBER/MESSAGE/NODE`` refer to, each with the file's size and checksum. Before ``apply(data)`` the
    caller fetches what ``bodies_to_fetch(data)`` returns, each by ``largefiles.receive_body`` and under the
    name ``largefiles.body_key``. Where the log has no such body any more, a later group takes the note
    away, and this group is applied without. The file goes by itself in ``attend``, once no note refers to
    it and the group that took the last one away is synced here. After a power cut, notes may be back whose
    files have gone: ``missing_bodies`` are those, to be fetched, or, where the log has them no more,
    to be done without until their notes go.
    """

    def __init__(
        self, path: Path, file_bytes: int | None, progress: Progress | None, lazy: bool = True
    ) -> None:
        self._unneeded: deque[tuple[int, LargeFile]] = deque()
        self._expected: set[int] = set()
        super().__init__(path, file_bytes, progress)
        # The messages of the journal's files, which a broker would serve now.
        self.recovered = Recovered(self.recovered.clean, {}, [])
        self._bodies = BodyNotes(self._notes, self.path)
        self._remove_unnamed()
        for key, value in self._notes.items():
            if key.startswith(STREAM_NOTE):
                self._follow_retention(key, value)

    def _check_bodies(self, notes: dict[str, bytes]) -> None:
        """A missing one is told by ``missing_bodies``."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return not self._shelves and not self._streams.every() and not any(self._notes.values())

    # --- following the log

    def apply(self, data: bytes) -> None:
        """Take in the next group of the log, whole as its owner sealed it.

        RefusedGroup where it isn't the one after ``applied`` or is of an older epoch; OperatorError where
        the store has failed, now or before.
        """
        if self.state == FAILED:
            raise OperatorError(self.reason)
        records, chain, last = _scanned(data)
        epoch, group = _position_at(data, last)
        last_epoch, last_group = self.applied
        if group != last_group + 1 or epoch < last_epoch:
            raise RefusedGroup(
                f"{self.path}: group {group} of epoch {epoch} doesn't follow group {last_group}"
                f" of epoch {last_epoch}"
            )
        self._take_group(data, records, chain)
        if self._expected:
            self._expected -= {each.number for each in named_bodies(data, self.path)}

    def _take_group(self, data: bytes, records: int, chain: int) -> None:
        try:
            self.take_in(data, records, chain, self._shelves, self._control, self._take_streamed)
        except (ValueError, LookupError, MemoryError, OSError, SyncFault, DamagedStore) as fault:
            # Some of it is in memory. What is on disk is whole, and the next start goes on from there.
            self._fail(f"group {self.group} can't be applied ({fault!r})")
            raise OperatorError(self.reason) from fault

    def _control(self, kind: int, node: int, payload: bytes) -> None:
        if kind == NOTE:
            self._replace_note(*named(payload))
        elif kind == DEFINE:
            self._define(node, *named(payload))
        else:
            gone = self._shelves.pop(node, None)
            stream = self._streams.get(node)
            if gone is not None:
                gone.removed = True
                self._pending.removed.append(gone)
            elif stream is not None:
                self._streams.forget(stream)
                self._pending.removed_ids.append(node)

    def _define(self, node: int, name: str, definition: bytes) -> None:
        found: DiskQueueLog | DiskStreamLog | None = self._shelves.get(node) or self._streams.get(node)
        if found is None:
            if is_stream(name):
                self._streams.create(self, node, unmarked(name), definition)
            else:
                self._shelves[node] = DiskQueueLog(self, node, name, definition, 0)
            self._next_shelf = max(self._next_shelf, node + 1)
        elif found.definition != definition:
            found.definition = definition
            found.changed = True

    def _take_streamed(self, node: int, seq: int, time_ms: int, data: bytes) -> None:
        stream = self._streams.get(node)
        if stream is not None:
            stream.take_in(seq, time_ms, data)

    def _follow_retention(self, key: str, value: bytes) -> None:
        """Keep of a stream what the owner has kept of it, in whole segments."""
        stream = self._streams.get(int(key.removeprefix(STREAM_NOTE)))
        if stream is None or not value:
            return
        first_offset, stream.segments.segment_bytes = retained_in(value)
        if first_offset and not stream.last_seq:
            # A snapshot has what was left of it.
            self._streams.begin_at(stream, first_offset)
        stream.kept = None, 1, None
        stream.held_from = first_offset

    def _replace_note(self, key: str, value: bytes) -> None:
        if key == APPLIED:
            self._notes[key] = value
            return
        before = self._notes.pop(key, b"")
        if key.startswith(LARGE_NOTE):
            self._count_body(key, before, value)
        if key.startswith(STREAM_NOTE):
            self._follow_retention(key, value)
        if value:
            self._notes[key] = value
        self._pending.notes[key] = value

    def _count_body(self, key: str, before: bytes, value: bytes) -> None:
        if before:
            self._unsynced_larges.append((self.group, key, before))
        gone = self._bodies.change(key, before, value)
        if gone is not None:
            self._unneeded.append((self.group, gone))

    # --- the port: what it has the owner wrote

    def open_log(self, name: str, definition: bytes) -> QueueLog:
        raise _not_ours()

    def open_stream(self, name: str, definition: bytes) -> StreamLog:
        raise _not_ours()

    def redefine(self, shelf: QueueLog, definition: bytes) -> None:
        raise _not_ours()

    def remove(self, shelf: QueueLog) -> None:
        raise _not_ours()

    def note(self, key: str, value: bytes) -> None:
        raise _not_ours()

    def attend(self) -> int:
        synced = super().attend()
        while self._unneeded and self._unneeded[0][0] <= self.journal.synced and self.state != FAILED:
            _, file = self._unneeded.popleft()
            if not self._bodies.names(file.number) and file.number not in self._expected:
                _unlink(file.path)
        return synced

    def close(self) -> None:
        """Write what was applied, wait for it unless the disk is full, and let go of every file."""
        if self.state != FAILED:
            with suppress(OperatorError):
                self._wait(lambda: self.written == self.group - 1 or self.state == FULL)
        super().close()

    # --- large messages

    def bodies(self) -> list[LargeFile]:
        """The files that notes refer to."""
        return self._larges()

    def bodies_to_fetch(self, data: bytes) -> list[LargeFile]:
        """The files that must be there before this group is applied, and are not, or not as it says.

        From now until the group is applied none of them is deleted. DamagedStore, DamagedRecord where the
        group isn't what an owner wrote.
        """
        wanted = named_bodies(data, self.path)
        if not wanted:
            return []
        self._expected |= {each.number for each in wanted}
        known = set(self.bodies())
        return [each for each in wanted if not (each in known and _is_there(each)) and not _is_whole(each)]

    def missing_bodies(self) -> list[LargeFile]:
        """The files that notes refer to and that aren't there in their size."""
        return [each for each in self.bodies() if not _is_there(each)]

    def _remove_unnamed(self) -> None:
        """Delete what no note refers to; all that was read at the start is synced."""
        folder = self.path / LARGE
        for path in folder.iterdir() if folder.is_dir() else ():
            if not path.name.isdecimal() or not self._bodies.names(int(path.name)):
                _unlink(path)

    # --- snapshots

    def live_groups(self, most_bytes: int = SNAPSHOT_BYTES) -> Iterator[bytes]:
        """Everything that is live, as records in blobs of so many bytes, unless one message is larger.

        That is: definitions, notes, messages in the order of each queue log with what is known of them, and
        the highest number of each log where no message bears it.
        Until the last blob nothing else of the store may be called (RuntimeError). It reads a page or a
        journal file at a time. DamagedStore, OSError.
        """
        self.settle()
        # So that their segments have all of them.
        self._streams.hand_over(self.written)
        self._streams.sync(())
        return self._undisturbed(self._blobs(most_bytes))

    def load_snapshot(
        self, blobs: Iterable[bytes], epoch: int, group: int, waits: Callable[[], None] | None = None
    ) -> None:
        """Have in an empty directory what ``live_groups`` gave of another: the log's state behind this group.

        It waits for the journal, in between and at the end, and calls ``waits`` again and again meanwhile;
        then also as long as the disk is full, unless that raises. A directory in which it did not come to its
        end can't be opened (HalfLoaded). OperatorError where the directory isn't empty, or the store fails;
        RefusedGroup where a blob is damaged: the directory is of no use then.
        """
        if not self.is_empty:
            raise OperatorError(f"{self.path}: a snapshot can be loaded into an empty directory only")
        self._take_blob(_notes({LOADING: position(epoch, group)}))
        for blob in blobs:
            self._take_blob(blob)
            self.attend()
            self._wait(lambda: self.journal.pending_bytes <= LOAD_BEHIND_BYTES, waits)
        self._take_blob(_notes({LOADING: b"", APPLIED: position(epoch, group)}))
        self._wait(self._is_settled, waits)

    def begin_log(self, epoch: int) -> None:
        """Note that a log begins with what the directory holds, and wait for it: its groups follow this."""
        self._take_blob(_notes({APPLIED: position(epoch, 0)}))
        self.settle()

    def settle(self) -> None:
        """Wait until all that was applied is written and no checkpoint is under way. OperatorError where the
        store fails, or writes nothing for ``PATIENCE_S``.
        """
        self._wait(self._is_settled)

    def _is_settled(self) -> bool:
        return self.written == self.group - 1 and not self._busy

    def _take_blob(self, blob: bytes) -> None:
        records, chain, _ = _scanned(blob)
        if spans_too_far(blob, self._shelves, self.file, SPAN):
            self.next_file()
        self._take_group(blob, records, chain)

    def _wait(self, is_over: Callable[[], bool], waits: Callable[[], None] | None = None) -> None:
        progress, since = (-1, -1), time.monotonic()
        # Unlike select it takes descriptors above 1,023, which an owner with many clients has.
        waiting = select.poll()
        waiting.register(self.bell, select.POLLIN)
        while True:
            self.attend()
            if self.state == FAILED:
                raise OperatorError(self.reason)
            if is_over():
                return
            if waits is not None:
                waits()
            if self.state == FULL:
                # There may be room again.
                self.maintain()
                if waits is not None:
                    since = time.monotonic()
            now = (self.journal.written, self.checkpoints)
            if now != progress:
                progress, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                raise OperatorError(self.reason or f"{self.path}: nothing was written for {PATIENCE_S:g} s")
            waiting.poll(500)

    def _undisturbed(self, blobs: Iterator[bytes]) -> Iterator[bytes]:
        before = (self.group, self.checkpoints)
        for blob in blobs:
            yield blob
            if before != (self.group, self.checkpoints) or self._busy:
                raise RuntimeError("the store was changed while its live records were read")

    def _blobs(self, most_bytes: int) -> Iterator[bytes]:
        into = Buffer()
        for kind, node, payload in self._definitions_and_notes():
            if into.count and into.size + RECORD_BYTES + len(payload) > most_bytes:
                yield into.take()
            into.add(kind, node, 0, 0, 0, 0, payload)
        for sources in self._rounds():
            if into.count:
                yield into.take()
            for source in sources:
                copied = 0
                for data, at, end in source.stretches:
                    place = 0
                    while True:
                        at, place, count = copy_live(
                            data, at, end, source.extents, self._shelves, into, most_bytes, place
                        )
                        copied += count
                        if at >= end:
                            break
                        yield into.take()
                wanted = sum(extent.live for extent in source.extents.values())
                if copied != wanted:
                    what = f"{wanted - copied} of {wanted} messages can't be read back"
                    raise DamagedStore(source.path, source.offset, what)
        if into.count:
            yield into.take()
        for shelf in self._shelves.values():
            if shelf.last_seq and shelf.holder(shelf.last_seq) is None:
                if into.count and into.size + 2 * RECORD_BYTES > most_bytes:
                    yield into.take()
                into.add(MESSAGE, shelf.id, shelf.last_seq, DURABLE, 0, 0, b"")
                into.add(FORGET, shelf.id, shelf.last_seq, 0, 0, 0, b"")
        for stream in self._streams.every():
            for offset, time_ms, data in _messages_of(stream):
                if into.count and into.size + RECORD_BYTES + len(data) > most_bytes:
                    yield into.take()
                into.add(STREAM, stream.id, offset + 1, 0, 0, time_ms, data)
        if into.count:
            yield into.take()

    def _definitions_and_notes(self) -> Iterator[tuple[int, int, bytes]]:
        every: list[DiskQueueLog | DiskStreamLog] = [*self._shelves.values(), *self._streams.every()]
        for shelf in every:
            yield DEFINE, shelf.id, name_and(shelf.name, shelf.definition)
        for stream in self._streams.every():
            value = retained(stream.first_offset, stream.segments.segment_bytes)
            yield NOTE, 0, name_and(f"{STREAM_NOTE}{stream.id}", value)
        for key, value in self._notes.items():
            if value and key not in (APPLIED, LOADING) and not key.startswith(STREAM_NOTE):
                yield NOTE, 0, name_and(key, value)

    def _rounds(self) -> Iterator[Iterator[LiveSource]]:
        """Pages in several rounds, then journal files; in each, one log's numbers don't span too much.

        So a snapshot is loaded into as many more journal files as there are rounds, and no more.
        """
        rounds = {shelf.id: _rounds_of(shelf.extents) for shelf in self._shelves.values()}
        while rounds := {node: each for node, each in rounds.items() if each}:
            yield (self._page(node, extent) for node, each in rounds.items() for extent in each.pop(0))
        for number in range(self._oldest, self.file + 1):
            extents = {
                shelf.id: extent
                for shelf in self._shelves.values()
                for extent in shelf.extents
                if extent.place is None and extent.file == number and extent.live
            }
            if extents:
                path = self.files.path(number)
                yield iter([LiveSource(path, 0, extents, self._groups_of(number))])

    def _page(self, node: int, extent: Extent) -> LiveSource:
        assert extent.place is not None
        blob = self.pages.read(extent.place)
        return LiveSource(self.pages.path, extent.place.offset, {node: extent}, iter([(blob, 0, len(blob))]))

    def _groups_of(self, number: int) -> Iterator[Stretch]:
        data = self.files.read(number)
        at = BLOCK_BYTES
        while (group := group_at(data, at, number)) is not None and group.end >= 0:
            yield data, group.start, group.end
            at = -(-max(group.end, at + 1) // BLOCK_BYTES) * BLOCK_BYTES if group.is_last else group.end


def _scanned(data: bytes) -> tuple[int, int, int]:
    """How many records, their chain, where the last one begins. RefusedGroup where one is damaged."""
    try:
        records, chain, last = scan_group(data)
    except DamagedRecord as fault:
        raise RefusedGroup(f"a group can't be applied: {fault}") from fault
    if not records:
        raise RefusedGroup("a group without records can't be applied")
    return records, chain, last


def _position_at(data: bytes, last: int) -> Position:
    """The position that a group's last record notes; RefusedGroup where that is another record."""
    kind, *_, payload = read(data, last)[0]
    try:
        key, value = named(payload)
        if kind == NOTE and key == APPLIED:
            return position_in(value)
    except ValueError:
        pass
    raise RefusedGroup("a group that doesn't end with its position in the log can't be applied")


def _notes(notes: dict[str, bytes]) -> bytes:
    into = Buffer()
    for key, value in notes.items():
        into.add(NOTE, 0, 0, 0, 0, 0, name_and(key, value))
    return into.take()


def _rounds_of(extents: list[Extent]) -> list[list[Extent]]:
    """A log's pages with something live, in order, cut where the numbers of one part would span too much."""
    found: list[list[Extent]] = []
    for extent in extents:
        if extent.place is None or not extent.live:
            continue
        if not found or extent.last - found[-1][0].first > SPAN:
            found.append([])
        found[-1].append(extent)
    return found


def _messages_of(stream: DiskStreamLog) -> Iterator[StreamMessage]:
    """Yield all that a stream has, a part of it in memory at a time. DamagedStore, OSError."""
    reader = stream.segments.reader(stream.first_offset, cold=True)
    try:
        while found := reader.read(SNAPSHOT_BYTES):
            yield from found
    finally:
        reader.close()


def _is_there(file: LargeFile) -> bool:
    with suppress(DamagedStore):
        verify(file, whole=False)
        return True
    return False


def _is_whole(file: LargeFile) -> bool:
    with suppress(DamagedStore):
        verify(file)
        return True
    return False


def _unlink(path: Path) -> None:
    """Delete a file nobody needs; where that can't be done now, the next start does it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _not_ours() -> RuntimeError:
    return RuntimeError("a standby's store holds what its owner wrote, and nothing else")
