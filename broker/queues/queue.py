"""Messages in the order they came, and the life of each.

An entry is one message in one queue. It stays in its place while a consumer holds it, so that what
comes back is in order again without a search.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Protocol

from broker import codes

# (state, what happens) -> state. A pair that is absent is illegal, raises and changes nothing.
LIFE = {
    (codes.READY, "acquire"): codes.ACQUIRED,
    (codes.ACQUIRED, "release"): codes.READY,
    (codes.ACQUIRED, "settle"): codes.GONE,
    (codes.READY, "drop"): codes.GONE,
    (codes.PENDING, "store"): codes.READY,
    (codes.PENDING, "drop"): codes.GONE,
    (codes.READY, "cut"): codes.BEHIND,
    (codes.BEHIND, "acquire"): codes.ACQUIRED,
    (codes.PENDING, "store behind"): codes.BEHIND,
    (codes.BEHIND, "join"): codes.READY,
    (codes.BEHIND, "drop"): codes.GONE,
}


# How many entries a reader looks at before others have their turn; a match costs a microsecond or two.
SCAN = 256


class IllegalTransition(RuntimeError):  # noqa: N818 - a bug of ours, not an error of anybody's input
    """An entry was asked to do what its state doesn't allow; nothing changed."""


class Entry:
    """One message in one queue: the encoded bytes, immutable and shared, and what is its own.

    ``durable``: it is on the node's shelf. ``extra`` is None but for the few that were modified (``Extra``).
    """

    def __init__(self, data: bytes, seq: int) -> None:
        self.data = data
        self.seq = seq
        self.prev: Entry | None = None
        self.next: Entry | None = None
        self.state = codes.READY
        self.durable = False
        self.redelivered = False
        self.delivery_count = 0
        self.extra: Extra | None = None


class Extra:
    """What few entries have: a time to live, and what a receiver's `modified` outcome left (§3.4.5).

    ``expires_ns`` is when it is too late to deliver it, monotonic, 0 for never.
    ``not_for`` holds the consumers for which the message was undeliverable; ``annotations`` the
    encoded map that replaces the message annotations, empty for none. ``body`` is the file of a large
    message (large.py), whose ``data`` is only what stands before its body; None for all others.
    """

    def __init__(self) -> None:
        self.not_for: set[object] = set()
        self.annotations = b""
        self.expires_ns = 0
        self.body: Any = None


class Filter(Protocol):
    """Says of an encoded message whether somebody wants it."""

    def matches(self, data: bytes) -> bool: ...


class Reader:
    """How far one who doesn't take everything has looked: a consumer with a filter, or a browser.

    Every entry before ``position`` was looked at and either taken or not wanted; None is the end. What
    is released before it stands in ``returned``. So an entry is looked at once, and once more each time
    it comes back: a search costs what is new, whatever the queue's depth. ``wanted`` None wants all.
    ``browses``: it takes nothing. ``unfinished``: it stopped after ``SCAN`` entries, not at the end.
    """

    def __init__(self, owner: object, wanted: Filter | None, browses: bool = False) -> None:
        self.owner = owner
        self.wanted = wanted
        self.browses = browses
        self.position: Entry | None = None
        self.returned: list[tuple[int, Entry]] = []
        self.unfinished = False


