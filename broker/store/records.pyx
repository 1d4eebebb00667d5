"""The one encoded form of what is kept on disk, in the journal and in pages: records with a checksum.

A record is a head of 40 bytes, little-endian, and a payload padded to 8: crc32c of all that follows
it, kind, flags, node, length, sequence number, delivery count, expiry (milliseconds since the epoch,
0 for never). Nothing here knows what a file is.

A message that several nodes get at once stands there with its payload for the first of them; for each other
one stands a COPY, a head without a payload that says how many bytes before it the first one begins.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from broker.errors import OperatorError

Record = tuple

cdef enum:
    MESSAGE_KIND = 1
    COPY_KIND = 8

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

    cdef object expand(self, const char *data, long at, long of):
        """Append the COPY at ``at``, whose payload is that of the message at ``of``, as a message."""
        cdef long length = (<const Head *>(data + of)).length
        cdef long size = HEAD_BYTES + <long>padded(length)
        cdef char *into = self.room(size)
        cdef Head *head = <Head *>into
        memcpy(into, data + at, HEAD_BYTES)
        memcpy(into + HEAD_BYTES, data + of + HEAD_BYTES, size - HEAD_BYTES)
        head.kind = MESSAGE_KIND
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


def read(bytes blob, long start=0, long end=-1):
    """Every record of a range as (kind, node, seq, flags, delivery_count, expires_ms, payload), in order.

    DamagedRecord, with the offset, where one isn't what was written.
    """
    cdef const char *data = PyBytes_AS_STRING(blob)
    cdef long at = start, following, of
    cdef int kind
    cdef const Head *head
    cdef const Head *first
    cdef long payload_of = -1
    cdef bytes payload = None
    found = []
    if end < 0:
        end = PyBytes_GET_SIZE(blob)
    while at < end:
        following = next_record(data, at, end)
        if following < 0:
            raise DamagedRecord(at)
        head = first = <const Head *>(data + at)
        kind, of = head.kind, at
        if kind == COPY_KIND:
            of = original(data, at)
            if of < 0 or (of < start and next_record(data, of, at) < 0):
                raise DamagedRecord(at)
            kind, first = MESSAGE_KIND, <const Head *>(data + of)
        if of != payload_of:
            payload = PyBytes_FromStringAndSize(data + of + HEAD_BYTES, first.length)
            payload_of = of
        found.append((kind, head.node, head.seq, head.flags, head.delivery_count, head.expires_ms, payload))
        at = following
    return found
