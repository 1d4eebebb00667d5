"""The part of a deep queue that is on disk: runs of messages, in order, in the queue's gap.

How a backlog goes to disk and comes back:

1. ``page_out`` opens the gap behind the next ready messages, ``READ_AHEAD`` of them or ``ahead_bytes``.
   What is behind it, oldest first, is encoded in runs of ``RUN_BYTES`` and handed to the pager; less
   than a run stays in memory. A run's bytes stay readable from memory until they are written.
2. ``read_ahead`` asks for the first runs when fewer messages than that are ready, so that they are
   there before a consumer needs them, as far as memory has room; without any a run is read when no message
   is ready. Runs come back in order: one that is read early waits.
3. When no run is left, what was behind the gap is ready and the queue is a plain list again.
4. A run that can't be written stays in memory, and one that can't be read on disk, until ``retry``.
5. Readers, who don't take what comes first, look at runs where they lie (``ahead``, ``look``): a run is read,
   held for a while (scan.py) and looked at message by message. A browser gets copies; a consumer's match is
   taken out of its run, which remembers that, and stands in the queue's list from then on.

A message is in exactly one place: in the queue's list, or in one run. Nothing here waits for a disk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker import constants
from broker.codec import message
from broker.engine.scan import Scans
from broker.queues.queue import Entry, Extra, Queue, Reader
from broker.store.port import DURABLE, REDELIVERED, SPARED
from broker.store.records import MESSAGE, Buffer, read

RUN_BYTES = (1 << 16) - 64
# Measured: draining 100 B and 1 KiB messages from disk is as fast as from memory from half of these on.
READ_AHEAD = 2000
READ_AHEAD_BYTES = 1 << 21
# So many times as many bytes may be in memory besides, of messages that wait for the consumer of their group.
STUCK_PARTS = 5
# What a record takes besides its message (records.pyx), padding included.
RECORD_BYTES = 48
# Numbers that a run may span for each to have a bit that says whether its message was taken out; beyond that,
# which takes messages that are few and far between, those that were are listed.
SPAN = 1 << 16

# (number, flags, delivery count, expiry, data); the expiry is monotonic nanoseconds, 0 for never.
Message = tuple[int, int, int, int, bytes]


class PagerPort(Protocol):
    """Who puts runs on disk. ``done`` is called on the caller's thread, with an exception if it failed."""

    @property
    def used_bytes(self) -> int: ...

    def write(self, blob: bytes, done: Callable[[object], None]) -> None: ...

    def read(self, place: object, done: Callable[[object], None]) -> None: ...

    def look(self, place: object, done: Callable[[object], None]) -> None: ...

    def free(self, place: object) -> None: ...


class Run:
    """Messages that stand together. ``blob`` is there while they are in memory (not written yet, or read);
    ``decode`` turns it into messages. ``kept``: it was on the node's shelf already when the broker
    started, and its size is an estimate. ``expires_ns``: all of it has expired then; 0 where that can't
    be said. ``following`` is the next run. ``scanned`` are its messages while readers look at them;
    ``measured``: its count and bytes are what those are, less what was taken out. ``fault`` is why it can't
    be looked at.
    """

    def __init__(self, first: int, last: int, count: int, nbytes: int) -> None:
        self.first = first
        self.last = last
        self.count = count
        self.nbytes = nbytes
        self.disk_bytes = 0
        self.blob: bytes | None = None
        self.place: object = None
        self.reading = False
        self.wanted = False
        self.gone = False
        self.kept = False
        self.expires_ns = 0
        self.decode: Callable[[bytes], list[Message]] = messages_of
        self.following: Run | None = None
        self.scanned: list[Message] | None = None
        self.measured = False
        self.fault: Exception | None = None
        self._taken: bytearray | set[int] | None = None

    def is_empty(self) -> bool:
        """Whether all of its messages were taken out."""
        return self.measured and self.count == 0

    def take(self, seq: int) -> None:
        """The message was taken out."""
        if self._taken is None:
            span = self.last - self.first
            self._taken = bytearray((span >> 3) + 1) if span < SPAN else set()
        if isinstance(self._taken, set):
            self._taken.add(seq)
        else:
            self._taken[(seq - self.first) >> 3] |= 1 << ((seq - self.first) & 7)

    def has(self, seq: int) -> bool:
        """Whether a message of it is still in it."""
        if self._taken is None:
            return True
        if isinstance(self._taken, set):
            return seq not in self._taken
        return not self._taken[(seq - self.first) >> 3] >> ((seq - self.first) & 7) & 1

    def left(self, messages: list[Message]) -> list[Message]:
        """Those that are still in it."""
        return messages if self._taken is None else [each for each in messages if self.has(each[0])]


