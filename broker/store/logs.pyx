"""Shelves and what is live on them: a bit for each message, by file of the journal and by page.

All of it belongs to the thread that owns the store; only sealed groups leave it, through the journal.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from broker.store.records cimport HEAD_BYTES, Buffer, Head, chained, next_record, original
from broker.store.records import COPY, FORGET, MESSAGE, STREAM, UPDATE, DamagedRecord
from broker.store.port cimport QueueLog, Store
from broker.store.port import DURABLE, REDELIVERED, SPARED
from broker.store.journal cimport Journal
from broker.store.journal import group_bytes

cdef int RECORD_MESSAGE = MESSAGE, RECORD_FORGET = FORGET, RECORD_UPDATE = UPDATE, RECORD_COPY = COPY
cdef int RECORD_STREAM = STREAM
cdef int FIRST_KIND = MESSAGE, LAST_KIND = COPY
cdef int GIVEN_BACK = DURABLE | REDELIVERED
cdef int GIVEN_BACK_SPARED = GIVEN_BACK | SPARED

# A new group goes to the next file where less than this is left of the present one; a group that
# turns out larger makes its file longer.
cdef long MARGIN_BYTES = 1 << 18
# A COPY says in 32 bits where its payload is.
cdef long FARTHEST_BACK = (1 << 32) - 1


cdef class Extent:
    """Messages of one shelf that stand together, in a file of the journal or (``place``) in a page.

    ``live`` counts those that are not done with, ``nbytes`` what they have together.
    """

    def __init__(self, long first, long file, object place=None):
        self.first = first
        self.last = first - 1
        self.file = file
        self.place = place

    def __dealloc__(self):
        free(self.bits)

    cdef object grow(self, long seq):
        """Take a message in; the caller has seen that it is behind all others."""
        cdef long at = seq - self.first
        cdef long wanted = (at >> 3) + 1
        cdef unsigned char *grown
        if seq <= self.last:
            raise ValueError(f"message {seq} comes after {self.last}")
        if wanted > self.room_bytes:
            wanted = max(2 * self.room_bytes, wanted, 64)
            grown = <unsigned char *>realloc(self.bits, wanted)
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.room_bytes, 0, wanted - self.room_bytes)
            self.bits = grown
            self.room_bytes = wanted
        self.bits[at >> 3] |= 1 << (at & 7)
        self.last = seq
        self.live += 1

    cdef bint holds(self, long seq) noexcept:
        cdef long at = seq - self.first
        return self.first <= seq <= self.last and (self.bits[at >> 3] >> (at & 7)) & 1

    cdef bint drop(self, long seq) noexcept:
        cdef long at = seq - self.first
        if not self.holds(seq):
            return False
        self.bits[at >> 3] &= ~(1 << (at & 7))
        self.live -= 1
        self.changed = True
        return True

    def add(self, long seq):
        """Take a message in, behind all others."""
        self.grow(seq)

    def has(self, long seq):
        """Whether the message is live."""
        return self.holds(seq)

    def drop_one(self, long seq):
        """The message is not live any more."""
        self.drop(seq)

    def copy(self):
        """The same as it is now."""
        cdef Extent extent = Extent.of(self.first, self.last, self.place, self.bitmap(), self.nbytes)
        extent.file = self.file
        return extent

    def bitmap(self):
        """A bit for each number from ``first`` to ``last``, as bytes."""
        return PyBytes_FromStringAndSize(<char *>self.bits, (self.last - self.first + 8) >> 3)

    @staticmethod
    def of(long first, long last, object place, bytes bitmap, long nbytes=0):
        """A page's extent as it was kept."""
        cdef Extent extent = Extent(first, 0, place)
        cdef long at
        extent.nbytes = nbytes
        extent.room_bytes = max(PyBytes_GET_SIZE(bitmap), 1)
        extent.bits = <unsigned char *>calloc(extent.room_bytes, 1)
        if extent.bits == NULL:
            raise MemoryError()
        memcpy(extent.bits, PyBytes_AS_STRING(bitmap), PyBytes_GET_SIZE(bitmap))
        extent.last = last
        for at in range(last - first + 1):
            extent.live += (extent.bits[at >> 3] >> (at & 7)) & 1
        return extent

    def part(self, long first, long last, object place):
        """The live messages of a range as an extent of its own, in a page."""
        cdef Extent extent = Extent(first, 0, place)
        cdef long seq
        extent.grow(last)
        extent.live = 0
        extent.bits[(last - first) >> 3] &= ~(1 << ((last - first) & 7))
        for seq in range(first, last + 1):
            if self.holds(seq):
                extent.bits[(seq - first) >> 3] |= 1 << ((seq - first) & 7)
                extent.live += 1
        return extent


