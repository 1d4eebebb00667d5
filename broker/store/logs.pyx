"""Shelves and what is live on them: a bit for each message, by file of the journal and by page.

All of it belongs to the thread that owns the store; only sealed groups leave it, through the journal.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from broker.store.records cimport HEAD_BYTES, Buffer, Head, Range, Ranges, chained, is_sound, next_record, original
from broker.store.records import COPIES, COPY, FORGET, FORGOTTEN, MESSAGE, STREAM, UPDATE, DamagedRecord
from broker.store.port cimport QueueLog, Store
from broker.store.port import DURABLE, REDELIVERED, SPARED
from broker.store.journal cimport Journal
from broker.store.journal import group_bytes

cdef int RECORD_MESSAGE = MESSAGE, RECORD_FORGET = FORGET, RECORD_UPDATE = UPDATE, RECORD_COPY = COPY
cdef int RECORD_STREAM = STREAM, RECORD_COPIES = COPIES, RECORD_FORGOTTEN = FORGOTTEN
cdef int FIRST_KIND = MESSAGE, LAST_KIND = FORGOTTEN
cdef int GIVEN_BACK = DURABLE | REDELIVERED
cdef int GIVEN_BACK_SPARED = GIVEN_BACK | SPARED

# A new group goes to the next file where less than this is left of the present one; a group that
# turns out larger makes its file longer.
cdef long MARGIN_BYTES = 1 << 18
# A COPY says in 32 bits where its payload is; a COPIES is written a little later than it begins.
cdef long FARTHEST_BACK = 1 << 31
# Lists of places in the open group that later messages may refer to: of as many topics at a time.
cdef long LISTS = 8


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
        # The message may be one of those.
        self.store.close_copies()
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
        self.store.forgotten.add(self.id, seq, nbytes)
        self.store.open_records += 1

    # What follows takes in records from a group that another store sealed: the same as above but for the record.

    cdef object take_message(self, long seq, long nbytes):
        cdef Extent extent = self.latest
        if extent is None or extent.file != self.store.file:
            extent = Extent(seq, self.store.file)
            self.latest = extent
            self.extents.append(extent)
        extent.grow(seq)
        extent.nbytes += nbytes
        self.last_seq = max(self.last_seq, seq)
        self.changed = True

    cdef Extent known(self, long seq):
        """The extent of a message that is changed; None if it isn't live."""
        cdef Extent extent = self.hint
        if extent is None or not extent.holds(seq):
            extent = self.extent_of(seq)
            if extent is None:
                return None
            self.hint = extent
        if extent.place is not None:
            self.store.touched.add(self)
            extent.changed = True
        return extent

    cdef object take_update(self, const Head *head):
        if self.known(head.seq) is not None:
            self.updates[head.seq] = (head.flags, head.delivery_count)

    cdef object take_forgotten(self, long seq, long nbytes):
        cdef Extent extent = self.known(seq)
        if extent is None:
            return
        extent.drop(seq)
        extent.nbytes -= nbytes
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


