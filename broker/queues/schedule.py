"""Messages of a queue that wait for their time, the next one first.

They stand in no list of the queue, so that a million of them cost its consumers nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from broker.queues.queue import Extra

# Numbers in one page of the index: a power of two.
PAGE_MSGS = 64
# The state of a delayed message.
WAITING, LOST, CANCELLED = 0, 1, 2
# Below so many husks sweeping isn't worth it.
SWEEP_MSGS = 1000


class Delayed:
    """One message that waits until ``due_ns``, or expires at ``expires_ns`` (0: never), both monotonic.

    ``seq`` is its number in its queue until it is due. ``durable``: it is in the schedule's log. ``state``
    is WAITING, LOST where its body didn't survive, or CANCELLED where only the heap still has it.
    """

    def __init__(self, data: bytes, seq: int, due_ns: int, expires_ns: int) -> None:
        self.data = data
        self.seq = seq
        self.due_ns = due_ns
        self.expires_ns = expires_ns
        self.extra: Extra | None = None
        self.delivery_count = 0
        self.durable = False
        self.redelivered = False
        self.spared = False
        self.state = WAITING

    def __lt__(self, other: Delayed) -> bool:
        """Order by the time it wakes, then by number."""
        mine, theirs = wake_ns(self), wake_ns(other)
        return mine < theirs or (mine == theirs and self.seq < other.seq)


def wake_ns(delayed: Delayed) -> int:
    """Return when something is to be done about a message: it is due, or it expires."""
    if 0 < delayed.expires_ns < delayed.due_ns:
        return delayed.expires_ns
    return delayed.due_ns


class Schedule:
    """The messages of one queue that wait for their time.

    A heap by time has them all; pages of ``PAGE_MSGS`` numbers find one by its number. A message takes 64
    bytes for itself, 8 in the heap, and 8 in its page, which has a head of about 170. ``log`` keeps the
    durable ones, None without one; ``queued_ns`` is for the engine, which has a line of schedules.
    """

    def __init__(self) -> None:
        self.count = 0
        self.nbytes = 0
        self.queued_ns = 0
        self.log: Any = None
        self._heap: list[Delayed] = []
        self._pages: dict[int, list[Delayed | None]] = {}
        self._husks = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Delayed]:
        """Iterate over all, in no order."""
        return (each for each in self._heap if each.state != CANCELLED)

    def add(self, delayed: Delayed) -> None:
        """Take in a message, whose number no other has."""
        heapq.heappush(self._heap, delayed)
        page = self._pages.get(delayed.seq // PAGE_MSGS)
        if page is None:
            page = self._pages[delayed.seq // PAGE_MSGS] = [None] * PAGE_MSGS
        page[delayed.seq % PAGE_MSGS] = delayed
        self.count += 1
        self.nbytes += len(delayed.data)

    def next_ns(self) -> int:
        """Return when the first of them wakes; 0 where there is none."""
        self._drop_husks()
        return wake_ns(self._heap[0]) if self._heap else 0

    def take_due(self, now_ns: int) -> Delayed | None:
        """Take out the first whose time has come; None if none is."""
        self._drop_husks()
        if not self._heap or wake_ns(self._heap[0]) > now_ns:
            return None
        delayed = heapq.heappop(self._heap)
        self._forget(delayed)
        return delayed

    def find(self, seq: int) -> Delayed | None:
        """Return the message of that number; None if there is none."""
        page = self._pages.get(seq // PAGE_MSGS)
        return None if page is None else page[seq % PAGE_MSGS]

    def remove(self, delayed: Delayed) -> None:
        """Take out a message before its time."""
        self._forget(delayed)
        delayed.state = CANCELLED
        self._husks += 1
        if self._husks > SWEEP_MSGS and 2 * self._husks > len(self._heap):
            self._heap = [each for each in self._heap if each.state != CANCELLED]
            heapq.heapify(self._heap)
            self._husks = 0

    def first(self, offset: int, count: int) -> list[Delayed]:
        """Return ``count`` messages behind the first ``offset``, by time; looks at few more than those."""
        heap = self._heap
        found: list[Delayed] = []
        line = [(heap[0], 0)] if heap else []
        while line and len(found) < count:
            delayed, at = heapq.heappop(line)
            if delayed.state != CANCELLED:
                if offset > 0:
                    offset -= 1
                else:
                    found.append(delayed)
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heapq.heappush(line, (heap[child], child))
        return found

    def count_due(self, until_ns: int, most: int) -> int:
        """Count those that wake until a time, up to ``most``; looks at no more than twice as many."""
        heap, found, line = self._heap, 0, [0]
        while line and found < most:
            at = line.pop()
            if at < len(heap) and wake_ns(heap[at]) <= until_ns:
                found += heap[at].state != CANCELLED
                line += (2 * at + 1, 2 * at + 2)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._pages.clear()
        self.count = self.nbytes = self._husks = 0

    def _forget(self, delayed: Delayed) -> None:
        at = delayed.seq // PAGE_MSGS
        page = self._pages[at]
        page[delayed.seq % PAGE_MSGS] = None
        if page.count(None) == PAGE_MSGS:
            del self._pages[at]
        self.count -= 1
        self.nbytes -= len(delayed.data)

    def _drop_husks(self) -> None:
        while self._heap:
            first = self._heap[0]
            if first.state != CANCELLED:
                return
            heapq.heappop(self._heap)
            self._husks -= 1
