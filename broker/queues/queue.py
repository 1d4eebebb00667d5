"""Messages in the order they came, and the life of each.

An entry is one message in one queue. It stays in its place while a consumer holds it, so that what
comes back is in order again without a search.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Protocol

from broker import constants

# (state, what happens) -> state. A pair that is absent is illegal, raises and changes nothing.
LIFE = {
    (constants.READY, "acquire"): constants.ACQUIRED,
    (constants.ACQUIRED, "release"): constants.READY,
    (constants.ACQUIRED, "settle"): constants.GONE,
    (constants.READY, "drop"): constants.GONE,
    (constants.PENDING, "store"): constants.READY,
    (constants.PENDING, "drop"): constants.GONE,
    (constants.READY, "cut"): constants.BEHIND,
    (constants.BEHIND, "acquire"): constants.ACQUIRED,
    (constants.PENDING, "store behind"): constants.BEHIND,
    (constants.BEHIND, "join"): constants.READY,
    (constants.BEHIND, "drop"): constants.GONE,
    (constants.ACQUIRED, "put aside"): constants.ASIDE,
    (constants.ASIDE, "acquire"): constants.ACQUIRED,
    (constants.ASIDE, "join"): constants.READY,
    (constants.ASIDE, "drop"): constants.GONE,
}


# How many entries a reader looks at before others have their turn; a match costs a microsecond or two.
SCAN = 256
# How many may be aside before readers take no more from beyond the gap's beginning, and of how many bytes:
# they are in memory until what stands before them has been read.
MOST_ASIDE = 2000
MOST_ASIDE_BYTES = 1 << 21
# How many that came back a reader remembers one by one; where there are more it looks again from the first.
MOST_RETURNED = 1000


class IllegalTransition(RuntimeError):  # noqa: N818 - a bug of ours, not an error of anybody's input
    """An entry was asked to do what its state doesn't allow; nothing changed."""


class Entry:
    """One message in one queue: the encoded bytes, immutable and shared, and what is its own.

    ``durable``: it is on the node's shelf. ``extra`` is None but for the few that were modified (``Extra``).
    ``spared``: one of its delivery count was no failure of its own (``Engine.spare``).
    """

    def __init__(self, data: bytes, seq: int) -> None:
        self.data = data
        self.seq = seq
        self.prev: Entry | None = None
        self.next: Entry | None = None
        self.state = constants.READY
        self.durable = False
        self.redelivered = False
        self.spared = False
        self.delivery_count = 0
        self.extra: Extra | None = None


class Extra:
    """What few entries have: a time to live, and what a receiver's `modified` outcome left (§3.4.5).

    ``expires_ns`` is when it is too late to deliver it, monotonic, 0 for never.
    ``not_for`` holds the consumers for which the message was undeliverable; ``annotations`` the
    encoded map that replaces the message annotations, empty for none. ``body`` is the file of a large
    message (large.py), whose ``data`` is only what stands before its body; None for all others. ``mark``
    names an application property that is true in what is being sent (groups.py), empty for none.
    """

    def __init__(self) -> None:
        self.not_for: set[object] = set()
        self.annotations = b""
        self.expires_ns = 0
        self.body: Any = None
        self.mark = ""


class Filter(Protocol):
    """Says of an encoded message whether somebody wants it."""

    def matches(self, data: bytes) -> bool: ...


class Disk(Protocol):
    """The messages in a queue's gap, for readers (spool.py)."""

    def ahead(self, reader: Reader) -> int: ...

    def look(self, reader: Reader) -> Entry | None: ...

    def brings_more(self) -> bool: ...

    def is_coming(self) -> bool: ...


class Reader:
    """How far one who doesn't take everything has looked: a consumer with a filter, or a browser.

    Every message up to the number ``passed``, in memory or on disk, was looked at and either taken or not
    wanted; ``position`` is the first entry in memory behind that, None at the end, and ``run`` where it is
    on disk (spool.py). What is released before it stands in ``returned``. ``parts`` has one such reader for
    each level of a priority queue, None elsewhere. So an entry is looked at once, and
    once more each time it comes back: a search costs what is new, whatever the queue's depth. ``wanted``
    None wants all. ``browses``: it takes nothing. ``unfinished``: it stopped after ``SCAN`` messages, not at
    the end; ``waits``: what comes next is read from disk first. ``left``: how many more it may look at.
    """

    def __init__(self, owner: object, wanted: Filter | None, browses: bool = False) -> None:
        self.owner = owner
        self.wanted = wanted
        self.browses = browses
        self.position: Entry | None = None
        self.returned: list[tuple[int, Entry]] = []
        self.parts: list[Reader] | None = None
        self.passed = 0
        self.run: Any = None
        self.left = 0
        self.unfinished = False
        self.waits = False


