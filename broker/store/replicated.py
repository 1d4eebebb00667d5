"""The store of a cell's owner: groups are durable when a replicated log has acknowledged them.

A sealed group goes to the log. It goes to the local journal, which is lazy, once the log has acknowledged
it: so the data directory is a prefix of the log at every instant, and a standby can go on from it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from broker.errors import OperatorError
from broker.store.cell import APPLIED, STREAM_NOTE, position, retained
from broker.store.disk import opened
from broker.store.faults import SyncFault
from broker.store.largefiles import BodyNotes, LargeFile
from broker.store.port import FAILED, FULL, LARGE_NOTE
from broker.store.prefix import PrefixStore
from broker.store.records import NOTE
from broker.store.replay import Progress, name_and
from broker.store.segments import SEGMENT_BYTES

log = logging.getLogger("sluice.store")

# So is a stream that was never cut: it needs no note.
_ALL_RETAINED = retained(0, SEGMENT_BYTES)


class GroupLog(Protocol):
    """A replicated log, as its one writer sees it. Neither waits for anything, nor raises.

    Groups are submitted in order, each number once, one more each time. ``acked_group`` is the last one that
    will survive with all before it; whoever raises it calls the store's ``ring`` afterwards.
    ``pending_bytes`` is what was submitted and isn't acknowledged.
    """

    @property
    def acked_group(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    def submit(self, log_group: int, data: bytes) -> None: ...


class HeldGroup(NamedTuple):
    """A sealed group that the log has, or is to have, and the journal not; ``number`` is the store's own."""

    number: int
    log_group: int
    data: bytes
    records: int
    file: int
    chain: int
    sealed_ns: int