cdef class DiskQueueLog(QueueLog):
    """One node's messages on disk. ``updates``: sequence number to (flags, delivery count) where they changed.

    The flags of an update come on top of those that the message was kept with.
    """

    def __init__(self, Shelves store, long id, str name, bytes definition, long last_seq):
        self.store = store
        self.id = id
        self.name = name
        self.definition = definition
        self.last_seq = last_seq
        self.extents = []
        self.updates = {}
        self.changed = True

    cpdef object append(self, long seq, long flags, long delivery_count, long expires_ms, bytes data):
        cdef Extent extent = self.latest
        if extent is None or extent.file != self.store.file:
            extent = Extent(seq, self.store.file)
            self.latest = extent
            self.extents.append(extent)
        extent.grow(seq)
        extent.nbytes += PyBytes_GET_SIZE(data)
        self.last_seq = seq
        self.changed = True
        self.store.keep(self.id, seq, flags, delivery_count, expires_ms, data)

    cpdef object update(self, long seq, long delivery_count, bint spared=False):
        cdef Extent extent = self.extent_of(seq)
        cdef int flags = GIVEN_BACK_SPARED if spared else GIVEN_BACK
        if extent is None:
            return
        self.updates[seq] = (flags, delivery_count)
        if extent.place is not None:
            extent.changed = True
            self.store.touched.add(self)
        self.store.buffer.add(RECORD_UPDATE, self.id, seq, flags, delivery_count, 0, b"")
        self.store.open_records += 1

    cpdef object forget(self, long seq, long nbytes):
        cdef Extent extent = self.hint
        if extent is None or not extent.holds(seq):
            extent = self.extent_of(seq)
            if extent is None:
                return
            self.hint = extent
        extent.drop(seq)
        extent.nbytes -= nbytes
        if extent.place is not None:
            self.store.touched.add(self)
        if self.updates:
            self.updates.pop(seq, None)
        # The size stands where a message's expiry would, so that replay can count what a page still has.
        self.store.buffer.add(RECORD_FORGET, self.id, seq, 0, 0, nbytes, b"")
        self.store.open_records += 1

    cdef object take_in(self, const Head *head, long nbytes):
        """A record of a message of ``nbytes``, from a group that another store sealed: the same as above but
        for the record.
        """
        cdef Extent extent
        cdef long seq = head.seq
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            extent = self.latest
            if extent is None or extent.file != self.store.file:
                extent = Extent(seq, self.store.file)
                self.latest = extent
                self.extents.append(extent)
            extent.grow(seq)
            extent.nbytes += nbytes
            self.last_seq = max(self.last_seq, seq)
            self.changed = True
            return
        extent = self.hint
        if extent is None or not extent.holds(seq):
            extent = self.extent_of(seq)
            if extent is None:
                return
            self.hint = extent
        if extent.place is not None:
            self.store.touched.add(self)
            extent.changed = True
        if head.kind == RECORD_UPDATE:
            self.updates[seq] = (head.flags, head.delivery_count)
            return
        extent.drop(seq)
        extent.nbytes -= <long>head.expires_ms
        if self.updates:
            self.updates.pop(seq, None)

    cdef Extent extent_of(self, long seq):
        """The extent in which this message is live."""
        cdef long low = 0, high = len(self.extents), middle
        cdef Extent extent
        while low < high:
            middle = (low + high) >> 1
            extent = self.extents[middle]
            if extent.last < seq:
                low = middle + 1
            else:
                high = middle
        if low == len(self.extents):
            return None
        extent = self.extents[low]
        return extent if extent.holds(seq) else None

    def holder(self, long seq):
        """The extent in which this message is live, or None."""
        return self.extent_of(seq)

    def extent_from(self, long first):
        """The extent that begins with this number, or None."""
        for extent in self.extents:
            if extent.first == first:
                return extent
        return None

    def replace(self, list extents):
        """Other extents instead of those there are."""
        self.extents = extents
        self.hint = None
        if self.latest is not None and self.latest not in extents:
            self.latest = None

    def live(self):
        """How many messages are on it."""
        return sum(extent.live for extent in self.extents)