class QueueOrder:
    """An order of its own in which a queue's ready entries go out (groups.py).

    It has a browsing ``Reader`` among the queue's, which stands where it has looked; so a queue without
    such an order tests nothing more than whether it has readers. ``stuck`` counts ready entries that it has
    looked at and that wait for their consumer.
    """

    def __init__(self) -> None:
        self.stuck = 0

    def taken(self, entry: Entry) -> None:
        """An entry is about to be acquired by somebody else: it expires, or is moved."""
        raise NotImplementedError

    def returned(self, entry: Entry) -> None:
        """An entry that was acquired is back in its place."""
        raise NotImplementedError

    def gone(self, entry: Entry) -> None:
        """An entry is about to leave, from the state that it still has."""
        raise NotImplementedError

    def let_go(self, entry: Entry) -> None:
        """A consumer is done with an entry that stays acquired: it is on its way elsewhere."""
        raise NotImplementedError

    def restart(self) -> None:
        """Look at everything again from the queue's head."""
        raise NotImplementedError

    def join(self, consumer: Any) -> None:
        """Serve a consumer (dispatch.py) from now on."""
        raise NotImplementedError

    def leave(self, consumer: Any) -> None:
        """Serve a consumer no more; the caller has released what it held."""
        raise NotImplementedError

    def dispatch(self, consumers: list[Any], only_first: bool, by_turn: bool, start: int) -> None:
        """Send what is ready, as far as consumers have capacity and there is something for them.

        ``only_first``: the first consumer alone is served; ``by_turn``: a message that any consumer may have
        goes to the next in turn for a full batch. ``start`` breaks ties.
        """
        raise NotImplementedError

    def has_more(self, consumer: Any) -> bool:
        """Whether there is something that the consumer could be sent, or that nobody has looked at yet."""
        raise NotImplementedError

    def waits_for(self, consumer: Any) -> bool:
        """Whether messages wait that no other consumer may have."""
        raise NotImplementedError


