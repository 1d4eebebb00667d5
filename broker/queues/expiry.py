"""When messages expire, earliest first, so that nobody searches a queue for them.

Only messages with a time to live are here. What left its queue meanwhile stays as a husk until its
time has come, or until husks are more than half, when all of them are swept out at once.
"""

from __future__ import annotations

import heapq

from broker import constants
from broker.queues.queue import Entry

# Below so many husks sweeping isn't worth it.
SWEEP_MSGS = 1000


def deadline_ms(now_ms: int, ttl_ms: int, absolute_ms: int, given_ms: int, most_ms: int) -> int:
    """When a message that comes now expires, in the milliseconds of ``now_ms``; 0 for never.

    ``ttl_ms`` and ``absolute_ms`` are what it brings, ``given_ms`` is for one that brings neither, and no
    message has more than ``most_ms`` from now; 0 is none of each.
    """
    ends = [now_ms + ttl_ms] if ttl_ms else []
    if absolute_ms:
        ends.append(absolute_ms)
    if given_ms and not ends:
        ends.append(now_ms + given_ms)
    if most_ms:
        ends.append(now_ms + most_ms)
    return min(ends, default=0)


class Expiry:
    """A heap of entries by deadline, in monotonic nanoseconds."""

    def __init__(self) -> None:
        # Deadline, number, and which of those with that number: one that was on disk meanwhile is there again
        # beside the husk of itself.
        self._heap: list[tuple[int, int, int, Entry]] = []
        self._added = 0
        self._husks = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry, deadline_ns: int) -> None:
        """The entry expires then, unless it is gone or held by a consumer."""
        self._added += 1
        heapq.heappush(self._heap, (deadline_ns, entry.seq, self._added, entry))

    def left(self) -> None:
        """An entry that was added left its queue."""
        self._husks += 1
        if self._husks > SWEEP_MSGS and 2 * self._husks > len(self._heap):
            self._heap = [item for item in self._heap if item[3].state != constants.GONE]
            heapq.heapify(self._heap)
            self._husks = 0

    def due(self, now_ns: int) -> list[Entry]:
        """Entries whose time has come, taken out; those a consumer holds expire when they come back."""
        found: list[Entry] = []
        while self._heap and self._heap[0][0] <= now_ns:
            entry = heapq.heappop(self._heap)[3]
            if entry.state == constants.GONE:
                self._husks -= 1
            elif entry.state != constants.ACQUIRED:
                found.append(entry)
        return found

    def next_deadline(self) -> int:
        """When ``due`` has something to say; 0 for never."""
        return self._heap[0][0] if self._heap else 0
