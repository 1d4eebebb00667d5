"""Messages in the order they came, and the life of each.

An entry is one message in one queue. It stays in its place while a consumer holds it, so that what
comes back is in order again without a search.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker import codes

# (state, what happens) -> state. A pair that is absent is illegal, raises and changes nothing.
LIFE = {
    (codes.READY, "acquire"): codes.ACQUIRED,
    (codes.ACQUIRED, "release"): codes.READY,
    (codes.ACQUIRED, "settle"): codes.GONE,
    (codes.READY, "drop"): codes.GONE,
    (codes.PENDING, "store"): codes.READY,
    (codes.PENDING, "drop"): codes.GONE,
}


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
    encoded map that replaces the message annotations, empty for none.
    """

    def __init__(self) -> None:
        self.not_for: set[object] = set()
        self.annotations = b""
        self.expires_ns = 0


class Queue:
    """A list of entries with a cursor: every entry before it is acquired.

    Behind the last ready one stand the pending: the first of them waits for the disk and all that
    came after it waits with it, so that nothing overtakes.
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
        if keep or self.pending > 0:
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
            entry.state = codes.READY
            self.pending -= 1
            self.ready += 1
            if self.cursor is None:
                self.cursor = entry
            entry = entry.next
        self.first_pending = entry

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
        """The first entry that nobody holds, left where it is."""
        return self.cursor if self.cursor is not None else self.first_pending

    def clear(self) -> None:
        """Unlink everything, one by one: a long chain must not be freed recursively."""
        entry = self.head
        self.head = self.tail = self.cursor = self.first_pending = None
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

    def _hold_back(self, entry: Entry, keep: bool) -> None:
        entry.state = codes.PENDING
        entry.durable = keep
        self.pending += 1
        if self.first_pending is None:
            self.first_pending = entry

    def _take(self, entry: Entry) -> None:
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


def _illegal(entry: Entry, verb: str) -> IllegalTransition:
    state = ("ready", "acquired", "gone", "pending")[entry.state]
    return IllegalTransition(f"cannot {verb} entry {entry.seq}: it is {state}")