cdef class PlaceLists:
    """Lists of places that stand in a buffer, to which later records there may refer."""

    def __init__(self):
        self.lists = [Ranges() for _ in range(LISTS)]

    cdef Ranges add(self, Buffer into, Ranges copies, long flags, long delivery_count, long expires_ms,
                    long kept_at):
        """Append that the message at ``kept_at`` is in these places, too. The answer is an empty list to go on with."""
        cdef Ranges known
        cdef long at = into.size, i
        cdef int64_t step
        if copies.count == 1:
            into.add_copy(copies.items[0].node, copies.items[0].seq, flags, delivery_count, expires_ms, at - kept_at)
            copies.count = 0
            return copies
        for i in range(LISTS):
            known = self.lists[i]
            step = copies.step_from(known)
            if step >= 0 and at - known.at <= FARTHEST_BACK:
                into.add_copies(copies, flags, delivery_count, expires_ms, at - kept_at, at - known.at, step)
                copies.count = 0
                return copies
        into.add_copies(copies, flags, delivery_count, expires_ms, at - kept_at, 0, 0)
        copies.at = at
        known = self.lists[self.next]
        self.lists[self.next] = copies
        self.next = (self.next + 1) % LISTS
        known.count = 0
        return known

    cdef object clear(self):
        """Refer to none of them any more."""
        cdef Ranges known
        for known in self.lists:
            known.count = 0


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
        self.copies = Ranges()
        self.forgotten = Ranges()
        self.lists = PlaceLists()

    cdef object keep(self, long node, long seq, long flags, long delivery_count, long expires_ms, bytes data):
        """A message, in the open group; what a topic gives to several of its subscriptions is written once.

        All of them but the first one wait in ``copies``, to stand in one record.
        """
        cdef long at = self.buffer.size
        if data is self.kept_data and at - self.kept_at <= FARTHEST_BACK:
            if self.copies.count > 0 and (flags != self.copies_flags or delivery_count != self.copies_deliveries
                                          or expires_ms != self.copies_expire_ms):
                self.close_copies()
            self.copies_flags = flags
            self.copies_deliveries = delivery_count
            self.copies_expire_ms = expires_ms
            self.copies.place(node, seq)
        else:
            if self.copies.count > 0:
                self.close_copies()
                at = self.buffer.size
            self.buffer.add(RECORD_MESSAGE, node, seq, flags, delivery_count, expires_ms, data)
            self.kept_data = data
            self.kept_at = at
        self.open_records += 1

    cdef object close_copies(self):
        """Write the record of the other messages that have the last one's payload, if there are any."""
        if self.copies.count == 0:
            return
        # As much of a file as each in a record of its own: a start has all of a file's messages in memory.
        self.unwritten += HEAD_BYTES * (self.copies.count - 1)
        self.copies = self.lists.add(self.buffer, self.copies, self.copies_flags, self.copies_deliveries,
                                     self.copies_expire_ms, self.kept_at)

    cdef object write_open(self):
        """Write what waits to stand together with more of its kind."""
        cdef Ranges forgotten = self.forgotten
        self.close_copies()
        if forgotten.count == 0:
            return
        if forgotten.count == 1 and forgotten.items[0].count == 1:
            # The size stands where a message's expiry would, so that replay can count what a page still has.
            self.buffer.add(RECORD_FORGET, forgotten.items[0].node, forgotten.items[0].seq, 0, 0,
                            forgotten.items[0].nbytes, b"")
        else:
            self.buffer.add_forgotten(forgotten)
        forgotten.count = 0

    cdef object end_group(self):
        """No later record refers to those of the group; a message's bytes may be another's by then."""
        self.kept_data = None
        self.lists.clear()
        self.unwritten = 0

    def record(self, int kind, long node, long seq, bytes payload):
        """Something else than a message, in the open group."""
        self.write_open()
        self.buffer.add(kind, node, seq, 0, 0, 0, payload)
        self.open_records += 1

    cpdef object seal(self):
        cdef long size, count, unwritten
        cdef uint64_t chain
        self.write_open()
        size, count, chain, unwritten = self.buffer.size, self.buffer.count, self.buffer.chain, self.unwritten
        if count == 0:
            return
        self.end_group()
        self.open_records = 0
        if self.tap is not None:
            self.seal_for_tap(unwritten)
            return
        self.journal.push(self.buffer.release(), size, self.group, count, self.file, chain)
        self.group_closed(size + unwritten)

    cdef object seal_for_tap(self, long unwritten):
        cdef long number = self.group, count = self.buffer.count, file = self.file
        cdef uint64_t chain = self.buffer.chain
        cdef bytes data = self.buffer.take()
        self.group_closed(PyBytes_GET_SIZE(data) + unwritten)
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
        cdef const Range *item
        cdef long at = 0, end = PyBytes_GET_SIZE(data), node = -1, unwritten = 0, i, number, nbytes, share
        cdef DiskQueueLog shelf = None
        cdef Ranges ranges = Ranges()
        while at < end:
            head = <const Head *>(bytes_at + at)
            if head.kind == RECORD_COPIES:
                require(bytes_at, at, ranges)
                nbytes = payload_bytes(bytes_at, at)
                for i in range(ranges.count):
                    item = &ranges.items[i]
                    if item.node != node:
                        node = item.node
                        shelf = shelves.get(node)
                    if shelf is not None:
                        shelf.take_message(item.seq + head.seq, nbytes)
                unwritten += HEAD_BYTES * (ranges.count - 1)
            elif head.kind == RECORD_FORGOTTEN:
                require(bytes_at, at, ranges)
                for i in range(ranges.count):
                    item = &ranges.items[i]
                    node = item.node
                    shelf = shelves.get(node)
                    if shelf is None:
                        continue
                    nbytes = item.nbytes
                    for number in range(<long>item.count):
                        share = nbytes // (<long>item.count - number)
                        nbytes -= share
                        shelf.take_forgotten(item.seq + number, share)
            elif head.kind <= RECORD_UPDATE or head.kind == RECORD_COPY:
                if head.node != node:
                    node = head.node
                    shelf = shelves.get(node)
                if shelf is None:
                    pass
                elif head.kind == RECORD_UPDATE:
                    shelf.take_update(head)
                elif head.kind == RECORD_FORGET:
                    shelf.take_forgotten(head.seq, head.expires_ms)
                else:
                    shelf.take_message(head.seq, payload_bytes(bytes_at, at))
            elif head.kind == RECORD_STREAM:
                streamed(head.node, head.seq, head.expires_ms,
                         PyBytes_FromStringAndSize(bytes_at + at + HEAD_BYTES, head.length))
            else:
                control(head.kind, head.node,
                        PyBytes_FromStringAndSize(bytes_at + at + HEAD_BYTES, head.length))
                node = -1
            at += HEAD_BYTES + ((head.length + 7) & ~<long>7)
        self.push_group(self.group, data, records, self.file, chain)
        self.group_closed(end + unwritten)

    def next_file(self):
        """The next group goes to the next file."""
        raise NotImplementedError


