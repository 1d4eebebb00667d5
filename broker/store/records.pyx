"""The one encoded form of what is kept on disk, in the journal and in pages: records with a checksum.

A record is a head of 40 bytes, little-endian, and a payload padded to 8: crc32c of all that follows
it, kind, flags, node, length, sequence number, delivery count, expiry (milliseconds since the epoch,
0 for never). Nothing here knows what a file is.

A message that several nodes get at once stands there with its payload for the first of them; for another
one stands a COPY, a head without a payload that says how many bytes before it the first one begins. For more
than one other stands a COPIES, whose payload lists them as pairs of node and sequence number. Where the same
nodes get a later message, each its next one, that record has no list: it says how many bytes before it
the COPIES with the list begins (in the place of the node), and what is to be added to each number
of the list (in the place of the sequence number).

Messages that are done with in one group stand together in a FORGOTTEN: its payload lists ranges of a node's
consecutive numbers, with the bytes that the messages of each range had together.

Numbers in a list are differences from the entry before, in groups of seven bits, the lowest first (LEB128);
one that may be negative is doubled, and less one where it is (zigzag).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from broker.errors import OperatorError

Record = tuple

cdef enum:
    MESSAGE_KIND = 1
    COPY_KIND = 8
    COPIES_KIND = 9
    FORGOTTEN_KIND = 10
    # Seven bits of 64 a byte.
    LONGEST_NUMBER = 10
    MOST_IN_RANGE = 1 << 20

MESSAGE = 1
FORGET = 2
UPDATE = 3
DEFINE = 4
REMOVE = 5
NOTE = 6
# A message of a stream: its sequence number is its offset and one, its expiry the time at which it came.
STREAM = 7
# In a group of the journal alone; whoever reads records gets a MESSAGE.
COPY = 8
# So, too; whoever reads records gets a MESSAGE for each, or a FORGET.
COPIES = 9
FORGOTTEN = 10


class DamagedRecord(OperatorError):
    """A record's checksum doesn't fit its bytes; ``offset`` is where it begins."""

    def __init__(self, offset):
        super().__init__(f"damaged record at byte {offset}")
        self.offset = offset


def crc32c(bytes data, uint32_t crc=0):
    """CRC-32C of some bytes, by the processor's instruction where it has one."""
    return sluice_crc32c(crc, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def crc32c_by_table(bytes data, uint32_t crc=0):
    """The same without the instruction."""
    return sluice_crc32c_table(crc, <const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef uint32_t checksum_at(const char *data, long at) noexcept nogil:
    return (<const Head *>(data + at)).checksum


cdef long next_record(const char *data, long at, long end) noexcept nogil:
    """Where the record at ``at`` ends; -1 if it isn't whole or its checksum is wrong."""
    cdef const Head *head = <const Head *>(data + at)
    cdef long size
    if at + HEAD_BYTES > end:
        return -1
    size = HEAD_BYTES + <long>padded(head.length)
    if at + size > end:
        return -1
    if sluice_crc32c(0, data + at + 4, HEAD_BYTES - 4 + head.length) != head.checksum:
        return -1
    return at + size


cdef long original(const char *data, long at) noexcept nogil:
    """Where the message begins whose payload the COPY at ``at`` has, too; -1 if none ends before it."""
    cdef long found = at - <long>(<const Head *>(data + at)).back
    cdef const Head *head
    if found < 0 or found + HEAD_BYTES > at:
        return -1
    head = <const Head *>(data + found)
    if head.kind != MESSAGE_KIND or found + HEAD_BYTES + <long>padded(head.length) > at:
        return -1
    return found


cdef long put_number(char *into, uint64_t number) noexcept nogil:
    """Write a number; how many bytes it took."""
    cdef long size = 0
    while number >= 128:
        into[size] = <char>((number & 127) | 128)
        number >>= 7
        size += 1
    into[size] = <char>number
    return size + 1


cdef long get_number(const char *data, long at, long end, uint64_t *number) noexcept nogil:
    """Read a number; where it ends, -1 if it isn't whole or has more than 64 bits."""
    cdef int shift = 0
    cdef uint64_t bits
    number[0] = 0
    while at < end and shift < 70:
        bits = <unsigned char>data[at] & 127
        if shift == 63 and bits > 1:
            return -1
        number[0] |= bits << shift
        at += 1
        if not <unsigned char>data[at - 1] & 128:
            return at
        shift += 7
    return -1


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int64_t unzigzag(uint64_t number) noexcept nogil:
    return <int64_t>(number >> 1) ^ -<int64_t>(number & 1)


cdef bint is_sound(const char *data, long at, Ranges ranges) noexcept nogil:
    """Whether a whole record that refers to others, or has a list, does so to what is there; ``ranges`` has the
    list then.
    """
    cdef const Head *head = <const Head *>(data + at)
    if head.kind == FORGOTTEN_KIND:
        return ranges.read_ranges(data, at)
    if head.kind == COPY_KIND or head.kind == COPIES_KIND:
        if original(data, at) < 0:
            return False
        return head.kind == COPY_KIND or (ranges.read_places(data, at) and head.seq >> 62 == 0)
    return True


cdef class Ranges:
    """Numbers of nodes in a row: of each node from ``seq`` on ``count`` of them, of ``nbytes`` together.

    A list of places, as a COPIES has it, is one of ranges of one number each, whose bytes don't matter.
    """

    def __cinit__(self):
        self.at = -1

    def __dealloc__(self):
        free(self.items)

    cdef Range *another(self) except NULL:
        """A new one behind the others, to be filled."""
        cdef long capacity
        cdef Range *grown
        if self.count == self.capacity:
            capacity = max(2 * self.capacity, 16)
            grown = <Range *>realloc(self.items, capacity * sizeof(Range))
            if grown == NULL:
                raise MemoryError()
            self.items = grown
            self.capacity = capacity
        self.count += 1
        return &self.items[self.count - 1]

    cdef object add(self, uint32_t node, uint64_t seq, uint64_t nbytes):
        """Add a number, to the last range where it is the next one of that."""
        cdef Range *item
        if self.count > 0:
            item = &self.items[self.count - 1]
            if item.node == node and item.seq + item.count == seq and item.count < MOST_IN_RANGE:
                item.count += 1
                item.nbytes += nbytes
                return
        item = self.another()
        item.node = node
        item.seq = seq
        item.count = 1
        item.nbytes = nbytes

    cdef object place(self, uint32_t node, uint64_t seq):
        """Add a place."""
        cdef Range *item = self.another()
        item.node = node
        item.seq = seq
        item.count = 1
        item.nbytes = 0

    cdef object remove_first(self):
        """Take the first one away."""
        self.count -= 1
        memmove(self.items, self.items + 1, self.count * sizeof(Range))

    cdef int64_t step_from(self, Ranges other) noexcept nogil:
        """How much further each number is than that of the other list, which has the same nodes; -1 where
        that isn't so.
        """
        cdef long i
        cdef int64_t step
        if self.count != other.count or self.count == 0:
            return -1
        step = <int64_t>(self.items[0].seq - other.items[0].seq)
        for i in range(self.count):
            if self.items[i].node != other.items[i].node or self.items[i].seq - other.items[i].seq != <uint64_t>step:
                return -1
        return step

    cdef bint read_places(self, const char *data, long at) noexcept nogil:
        """Have the list that the COPIES at ``at`` says, without what is to be added; false where there is none.

        A list that was read last is not read again: of one object, ``data`` is always the same.
        """
        cdef const Head *head = <const Head *>(data + at)
        cdef long of = at - <long>head.node, size
        if of < 0 or (of != at and of + HEAD_BYTES > at):
            return False
        if of == self.at:
            return True
        head = <const Head *>(data + of)
        size = HEAD_BYTES + <long>padded(head.length)
        if head.kind != COPIES_KIND or head.node != 0 or (of != at and of + size > at):
            return False
        self.at = -1
        if not self.read(data + of + HEAD_BYTES, head.length, False):
            return False
        self.at = of
        return True

    cdef bint read_ranges(self, const char *data, long at) noexcept nogil:
        """Have the ranges of the FORGOTTEN at ``at``; false where they can't be read."""
        self.at = -1
        return self.read(data + at + HEAD_BYTES, (<const Head *>(data + at)).length, True)

    cdef bint read(self, const char *data, long size, bint with_counts) noexcept nogil:
        cdef long at = 0
        # Differences of a forged list may go round; without a sign that is defined.
        cdef uint64_t number, node = 0, seq = 0, count = 1, nbytes = 0
        cdef Range *item
        self.count = 0
        while at < size:
            at = get_number(data, at, size, &number)
            if at < 0:
                return False
            node += <uint64_t>unzigzag(number)
            at = get_number(data, at, size, &number)
            if at < 0 or node >> 32 != 0:
                return False
            seq += <uint64_t>unzigzag(number)
            if with_counts:
                at = get_number(data, at, size, &count)
                if at < 0 or count == 0:
                    return False
                at = get_number(data, at, size, &nbytes)
                # Of consecutive numbers no log has more than a group may bring.
                if at < 0 or count > MOST_IN_RANGE or nbytes >> 62:
                    return False
            if seq >> 62:
                return False
            with gil:
                try:
                    item = self.another()
                except MemoryError:
                    return False
            item.node = <uint32_t>node
            item.seq = seq
            item.count = count
            item.nbytes = nbytes
        return self.count > 0

    cdef object write(self, Buffer into, bint with_counts):
        """Append the list to a record's payload, which ``end_payload`` ends."""
        cdef char *at = into.room(HEAD_BYTES + 4 * LONGEST_NUMBER * self.count + 8) + HEAD_BYTES
        cdef const char *begun = at
        cdef int64_t node = 0, seq = 0
        cdef long i
        for i in range(self.count):
            at += put_number(at, zigzag(<int64_t>self.items[i].node - node))
            at += put_number(at, zigzag(<int64_t>self.items[i].seq - seq))
            node, seq = self.items[i].node, <int64_t>self.items[i].seq
            if with_counts:
                at += put_number(at, self.items[i].count)
                at += put_number(at, self.items[i].nbytes)
        return at - begun


cdef class Buffer:
    """Records one behind the other, in memory of their own; ``chain`` is of what was added."""

    def __dealloc__(self):
        free(self.data)

    cdef char *room(self, long size) except NULL:
        cdef char *grown
        cdef long capacity
        if self.size + size > self.capacity:
            capacity = max(self.capacity * 2, self.size + size, 16384)
            grown = <char *>realloc(self.data, capacity)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
            self.capacity = capacity
        return self.data + self.size

    cpdef object add(self, int kind, long node, long seq, int flags, long delivery_count, long expires_ms,
                     bytes payload):
        """Append a record."""
        cdef long length = PyBytes_GET_SIZE(payload)
        cdef long size = HEAD_BYTES + <long>padded(length)
        cdef char *into = self.room(size)
        cdef Head *head = <Head *>into
        head.kind = kind
        head.flags = flags
        head.unused = 0
        head.node = node
        head.length = length
        head.seq = seq
        head.delivery_count = delivery_count
        head.back = 0
        head.expires_ms = expires_ms
        memcpy(into + HEAD_BYTES, PyBytes_AS_STRING(payload), length)
        memset(into + HEAD_BYTES + length, 0, size - HEAD_BYTES - length)
        head.checksum = sluice_crc32c(0, into + 4, HEAD_BYTES - 4 + length)
        self.chain = chained(self.chain, head.checksum)
        self.size += size
        self.count += 1

    cdef object add_copy(self, long node, long seq, int flags, long delivery_count, long expires_ms, long back):
        """Append the head of a message whose payload a message ``back`` bytes before has, too."""
        cdef char *into = self.room(HEAD_BYTES)
        cdef Head *head = <Head *>into
        memset(into, 0, HEAD_BYTES)
        head.kind = COPY_KIND
        head.flags = flags
        head.node = node
        head.seq = seq
        head.delivery_count = delivery_count
        head.back = back
        head.expires_ms = expires_ms
        head.checksum = sluice_crc32c(0, into + 4, HEAD_BYTES - 4)
        self.chain = chained(self.chain, head.checksum)
        self.size += HEAD_BYTES
        self.count += 1

    cdef object add_copies(self, Ranges places, int flags, long delivery_count, long expires_ms, long back,
                           long list_back, uint64_t step):
        """Append the head of messages in several places whose payload a message ``back`` bytes before has, too.

        With ``list_back`` the list stands in a record so many bytes before, each of whose numbers is ``step`` less.
        """
        cdef long length = 0
        if list_back == 0:
            length = places.write(self, False)
        cdef char *into = self.room(HEAD_BYTES + <long>padded(length))
        cdef Head *head = <Head *>into
        memset(into, 0, HEAD_BYTES)
        head.kind = COPIES_KIND
        head.flags = flags
        head.node = list_back
        head.seq = step
        head.delivery_count = delivery_count
        head.back = back
        head.expires_ms = expires_ms
        self.end_payload(length)

    cdef object add_forgotten(self, Ranges ranges):
        """Append that messages are done with."""
        cdef long length = ranges.write(self, True)
        cdef char *into = self.room(HEAD_BYTES + <long>padded(length))
        memset(into, 0, HEAD_BYTES)
        (<Head *>into).kind = FORGOTTEN_KIND
        self.end_payload(length)

    cdef object end_payload(self, long length):
        """Complete the record that stands behind all others, whose payload is there but for what pads it."""
        cdef char *into = self.data + self.size
        cdef long size = HEAD_BYTES + <long>padded(length)
        cdef Head *head = <Head *>into
        head.length = length
        memset(into + HEAD_BYTES + length, 0, size - HEAD_BYTES - length)
        head.checksum = sluice_crc32c(0, into + 4, HEAD_BYTES - 4 + length)
        self.chain = chained(self.chain, head.checksum)
        self.size += size
        self.count += 1

    cdef object expand(self, const char *data, long at, long of, long node, long seq):
        """Append the COPY at ``at``, or one of its COPIES, whose payload is that of the message at ``of``, as a
        message of this node and number.
        """
        cdef long length = (<const Head *>(data + of)).length
        cdef long size = HEAD_BYTES + <long>padded(length)
        cdef char *into = self.room(size)
        cdef Head *head = <Head *>into
        memcpy(into, data + at, HEAD_BYTES)
        memcpy(into + HEAD_BYTES, data + of + HEAD_BYTES, size - HEAD_BYTES)
        head.kind = MESSAGE_KIND
        head.node = node
        head.seq = seq
        head.length = length
        head.back = 0
        head.checksum = sluice_crc32c(0, into + 4, HEAD_BYTES - 4 + length)
        self.size += size
        self.count += 1

    cdef object copy(self, const char *record, long size):
        memcpy(self.room(size), record, size)
        self.size += size
        self.count += 1

    cpdef bytes take(self):
        """All of it as bytes; the buffer is empty then."""
        data = PyBytes_FromStringAndSize(self.data, self.size)
        self.clear()
        return data

    cpdef object clear(self):
        """Empty it; the memory stays."""
        self.size = 0
        self.count = 0
        self.chain = 0

    cdef char *release(self):
        """Hand the memory over, to be freed by whoever has it; the buffer is empty then."""
        cdef char *data = self.data
        self.data = NULL
        self.capacity = 0
        self.clear()
        return data


def read(bytes blob, long start=0, long end=-1, long node=-1):
    """Every record of a range as (kind, node, seq, flags, delivery_count, expires_ms, payload), in order.

    With a ``node``, those of its number only. DamagedRecord, with the offset, where one isn't what was written.
    """
    cdef const char *data = PyBytes_AS_STRING(blob)
    cdef long at = start, following, of, i
    cdef const Head *head
    cdef const Head *first
    cdef const Range *item
    cdef uint64_t number, nbytes
    cdef long payload_of = -1
    cdef bytes payload = None
    cdef Ranges ranges = None
    found = []
    if end < 0:
        end = PyBytes_GET_SIZE(blob)
    while at < end:
        following = next_record(data, at, end)
        if following < 0:
            raise DamagedRecord(at)
        head = first = <const Head *>(data + at)
        of = at
        if COPY_KIND <= head.kind <= FORGOTTEN_KIND:
            if ranges is None:
                ranges = Ranges()
            if not is_sound(data, at, ranges):
                raise DamagedRecord(at)
            if head.kind != FORGOTTEN_KIND:
                of = original(data, at)
                if of < start and next_record(data, of, at) < 0:
                    raise DamagedRecord(at)
                if head.kind == COPIES_KIND and ranges.at < start and next_record(data, ranges.at, at) < 0:
                    raise DamagedRecord(at)
                first = <const Head *>(data + of)
        if head.kind == FORGOTTEN_KIND:
            for i in range(ranges.count):
                item = &ranges.items[i]
                if node >= 0 and item.node != node:
                    continue
                nbytes = item.nbytes
                for number in range(item.count):
                    # All have a share of the bytes, the last one the rest.
                    share = nbytes // (item.count - number)
                    nbytes -= share
                    found.append((FORGET, item.node, item.seq + number, 0, 0, share, b""))
            at = following
            continue
        if of != payload_of and (node < 0 or head.node == node or head.kind == COPIES_KIND):
            payload = PyBytes_FromStringAndSize(data + of + HEAD_BYTES, first.length)
            payload_of = of
        if head.kind == COPIES_KIND:
            for i in range(ranges.count):
                item = &ranges.items[i]
                if node < 0 or item.node == node:
                    found.append((MESSAGE, item.node, item.seq + head.seq, head.flags, head.delivery_count,
                                  head.expires_ms, payload))
        elif node < 0 or head.node == node:
            found.append((MESSAGE if head.kind == COPY_KIND else head.kind, head.node, head.seq, head.flags,
                          head.delivery_count, head.expires_ms, payload))
        at = following
    return found
