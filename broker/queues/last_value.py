"""A queue that keeps the last value of each key: a newer message takes the place of one that nobody holds.

How messages and keys meet:

1. The index has the newest message of each key, ready or held: ``newest``. When that leaves, an older one
   that is held is in the index again once it comes back.
2. A message that comes replaces the newest of its key if nobody holds that (``replaceable``). The caller
   takes the older one out (``vacate``) and puts the newer one in (``append``), in one turn.
3. A message that a consumer holds stays in its hands. When it comes back and a newer one is here
   (``has_after``), the caller takes it out; if the newer one has left meanwhile, it is the newest again.
4. A message without a key is replaced by none and replaces none.

The newer message stands at the end of the queue, or, with ``keeps_place``, where the older one stood. Then it
has the older one's number too, and readers that have passed that place are shown it. A reader that doesn't
keep up with ``MOST_RETURNED`` of them looks again from the first on, and is shown some values twice if it
browses.

An index entry takes the bytes of its key, 33 for the object that holds them, and 38 to 105 in the dictionary,
as that grows. There is at most one a message, so whatever bounds the queue bounds the index.
"""

from __future__ import annotations

from heapq import heappush

from broker import constants
from broker.codec.lastvalue import ValueKey
from broker.queues.queue import MOST_RETURNED, Entry, Queue


class LastValueQueue(Queue):
    """Messages in the order they came, one ready message a key. ``gap`` is never open: it isn't paged."""

    def __init__(self, key: ValueKey) -> None:
        Queue.__init__(self)
        self.key = key
        self.keeps_place = False
        self.newest: dict[bytes, Entry] = {}
        # Of the message that was looked at last: most are appended right after that.
        self._seen: bytes | None = None
        self._seen_name = b""
        # The number of the place that a newer message takes, 0 for the end, and the entry behind it.
        self._place = 0
        self._behind_place: Entry | None = None

    def replaceable(self, data: bytes) -> Entry | None:
        """Return the entry that this message replaces; None if there is none, or a consumer holds it."""
        name = self._name_of(data)
        entry = self.newest.get(name) if name else None
        return entry if entry is not None and entry.state != constants.ACQUIRED else None

    def has_after(self, data: bytes, seq: int) -> bool:
        """Return whether a message of this one's key is here that has a number above ``seq``."""
        name = self._name_of(data)
        newest = self.newest.get(name) if name else None
        return newest is not None and newest.seq > seq

    def is_newest(self, entry: Entry) -> bool:
        """Return whether no newer message of the entry's key has come, or it has no key."""
        name = self._name_of(entry.data)
        return not name or self.newest.get(name) is entry

    def vacate(self, entry: Entry) -> None:
        """Drop an entry that is replaced; the next message that is appended is the newer one."""
        if self.keeps_place:
            self._place = entry.seq
            self._behind_place = entry.next
            for reader in self.readers:
                if reader.returned:
                    reader.returned = [each for each in reader.returned if each[0] != entry.seq]
                    reader.returned.sort()
        self.drop(entry)

    def append(self, data: bytes, keep: bool = False) -> Entry:
        """A new entry, the newest of its key: at the end, or in the place that was vacated for it."""
        if self._place and not keep and self.pending == 0:
            entry = self._take_place(data)
        else:
            entry = Queue.append(self, data, keep)
        self._place = 0
        self._behind_place = None
        name = self._name_of(data)
        if name:
            self.newest[name] = entry
        return entry

    def release(self, entry: Entry) -> None:
        """Back to ready, in its old place; the newest of its key, if there is no other."""
        Queue.release(self, entry)
        name = self._name_of(entry.data)
        if name and (name not in self.newest or self.newest[name].seq < entry.seq):
            self.newest[name] = entry

    def settle(self, entry: Entry) -> None:
        """An acquired entry is done with and leaves."""
        Queue.settle(self, entry)
        self._forget(entry)

    def drop(self, entry: Entry) -> None:
        """An entry nobody holds leaves without having been consumed."""
        Queue.drop(self, entry)
        self._forget(entry)

    def clear(self) -> None:
        """Unlink everything."""
        Queue.clear(self)
        self.newest.clear()

    def _take_place(self, data: bytes) -> Entry:
        """Put a message where an older one stood, and show it to readers that have passed that place."""
        seq = self._place
        entry = Entry(data, seq)
        self._insert(entry, self._behind_place)
        self._make_ready(entry)
        for reader in self.readers:
            if seq <= reader.passed:
                heappush(reader.returned, (seq, entry))
                if len(reader.returned) > MOST_RETURNED:
                    self._rewind(reader)
        return entry

    def _forget(self, entry: Entry) -> None:
        name = self._name_of(entry.data)
        if name and self.newest.get(name) is entry:
            del self.newest[name]

    def _name_of(self, data: bytes) -> bytes:
        if data is not self._seen:
            self._seen_name = self.key.of(data)
            self._seen = data
        return self._seen_name