cdef object require(const char *data, long at, Ranges ranges):
    """DamagedRecord unless what the record refers to is there; ``ranges`` has its list, if it has one."""
    if not is_sound(data, at, ranges):
        raise DamagedRecord(at)


cdef long payload_at(const char *data, long at) except -1:
    """Where the record begins that has the payload of the message at ``at``. DamagedRecord."""
    cdef long of = at
    cdef int kind = (<const Head *>(data + at)).kind
    if kind == RECORD_COPY or kind == RECORD_COPIES:
        of = original(data, at)
        if of < 0:
            raise DamagedRecord(at)
    return of


cdef long payload_bytes(const char *data, long at) except -1:
    """How long the payload of the record at ``at`` is. DamagedRecord."""
    return (<const Head *>(data + payload_at(data, at))).length


cdef long root_of(dict roots, long node):
    cdef long root = roots.get(node, node)
    cdef long above
    while True:
        above = roots.get(root, root)
        if above == root:
            break
        root = above
    if root != node:
        roots[node] = root
    return root


cdef object join(dict roots, long one, long other):
    one, other = root_of(roots, one), root_of(roots, other)
    if one != other:
        roots[other] = one


def join_sharing(bytes data, long start, long end, dict roots):
    """Add to ``roots`` which queue logs have messages in common in a range of verified records of one file.

    Logs that have, directly or by way of others, lead to the same number there; those that have not aren't in it.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef long of, i
    cdef Ranges ranges = Ranges()
    cdef set seen = set()
    while start < end:
        head = <const Head *>(bytes_at + start)
        if head.kind == RECORD_COPY or head.kind == RECORD_COPIES:
            require(bytes_at, start, ranges)
            of = (<const Head *>(bytes_at + original(bytes_at, start))).node
            if head.kind == RECORD_COPY:
                join(roots, of, head.node)
            else:
                join(roots, of, ranges.items[0].node)
                if ranges.at not in seen:
                    seen.add(ranges.at)
                    for i in range(ranges.count):
                        join(roots, of, ranges.items[i].node)
        start += HEAD_BYTES + ((head.length + 7) & ~<long>7)


cdef class OpenPage:
    """A page of the queue logs that have messages in common, or of one that has none with others.

    ``extents``: by the log's number, the messages it has there.
    """

    def __init__(self):
        self.buffer = Buffer()
        self.lists = PlaceLists()
        self.extents = {}
        self.of = -1

    @property
    def size(self):
        """Bytes of records."""
        return self.buffer.size

    def take(self):
        """The page's records and its logs' extents; it is empty then."""
        found = self.buffer.take(), self.extents
        self.lists.clear()
        self.extents = {}
        self.of = -1
        return found

    cdef object note(self, long node, long seq, long nbytes):
        cdef Extent extent = self.extents.get(node)
        if extent is None:
            extent = self.extents[node] = Extent(seq, 0)
        extent.grow(seq)
        extent.nbytes += nbytes


def live_records(bytes data, long start, long end, dict extents, dict roots, object page_for):
    """Copy a group's live messages to pages: ``page_for(root, size, places)`` gives the OpenPage for a message of
    so many bytes of records that as many logs have, those of this root.

    ``extents``: by shelf id, the live messages of this file; ``roots`` as of ``join_sharing``. The records were
    verified by whoever found the group. Flags and counts are those that messages were kept with.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef long i, following
    cdef Ranges ranges = Ranges(), places = Ranges()
    while start < end:
        head = <const Head *>(bytes_at + start)
        following = start + HEAD_BYTES + ((head.length + 7) & ~<long>7)
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            place_live(places, extents, head.node, head.seq)
        elif head.kind == RECORD_COPIES:
            require(bytes_at, start, ranges)
            for i in range(ranges.count):
                place_live(places, extents, ranges.items[i].node, ranges.items[i].seq + head.seq)
        if places.count > 0:
            places = copy_to_page(bytes_at, start, places, roots, page_for)
        start = following


cdef object place_live(Ranges places, dict extents, long node, long seq):
    cdef Extent extent = extents.get(node)
    if extent is not None and extent.holds(seq):
        places.place(node, seq)


