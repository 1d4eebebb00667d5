"""A standby's way through the log: from what its directory has applied to the end, and on to a take-over.

All of it is for one thread. It waits for the log and the disk, so that is a thread of its own.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from broker.cluster.claims import beginning, claimed
from broker.cluster.fold import LogFold, Step
from broker.cluster.lease import StandbyClock
from broker.cluster.log import Acked, EngineFault, Log, LogUnavailable, Outcome
from broker.cluster.nats import wait_ready
from broker.cluster.places import READ_BYTES, SNAPSHOT_OF, LogPlaces
from broker.cluster.records import (
    GROUPS,
    MARK,
    SNAPSHOT_BEGIN,
    SNAPSHOT_END,
    SNAPSHOT_PIECE,
    TAKEOVER,
    BrokenRecord,
    Record,
    encode,
)
from broker.cluster.watchdog import telling
from broker.errors import OperatorError
from broker.store.cache import CacheStore
from broker.store.faults import DamagedStore, HalfLoaded, NoRoom
from broker.store.largefiles import LargeFile, body_key, receive_body
from broker.store.port import FULL, WRITING

log = logging.getLogger("sluice.cluster")

# How long after the end of the log was reached it is read again; how often its leader is asked for it.
POLL_S = 0.02
ASK_NS = 250_000_000
RETRY_S = 0.2
# A body that the disk doesn't take is fetched again later each time, so long at most.
MOST_RETRY_S = 5.0
SECOND_NS = 1_000_000_000
# What was applied and isn't in the local journal, beyond which the standby waits for its disk.
BEHIND_BYTES = 64 << 20
PLACE_GONE = "its place in the log is gone"
IS_BEGINNING = "the log has all of it as its beginning"
HALF_LOADED = "it has a snapshot in part"


class Bodies(Protocol):
    """Where a cell keeps the bodies of its large messages."""

    def get_body(self, key: str) -> Iterator[bytes]: ...

    def has_body(self, key: str) -> bool: ...


class CellLog(Log, Bodies, Protocol):
    """A log with bodies beside it."""


@dataclass(frozen=True, slots=True)
class CellOwnership:
    """A take-over that the log has taken: where the new owner begins, and when its lease does."""

    fold: LogFold
    sent_ns: int


@dataclass(slots=True)
class FollowedTo:
    """How far a standby has come, for whoever asks; written by its thread."""

    position: int = 0
    group: int = 0
    epoch: int = 0
    last_position: int = 0
    owner: bytes = b""
    reachable: bool = False
    # When it had applied everything there was, in monotonic nanoseconds; at first when it began.
    level_ns: int = field(default_factory=time.monotonic_ns)
    fault: str = ""


class LogFollower:
    """Follows a cell's log into a data directory until this member owns the cell, or is stopped.

    ``about`` is what the take-over says of this member; ``on_owner`` is called with what the owner says of
    itself whenever that changes, empty bytes where there is none. ``reaches_owner`` is asked while the log
    doesn't answer; ``alive`` is called again and again, as long as this goes on, by any thread.
    """

    def __init__(
        self,
        engine: CellLog,
        cell: int,
        member: str,
        directory: Path,
        clock: StandbyClock,
        about: bytes,
        on_owner: Callable[[bytes], None],
        file_bytes: int | None = None,
        reaches_owner: Callable[[], bool] = lambda: True,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.at = FollowedTo()
        self._log = engine
        self._cell = cell
        self._name = member
        self._member = member.encode()
        self._directory = directory
        self._file_bytes = file_bytes
        self._clock = clock
        self._about = about
        self._on_owner = on_owner
        self._reaches_owner = reaches_owner
        self._alive = alive
        # Whether the owner was reached since the log ceased to answer.
        self._has_reached = True
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._claim = b""
        self._claimed_ns = 0
        self._asked_ns = 0
        self._maintained_ns = 0
        # Where the snapshot begins that the log begins with, 0 where there was none yet.
        self._beginning_at = 0
        self._beginning_pieces: set[int] = set()
        # Whose directory the log is to begin with, where it has that in part or not at all; else None.
        self._beginner: str | None = None
        # Bodies of large messages that can't be had.
        self._lacks: list[LargeFile] = []
        self._is_open = False
        # Whether the fold stands where the directory is, and why that is of no use, if it isn't.
        self._is_placed = False
        self._useless = ""
        self._places = LogPlaces(engine, cell, lambda: self._stopping, alive)
        self._fold = LogFold(cell)
        # What the owner says of itself, as far as the log was read.
        self._heard = b""
        # As far as the log was read while nothing could be applied.
        self._ahead: LogFold | None = None
        self._store: CacheStore

    @property
    def epoch(self) -> int:
        """The epoch that the log has come to."""
        return self._fold.epoch

    def stop(self) -> None:
        """Have ``run`` return; any thread may."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def run(self) -> CellOwnership | None:
        """Follow until this member owns the cell; None once it is stopped. The directory is closed then.

        Raises OperatorError where the directory can't be used: it belongs to another log, or is damaged in a
        way that doesn't let it be set aside.
        """
        try:
            with suppress(LogUnavailable):
                self._open()
                self._until_it_answers()
            return self._follow()
        finally:
            self._close_store()
            self._log.close()

    # --- where to begin

    def _open(self) -> None:
        """Open the directory once there is room for it, an empty one in the place of one that is of no use.

        LogUnavailable where this member stops before.
        """
        while True:
            try:
                with telling(self._alive):
                    self._store = self._opened()
                self._is_open = True
                self.at.fault = ""
                return
            except NoRoom as fault:
                self._say_fault(str(fault))
            if self._stopping:
                raise LogUnavailable(self.at.fault)
            self._pause(1.0)

    def _opened(self) -> CacheStore:
        shutil.rmtree(_part_of(self._directory), ignore_errors=True)
        try:
            return CacheStore.open(self._directory, file_bytes=self._file_bytes)
        except HalfLoaded as fault:
            log.warning("%s; it is deleted and built anew from the log", fault)
            discard(self._directory)
        except DamagedStore as fault:
            log.error("%s; it is set aside and built anew from the log", fault)
            set_aside(self._directory)
        return CacheStore.open(self._directory, file_bytes=self._file_bytes)

    def _close_store(self) -> None:
        if self._is_open:
            self._is_open = False
            with telling(self._alive):
                self._store.close()

    def _say_fault(self, reason: str) -> None:
        """Have ``at`` say why this member can't go on, and the log once."""
        if reason and self.at.fault != reason:
            log.warning("%s", reason)
        self.at.fault = reason

    def _until_it_answers(self) -> None:
        said = ""
        while not self._stopping:
            try:
                self._place()
                return
            except LogUnavailable as fault:
                self.at.reachable = False
                if str(fault) != said:
                    said = str(fault)
                    log.warning("the log doesn't answer yet: %s", said)
                self._pause(RETRY_S)

    def _place(self) -> None:
        """Find the directory's place in the log; where that is gone, build the directory anew."""
        self._is_placed = False
        self._beginner = None
        fold = None if self._useless else self._beginning()
        if fold is None:
            reason = self._useless or PLACE_GONE
            is_part = reason == HALF_LOADED
            what = "deleted" if is_part else "set aside"
            log.warning("%s: %s; it is %s and built anew", self._directory, reason, what)
            self._close_store()
            with telling(self._alive):
                (discard if is_part else set_aside)(self._directory)
            self._open()
            self._beginning_at, self._useless = 0, ""
            fold = self._beginning()
            assert fold is not None
        self._fold, self._is_placed = fold, True

    def _beginning(self) -> LogFold | None:
        """Return the fold of all that the directory has applied; None where the log has no such place."""
        first, last = self._log.first(), self._log.last()
        self.at.reachable = True
        self._saw_last(last)
        epoch, group = self._store.applied
        if last == 0 and first <= 1:
            if epoch:
                raise OperatorError(
                    f"{self._directory}: it has followed a log up to group {group}, and the log is empty now."
                    " If the log is lost, `sluice store detach` makes this directory the beginning of another"
                )
            return LogFold(self._cell)
        if self._is_unbegun:
            return self._resumed_beginning(first, last)
        if epoch:
            self._check_end(first, last, epoch, group)
            return self._places.resumed(first, last, epoch, group)
        return self._joined(first, last)

    @property
    def _is_unbegun(self) -> bool:
        """Whether the directory has something, and follows no log yet."""
        return self._store.applied == (0, 0) and not self._store.is_empty

    def _resumed_beginning(self, first: int, last: int) -> LogFold | None:
        """Return the fold of a log that was to begin with this directory, where it hasn't yet.

        The member ended while it wrote that, and takes over to write it again. None where the log has all of
        it, and the member ended before its directory said so.
        """
        member, is_whole = self._places.beginning(first, last) or ("", False)
        if member != self._name:
            raise self._not_ours()
        if is_whole:
            self._useless = IS_BEGINNING
            return None
        return LogFold(self._cell)

    def _not_ours(self) -> OperatorError:
        return OperatorError(
            f"{self._directory}: it holds a broker's data, and the cell has a log already: a member that"
            " joins a cell begins with an empty directory. If the log was to begin with this one and"
            " never did, delete the log's streams and start this member first"
        )

    def _check_end(self, first: int, last: int, epoch: int, group: int) -> None:
        """Wait where the log ends before the directory does: LogUnavailable.

        Nothing gets here that the log had not confirmed. So a server that has yet to catch up has answered,
        or the log has lost something, and then this directory is worth more than the log.
        """
        end_epoch, end_group = self._places.end(first, last)
        if end_epoch <= epoch and end_group < group:
            fault = (
                f"the log ends with group {end_group}, and this member has group {group} of it;"
                " if the log was begun anew, start this member with an empty directory"
            )
            self.at.fault = fault
            raise LogUnavailable(fault)
        self.at.fault = ""

    def _joined(self, first: int, last: int) -> LogFold:
        """Load the newest snapshot that is whole into an empty directory; return the fold from the beginning.

        A log that was never trimmed needs none, unless it began with a directory that had something in it.
        """
        begun = self._places.snapshot(first, last)
        if begun is not None:
            epoch, group, pieces = begun
            self._load(epoch, group, pieces)
        elif first > 1:
            raise OperatorError("the log has neither its beginning nor a snapshot: a member can't join now")
        fold = LogFold.before(self._cell, first, self._places.entry(first).data)
        # The record may be one of a snapshot, which says less than the log has.
        fold.group = max(fold.group, self._store.applied[1])
        return fold

    def _load(self, epoch: int, group: int, pieces: Iterator[bytes]) -> None:
        log.info("%s: loading the snapshot of group %d", self._directory, group)
        self._useless = HALF_LOADED
        self._store.load_snapshot(pieces, max(epoch, 1), group, self._wait_for_disk)
        for file in self._store.missing_bodies():
            self._fetch(file)
        self._useless = ""

    def _wait_for_disk(self) -> None:
        """Say that the disk is full while a snapshot is loaded; LogUnavailable where this member stops."""
        self._alive()
        store = self._store
        self._say_fault(store.reason)
        if store.state == FULL:
            aside = _aside_of(self._directory)
            if aside.exists():
                log.warning("%s: it is deleted, for the disk is full", aside)
                shutil.rmtree(aside, ignore_errors=True)
        if self._stopping:
            raise LogUnavailable("the load of a snapshot was given up")

    # --- following

    def _follow(self) -> CellOwnership | None:
        while not self._stopping:
            try:
                if self._useless or not self._is_placed:
                    self._place()
                if self._read_more():
                    return self._own()
                if self._may_take_over() and self._take_over():
                    return self._own()
            except LogUnavailable as fault:
                if self.at.reachable:
                    log.warning("the log doesn't answer: %s", fault)
                    self._has_reached = False
                self.at.reachable = False
                self._has_reached = self._has_reached or self._reaches_owner()
                self._clock.engine_answered(time.monotonic_ns(), answers=False)
                self._pause(RETRY_S)
            except (EngineFault, BrokenRecord) as fault:
                # Others may be sound; this one neither goes on nor takes over.
                if self.at.fault != str(fault):
                    log.critical("%s", fault)
                self.at.fault = str(fault)
                self._clock.record_seen(time.monotonic_ns())
                self._pause(1.0)
            self._attend()
        return None

    def _read_more(self) -> bool:
        """Apply what there is; return whether this member's own take-over was in it."""
        if self._store.state != WRITING or self._store.behind_bytes > BEHIND_BYTES:
            self.at.fault = self._store.reason
            self._clock.record_seen(time.monotonic_ns())
            self._look_ahead()
            self._pause(POLL_S)
            return False
        self._ahead = None
        entries = self._log.read(self._fold.position + 1, READ_BYTES)
        for entry in entries:
            step = self._fold.feed(entry.position, entry.data)
            now_ns = time.monotonic_ns()
            if step.counts:
                self._clock.record_seen(now_ns)
                self._take(step)
                if self._useless:
                    return False
                if step.record.kind == TAKEOVER and self._claim and entry.data == self._claim:
                    return True
        self.at.fault = self._lacks_beginning()
        self._tell()
        if self._fold.position >= self.at.last_position:
            self._tell_of_owner()
        # Also while there is more to read: how far a standby is behind shows only beside the end.
        self._ask()
        if not entries:
            if self._is_place_gone():
                self._useless = PLACE_GONE
            self._pause(POLL_S)
        return False

    def _look_ahead(self) -> None:
        """Read on without applying anything, to know who owns the cell: clients are passed on to that one."""
        ahead = self._ahead or copy(self._fold)
        entries = self._log.read(ahead.position + 1, READ_BYTES)
        for entry in entries:
            step = ahead.feed(entry.position, entry.data)
            if step.counts:
                self._hear_of_owner(step.record, ahead)
        self._ahead = ahead
        if not entries:
            self._tell_of_owner()

    def _hear_of_owner(self, record: Record, fold: LogFold) -> None:
        if fold.successor is not None:
            self._heard = b""
        elif record.kind in (TAKEOVER, MARK):
            self._heard = record.payload

    def _tell_of_owner(self) -> None:
        """Say who owns the cell, at the end of the log: before it stand those that owned it once."""
        if self._heard != self.at.owner:
            self.at.owner = self._heard
            self._on_owner(self._heard)

    def _is_place_gone(self) -> bool:
        """Whether the log was trimmed beyond what this member has applied, as while it was held up."""
        position = self._fold.position
        return position < self.at.last_position and self._log.first() > position + 1

    def _take(self, step: Step) -> None:
        record = step.record
        self._hear_of_owner(record, self._fold)
        if record.kind == TAKEOVER:
            log.info("epoch %d begins: %s", record.epoch, record.payload.decode(errors="replace"))
        if self._store.applied == (0, 0):
            self._look_for_beginning(record)
        successor = self._fold.successor
        if successor is not None:
            self._clock.handed_over(time.monotonic_ns(), to_me=successor == self._member)
        first = record.group - len(step.groups) + 1
        for at, data in enumerate(step.groups):
            if first + at > self._store.applied[1]:
                for file in self._store.bodies_to_fetch(data):
                    self._fetch(file)
                self._store.apply(data)

    def _look_for_beginning(self, record: Record) -> None:
        """Load the snapshot that a log begins with where it began with a directory that held something."""
        position = self._fold.position
        if record.kind == GROUPS and self._is_unbegun:
            raise self._not_ours()
        if record.kind == SNAPSHOT_BEGIN:
            self._beginning_at, self._beginning_pieces = position, set()
            # One of an owner that began with nothing and has written nothing since is of no epoch.
            if SNAPSHOT_OF.unpack(record.payload)[0]:
                self._beginner, _ = claimed(self._fold.owner)
        elif record.kind == SNAPSHOT_PIECE:
            self._beginning_pieces.add(position)
        elif record.kind == TAKEOVER:
            self._beginning_at = 0
            member, begins = claimed(record.payload)
            self._beginner = member if begins else None
        elif record.kind == SNAPSHOT_END and self._beginning_at:
            self._take_beginning(record.epoch, position)

    def _take_beginning(self, epoch: int, end: int) -> None:
        if self._is_unbegun:
            if self._beginner != self._name:
                raise self._not_ours()
            # What this member sent before it ended has come late.
            self._useless = IS_BEGINNING
            return
        pieces = self._places.pieces(self._beginning_at, end, self._beginning_pieces)
        self._load(epoch, 0, pieces)
        self._beginner = None

    def _lacks_beginning(self) -> str:
        """Return why this member must not take over a log that lacks its beginning; empty where it may."""
        if self._beginner is None or (self._beginner == self._name and self._is_unbegun):
            return ""
        return f"the log lacks its beginning, which only the directory of {self._beginner} has"

    def _fetch(self, file: LargeFile) -> None:
        """Fetch a large message's body, where the log has it still.

        Wait until the log answers and the disk has room: the group that names it is read, and no other may be
        applied before. Raises LogUnavailable where this member stops meanwhile.
        """
        retry_s = RETRY_S
        while True:
            try:
                if self._receives(file):
                    return
                self._wait_for_body(f"{file.path}: the replica that answers doesn't have all of it yet")
            except LogUnavailable as fault:
                self._wait_for_body(str(fault))
                self._clock.engine_answered(time.monotonic_ns(), answers=False)
            except OSError as fault:
                self._wait_for_body(f"{file.path}: {fault.strerror}", retry_s)
                retry_s = min(2 * retry_s, MOST_RETRY_S)

    def _receives(self, file: LargeFile) -> bool:
        """Fetch a body; return whether that is over, with it or, where the log's leader has none, without."""
        key = body_key(file)
        try:
            with telling(self._alive):
                receive_body(file, self._log.get_body(key))
        except DamagedStore:
            if self._log.has_body(key):
                return False
            log.info("%s: the log has it no more; a later group takes its message away", file.path)
        return True

    def _wait_for_body(self, reason: str, seconds: float = RETRY_S) -> None:
        if self._stopping:
            raise LogUnavailable(reason)
        if self.at.fault != reason:
            log.warning("a large message can't be fetched yet: %s", reason)
        self.at.fault = reason
        until_s = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until_s:
            self._clock.record_seen(time.monotonic_ns())
            if self._is_placed:
                # A record that can't be read shows where it is to be applied: this one isn't, yet.
                with suppress(LogUnavailable, EngineFault, BrokenRecord):
                    self._look_ahead()
            self._pause(min(RETRY_S, seconds))

    def _ask(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._asked_ns >= ASK_NS:
            self._asked_ns = now_ns
            self._saw_last(self._log.last())
            self._clock.engine_answered(now_ns, answers=True, owner_is_gone=not self._has_reached)
            # It says nothing of the next owner, nor of the next time that the log doesn't answer.
            self._has_reached = True
            if not self.at.reachable:
                log.info("the log answers again")
            self.at.reachable = True

    def _saw_last(self, last: int) -> None:
        self.at.last_position = last

    def _tell(self) -> None:
        fold, at = self._fold, self.at
        at.position, at.group, at.epoch = fold.position, fold.group, fold.epoch
        at.last_position = max(at.last_position, fold.position)
        if fold.position >= at.last_position:
            at.level_ns = time.monotonic_ns()

    # --- taking over

    def _may_take_over(self) -> bool:
        now_ns = time.monotonic_ns()
        return (
            self._clock.takeover_due(now_ns)
            and self._fold.position >= self.at.last_position
            and self._store.state == WRITING
            and not self.at.fault
            and not self._useless
        )

    def _take_over(self) -> bool:
        """Ask the log for the cell; return whether it is this member's."""
        fold = self._fold
        # Before the leader is asked: a copy of an earlier claim that lands does so after the answer.
        now_ns = time.monotonic_ns()
        if self._log.last() != fold.position:
            return False
        if fold.group != self._store.applied[1]:
            # No way to this is known. Whoever owned the cell with it would lose what it lacks.
            self._useless = f"it ends with group {self._store.applied[1]}, and the log with {fold.group}"
            return False
        if not self._has_bodies():
            return False
        log.warning("the owner is silent: taking over as epoch %d", fold.epoch + 1)
        about = beginning(self._about) if self._is_unbegun else self._about
        self._claim, _ = encode(TAKEOVER, fold.cell, fold.epoch + 1, fold.group, fold.digest, about)
        self._claimed_ns = now_ns
        # Whoever was first: nobody tries again before it had the time to say so.
        self._clock.record_seen(now_ns)
        self._log.append(self._claim, fold.position)
        outcomes: list[Outcome] = []
        while not outcomes:
            outcomes = self._log.outcomes(1.0)
        for outcome in outcomes:
            if isinstance(outcome, Acked):
                if outcome.position != fold.position + 1:
                    raise EngineFault(
                        f"the log took a take-over at position {outcome.position}"
                        f" that was to follow {fold.position}"
                    )
                fold.feed(outcome.position, self._claim)
                return True
        return False

    def _has_bodies(self) -> bool:
        """Return whether every large message's body is here; what can be had is fetched."""
        for file in self._store.missing_bodies():
            self._fetch(file)
        missing = self._store.missing_bodies()
        if missing and self._lacks != missing:
            log.critical("%s is missing here and in the log: this member takes nothing over", missing[0].path)
        self._lacks = missing
        return not missing

    def _own(self) -> CellOwnership:
        self._tell()
        with telling(self._alive):
            self._store.settle()
        return CellOwnership(self._fold, self._claimed_ns)

    # --- the disk

    def _attend(self) -> None:
        self._alive()
        if not self._is_open:
            # It stops while it waits for room to open its directory.
            return
        self._store.attend()
        now_ns = time.monotonic_ns()
        if now_ns - self._maintained_ns > SECOND_NS:
            self._maintained_ns = now_ns
            if self._store.state in (WRITING, FULL):
                self._store.maintain()

    def _pause(self, seconds: float) -> None:
        self._alive()
        wait_ready(seconds, self._wake)


def set_aside(directory: Path) -> Path:
    """Rename a data directory that can't be used; return its new name.

    What was set aside before is deleted: it is a copy of what the log has.
    """
    target = _aside_of(directory)
    shutil.rmtree(target, ignore_errors=True)
    directory.rename(target)
    return target


def discard(directory: Path) -> None:
    """Delete a data directory; one that is deleted in part is never seen at its place."""
    part = _part_of(directory)
    shutil.rmtree(part, ignore_errors=True)
    directory.rename(part)
    shutil.rmtree(part, ignore_errors=True)


def _aside_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.aside")


def _part_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.part")
