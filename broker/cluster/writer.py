"""The owner's thread at the log: groups and marks go out, acknowledgements come back."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease
from broker.cluster.log import Acked, EngineFault, Log, LogUnavailable
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import GROUPS, HANDOVER, MARK, MOST_BYTES, encode, joined
from broker.units import SECOND_NS

log = logging.getLogger("sluice.cluster")

# Beyond so many records in flight, a record waits until it is worth one: the log's servers sync each, and the
# fewer and larger they are, the less a message costs (docs/performance.md, Replicated).
FEW_IN_FLIGHT = 2
WORTH_BYTES = 64 << 10
LOOK_BYTES = 4 << 20
RETRY_S = 0.1
# One position of so many is kept, by which a snapshot finds where the log may be trimmed.
SAMPLE = 64


class LogWriter:
    """Appends what one owner seals (``submit``), from the position that ``fold`` has come to.

    ``acked_group`` is the last group that is durable; ``changed`` is called from this thread whenever it
    rose, and when the owner was ``fenced`` (by the epoch of the next one) or met a ``fault`` of the engine's,
    after which nothing is appended any more.
    """

    def __init__(
        self, engine: Log, fold: LogFold, lease: OwnerLease, about: bytes, changed: Callable[[], None]
    ) -> None:
        self.lease = lease
        self.fault = ""
        self.epoch = fold.epoch
        self.acked_group = fold.group
        self.reachable = True
        self._log = engine
        self._cell = fold.cell
        self._digest = fold.digest
        self._group = fold.group
        self._about = about
        self._changed = changed
        self._pipeline = AppendPipeline(fold.epoch, fold.position, fold.group)
        self._waiting: deque[tuple[int, bytes]] = deque()
        # Each is changed by one thread alone: the owner's, and this one.
        self._submitted_bytes = self._taken_bytes = 0
        self._extras: deque[tuple[int, int, bytes, Callable[[], None] | None]] = deque()
        # Whether groups went since one of these went before them.
        self._are_extras_next = False
        self._ending: deque[tuple[int, Callable[[], None]]] = deque()
        self._sent_ns: dict[int, int] = {}
        # Of each record that isn't acknowledged and was sent, when it was for the first time; how many were
        # acknowledged before those.
        self._first_sent_ns: deque[int] = deque()
        self._passed = 0
        self._samples: deque[tuple[int, int]] = deque([(fold.group, fold.position)])
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_rung = False
        self._stopping = self._has_left = False
        self._thread = threading.Thread(target=self._run, name="sluice-log-writer", daemon=True)

    # --- the store's port, on the owner's thread

    def submit(self, log_group: int, data: bytes) -> None:
        """Take a sealed group."""
        self._waiting.append((log_group, data))
        self._submitted_bytes += len(data)
        # Else the next outcome has this thread look at what waits.
        if self._is_worth_a_record:
            self._ring()

    @property
    def pending_bytes(self) -> int:
        """What was submitted and isn't acknowledged."""
        return self._waiting_bytes + self._pipeline.pending_bytes

    @property
    def _waiting_bytes(self) -> int:
        return self._submitted_bytes - self._taken_bytes

    @property
    def _is_worth_a_record(self) -> bool:
        return self._pipeline.in_flight < FEW_IN_FLIGHT or self._waiting_bytes >= WORTH_BYTES

    # --- for other threads

    @property
    def fenced(self) -> int:
        """The epoch of the owner that came after, 0 while it is this one."""
        return self._pipeline.fenced

    @property
    def acked_position(self) -> int:
        """The last position that is known to be durable."""
        return self._pipeline.acked_position

    @property
    def whole_position(self) -> int:
        """The last of these at which a log can begin."""
        return self._pipeline.whole_position

    @property
    def heard_ns(self) -> int:
        """When any server of the log was heard last, in monotonic nanoseconds."""
        return self._log.heard_ns

    def start(self) -> None:
        """Begin to append."""
        self._thread.start()

    def append(self, kind: int, group: int, payload: bytes, done: Callable[[], None] | None = None) -> None:
        """Append another record among the groups; the writer's thread calls ``done`` once it is durable.

        A payload that is larger than a record comes in parts, one behind the other.
        """
        self._extras.append((kind, group, payload, done))
        self._ring()

    @property
    def behind_records(self) -> int:
        """How many other records wait to be appended."""
        return len(self._extras)

    def hand_over(self, payload: bytes, timeout_s: float) -> bool:
        """Say that the owner is done, behind all it has submitted; return whether the log took it in time."""
        told = threading.Event()
        self.append(HANDOVER, -1, payload, told.set)
        return told.wait(timeout_s)

    def position_of(self, group: int) -> int:
        """Return a position up to which no record has more than this group: a snapshot replaces those."""
        found = 0
        # The pipeline counts a record's group first: whatever this position has, the group has.
        position = self._pipeline.whole_position
        if self._pipeline.acked_group <= group:
            return position
        while self._samples and self._samples[0][0] <= group:
            found = self._samples[0][1]
            if len(self._samples) == 1 or self._samples[1][0] > group:
                break
            self._samples.popleft()
        return found

    def stop(self) -> None:
        """Append nothing more, and let go of the log."""
        self._stopping = True
        self._ring()
        self._thread.join()
        self._log.close()
        os.close(self._wake)

    # --- inside

    def _ring(self) -> None:
        """Wake the thread; any thread may. What it is to find is there before this is called."""
        if not self._is_rung:
            self._is_rung = True
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while not self._stopping and not self.fenced:
            try:
                self._turn_or_wait()
            except EngineFault as fault:
                self.fault = str(fault)
                log.critical("%s; nothing more is appended", fault)
                self._changed()
                return
            except Exception as fault:
                self.fault = f"a fault of the broker's own: {fault!r}"
                log.exception("the log's writer has failed")
                self._changed()
                return
        if self.fenced:
            log.error("epoch %d owns the cell: this member appends nothing more", self.fenced)
            self._changed()

    def _turn_or_wait(self) -> None:
        try:
            self._turn()
        except LogUnavailable as fault:
            self._set_reachable(False, str(fault))
            self._collect(RETRY_S)

    def _turn(self) -> None:
        now_ns = time.monotonic_ns()
        self._take(now_ns)
        self._send()
        before = self.acked_group
        timeout_s = max(min(self.lease.mark_due_ns - time.monotonic_ns(), SECOND_NS), 0) / SECOND_NS
        if self._pipeline.look_from:
            self._look()
        else:
            self._collect(max(timeout_s, 0.001))
        self.acked_group = self._pipeline.acked_group
        self._sample()
        if self.acked_group != before:
            self._changed()
        while self._ending and self._ending[0][0] <= self._pipeline.acked:
            self._ending.popleft()[1]()

    def _collect(self, timeout_s: float) -> None:
        """Take note of outcomes, waiting for the first one or for something to append."""
        outcomes = self._log.outcomes(timeout_s, self._wake)
        for outcome in outcomes:
            sent_ns = self._sent_ns.pop(outcome.after, 0)
            if self._pipeline.outcome(outcome):
                self.lease.acked(sent_ns)
            self._pass_acked()
            if isinstance(outcome, Acked):
                self._set_reachable(True)
        # Without an outcome it may be the bell that ended the wait, just before it was said that it is rung.
        if self._is_rung or not outcomes:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            # Before what was submitted is looked at: whoever finds it true has put there what is seen then.
            self._is_rung = False

    def _take(self, now_ns: int) -> None:
        """Make records of what was submitted, as many as go out at once."""
        # Else groups that come faster than the log takes them would leave no room for a snapshot's pieces.
        if self._are_extras_next and self._take_extra():
            self._are_extras_next = False
        while self._waiting and self._pipeline.has_room and self._is_worth_a_record:
            self._take_groups()
            self._are_extras_next = True
        while self._take_extra():
            pass
        # A mark behind a hand-over would keep those who are to follow waiting.
        if now_ns >= self.lease.mark_due_ns and self._pipeline.has_room and not self._has_left:
            self._record(MARK, self._group, self._about)

    def _take_extra(self) -> bool:
        """Make a record of what came besides groups; return whether there was some, and room for it."""
        if not self._extras or not self._pipeline.has_room:
            return False
        if self._extras[0][0] == HANDOVER and self._waiting:
            # It stands behind all groups.
            return False
        kind, group, payload, done = self._extras.popleft()
        self._has_left = self._has_left or kind == HANDOVER
        group = self._group if group < 0 else group
        for part, piece in enumerate(pieces := _cut(payload)):
            self._record(kind, group, piece, part, len(pieces))
        if done is not None:
            self._ending.append((self._pipeline.submitted, done))
        return True

    def _take_groups(self) -> None:
        group, data = self._waiting.popleft()
        groups, size = [data], len(data)
        while self._waiting and size + len(self._waiting[0][1]) <= MOST_BYTES:
            group, data = self._waiting.popleft()
            groups.append(data)
            size += len(data)
        self._taken_bytes += size
        pieces = _cut(joined(groups))
        for part, piece in enumerate(pieces):
            if part == len(pieces) - 1:
                self._group = group
            self._record(GROUPS, self._group, piece, part, len(pieces))

    def _record(self, kind: int, group: int, payload: bytes, part: int = 0, parts: int = 1) -> None:
        data, self._digest = encode(kind, self._cell, self.epoch, group, self._digest, payload, part, parts)
        self._pipeline.submit(data, self._group, is_whole=parts == 1)

    def _send(self) -> None:
        for data, after in self._pipeline.to_send():
            now_ns = time.monotonic_ns()
            self.lease.sent(now_ns)
            self._sent_ns[after] = now_ns
            if after - self._pipeline.acked_position == len(self._first_sent_ns):
                self._first_sent_ns.append(now_ns)
            self._log.append(data, after)

    def _look(self) -> None:
        """Find out what became of records whose outcome isn't known."""
        last = self._log.last()
        self._sent_ns.clear()
        while position := self._pipeline.look_from:
            entries = self._log.read(position, LOOK_BYTES)
            if not entries and position <= last:
                # The replica that answered is behind.
                time.sleep(0.01)
                return
            self._pipeline.looked(entries, is_tail=not entries)
            # Which copy of a record stands there isn't known; none was sent before the first.
            self.lease.acked(self._pass_acked())
        self._set_reachable(True)

    def _pass_acked(self) -> int:
        """Return when the last record that was acknowledged since was sent first, 0 without one."""
        sent_ns = 0
        while self._passed < self._pipeline.acked:
            self._passed += 1
            sent_ns = self._first_sent_ns.popleft()
        return sent_ns

    def _sample(self) -> None:
        # A member that joins begins at such a position: a record that counts, and none within a group.
        position = self._pipeline.whole_position
        if position - self._samples[-1][1] >= SAMPLE:
            self._samples.append((self.acked_group, position))

    def _set_reachable(self, is_reachable: bool, why: str = "") -> None:
        if is_reachable != self.reachable:
            self.reachable = is_reachable
            if is_reachable:
                log.warning("the log answers again")
            else:
                log.error("the log doesn't answer: %s", why)


def _cut(payload: bytes) -> list[bytes]:
    """Return a payload as the records that it takes have it."""
    parts = max(-(-len(payload) // (MOST_BYTES + (MOST_BYTES >> 2))), 1)
    return [payload[len(payload) * at // parts : len(payload) * (at + 1) // parts] for at in range(parts)]