cdef Ranges copy_to_page(const char *data, long at, Ranges places, dict roots, object page_for):
    """Copy a message to the page of the places it has; the answer is an empty list."""
    cdef const Head *head = <const Head *>(data + at)
    cdef long of = payload_at(data, at), nbytes = (<const Head *>(data + of)).length, i
    cdef long root = root_of(roots, places.items[0].node)
    cdef OpenPage page = page_for(root, 2 * HEAD_BYTES + ((nbytes + 7) & ~<long>7), places.count)
    for i in range(places.count):
        page.note(places.items[i].node, places.items[i].seq, nbytes)
    if page.of != of:
        page.of = of
        page.kept_at = page.buffer.size
        page.buffer.expand(data, at, of, places.items[0].node, places.items[0].seq)
        places.remove_first()
    if places.count > 0:
        return page.lists.add(page.buffer, places, head.flags, head.delivery_count, head.expires_ms, page.kept_at)
    return places


def scan_group(bytes data):
    """A group's records, verified: how many there are, their chain, and where the last one begins.

    DamagedRecord, with the offset, where one isn't what was written or is of no known kind.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef long at = 0, end = PyBytes_GET_SIZE(data), following, records = 0, last = 0
    cdef uint64_t chain = 0
    cdef Ranges ranges = Ranges()
    while at < end:
        following = next_record(bytes_at, at, end)
        head = <const Head *>(bytes_at + at)
        if following < 0 or head.kind < FIRST_KIND or head.kind > LAST_KIND:
            raise DamagedRecord(at)
        require(bytes_at, at, ranges)
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
    cdef long at = 0, end = PyBytes_GET_SIZE(data), i
    cdef Ranges ranges = Ranges()
    while at < end:
        head = <const Head *>(bytes_at + at)
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            if is_too_far(head.node, head.seq, shelves, file, most):
                return True
        elif head.kind == RECORD_COPIES:
            require(bytes_at, at, ranges)
            for i in range(ranges.count):
                if is_too_far(ranges.items[i].node, ranges.items[i].seq + head.seq, shelves, file, most):
                    return True
        at += HEAD_BYTES + ((head.length + 7) & ~<long>7)
    return False


cdef bint is_too_far(long node, long seq, dict shelves, long file, long most) except -1:
    cdef DiskQueueLog shelf = shelves.get(node)
    return (shelf is not None and shelf.latest is not None and shelf.latest.file == file
            and seq - shelf.latest.first > most)


def copy_live(bytes data, long start, long end, dict extents, dict shelves, Buffer into, long most, long place=0):
    """Append live messages of a range of verified records, each with what was noted of it since it was kept.

    ``extents``: by shelf id, what is live of this page or file; ``shelves`` the queue logs by their numbers.
    It stops before the message with which ``into`` would have more than ``most`` bytes, unless that would be
    its first. The answer: the record where it stopped, in which place of its list (the ``place`` to go on
    with), and how many messages it copied.
    """
    cdef const char *bytes_at = PyBytes_AS_STRING(data)
    cdef const Head *head
    cdef long copied = 0, only = -1
    cdef int answer
    cdef Ranges ranges = Ranges()
    if len(extents) == 1:
        # A page that many logs share is read for one of them.
        only = next(iter(extents))
    while start < end:
        head = <const Head *>(bytes_at + start)
        if head.kind == RECORD_MESSAGE or head.kind == RECORD_COPY:
            answer = copy_one(bytes_at, start, head.node, head.seq, extents, shelves, into, most)
            if answer < 0:
                break
            copied += answer
        elif head.kind == RECORD_COPIES:
            require(bytes_at, start, ranges)
            while place < ranges.count:
                if only >= 0 and ranges.items[place].node != only:
                    place += 1
                    continue
                answer = copy_one(bytes_at, start, ranges.items[place].node, ranges.items[place].seq + head.seq,
                                  extents, shelves, into, most)
                if answer < 0:
                    return start, place, copied
                copied += answer
                place += 1
            place = 0
        start += HEAD_BYTES + ((head.length + 7) & ~<long>7)
    return start, 0, copied


cdef int copy_one(const char *data, long at, long node, long seq, dict extents, dict shelves, Buffer into,
                  long most) except -2:
    """Whether the message was copied; -1 where it has no room."""
    cdef Extent extent = extents.get(node)
    cdef DiskQueueLog shelf
    cdef long of, size
    if extent is None or not extent.holds(seq):
        return 0
    of = payload_at(data, at)
    size = HEAD_BYTES + (((<const Head *>(data + of)).length + 7) & ~<long>7)
    if into.count > 0 and into.size + size + HEAD_BYTES > most:
        return -1
    if of != at:
        into.expand(data, at, of, node, seq)
    else:
        into.copy(data + at, size)
    shelf = shelves[node]
    update = shelf.updates.get(seq) if shelf.updates else None
    if update is not None:
        into.add(RECORD_UPDATE, node, seq, update[0], update[1], 0, b"")
    return 1