class Queue:
    """A list of entries with a cursor: every entry before it is acquired.

    Behind the last ready one stand the pending: the first of them waits for the disk and all that
    came after it waits with it, so that nothing overtakes. A deep queue has a ``gap`` behind its ready
    entries, where runs of messages are on disk only (spool.py); what came after those and is in
    memory is behind. So the order is: ready and acquired, the gap, behind, pending. Consumers that take all
    get what is ready; readers look further, into the gap (``disk``) and at what is behind it. What one took
    there and gave back is ``aside``: readers may have it, others once the gap, which begins with the number
    ``gap_first``, begins behind it. ``order`` is None in all queues whose messages go out as they came.
    """

    def __init__(self) -> None:
        self.head: Entry | None = None
        self.tail: Entry | None = None
        self.cursor: Entry | None = None
        self.ready = 0
        self.acquired = 0
        self.next_seq = 1
        self.picky = 0
        self.pending = 0
        self.first_pending: Entry | None = None
        self.gap = False
        self.gap_first = 0
        self.disk: Disk | None = None
        self.aside = 0
        self.aside_bytes = 0
        self.behind = 0
        self.behind_bytes = 0
        self.first_behind: Entry | None = None
        self.readers: list[Reader] = []
        self.order: QueueOrder | None = None

    def append(self, data: bytes, keep: bool = False) -> Entry:
        """A new entry at the end; one to ``keep`` on disk is pending until :meth:`stored`."""
        entry = Entry(data, self.next_seq)
        self.next_seq += 1
        tail = self.tail
        if tail is None:
            self.head = entry
        else:
            tail.next = entry
            entry.prev = tail
        self.tail = entry
        if self.readers:
            self._show(entry)
        if keep or self.pending > 0 or self.gap:
            self._hold_back(entry, keep)
            return entry
        if self.cursor is None:
            self.cursor = entry
        self.ready += 1
        return entry

    def stored(self, upto: int) -> None:
        """Every pending entry up to this sequence number is on disk: ready, with what stands between."""
        entry = self.first_pending
        while entry is not None and (entry.seq <= upto or not entry.durable):
            self.pending -= 1
            if self.gap:
                self._put_behind(entry)
            else:
                self._make_ready(entry)
            entry = entry.next
        self.first_pending = entry

    def cut(self, keep_msgs: int, keep_bytes: int) -> None:
        """Open the gap: of the ready entries the first stay so, up to ``keep_msgs`` or ``keep_bytes``.

        All others are behind it, but for those before one that is held or isn't for everybody: such a
        one stays in memory, and nothing that may come back stands behind the gap.
        """
        entry = self._after_held(self._after_ready(keep_msgs, keep_bytes))
        self.gap = True
        while entry is not None and entry.state != constants.PENDING:
            if entry is self.cursor:
                self.cursor = None
            self.ready -= 1
            self._put_behind(entry)
            entry = entry.next
        if self.order is not None:
            self.order.restart()

    def take_behind(self) -> Entry | None:
        """The first entry behind the gap, taken out of the list: it goes to disk. None if there is none."""
        entry = self.first_behind
        if entry is not None:
            if self.readers:
                self._send_back(entry)
            self.drop(entry)
        return entry

    def fill(self, data: bytes, seq: int, near: Entry | None = None) -> Entry:
        """A message that was in the gap is back in memory: ready, behind all that are.

        ``near`` is an entry that stands near its place, where one is known.
        """
        entry = Entry(data, seq)
        self._insert(entry, near)
        self._make_ready(entry)
        return entry

    def extract(self, data: bytes, seq: int, near: Entry | None) -> Entry:
        """A message that stays in the gap but for a reader that is about to take it: aside, in its place."""
        entry = Entry(data, seq)
        self._insert(entry, near)
        self._put_aside(entry)
        return entry

    def join(self, before: int) -> None:
        """What is aside and stands before this number is ready."""
        entry = self.head
        while entry is not None and self.aside > 0 and entry.seq < before:
            if entry.state == constants.ASIDE:
                self._leave_aside(entry)
                self._make_ready(entry)
            entry = entry.next

    def close_gap(self) -> None:
        """Nothing is in the gap any more: what was behind it is ready."""
        self.gap = False
        self.gap_first = 0
        if self.aside > 0:
            self.join(constants.UNBOUNDED)
        entry = self.first_behind
        self.first_behind = None
        self.behind = self.behind_bytes = 0
        while entry is not None and entry.state != constants.PENDING:
            if entry.state == constants.BEHIND:
                self._make_ready(entry)
            entry = entry.next

    def acquire(self) -> Entry | None:
        """The first ready entry, acquired; None when there is none."""
        entry = self.cursor
        if entry is None:
            return None
        self._take(entry)
        return entry

    def acquire_for(self, consumer: object) -> Entry | None:
        """The first ready entry that wasn't undeliverable to this consumer, acquired."""
        if self.picky == 0:
            return self.acquire()
        entry = self.cursor
        while entry is not None:
            if entry.state == constants.READY and not (
                entry.extra is not None and consumer in entry.extra.not_for
            ):
                self._take(entry)
                return entry
            entry = entry.next
        return None

    def acquire_next(self, reader: Reader) -> Entry | None:
        """The next entry that the reader wants, acquired; None when it has looked at all there are."""
        entry = self._next(reader)
        if entry is not None:
            self._take(entry)
        return entry

    def look(self, reader: Reader) -> Entry | None:
        """The next entry that a browser wants, left where it is; of one that is on disk, a copy."""
        return self._next(reader)

    def open_reader(self, reader: Reader) -> None:
        """It begins at the head."""
        reader.position = self.head
        reader.passed = 0
        self.readers.append(reader)

    def close_reader(self, reader: Reader) -> None:
        """It looks no more."""
        if reader in self.readers:
            self.readers.remove(reader)
        reader.position = None
        reader.returned = []
        reader.run = None

    def has_more(self, reader: Reader) -> bool:
        """Whether there is something to look at: not only what has yet to be written."""
        entry = reader.position
        if reader.returned:
            return True
        if entry is not None and entry.state in (constants.READY, constants.ACQUIRED) and not self.gap:
            return True
        if self.gap and entry is not None and entry.seq < self.gap_first:
            return True
        if not self._may_pass(reader):
            return False
        if entry is not None and entry.state != constants.PENDING:
            return True
        return self.gap and self.disk is not None and self.disk.ahead(reader) != constants.UNBOUNDED

    def take(self, entry: Entry) -> None:
        """Acquire this very entry, wherever it stands."""
        if self.order is not None:
            self.order.taken(entry)
        self._take(entry)

    def release(self, entry: Entry) -> None:
        """Back to ready, in its old place."""
        if entry.state != constants.ACQUIRED:
            raise _illegal(entry, "release")
        self.acquired -= 1
        if self.gap and entry.seq > self.gap_first:
            self._put_aside(entry)
        else:
            self._make_ready(entry)
        if self.readers:
            self._return(entry)
            if self.order is not None:
                self.order.returned(entry)

    def settle(self, entry: Entry) -> None:
        """An acquired entry is done with and leaves."""
        if entry.state != constants.ACQUIRED:
            raise _illegal(entry, "settle")
        self.acquired -= 1
        self._unlink(entry)

    def drop(self, entry: Entry) -> None:
        """An entry nobody holds leaves without having been consumed."""
        if entry.state == constants.PENDING:
            if entry is self.first_pending:
                self.first_pending = entry.next
            self.pending -= 1
            self._unlink(entry)
            return
        if entry.state == constants.BEHIND:
            self._leave_behind(entry)
            self._unlink(entry)
            return
        if entry.state == constants.ASIDE:
            self._leave_aside(entry)
            self._unlink(entry)
            return
        if entry.state != constants.READY:
            raise _illegal(entry, "drop")
        if entry is self.cursor:
            self.cursor = self._ready_after(entry)
        self.ready -= 1
        self._unlink(entry)

    def forbid(self, entry: Entry, consumer: object) -> None:
        """The entry is undeliverable to this consumer from now on."""
        if entry.extra is None:
            entry.extra = Extra()
        if not entry.extra.not_for:
            self.picky += 1
        entry.extra.not_for.add(consumer)

    def adorn(self, entry: Entry, extra: Extra) -> None:
        """Give a new entry what it has that others haven't."""
        entry.extra = extra
        if extra.not_for:
            self.picky += 1

    def oldest(self) -> Entry | None:
        """The first entry in memory that nobody holds, left where it is."""
        if self.cursor is not None:
            return self.cursor
        entry = self.head
        while self.aside > 0 and entry is not None:
            if entry.state == constants.ASIDE:
                return entry
            entry = entry.next
        return self.first_behind if self.first_behind is not None else self.first_pending

    def first_waiting(self) -> int:
        """The lowest number of a message that nobody holds, in memory or on disk; UNBOUNDED for none."""
        entry = self.oldest()
        first = constants.UNBOUNDED if entry is None else entry.seq
        return min(first, self.gap_first) if self.gap_first else first

    def oldest_below(self, data: bytes) -> Entry | None:
        """The message in memory that makes room for this one in a ring: the oldest that nobody holds."""
        return self.oldest()

    def least_ready(self) -> Entry | None:
        """The ready message that is dropped first where too many wait: the oldest."""
        return self.cursor

    def heads(self) -> list[Entry]:
        """The first entry of each of the queue's lists: there is one, or none."""
        return [] if self.head is None else [self.head]

    def adopt(self, entry: Entry) -> None:
        """Link an entry of another queue at the end, in the state it is in; there is no gap in either."""
        before = self.tail
        entry.prev = before
        entry.next = None
        if before is None:
            self.head = entry
        else:
            before.next = entry
        self.tail = entry
        if entry.state == constants.READY:
            self._make_ready(entry)
        elif entry.state == constants.ACQUIRED:
            self.acquired += 1
        elif entry.state == constants.PENDING:
            self.pending += 1
            if self.first_pending is None:
                self.first_pending = entry
        if entry.extra is not None and entry.extra.not_for:
            self.picky += 1

    def clear(self) -> None:
        """Unlink everything, one by one: a long chain must not be freed recursively."""
        entry = self.head
        for reader in self.readers:
            reader.position = None
            reader.returned = []
            reader.run = None
        self.head = self.tail = self.cursor = self.first_pending = self.first_behind = None
        self.gap = False
        self.gap_first = 0
        self.behind = self.behind_bytes = self.aside = self.aside_bytes = 0
        while entry is not None:
            following = entry.next
            entry.prev = None
            entry.next = None
            entry.state = constants.GONE
            entry = following
        self.ready = self.acquired = self.picky = self.pending = 0
        if self.order is not None:
            self.order.restart()

    def __iter__(self) -> Iterator[Entry]:
        entry = self.head
        while entry is not None:
            yield entry
            entry = entry.next

    def _next(self, reader: Reader) -> Entry | None:
        """Look at up to ``SCAN`` messages: first at those that came back, then by number, anywhere."""
        reader.left = SCAN
        reader.unfinished = False
        reader.waits = False
        while reader.returned:
            if reader.left == 0:
                reader.unfinished = True
                return None
            reader.left -= 1
            _, entry = heappop(reader.returned)
            if _is_free(entry) and _is_wanted(reader, entry):
                return entry
        while True:
            ahead = constants.UNBOUNDED
            if self.gap and self.disk is not None:
                ahead = self.disk.ahead(reader)
            found = self._next_in_memory(reader, ahead)
            if found is not None or reader.unfinished or ahead == constants.UNBOUNDED:
                return found
            if self.disk is None or not self._may_pass(reader):
                return None
            found = self.disk.look(reader)
            if found is not None or reader.unfinished or reader.waits:
                return found

    def _next_in_memory(self, reader: Reader, upto: int) -> Entry | None:
        """The next entry that it wants of those up to a number, as far as it may look."""
        following = reader.position
        while following is not None and following.state != constants.PENDING and following.seq <= upto:
            if reader.left == 0:
                reader.unfinished = True
                break
            if following.state == constants.BEHIND and not self._may_pass(reader):
                break
            reader.left -= 1
            entry = following
            following = entry.next
            reader.passed = entry.seq
            if _is_free(entry) and _is_wanted(reader, entry):
                reader.position = following
                return entry
        reader.position = following
        return None

    def _may_pass(self, reader: Reader) -> bool:
        """Whether it may take what stands behind the gap's beginning: not while too much is aside."""
        return reader.browses or (self.aside < MOST_ASIDE and self.aside_bytes < MOST_ASIDE_BYTES)

    def _show(self, entry: Entry) -> None:
        """A new entry is in its place: readers that have not passed that come to it."""
        for reader in self.readers:
            if entry.seq > reader.passed and (reader.position is None or reader.position.seq > entry.seq):
                reader.position = entry

    def _return(self, entry: Entry) -> None:
        for reader in self.readers:
            if not reader.browses and entry.seq <= reader.passed:
                heappush(reader.returned, (entry.seq, entry))
                if len(reader.returned) > MOST_RETURNED:
                    self._rewind(reader)

    def _send_back(self, entry: Entry) -> None:
        """An entry goes to disk: readers that were to look at it again come to it there."""
        for reader in self.readers:
            while reader.returned and reader.returned[0][1].state == constants.GONE:
                heappop(reader.returned)
            if reader.returned and reader.returned[0][0] <= entry.seq:
                self._rewind(reader)

    def _rewind(self, reader: Reader) -> None:
        """Have it look again at all from the first that came back."""
        first = reader.returned[0][1]
        while first.state == constants.GONE:
            heappop(reader.returned)
            first = reader.returned[0][1]
        reader.position = first
        reader.passed = first.seq - 1
        reader.run = None
        reader.returned = []

    def _insert(self, entry: Entry, near: Entry | None) -> None:
        """Into its place by number."""
        following = near
        if following is None:
            following = self.first_behind if self.first_behind is not None else self.first_pending
        while following is not None and following.seq < entry.seq:
            following = following.next
        before = self.tail if following is None else following.prev
        while before is not None and before.seq > entry.seq:
            # Taken out of the gap, or expired behind it and on its way elsewhere.
            following = before
            before = before.prev
        entry.prev = before
        entry.next = following
        if before is None:
            self.head = entry
        else:
            before.next = entry
        if following is None:
            self.tail = entry
        else:
            following.prev = entry
        if self.readers:
            self._show(entry)

    def _put_aside(self, entry: Entry) -> None:
        entry.state = constants.ASIDE
        self.aside += 1
        self.aside_bytes += len(entry.data)

    def _leave_aside(self, entry: Entry) -> None:
        self.aside -= 1
        self.aside_bytes -= len(entry.data)

    def _make_ready(self, entry: Entry) -> None:
        entry.state = constants.READY
        self.ready += 1
        if self.cursor is None or entry.seq < self.cursor.seq:
            self.cursor = entry

    def _put_behind(self, entry: Entry) -> None:
        entry.state = constants.BEHIND
        self.behind += 1
        self.behind_bytes += len(entry.data)
        if self.first_behind is None or entry.seq < self.first_behind.seq:
            self.first_behind = entry

    def _leave_behind(self, entry: Entry) -> None:
        self.behind -= 1
        self.behind_bytes -= len(entry.data)
        if entry is not self.first_behind:
            return
        following = entry.next if self.behind > 0 else None
        while following is not None and following.state != constants.BEHIND:
            following = following.next
        self.first_behind = following

    def _after_ready(self, msgs: int, nbytes: int) -> Entry | None:
        """What follows the first so many ready entries, or so many bytes of them."""
        entry = self.cursor
        while entry is not None and entry.state != constants.PENDING:
            if entry.state == constants.READY:
                if msgs <= 0 or nbytes <= 0:
                    return entry
                msgs -= 1
                nbytes -= len(entry.data)
            entry = entry.next
        return entry

    def _after_held(self, entry: Entry | None) -> Entry | None:
        """What follows the last entry that is held, or isn't for everybody."""
        first = entry
        while entry is not None and entry.state != constants.PENDING:
            if entry.state == constants.ACQUIRED or (entry.extra is not None and entry.extra.not_for):
                first = entry.next
            entry = entry.next
        return first

    def _hold_back(self, entry: Entry, keep: bool) -> None:
        if not keep and self.pending == 0:
            self._put_behind(entry)
            return
        entry.state = constants.PENDING
        entry.durable = keep
        self.pending += 1
        if self.first_pending is None:
            self.first_pending = entry

    def _take(self, entry: Entry) -> None:
        if entry.state == constants.BEHIND:
            self._leave_behind(entry)
            entry.state = constants.ACQUIRED
            self.acquired += 1
            return
        if entry.state == constants.ASIDE:
            self._leave_aside(entry)
            entry.state = constants.ACQUIRED
            self.acquired += 1
            return
        if entry.state != constants.READY:
            raise _illegal(entry, "acquire")
        if entry is self.cursor:
            self.cursor = self._ready_after(entry)
        entry.state = constants.ACQUIRED
        self.ready -= 1
        self.acquired += 1

    def _ready_after(self, entry: Entry) -> Entry | None:
        if self.ready <= 1:
            return None
        following = entry.next
        while following is not None and following.state != constants.READY:
            following = following.next
        return following

    def _unlink(self, entry: Entry) -> None:
        before = entry.prev
        after = entry.next
        if self.readers:
            if self.order is not None:
                self.order.gone(entry)
            for reader in self.readers:
                if reader.position is entry:
                    reader.position = after
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self.tail = before
        else:
            after.prev = before
        entry.prev = None
        entry.next = None
        entry.state = constants.GONE
        if entry.extra is not None and entry.extra.not_for:
            self.picky -= 1


def _is_free(entry: Entry) -> bool:
    """Whether it is nobody's: a reader may have it."""
    return entry.state in (constants.READY, constants.BEHIND, constants.ASIDE)


def _is_wanted(reader: Reader, entry: Entry) -> bool:
    if entry.extra is not None and reader.owner in entry.extra.not_for:
        return False
    return reader.wanted is None or reader.wanted.matches(entry.data)


def _illegal(entry: Entry, verb: str) -> IllegalTransition:
    state = ("ready", "acquired", "gone", "pending", "behind", "aside")[entry.state]
    return IllegalTransition(f"cannot {verb} entry {entry.seq}: it is {state}")