cdef class Shelves(Store):
    """The open group. ``file`` is the journal file it goes to, ``file_used`` what that has taken at most.

    With a ``tap``, a sealed group is not the journal's yet: ``tap(number, records as bytes, how many, file,
    chain)`` is called at the end of ``seal``, and whoever set it calls ``push_group`` with the same later, in
    order. It raises nothing.
    """

    def __init__(self):
        Store.__init__(self)
        self.buffer = Buffer()
        self.touched = set()

    cdef object keep(self, long node, long seq, long flags, long delivery_count, long expires_ms, bytes data):
        """A message, in the open group; what a topic gives to several of its subscriptions is written once."""
        cdef long at = self.buffer.size
        if data is self.kept_data and at - self.kept_at <= FARTHEST_BACK:
            self.buffer.add_copy(node, seq, flags, delivery_count, expires_ms, at - self.kept_at)
        else:
            self.buffer.add(RECORD_MESSAGE, node, seq, flags, delivery_count, expires_ms, data)
            self.kept_data = data
            self.kept_at = at
        self.open_records += 1

    def record(self, int kind, long node, long seq, bytes payload):
        """Something else than a message, in the open group."""
        self.buffer.add(kind, node, seq, 0, 0, 0, payload)
        self.open_records += 1

    cpdef object seal(self):
        cdef long size = self.buffer.size, count = self.buffer.count
        cdef uint64_t chain = self.buffer.chain
        if count == 0:
            return
        if self.tap is not None:
            self.seal_for_tap()
            return
        self.journal.push(self.buffer.release(), size, self.group, count, self.file, chain)
        self.group += 1
        self.open_records = 0
        self.kept_data = None
        self.idle_dirty = True
        self.file_used += group_bytes(size)
        if self.file_used > self.file_bytes - MARGIN_BYTES:
            self.next_file()

    cdef object seal_for_tap(self):
        cdef long number = self.group, count = self.buffer.count, file = self.file
        cdef uint64_t chain = self.buffer.chain
        cdef bytes data = self.buffer.take()
        self.open_records = 0
        self.kept_data = None
        self.group_closed(PyBytes_GET_SIZE(data))
        self.tap(number, data, count, file, chain)

    cdef object group_closed(self, long size):
        self.group += 1
        self.idle_dirty = True
        self.file_used += group_bytes(size)
        if self.file_used > self.file_bytes - MARGIN_BYTES:
            self.next_file()

    def push_group(self, long number, bytes data, long records, long file, uint64_t chain):
        """Give the journal a group that the tap was told of."""
        cdef long size = PyBytes_GET_SIZE(data)
        cdef char *copied = <char *>malloc(size)
        if copied == NULL:
            raise MemoryError()
        memcpy(copied, PyBytes_AS_STRING(data), size)
        self.journal.push(copied, size, number, records, file, chain)

    def take_in(self, bytes data, long records, uint64_t chain, dict shelves, object control, object streamed):
        """Replay a group that another store sealed, and give it to the journal as the open group's number.

        ``records`` and ``chain`` are what ``scan_group`` said of it. ``shelves`` are the queue logs by their
        numbers; ``control(kind, node, payload)`` is called for each DEFINE, REMOVE and NOTE, and changes
        ``shelves`` as they say; ``streamed(node, seq, time_ms, payload)`` for each message of a stream.
        Records of messages of a log that isn't there are passed over, as a replay does. ValueError where a
        message doesn't come behind all others of its log; half of the group is in memory then, nothing of it
        in the journal.
        """
        cdef const char *bytes_at = PyBytes_AS_STRING(data)
        cdef const Head *head
        cdef long at = 0, end = PyBytes_GET_SIZE(data), node = -1
        cdef DiskQueueLog shelf = None
        while at < end:
            head = <const Head *>(bytes_at + at)
            if head.kind <= RECORD_UPDATE or head.kind == RECORD_COPY:
                if head.node != node:
                    node = head.node
                    shelf = shelves.get(node)
                if shelf is not None:
                    shelf.take_in(head, payload_bytes(bytes_at, at))
            elif head.kind == RECORD_STREAM:
                streamed(head.node, head.seq, head.expires_ms,
                         PyBytes_FromStringAndSize(bytes_at + at + HEAD_BYTES, head.length))
            else:
                control(head.kind, head.node,
                        PyBytes_FromStringAndSize(bytes_at + at + HEAD_BYTES, head.length))
                node = -1
            at += HEAD_BYTES + ((head.length + 7) & ~<long>7)
        self.push_group(self.group, data, records, self.file, chain)
        self.group_closed(end)

    def next_file(self):
        """The next group goes to the next file."""
        raise NotImplementedError


