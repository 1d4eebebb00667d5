"""The streams of a data directory: each has a directory of segments, which follows the journal.

A message is durable by its record in the journal. It is appended to the segments without a sync once that
record is on disk; before a checkpoint gives up journal files the segments are synced. A stream's row says how
many messages it had at the checkpoint: so many are in its segments after a crash, whatever it was, and the
journal has the others.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from broker.store import segmentrecovery
from broker.store.directory import QueueLogRow
from broker.store.faults import DamagedStore, is_lack_of_room
from broker.store.files import sync_file
from broker.store.logs import Shelves
from broker.store.maintenance import MaintenanceThread
from broker.store.replay import Found
from broker.store.segment import bases_in
from broker.store.segments import SegmentLog, remove
from broker.store.streamlog import DiskStreamLog

log = logging.getLogger("sluice.store")

STREAMS = "streams"
# Appending is worth a turn of a thread once so much waits for it; less waits for ``DiskStore.maintain``.
APPEND_BYTES = 1 << 18
# How often streams that nothing comes to are looked at for what is old.
RETAIN_S = 0.5
# Before the name in a stream's row and its definition: no name of a node begins with this character.
_MARK = "\x1fstream/"
# What retention keeps of a stream without limits.
_ALL = (None, None, None)


def unmarked(name: str) -> str:
    """Return the name of a log's node as it is called, a stream's or another's."""
    return name.removeprefix(_MARK)


def is_stream(name: str) -> bool:
    """Return whether a name in the journal or the directory is a stream's."""
    return name.startswith(_MARK)