class ReplicatedStore(PrefixStore):
    """A data directory that is a prefix of a replicated log, opened by the one who writes that log.

    ``own`` opens it. All of it but ``ring`` and ``load`` is for one thread, as of every store. ``synced``
    is the last group that the log has acknowledged, ``written`` the last one in the local journal;
    ``behind_bytes`` is what was sealed and isn't both. ``syncs``, ``groups_written``, ``written_bytes`` and
    ``sync_ns`` are of groups that the log acknowledged, and the time from their seal until this was seen.

    A large message's file must be in the log's store of bodies before the group that names it is appended
    (``largefiles.named_bodies``); ``take_gone_bodies`` says which may leave it.
    """

    def __init__(
        self, path: Path, file_bytes: int | None, progress: Progress | None, group_log: GroupLog, epoch: int
    ) -> None:
        self._log = group_log
        self._epoch = epoch
        self._held: deque[HeldGroup] = deque()
        self._held_bytes = 0
        self._suspended = ""
        self._backups: list[tuple[Path, Callable[[Exception | None], None], bool]] = []
        self._gone_bodies: deque[tuple[int, LargeFile]] = deque()
        super().__init__(path, file_bytes, progress)
        # While it is suspended, and while the local disk is full, the log may take groups all the same.
        self.syncs_when_full = True
        # A group of ours has this number less in the log.
        self._ahead = self.group - 1 - self.applied[1]
        self._acknowledged = self._pushed = self.group - 1
        self._bodies = BodyNotes(self._notes, self.path)
        self._acked_groups = self._acked_bytes = self._acked_ns = 0
        self.tap = self._submit

    @classmethod
    def own(
        cls,
        path: Path,
        group_log: GroupLog,
        epoch: int,
        *,
        file_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> ReplicatedStore:
        """Open a directory that has applied all of the log, to append to it in this epoch.

        The first group that is sealed is the one after the last applied (1 in an empty directory, and in one
        that has never followed a log). It raises as ``DiskStore.open`` does; DamagedStore also where the file
        of a large message is missing.
        """
        return opened(path, lambda: cls(path, file_bytes, progress, group_log, epoch))

    def log_group(self, group: int) -> int:
        """The log's number of a group of this store's."""
        return group - self._ahead

    # --- the port

    def seal(self) -> None:
        if not self.open_records:
            return
        value = position(self._epoch, self.log_group(self.group))
        self._notes[APPLIED] = value
        self.record(NOTE, 0, 0, name_and(APPLIED, value))
        super().seal()

    def note(self, key: str, value: bytes) -> None:
        if key.startswith(LARGE_NOTE):
            gone = self._bodies.change(key, self._notes.get(key, b""), value)
            if gone is not None:
                self._gone_bodies.append((self.group, gone))
        super().note(key, value)

    def close(self) -> None:
        """Let go of every file. Nothing is sealed: what isn't acknowledged now is not in the directory, and
        only where all is, its stop counts as one in order.
        """
        backups, self._backups = self._backups, []
        for _, done, _ in backups:
            done(OperatorError(f"{self.path}: the store is closed"))
        if self.state != FAILED:
            self._take_acknowledged()
        if not self._held and not self.open_records:
            super().close()
            return
        self._stop_threads()
        if not self._jobs.halted:
            with contextlib.suppress(SyncFault):
                self._jobs.sync_journal()
        self._opened.close()

    def maintain(self) -> None:
        if not self._suspended:
            self._note_retention()
            super().maintain()

    def _note_retention(self) -> None:
        """Tell standbys what retention has left of each stream."""
        for stream in self._streams.every():
            key = f"{STREAM_NOTE}{stream.id}"
            value = retained(stream.first_offset, stream.segments.segment_bytes)
            if key in self._notes or value != _ALL_RETAINED:
                self.note(key, value)

    # --- for the log's writer

    def ring(self) -> None:
        """Have ``attend`` called on the owner's thread; any thread may, as long as this object is there."""
        os.eventfd_write(self.bell, 1)

    def suspend(self, reason: str) -> None:
        """Be ``full`` for this reason until ``resume``: the log doesn't answer, or the lease is over.

        Groups that are sealed meanwhile are submitted all the same, and what is acknowledged is told: by then
        it is in the log before whatever a next owner writes.
        """
        if self._suspended != reason:
            log.error("%s: suspended: %s; durable nodes grant no credit", self.path, reason)
        self._suspended = reason
        self._judge()
        self.ring()

    def resume(self) -> None:
        """The log answers again."""
        if self._suspended:
            log.warning("%s: the store goes on", self.path)
        self._suspended = ""
        self._judge()
        self.ring()

    def bodies(self) -> list[LargeFile]:
        """Return the large messages' files that notes refer to."""
        return self._larges()

    def take_gone_bodies(self) -> list[LargeFile]:
        """Large messages' files that no note refers to any more, by groups that the log has acknowledged.

        Each is told once. The log may drop them: a standby that is behind meets the notes that named them,
        doesn't find them, and comes to the group that takes the notes away.
        """
        found: list[LargeFile] = []
        while self._gone_bodies and self._gone_bodies[0][0] <= self._acknowledged:
            _, file = self._gone_bodies.popleft()
            if not self._bodies.names(file.number):
                found.append(file)
        return found

    # --- for operators

    def backup(
        self, target: Path, done: Callable[[Exception | None], None], *, with_bodies: bool = True
    ) -> None:
        """As ``DiskStore.backup``; it begins once all that was acknowledged is in the local journal, and no
        later group is told to be until then, so that no body goes whose note is copied.
        """
        self._backups.append((target, done, with_bodies))
        self.ring()

    # --- inside

    def _submit(self, number: int, data: bytes, records: int, file: int, chain: int) -> None:
        if self.state == FAILED:
            # Nobody is told of it any more, and it must not fill the memory.
            return
        log_group = self.log_group(number)
        held = HeldGroup(number, log_group, data, records, file, chain, time.monotonic_ns())
        self._held.append(held)
        self._held_bytes += len(data)
        self.behind_bytes += len(data)
        self._log.submit(log_group, data)

    def _take_acknowledged(self) -> None:
        if self._backups:
            if self.journal.written < self._pushed:
                return
            backups, self._backups = self._backups, []
            # It seals what is open, which is held and so not part of it.
            for target, done, with_bodies in backups:
                super().backup(target, done, with_bodies=with_bodies)
        acked = self._log.acked_group
        now_ns = time.monotonic_ns()
        while self._held and self._held[0].log_group <= acked:
            group = self._held.popleft()
            self.push_group(group.number, group.data, group.records, group.file, group.chain)
            self._acknowledged = self._pushed = group.number
            self._held_bytes -= len(group.data)
            self._acked_groups += 1
            self._acked_bytes += len(group.data)
            self._acked_ns += now_ns - group.sealed_ns

    def _take_note(self) -> None:
        # The bell is silent by now: what is acknowledged from here on rings it again.
        self._take_acknowledged()
        super()._take_note()
        self.synced = self._acknowledged
        self.behind_bytes += self._held_bytes
        self.syncs = self.groups_written = self._acked_groups
        self.written_bytes = self._acked_bytes
        self.sync_ns = self._acked_ns

    def _judge(self) -> None:
        super()._judge()
        if self._suspended and self.state != FAILED:
            self.state = FULL
            self.reason = f"{self._suspended}; {self.reason}" if self.reason else self._suspended