cdef long payload_at(const char *data, long at) except -1:
    """Where the record begins that has the payload of the message at ``at``. DamagedRecord."""
    cdef long of = at
    if (<const Head *>(data + at)).kind == RECORD_COPY:
        of = original(data, at)
        if of < 0:
            raise DamagedRecord(at)
    return of


cdef long payload_bytes(const char *data, long at) except -1:
    """How long the payload of the record at ``at`` is. DamagedRecord."""
    return (<const Head *>(data + payload_at(data, at))).length


def live_records(bytes data, long start, long end, dict extents, dict updates, object emit):
    """Copy a group's live messages to where they belong: ``emit(shelf id)`` gives the Buffer of a shelf's page.

    ``extents``: by shelf id, the live messages of this file; ``updates`` by (shelf id, sequence number).
    The records were verified by whoever found the group.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef Extent extent
    cdef Buffer into
    cdef long following, of, length
    while start < end:
        head = <const Head *>(bytes_at + start)
        following = start + HEAD_BYTES + ((head.length + 7) & ~<long>7)
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            extent = extents.get(head.node)
            if extent is not None and extent.holds(head.seq):
                of = payload_at(bytes_at, start)
                length = (<const Head *>(bytes_at + of)).length
                into = emit(head.node, head.seq, HEAD_BYTES + ((length + 7) & ~<long>7), length)
                update = updates.get((head.node, head.seq)) if updates else None
                if update is not None:
                    into.add(RECORD_MESSAGE, head.node, head.seq, head.flags | <int>update[0], update[1],
                             head.expires_ms, PyBytes_FromStringAndSize(bytes_at + of + HEAD_BYTES, length))
                elif of != start:
                    into.expand(bytes_at, start, of)
                else:
                    into.copy(bytes_at + start, following - start)
        start = following


def scan_group(bytes data):
    """A group's records, verified: how many there are, their chain, and where the last one begins.

    DamagedRecord, with the offset, where one isn't what was written or is of no known kind.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef long at = 0, end = PyBytes_GET_SIZE(data), following, records = 0, last = 0
    cdef uint64_t chain = 0
    while at < end:
        following = next_record(bytes_at, at, end)
        head = <const Head *>(bytes_at + at)
        if following < 0 or head.kind < FIRST_KIND or head.kind > LAST_KIND:
            raise DamagedRecord(at)
        payload_at(bytes_at, at)
        chain = chained(chain, head.checksum)
        records += 1
        last = at
        at = following
    return records, chain, last


def spans_too_far(bytes data, dict shelves, long file, long most):
    """Whether a message of a verified group is more than ``most`` numbers behind the first that its log has
    in this journal file: a file's messages of one log share a bit for each number between them.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef long at = 0, end = PyBytes_GET_SIZE(data), node = -1
    cdef DiskQueueLog shelf = None
    while at < end:
        head = <const Head *>(bytes_at + at)
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            if head.node != node:
                node = head.node
                shelf = shelves.get(node)
            if (shelf is not None and shelf.latest is not None and shelf.latest.file == file
                    and <long>head.seq - shelf.latest.first > most):
                return True
        at += HEAD_BYTES + ((head.length + 7) & ~<long>7)
    return False


def copy_live(bytes data, long start, long end, dict extents, dict shelves, Buffer into, long most):
    """Append live messages of a range of verified records, each with what was noted of it since it was kept.

    ``extents``: by shelf id, what is live of this page or file; ``shelves`` the queue logs by their numbers.
    It stops before the record with which ``into`` would have more than ``most`` bytes, unless that would be
    its first. The answer: where it stopped, and how many messages it copied.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef Extent extent
    cdef DiskQueueLog shelf
    cdef long size, needed, of, copied = 0
    while start < end:
        head = <const Head *>(bytes_at + start)
        size = HEAD_BYTES + ((head.length + 7) & ~<long>7)
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            extent = extents.get(head.node)
            if extent is not None and extent.holds(head.seq):
                of = payload_at(bytes_at, start)
                needed = HEAD_BYTES + (((<const Head *>(bytes_at + of)).length + 7) & ~<long>7)
                if into.count > 0 and into.size + needed + HEAD_BYTES > most:
                    break
                if of != start:
                    into.expand(bytes_at, start, of)
                else:
                    into.copy(bytes_at + start, size)
                shelf = shelves[head.node]
                update = shelf.updates.get(head.seq) if shelf.updates else None
                if update is not None:
                    into.add(RECORD_UPDATE, head.node, head.seq, update[0], update[1], 0, b"")
                copied += 1
        start += size
    return start, copied