class StreamLogs:
    """The streams of one store.

    The owner's thread makes and forgets streams and calls ``hand_over``. A thread of their own appends, so
    that a checkpoint holds up nobody; ``sync``, ``discard`` and ``copy`` are for the one that makes them.
    ``behind_bytes`` are in the journal and not appended yet. A stream that is removed is ``leaving`` until
    the directory has it no more: a checkpoint whose picture is of before says how many messages it has, and
    a crash may bring it back with those.
    """

    def __init__(self, path: Path) -> None:
        self.path = path / STREAMS
        self._logs: dict[int, DiskStreamLog] = {}
        self._leaving: dict[int, DiskStreamLog] = {}
        # Those with messages that aren't in the journal yet, and those with some that can be appended.
        self._arriving: list[DiskStreamLog] = []
        self._to_append: deque[DiskStreamLog] = deque()
        self._retained_at = 0.0
        self._thread: MaintenanceThread | None = None
        self._lock = threading.Lock()
        # Each is written by one thread at a time: the owner's, and who appends.
        self._handed_bytes = self._appended_bytes = 0

    def directory_of(self, number: int) -> Path:
        """Return the directory of a stream's segments."""
        return self.path / f"{number:d}"

    @property
    def behind_bytes(self) -> int:
        return self._handed_bytes - self._appended_bytes

    # --- the owner's thread

    def recover(self, store: Shelves, found: Found, first_offset: int) -> DiskStreamLog:
        """Open a stream as a replay found it, and append what its segments lack. DamagedStore, OSError.

        Where no segment is there, and none has to be, it begins with ``first_offset``.
        """
        row = found.row
        stream = self._opened(store, row.id, row.name, found.definition, row.last_seq, first_offset)
        segments = stream.segments
        if segments.torn is not None:
            log.info("%s: %s; the journal has the rest", segments.torn.file, segments.torn.reason)
        arrived = sorted((seq, time_ms, data) for seq, (_, _, _, time_ms, data) in found.messages.items())
        for time_ms, batch in groupby(arrived, key=lambda each: each[1]):
            messages = list(batch)
            segments.append_from(messages[0][0] - 1, [data for _, _, data in messages], time_ms)
        stream.last_seq = max(segments.next_offset, row.last_seq, found.last_seq)
        if segments.next_offset != stream.last_seq:
            what = f"message {segments.next_offset} of {stream.last_seq} is missing"
            raise DamagedStore(segments.directory, 0, what)
        stream.changed = found.changed
        return stream

    def create(self, store: Shelves, number: int, name: str, definition: bytes) -> DiskStreamLog:
        """Begin an empty stream for a node. OSError."""
        # What an earlier life of the broker had begun under this number was never confirmed.
        remove(self.directory_of(number))
        return self._opened(store, number, _MARK + name, definition, 0, 0)

    def get(self, number: int) -> DiskStreamLog | None:
        """Return a stream by its number."""
        return self._logs.get(number)

    def every(self) -> list[DiskStreamLog]:
        """Return all streams."""
        return list(self._logs.values())

    def begin_at(self, stream: DiskStreamLog, offset: int) -> None:
        """Have a stream that never had a message begin with an offset. OSError, SyncFault."""
        with self._lock:
            stream.segments.close()
            remove(stream.segments.directory)
            stream.segments = SegmentLog.open(stream.segments.directory, first_offset=offset)
            stream.last_seq = offset
            stream.changed = True

    def forget(self, stream: DiskStreamLog) -> None:
        """A stream is removed; its directory stays until ``discard``."""
        self._leaving[stream.id] = stream
        del self._logs[stream.id]

    def hand_over(self, written: int) -> bool:
        """Let the streams' thread have what is in the journal up to a group; true if it is worth a turn."""
        for stream in list(self._arriving):
            arrived = stream.arrived
            if arrived and arrived[0].group <= written:
                while arrived and arrived[0].group <= written:
                    batch = arrived.popleft()
                    self._handed_bytes += batch.nbytes
                    stream.ready.append(batch)
                self._to_append.append(stream)
            if not arrived:
                self._arriving.remove(stream)
        return self.behind_bytes >= APPEND_BYTES

    def ask(self, job: Callable[[], None], bell: int) -> None:
        """Have a job done on the streams' thread, and the bell rung afterwards."""
        if self._thread is None:
            self._thread = MaintenanceThread("sluice-streams", "streams", bell)
        self._thread.ask(job)

    def stop(self) -> None:
        """Finish what was asked for."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def needs_turn(self) -> bool:
        """Return whether something waits to be appended, or may go: it is old, or less is kept by now."""
        return bool(self._to_append) or any(stream.kept != _ALL for stream in self._logs.values())

    def close(self) -> None:
        """Let go of every file."""
        for stream in (*self._logs.values(), *self._leaving.values()):
            stream.segments.close()

    def take(self, rows: list[QueueLogRow]) -> None:
        """Add the rows of streams that have changed since the last time."""
        for stream in self._logs.values():
            if stream.changed:
                stream.changed = False
                rows.append(QueueLogRow(stream.id, stream.name, stream.definition, stream.last_seq))

    def has_changed(self) -> bool:
        """Return whether any stream has more than its row says."""
        return any(stream.changed for stream in self._logs.values())

    def put_back(self, rows: Iterable[QueueLogRow]) -> None:
        """Rows that were taken could not be written."""
        for row in rows:
            if row.id in self._logs:
                self._logs[row.id].changed = True

    def count(self) -> int:
        """Return how many messages there are, those in the journal alone included."""
        return sum(stream.last_seq - stream.first_offset for stream in self._logs.values())

    def discard_strangers(self) -> None:
        """At a start: remove directories of streams that are no more."""
        names = {str(number) for number in self._logs}
        for each in self.path.iterdir() if self.path.exists() else ():
            if each.name not in names:
                shutil.rmtree(each, ignore_errors=True)

    # --- other threads

    def append(self) -> None:
        """Append what was handed over, then let go of what retention doesn't keep.

        What has no room stays to be appended: OSError (``is_lack_of_room``), once all streams had their turn.
        SyncFault, DamagedStore where nothing may be appended any more.
        """
        lacking: OSError | None = None
        again: list[DiskStreamLog] = []
        while (stream := self._next_to_append()) is not None:
            if stream.id in self._leaving:
                # On a full disk its removal is to give room, not to take some.
                continue
            with self._lock:
                try:
                    self._append_to(stream)
                except OSError as fault:
                    if not is_lack_of_room(fault):
                        raise
                    lacking = fault
                    again.append(stream)
                self._retain(stream)
        self._to_append.extend(again)
        if time.monotonic() - self._retained_at >= RETAIN_S:
            self.retain()
        if lacking is not None:
            raise lacking

    def retain(self) -> None:
        """Let go of what retention doesn't keep."""
        for stream in list(self._logs.values()):
            with self._lock:
                self._retain(stream)
        self._retained_at = time.monotonic()

    def sync(self, rows: Iterable[QueueLogRow]) -> None:
        """Have on disk all that these rows are to say, and let go of what retention doesn't keep, which has
        to be synced. SyncFault; OSError where not all could be appended.
        """
        self.append()
        wanted = {row.id: row.last_seq for row in rows}
        leaving = [stream for stream in self._leaving.copy().values() if stream.id in wanted]
        for stream in (*self.every(), *leaving):
            with self._lock:
                # The streams' thread may have taken it, and not begun.
                self._append_to(stream)
            if stream.segments.sync() < wanted.get(stream.id, 0):
                what = f"message {stream.segments.next_offset} of {wanted[stream.id]} was not appended"
                raise DamagedStore(stream.segments.directory, 0, what)
            with self._lock:
                self._retain(stream)

    def discard(self, numbers: Iterable[int]) -> None:
        """Remove the segments of streams that the directory doesn't have any more."""
        for number in numbers:
            with self._lock:
                stream = self._leaving.pop(number, None)
                if stream is not None:
                    self._appended_bytes += sum(batch.nbytes for batch in stream.ready)
                    stream.ready.clear()
                    stream.segments.close()
            try:
                remove(self.directory_of(number))
            except OSError as fault:
                log.warning("%s: can't be removed yet: %s", self.directory_of(number), fault.strerror)

    def copy(self, target: Path) -> None:
        """Copy all segments into a directory; the caller copies what of the journal they are behind."""
        for stream in list(self._logs.values()):
            into = target / STREAMS / str(stream.id)
            into.mkdir(parents=True)
            for path in sorted(stream.segments.directory.iterdir()):
                try:
                    shutil.copyfile(path, into / path.name)
                except FileNotFoundError:
                    # Retention has let go of it meanwhile, and of all before it.
                    for earlier in into.iterdir():
                        earlier.unlink()
                else:
                    sync_file(into / path.name)

    def nbytes(self) -> int:
        """Return what all segments take."""
        return sum(stream.segments.nbytes for stream in list(self._logs.values()))

    # --- inside

    def _opened(
        self, store: Shelves, number: int, name: str, definition: bytes, synced: int, first_offset: int
    ) -> DiskStreamLog:
        self.path.mkdir(exist_ok=True)
        segments = SegmentLog.open(self.directory_of(number), synced=synced, first_offset=first_offset)
        last_seq = max(synced, first_offset)
        stream = DiskStreamLog(store, number, name, definition, last_seq, segments, self._arriving)
        self._logs[number] = stream
        return stream

    def _next_to_append(self) -> DiskStreamLog | None:
        # A checkpoint appends as the streams' thread does, and may have taken the last one.
        try:
            return self._to_append.popleft()
        except IndexError:
            return None

    def _append_to(self, stream: DiskStreamLog) -> None:
        while stream.ready:
            batch = stream.ready[0]
            stream.segments.append_from(batch.first, batch.messages, batch.time_ms)
            self._appended_bytes += batch.nbytes
            stream.appended_bytes += batch.nbytes
            stream.ready.popleft()

    def _retain(self, stream: DiskStreamLog) -> None:
        most_bytes, most_count, age_ms = stream.kept
        if stream.kept == _ALL:
            return
        before_ms = None if age_ms is None else time.time_ns() // 1_000_000 - age_ms
        if before_ms is not None:
            stream.segments.expire(before_ms, stream.held_from)
        stream.segments.retain(most_bytes, most_count, before_ms, stream.held_from)


def messages_in(path: Path, found: Found) -> int:
    """Return how many messages a stream of a data directory has, those in the journal alone included."""
    directory = path / STREAMS / str(found.row.id)
    bases = bases_in(directory) if directory.exists() else []
    return found.last_seq - (bases[0] if bases else 0)


def check(path: Path, rows: Iterable[QueueLogRow]) -> None:
    """Read every message of the streams of a data directory that no broker has; nothing is changed.

    DamagedStore where one isn't what was written, or isn't there.
    """
    for row in rows:
        if is_stream(row.name):
            segmentrecovery.check(path / STREAMS / str(row.id), row.last_seq)
