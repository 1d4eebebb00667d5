"""One message group of a queue, and one consumer that groups belong to.

Only this file knows how a group keeps those of its messages that wait: in order of their numbers, such that
the next is found, and one that comes back is put in before others, without a look at all of them. Who is sent
a message is decided by ``queues/groups.py``.
"""

from __future__ import annotations

from broker import constants
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry, Filter

# The places made before the first of a list of waiting messages, for those that come back.
SPARE_PLACES = 1024


class MessageGroup:
    """One group: its consumer, and what waits for that.

    ``waiting`` are entries by number from the index ``head`` on, None for none; those that aren't ready any
    more are passed over. ``skipped`` are those that its consumer doesn't want. ``held`` counts its messages
    at consumers. ``closing``: nothing more is sent before those are settled, then it is free. ``moves``:
    it is free as soon as none is held. ``marked``: its consumer was told of its first message.
    ``place`` and ``wanted_by`` say where ``queues/groups.py`` lists it. ``used`` since it was last thought of
    forgetting it.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.owner: GroupMember | None = None
        self.waiting: list[Entry | None] | None = None
        self.head = 0
        self.skipped: list[Entry] | None = None
        self.held = 0
        self.closing = False
        self.moves = False
        self.marked = False
        # Nowhere, and all of them.
        self.place = 0
        self.wanted_by: int = -1
        self.idle = False
        self.used = False

    def first(self) -> Entry | None:
        """Return the first waiting entry, which others may have taken meanwhile."""
        waiting = self.waiting
        return None if waiting is None else waiting[self.head]

    def drop_taken(self) -> int:
        """Take out those at the front that others took, and return how many there were."""
        waiting = self.waiting
        taken = 0
        if waiting is None:
            return 0
        end = len(waiting)
        while self.head < end:
            entry = waiting[self.head]
            if entry is not None:
                if entry.state == constants.READY:
                    return taken
                taken += 1
                waiting[self.head] = None
            self.head += 1
        self.waiting = None
        self.head = 0
        return taken

    def pop(self) -> None:
        """Take the first waiting entry out."""
        waiting = self.waiting
        assert waiting is not None
        waiting[self.head] = None
        self.head += 1
        if self.head >= len(waiting):
            self.waiting = None
            self.head = 0
        elif self.head > 2 * SPARE_PLACES and self.head > len(waiting) // 2:
            del waiting[: self.head]
            self.head = 0

    def insert(self, entry: Entry) -> bool:
        """Put an entry in its place among those that wait; false if it stands there already."""
        waiting = self.waiting
        if waiting is None:
            self.waiting = [entry]
            self.head = 0
            return True
        low = self.head
        high = len(waiting)
        last = waiting[high - 1]
        if last is not None and last.seq < entry.seq:
            waiting.append(entry)
            return True
        while low < high:
            middle = (low + high) // 2
            other = waiting[middle]
            assert other is not None, "all behind the head are there"
            if other.seq < entry.seq:
                low = middle + 1
            else:
                high = middle
        if low < len(waiting) and waiting[low] is entry:
            return False
        if low - self.head > len(waiting) - low:
            waiting.insert(low, entry)
            return True
        if self.head == 0:
            spare = min(len(waiting), SPARE_PLACES)
            waiting[0:0] = [None] * spare
            self.head = spare
            low += spare
        self.head -= 1
        for i in range(self.head, low - 1):
            waiting[i] = waiting[i + 1]
        waiting[low - 1] = entry
        return True

    def take_skipped(self) -> None:
        """Put what its consumer didn't want among those that wait."""
        kept = [] if self.waiting is None else self.waiting[self.head :]
        both = [each for each in kept if each is not None] + (self.skipped or [])
        self.skipped = None
        both.sort(key=_number)
        self.waiting = [*both]
        self.head = 0


class GroupMember:
    """A consumer of a queue with groups.

    ``groups`` counts those that are its own, ``listed`` are those with waiting messages, oldest first, each
    with the number of its first; some are out of date. ``bit`` is its own in sets of consumers.
    ``deals`` while it may be sent more. ``gone`` once it is detached.
    """

    def __init__(self, consumer: Consumer, bit: int) -> None:
        self.consumer = consumer
        self.wanted: Filter | None = None if consumer.reader is None else consumer.reader.wanted
        self.bit = bit
        self.groups = 0
        self.moving = 0
        self.skips = False
        self.listed: list[tuple[int, int, MessageGroup]] = []
        self.deals = False
        self.gone = False


def _number(entry: Entry) -> int:
    return entry.seq