class Spool:
    """One queue's runs. ``count`` and ``nbytes`` are what they hold together, in messages and their bytes.

    ``on_loaded(run, messages)`` is called when a run comes back, in order; ``on_memory(bytes)`` when the
    bytes of runs on their way take memory, or give it back; ``on_disk(bytes)`` when runs take room of the
    pager's, or give it back; ``on_answer()`` when the pager has answered. ``husks`` counts entries with an
    expiry that left memory, ``grown`` the bytes by which durable messages are longer since they did.
    ``write_fault`` is why runs can't be written, ``read_fault`` why the first can't be read, ``look_fault``
    why one can't be looked at; None while all is well. ``paged_out`` and ``paged_in`` are the messages that
    went and came since there was one.

    For readers: ``on_scanned(run, messages)`` is called when a run was read to be looked at, before its
    messages are, and may count it anew (``measure``); it returns them. ``on_met(entry, taken)`` is called for
    a message that a reader gets, a browser's copy or what a consumer takes. ``is_late(expires_ns)`` says
    whether a message has expired: nobody gets it.
    """

    def __init__(
        self,
        queue: Queue,
        pager: PagerPort,
        on_loaded: Callable[[Run, list[Message]], None],
        on_memory: Callable[[int], None],
        on_disk: Callable[[int], None],
        on_answer: Callable[[], None] = lambda: None,
        *,
        scans: Scans | None = None,
        on_scanned: Callable[[Run, list[Message]], list[Message]] | None = None,
        on_met: Callable[[Entry, bool], None] = lambda entry, taken: None,
        is_late: Callable[[int], bool] = lambda expires_ns: False,
    ) -> None:
        self.queue = queue
        self.pager = pager
        self.on_loaded = on_loaded
        self.on_memory = on_memory
        self.on_disk = on_disk
        self.on_answer = on_answer
        self.scans = Scans() if scans is None else scans
        self.on_scanned = on_scanned
        self.on_met = on_met
        self.is_late = is_late
        self.ahead_bytes = READ_AHEAD_BYTES
        # So many were ready when the rest went to disk: what was put out for want of memory isn't read
        # again before one of them has left. 0: read whenever there may be too few.
        self.enough = 0
        self.runs: deque[Run] = deque()
        self.count = 0
        self.nbytes = 0
        self.husks = 0
        self.grown = 0
        self.paged_out = 0
        self.paged_in = 0
        self.unwritten: list[Run] = []
        self.write_fault: Exception | None = None
        self.read_fault: Exception | None = None
        self.look_fault: Exception | None = None
        queue.disk = self

    def page_out(self, nbytes: int) -> int:
        """Put messages of about so many bytes on disk, in whole runs; how many messages left memory."""
        queue = self.queue
        if not queue.gap:
            queue.cut(READ_AHEAD, self.ahead_bytes)
        moved = 0
        while nbytes > 0 and queue.behind_bytes + RECORD_BYTES * queue.behind >= RUN_BYTES:
            run = self._run()
            moved += run.count
            nbytes -= run.nbytes
        if queue.gap and not self.runs:
            queue.close_gap()
        if moved:
            self.enough = queue.ready
        self.paged_out += moved
        return moved

    def add(self, run: Run) -> None:
        """A run that was on disk before us, behind all others."""
        self.queue.gap = True
        self._append(run)

    def read_ahead(self, now_ns: int = 0, room_bytes: int = constants.UNBOUNDED) -> None:
        """Ask for what will be needed soon, or has expired, where memory has room for so many bytes more."""
        if not self.runs or self.read_fault is not None:
            return
        if self.queue.ready - self._passed_over() < self.enough or self.is_over(now_ns):
            self.enough = 0
        elif self.enough:
            return
        first = self.runs[0]
        ready = self.queue.ready - self._passed_over()
        msgs = READ_AHEAD - ready
        nbytes = min(self.ahead_bytes - ready * first.nbytes // max(first.count, 1), room_bytes)
        # Consumers must go on where memory is full: what they take is what makes room.
        least = 1 if ready == 0 else 0
        for run in self.runs:
            if msgs <= 0 or (nbytes <= 0 and least == 0):
                break
            if run.is_empty():
                continue
            least = 0
            msgs -= run.count
            nbytes -= run.nbytes
            run.wanted = True
            if run.blob is None and not run.reading:
                self._ask(run)
        self._take_in()

    def _passed_over(self) -> int:
        """How many ready messages may be looked past: they wait for the consumer of their group, or are
        undeliverable to a consumer, as it has said. What stands behind so many on disk waits with them.
        """
        order = self.queue.order
        stuck = min(self.queue.picky, self.queue.ready) + (0 if order is None else order.stuck)
        if stuck == 0 or not self.runs:
            return 0
        mean = constants.HELD_BYTES + self.runs[0].nbytes // max(self.runs[0].count, 1)
        return min(stuck, self.queue.ready, STUCK_PARTS * self.ahead_bytes // mean)

    def brings_more(self) -> bool:
        """Whether more is read though nobody takes what is ready."""
        order = self.queue.order
        return order is not None and order.stuck <= self._passed_over() and self.read_fault is None

    def tidy(self) -> None:
        """Let go of what readers have emptied, where it is the first."""
        if self.runs and self.runs[0].is_empty():
            self._take_in()

    def is_coming(self) -> bool:
        """Whether there are messages to come that can be read."""
        return self.count > 0 and self.read_fault is None

    def is_over(self, now_ns: int) -> bool:
        """Whether all of the first run has expired."""
        return bool(self.runs) and 0 < self.runs[0].expires_ns <= now_ns

    def retry(self) -> None:
        """Try again what failed."""
        self.read_fault = None
        if self.look_fault is not None:
            self.look_fault = None
            for run in self.runs:
                run.fault = None
        runs = [run for run in self.unwritten if not (run.gone or run.is_empty())]
        self.unwritten = []
        if not runs:
            self.write_fault = None
        for run in runs:
            self._write(run)

    def _ask(self, run: Run) -> None:
        run.reading = True
        self.pager.read(run.place, lambda answer: self._read(run, answer))

    def drop(self) -> tuple[int, int, list[Run]]:
        """Forget every run: how many messages and bytes they held, and the runs."""
        gone = list(self.runs)
        count, nbytes = self.count, self.nbytes
        for run in gone:
            self._release(run)
        self.runs.clear()
        self.count = self.nbytes = 0
        self.queue.close_gap()
        return count, nbytes, gone

    # --- readers

    def ahead(self, reader: Reader) -> int:
        """The first number on disk that the reader has not passed, or one before it; UNBOUNDED for none."""
        run = self.run_of(reader)
        return constants.UNBOUNDED if run is None else max(run.first, reader.passed + 1)

    def run_of(self, reader: Reader) -> Run | None:
        """The first run that the reader has not passed."""
        run: Run | None = reader.run
        if run is None or run.gone:
            # Runs leave in order, or all of them at once.
            run = self.runs[0] if self.runs else None
        while run is not None and run.last <= reader.passed:
            reader.run = run
            run = run.following
        if run is not None:
            reader.run = run
        return run

    def look(self, reader: Reader) -> Entry | None:
        """The next message of a run that the reader wants. None where it has passed all of the run, or all up
        to the next entry in memory; or it ``waits`` for the run, or is ``unfinished``.
        """
        run = self.run_of(reader)
        if run is None:
            return None
        messages = self.scans.messages(self, run)
        if messages is None:
            reader.waits = True
            return None
        position = reader.position
        upto = constants.UNBOUNDED if position is None else position.seq
        at = bisect_left(messages, (reader.passed + 1,))
        end = len(messages)
        while at < end:
            found = messages[at]
            seq = found[0]
            if seq > upto:
                break
            if reader.left == 0:
                reader.unfinished = True
                return None
            reader.left -= 1
            at += 1
            reader.passed = seq
            if not run.has(seq) or (found[3] and self.is_late(found[3])):
                continue
            data = found[4]
            if reader.wanted is None or reader.wanted.matches(data):
                return self._copy(found) if reader.browses else self._extract(run, found, position)
        reader.passed = max(reader.passed, min(run.last, upto - 1))
        return None

    def left_for(self, reader: Reader) -> int:
        """How many messages the reader has yet to look at on disk; of the run it is in, all that it holds."""
        count = 0
        run = self.run_of(reader)
        while run is not None:
            count += run.count
            run = run.following
        return count

    def measure(self, run: Run, count: int, nbytes: int) -> tuple[int, int]:
        """What a run holds that nothing was taken from; how much more that is than it was counted for."""
        more_msgs, more_bytes = count - run.count, nbytes - run.nbytes
        run.measured = True
        run.count += more_msgs
        run.nbytes += more_bytes
        self.count += more_msgs
        self.nbytes += more_bytes
        return more_msgs, more_bytes

    def look_up(self, run: Run) -> None:
        """Have a run read for ``scans``."""
        self.pager.look(run.place, lambda answer: self._looked_up(run, answer))

    def scanned(self, run: Run, messages: list[Message]) -> list[Message]:
        """A run was read to be looked at."""
        if self.on_scanned is not None:
            return self.on_scanned(run, messages)
        if not run.measured:
            self.measure(run, len(messages), sum(len(each[4]) for each in messages))
        return messages

    def _looked_up(self, run: Run, answer: object) -> None:
        if isinstance(answer, Exception) and not run.gone:
            self.look_fault = answer
        self.scans.answered(self, run, answer)

    def _copy(self, found: Message) -> Entry:
        """For a browser: like an entry, and in no queue."""
        seq, flags, delivery_count, expires_ns, data = found
        entry = Entry(data, seq)
        _set(entry, flags, delivery_count, expires_ns)
        self.on_met(entry, False)
        return entry

    def _extract(self, run: Run, found: Message, near: Entry | None) -> Entry:
        """Out of its run and into the queue's list, for a consumer that takes it."""
        seq, flags, delivery_count, expires_ns, data = found
        run.take(seq)
        run.count -= 1
        run.nbytes -= len(data)
        self.count -= 1
        self.nbytes -= len(data)
        entry = self.queue.extract(data, seq, near)
        _set(entry, flags, delivery_count, expires_ns)
        self.paged_in += 1
        self.on_met(entry, True)
        if run.count == 0:
            self._empty(run)
        return entry

    def _empty(self, run: Run) -> None:
        """All of a run was taken out: it goes, or does so once it is the first."""
        self._give_back(run)
        if run is self.runs[0]:
            # Not now: the gap may close by it, and a reader is in the midst of the queue's list.
            self.on_answer()

    # --- inside

    def _append(self, run: Run) -> None:
        if self.runs:
            self.runs[len(self.runs) - 1].following = run
        else:
            self.queue.gap_first = run.first
        self.runs.append(run)
        self.count += run.count
        self.nbytes += run.nbytes

    def _run(self) -> Run:
        """The next messages behind the gap as a run that is being written."""
        buffer = Buffer()
        nbytes = 0
        first = last = expires_ns = 0
        forever = False
        while buffer.size < RUN_BYTES:
            entry = self.queue.first_behind
            if entry is None or (buffer.count and buffer.size + len(entry.data) > RUN_BYTES):
                break
            self.queue.take_behind()
            first = first or entry.seq
            last = entry.seq
            nbytes += len(entry.data)
            encoded = _encode(buffer, entry)
            if entry.durable:
                self.grown += encoded - len(entry.data)
            if entry.extra is not None and entry.extra.expires_ns:
                # The heap of expiries knows it a while longer; it must not keep the message.
                entry.data = b""
                entry.extra.body = None
                self.husks += 1
                expires_ns = max(expires_ns, entry.extra.expires_ns)
            else:
                forever = True
        run = Run(first, last, buffer.count, nbytes)
        run.expires_ns = 0 if forever else expires_ns
        run.blob = buffer.take()
        self._append(run)
        self.on_memory(len(run.blob))
        run.disk_bytes = len(run.blob)
        self.on_disk(run.disk_bytes)
        self._write(run)
        return run

    def _write(self, run: Run) -> None:
        assert run.blob is not None
        self.pager.write(run.blob, lambda answer: self._written(run, answer))

    def _written(self, run: Run, answer: object) -> None:
        if isinstance(answer, Exception):
            self.write_fault = answer
            self.unwritten.append(run)
            self.on_answer()
            return
        self.write_fault = None
        run.place = answer
        if run.gone or run.is_empty():
            self.pager.free(answer)
            run.place = None
        elif not run.wanted and run.blob is not None:
            self.on_memory(-len(run.blob))
            run.blob = None
        self.on_answer()

    def _read(self, run: Run, answer: object) -> None:
        run.reading = False
        if run.gone or run.is_empty():
            return
        if isinstance(answer, Exception):
            self.read_fault = answer
            self.on_answer()
            return
        assert isinstance(answer, bytes)
        run.blob = answer
        self.on_memory(len(answer))
        self._take_in()

    def _take_in(self) -> None:
        while self.runs and (
            self.runs[0].is_empty() or (self.runs[0].wanted and self.runs[0].blob is not None)
        ):
            run = self.runs.popleft()
            messages = [] if run.blob is None else run.left(run.decode(run.blob))
            self.queue.gap_first = self.runs[0].first if self.runs else 0
            self._release(run)
            self.count -= run.count
            self.nbytes -= run.nbytes
            self.paged_in += len(messages)
            self.on_loaded(run, messages)
        if self.runs:
            if self.queue.aside > 0:
                self.queue.join(self.queue.gap_first)
        elif self.queue.gap:
            self.queue.close_gap()

    def _release(self, run: Run) -> None:
        run.gone = True
        # A long chain must not be freed recursively.
        run.following = None
        self._give_back(run)

    def _give_back(self, run: Run) -> None:
        """What a run takes, in memory and on disk."""
        self.scans.let_go(run)
        self.on_disk(-run.disk_bytes)
        run.disk_bytes = 0
        if run.blob is not None:
            self.on_memory(-len(run.blob))
            run.blob = None
        if run.place is not None:
            self.pager.free(run.place)
            run.place = None


def _encode(buffer: Buffer, entry: Entry) -> int:
    """Append the entry's record; return its message's size there, with what outcomes added to it."""
    data = entry.data
    expires_ns = 0
    if entry.extra is not None:
        expires_ns = entry.extra.expires_ns
        if entry.extra.annotations:
            data = message.with_annotations(data, entry.extra.annotations)
    flags = (DURABLE if entry.durable else 0) | (REDELIVERED if entry.redelivered else 0)
    flags |= SPARED if entry.spared else 0
    buffer.add(MESSAGE, 0, entry.seq, flags, entry.delivery_count, expires_ns, data)
    return len(data)


def messages_of(blob: bytes) -> list[Message]:
    """The messages of a run that we wrote."""
    return [record[2:] for record in read(blob)]


def put_back(
    queue: Queue,
    seq: int,
    flags: int,
    delivery_count: int,
    expires_ns: int,
    data: bytes,
    near: Entry | None = None,
) -> Entry:
    """A message that was on disk as an entry in its place; ``near`` is one that stands near it."""
    entry = queue.fill(data, seq, near)
    _set(entry, flags, delivery_count, expires_ns)
    return entry


def _set(entry: Entry, flags: int, delivery_count: int, expires_ns: int) -> None:
    """All but its bytes."""
    entry.durable = bool(flags & DURABLE)
    entry.redelivered = bool(flags & REDELIVERED)
    entry.spared = bool(flags & SPARED)
    entry.delivery_count = delivery_count
    if expires_ns:
        entry.extra = Extra()
        entry.extra.expires_ns = expires_ns