class Queue:
    """A list of entries with a cursor: every entry before it is acquired.

    Behind the last ready one stand the pending: the first of them waits for the disk and all that
    came after it waits with it, so that nothing overtakes. A deep queue has a ``gap`` behind its ready
    entries, where runs of messages are on disk only (spool.py); what came after those and is in
    memory is behind. So the order is: ready and acquired, the gap, behind, pending. What is
    behind is acquired only to leave: it expired.
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
        self.behind = 0
        self.behind_bytes = 0
        self.first_behind: Entry | None = None
        self.readers: list[Reader] = []

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
            self._show(entry, None)
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
        while entry is not None and entry.state != codes.PENDING:
            if entry is self.cursor:
                self.cursor = None
            self.ready -= 1
            self._put_behind(entry)
            entry = entry.next

    def take_behind(self) -> Entry | None:
        """The first entry behind the gap, taken out of the list: it goes to disk. None if there is none."""
        entry = self.first_behind
        if entry is not None:
            self.drop(entry)
        return entry

    def fill(self, data: bytes, seq: int) -> Entry:
        """A message that was in the gap is back in memory: ready, behind all that are."""
        entry = Entry(data, seq)
        following = self.first_behind if self.first_behind is not None else self.first_pending
        before = self.tail if following is None else following.prev
        while before is not None and before.seq > seq:
            # It expired behind the gap and is on its way elsewhere.
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
            self._show(entry, following)
        self._make_ready(entry)
        return entry

    def close_gap(self) -> None:
        """Nothing is in the gap any more: what was behind it is ready."""
        self.gap = False
        entry = self.first_behind
        self.first_behind = None
        self.behind = self.behind_bytes = 0
        while entry is not None and entry.state != codes.PENDING:
            if entry.state == codes.BEHIND:
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
            if entry.state == codes.READY and not (
                entry.extra is not None and consumer in entry.extra.not_for
            ):
                self._take(entry)
                return entry
            entry = entry.next
        return None

    def acquire_next(self, reader: Reader) -> Entry | None:
        """The next ready entry that the reader wants, acquired; None when it has looked at all there are."""
        entry = self._next(reader)
        if entry is not None:
            self._take(entry)
        return entry

    def look(self, reader: Reader) -> Entry | None:
        """The next ready entry that a browser wants, left where it is."""
        return self._next(reader)

    def open_reader(self, reader: Reader) -> None:
        """It begins at the head."""
        reader.position = self.head
        self.readers.append(reader)

    def close_reader(self, reader: Reader) -> None:
        """It looks no more."""
        if reader in self.readers:
            self.readers.remove(reader)
        reader.position = None
        reader.returned = []

    def has_more(self, reader: Reader) -> bool:
        """Whether there is something to look at: not only what waits for the disk."""
        entry = reader.position
        return bool(reader.returned) or (entry is not None and entry.state in (codes.READY, codes.ACQUIRED))

    def take(self, entry: Entry) -> None:
        """Acquire this very entry, wherever it stands."""
        self._take(entry)

    def release(self, entry: Entry) -> None:
        """Back to ready, in its old place."""
        if entry.state != codes.ACQUIRED:
            raise _illegal(entry, "release")
        entry.state = codes.READY
        self.acquired -= 1
        self.ready += 1
        if self.cursor is None or entry.seq < self.cursor.seq:
            self.cursor = entry
        if self.readers:
            self._return(entry)

    def settle(self, entry: Entry) -> None:
        """An acquired entry is done with and leaves."""
        if entry.state != codes.ACQUIRED:
            raise _illegal(entry, "settle")
        self.acquired -= 1
        self._unlink(entry)

    def drop(self, entry: Entry) -> None:
        """An entry nobody holds leaves without having been consumed."""
        if entry.state == codes.PENDING:
            if entry is self.first_pending:
                self.first_pending = entry.next
            self.pending -= 1
            self._unlink(entry)
            return
        if entry.state == codes.BEHIND:
            self._leave_behind(entry)
            self._unlink(entry)
            return
        if entry.state != codes.READY:
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

    def oldest(self) -> Entry | None:
        """The first entry in memory that nobody holds, left where it is."""
        if self.cursor is not None:
            return self.cursor
        return self.first_behind if self.first_behind is not None else self.first_pending

    def clear(self) -> None:
        """Unlink everything, one by one: a long chain must not be freed recursively."""
        entry = self.head
        for reader in self.readers:
            reader.position = None
            reader.returned = []
        self.head = self.tail = self.cursor = self.first_pending = self.first_behind = None
        self.gap = False
        self.behind = self.behind_bytes = 0
        while entry is not None:
            following = entry.next
            entry.prev = None
            entry.next = None
            entry.state = codes.GONE
            entry = following
        self.ready = self.acquired = self.picky = self.pending = 0

    def __iter__(self) -> Iterator[Entry]:
        entry = self.head
        while entry is not None:
            yield entry
            entry = entry.next

    def _next(self, reader: Reader) -> Entry | None:
        """Look at up to ``SCAN`` entries, those that came back first."""
        left = SCAN
        reader.unfinished = False
        while reader.returned:
            if left == 0:
                reader.unfinished = True
                return None
            left -= 1
            _, entry = heappop(reader.returned)
            if entry.state == codes.READY and _is_wanted(reader, entry):
                return entry
        following = reader.position
        while following is not None and following.state in (codes.READY, codes.ACQUIRED):
            if left == 0:
                reader.unfinished = True
                break
            left -= 1
            entry = following
            following = entry.next
            if entry.state == codes.READY and _is_wanted(reader, entry):
                reader.position = following
                return entry
        reader.position = following
        return None

    def _show(self, entry: Entry, following: Entry | None) -> None:
        """A new entry stands before ``following``: who had looked at all before that looks at it next."""
        for reader in self.readers:
            if reader.position is following:
                reader.position = entry

    def _return(self, entry: Entry) -> None:
        for reader in self.readers:
            if not reader.browses and (reader.position is None or entry.seq < reader.position.seq):
                heappush(reader.returned, (entry.seq, entry))

    def _make_ready(self, entry: Entry) -> None:
        entry.state = codes.READY
        self.ready += 1
        if self.cursor is None or entry.seq < self.cursor.seq:
            self.cursor = entry

    def _put_behind(self, entry: Entry) -> None:
        entry.state = codes.BEHIND
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
        while following is not None and following.state != codes.BEHIND:
            following = following.next
        self.first_behind = following

    def _after_ready(self, msgs: int, nbytes: int) -> Entry | None:
        """What follows the first so many ready entries, or so many bytes of them."""
        entry = self.cursor
        while entry is not None and entry.state != codes.PENDING:
            if entry.state == codes.READY:
                if msgs <= 0 or nbytes <= 0:
                    return entry
                msgs -= 1
                nbytes -= len(entry.data)
            entry = entry.next
        return entry

    def _after_held(self, entry: Entry | None) -> Entry | None:
        """What follows the last entry that is held, or isn't for everybody."""
        first = entry
        while entry is not None and entry.state != codes.PENDING:
            if entry.state == codes.ACQUIRED or (entry.extra is not None and entry.extra.not_for):
                first = entry.next
            entry = entry.next
        return first

    def _hold_back(self, entry: Entry, keep: bool) -> None:
        if not keep and self.pending == 0:
            self._put_behind(entry)
            return
        entry.state = codes.PENDING
        entry.durable = keep
        self.pending += 1
        if self.first_pending is None:
            self.first_pending = entry

    def _take(self, entry: Entry) -> None:
        if entry.state == codes.BEHIND:
            self._leave_behind(entry)
            entry.state = codes.ACQUIRED
            self.acquired += 1
            return
        if entry.state != codes.READY:
            raise _illegal(entry, "acquire")
        if entry is self.cursor:
            self.cursor = self._ready_after(entry)
        entry.state = codes.ACQUIRED
        self.ready -= 1
        self.acquired += 1

    def _ready_after(self, entry: Entry) -> Entry | None:
        if self.ready <= 1:
            return None
        following = entry.next
        while following is not None and following.state != codes.READY:
            following = following.next
        return following

    def _unlink(self, entry: Entry) -> None:
        before = entry.prev
        after = entry.next
        if self.readers:
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
        entry.state = codes.GONE
        if entry.extra is not None and entry.extra.not_for:
            self.picky -= 1


def _is_wanted(reader: Reader, entry: Entry) -> bool:
    if entry.extra is not None and reader.owner in entry.extra.not_for:
        return False
    return reader.wanted is None or reader.wanted.matches(entry.data)


def _illegal(entry: Entry, verb: str) -> IllegalTransition:
    state = ("ready", "acquired", "gone", "pending", "behind")[entry.state]
    return IllegalTransition(f"cannot {verb} entry {entry.seq}: it is {state}")
