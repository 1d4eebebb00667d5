"""The form of a stream's messages on disk: blocks with checksums, one behind the other.

A block is a head of 48 bytes, a payload and a tail of 8, all little-endian. The payload is the length of
each message (4 bytes) and then the messages, with zeros up to a multiple of 8. The head's checksum is of
the head, which has the payload's; the tail has the block's size and the head's checksum again, so that the
last block of a file can be found from its end. Every bit of a block is covered. Nothing here knows what a
file is. docs/decisions/streams.md has the format byte by byte.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy, memset

from broker.store.records cimport padded, sluice_crc32c

StreamMessage = tuple

VERSION = 1
HEAD_BYTES = 48
TAIL_BYTES = 8
# More than this isn't written in one piece; lengths have 32 bits.
MOST_BLOCK_BYTES = 1 << 30

cdef enum:
    HEAD = 48
    TAIL = 8
    LENGTH = 4
    FORMAT = 1
    MOST = 1 << 30

cdef const char *MAGIC = b"SLSB"


cdef inline long block_size(const BlockHead *head) noexcept nogil:
    return HEAD + <long>padded(head.length) + TAIL


cdef inline bint is_sound(const BlockHead *head) noexcept nogil:
    return memcmp(head.magic, MAGIC, 4) == 0 and sluice_crc32c(0, head, HEAD - LENGTH) == head.checksum


cdef str head_fault(const BlockHead *head):
    """Say what is wrong with a head, None if nothing is."""
    if memcmp(head.magic, MAGIC, 4) != 0:
        return "no block begins there"
    if not is_sound(head):
        return "the checksum of a block's head is wrong"
    if head.version != FORMAT:
        return f"a block has format {head.version}, this broker reads {FORMAT}"
    if head.count == 0 or <uint64_t>head.count * LENGTH > head.length:
        return "a block's head contradicts itself"
    return None


cdef str block_fault(const char *block):
    """Say what is wrong with a block whose head is sound and of which every byte is there."""
    cdef const BlockHead *head = <const BlockHead *>block
    cdef const uint32_t *lengths = <const uint32_t *>(block + HEAD)
    cdef const BlockTail *tail
    cdef uint64_t total = 0
    cdef uint32_t i
    if sluice_crc32c(0, block + HEAD, padded(head.length)) != head.payload_checksum:
        return "a block's checksum is wrong"
    tail = <const BlockTail *>(block + block_size(head) - TAIL)
    if tail.size != <uint32_t>block_size(head) or tail.checksum != head.checksum:
        return "a block's tail isn't that of its head"
    for i in range(head.count):
        total += lengths[i]
    if total + <uint64_t>head.count * LENGTH != head.length:
        return "a block's messages are longer or shorter than it is"
    return None


def encode(list messages, long first, long time_ms, long latest_ms, long block_bytes):
    """Encode messages as blocks, the first of them with that offset.

    A block takes messages up to ``block_bytes``, and one at least. ``latest_ms`` is the latest time of any
    message up to these. Returns the bytes, and (offset, position) of each block in them. ValueError
    where a message is longer than a block can be.
    """
    cdef Py_ssize_t i, begin = 0, count = len(messages)
    cdef long size = 0, length, payload = 0, at = 0
    cdef list places = []
    cdef list ends = []
    cdef char *into
    cdef object data, message
    for i in range(count):
        message = messages[i]
        if type(message) is not bytes:
            raise TypeError(f"a message is bytes, not {type(message).__name__}")
        length = LENGTH + PyBytes_GET_SIZE(message)
        if length >= MOST - HEAD - TAIL - 8:
            raise ValueError(f"a message of {length - LENGTH} bytes is too long")
        if i > begin and payload + length > block_bytes:
            ends.append((i, payload))
            size += HEAD + <long>padded(payload) + TAIL
            begin = i
            payload = 0
        payload += length
    if count > begin:
        ends.append((count, payload))
        size += HEAD + <long>padded(payload) + TAIL
    data = PyBytes_FromStringAndSize(NULL, size)
    into = PyBytes_AS_STRING(data)
    begin = 0
    for i, payload in ends:
        places.append((first + begin, at))
        at += encode_block(into + at, messages, begin, i, first + begin, payload, time_ms, latest_ms)
        begin = i
    return data, places


cdef long encode_block(char *into, list messages, Py_ssize_t begin, Py_ssize_t end, long first, long payload,
                       long time_ms, long latest_ms) except -1:
    """Write one block; return its size."""
    cdef BlockHead *head = <BlockHead *>into
    cdef BlockTail *tail
    cdef uint32_t *lengths = <uint32_t *>(into + HEAD)
    cdef char *text = into + HEAD + (end - begin) * LENGTH
    cdef Py_ssize_t i, length
    cdef object message
    for i in range(begin, end):
        message = messages[i]
        length = PyBytes_GET_SIZE(message)
        lengths[i - begin] = length
        memcpy(text, PyBytes_AS_STRING(message), length)
        text += length
    memset(text, 0, padded(payload) - payload)
    memcpy(head.magic, MAGIC, 4)
    head.version = FORMAT
    head.flags = 0
    head.first = first
    head.count = end - begin
    head.length = payload
    head.time_ms = time_ms
    head.latest_ms = latest_ms
    head.payload_checksum = sluice_crc32c(0, into + HEAD, padded(payload))
    head.checksum = sluice_crc32c(0, head, HEAD - LENGTH)
    tail = <BlockTail *>(into + HEAD + padded(payload))
    tail.size = block_size(head)
    tail.checksum = head.checksum
    return block_size(head)


def decode(bytes data, long at, long first, long offset, long most_bytes, list into):
    """Add to ``into`` the messages from ``offset`` on, as (offset, time in ms, bytes).

    The block at ``at`` of the data begins with the offset ``first``, which isn't beyond ``offset``. It stops
    where the data ends, or before the messages have more than ``most_bytes``; if ``into`` is empty, one comes
    whatever its size. Returns (at, first, offset, taken, need, fault): where the block stands that is to be
    read next, its first offset, the next message's, how many bytes the messages have, how many bytes from
    ``at`` on are needed for the block (0 if it stopped for another reason), and what is wrong with it, None
    if nothing is.
    """
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef long size = PyBytes_GET_SIZE(data), taken = 0, whole, skipped, i
    cdef const BlockHead *head
    cdef const uint32_t *lengths
    cdef const char *text
    cdef object time_ms
    cdef str fault
    while taken < most_bytes or not into:
        if at + HEAD > size:
            return at, first, offset, taken, HEAD, None
        head = <const BlockHead *>(start + at)
        fault = head_fault(head)
        if fault is None and head.first != <uint64_t>first:
            fault = f"the block there begins with offset {head.first}, not {first}"
        if fault is not None:
            return at, first, offset, taken, 0, fault
        whole = block_size(head)
        if at + whole > size:
            return at, first, offset, taken, whole, None
        fault = block_fault(start + at)
        if fault is not None:
            return at, first, offset, taken, 0, fault
        lengths = <const uint32_t *>(start + at + HEAD)
        text = start + at + HEAD + <long>head.count * LENGTH
        skipped = min(offset - first, <long>head.count)
        for i in range(skipped):
            text += lengths[i]
        time_ms = head.time_ms
        for i in range(skipped, <long>head.count):
            if taken + lengths[i] > most_bytes and into:
                return at, first, offset, taken, 0, None
            into.append((offset, time_ms, PyBytes_FromStringAndSize(text, lengths[i])))
            taken += lengths[i]
            text += lengths[i]
            offset += 1
        at += whole
        first += head.count
    return at, first, offset, taken, 0, None


cdef class BlockWalk:
    """A walk from block to block, over windows of a file's bytes.

    ``position`` is where the next block stands, ``next_offset`` its first offset, ``latest_ms`` the latest
    time of any message before it, ``need`` how many bytes from ``position`` on have to be in the next window,
    ``payload_bytes`` the size of all messages in the blocks that it has passed.
    ``marks`` are (offset, position, latest time) of blocks ``step`` bytes apart. ``fault`` says what is wrong
    with the block at ``position``: of ``whole`` blocks every byte is checked, otherwise the head. ``is_foreign``
    where that is a sound block of a format that this broker doesn't read.
    """

    def __init__(self, long position, long next_offset, *, long latest_ms=0, long step=1 << 16, bint whole=False):
        self.position = position
        self.next_offset = next_offset
        self.latest_ms = latest_ms
        self.need = HEAD
        self.payload_bytes = 0
        self.marks = []
        self.fault = None
        self.step = step
        self.marked = position - step
        self.whole = whole
        self.is_foreign = False

    def go(self, bytes data, *, long offset=-1, long time_ms=-1):
        """Walk as far as the window reaches, which begins at ``position``.

        True if it stands at the block that has ``offset``, or one whose messages came at ``time_ms`` or
        later. False where it needs more, or met a ``fault``.
        """
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef long size = PyBytes_GET_SIZE(data), begin = self.position, at = 0, whole
        cdef const BlockHead *head
        while self.fault is None:
            at = self.position - begin
            self.need = HEAD
            if at + HEAD > size:
                return False
            head = <const BlockHead *>(start + at)
            self.fault = self.check(start + at, size - at)
            whole = block_size(head)
            if self.fault is not None or (self.whole and at + whole > size):
                self.need = whole
                return False
            if self.position - self.marked >= self.step:
                self.marks.append((head.first, self.position, head.latest_ms))
                self.marked = self.position
            if 0 <= offset < <long>(head.first + head.count) or 0 <= time_ms <= <long>head.time_ms:
                return True
            self.position += whole
            self.next_offset += head.count
            self.latest_ms = head.latest_ms
            self.payload_bytes += <long>head.length - <long>head.count * LENGTH
        return False

    cdef str check(self, const char *block, long size):
        cdef const BlockHead *head = <const BlockHead *>block
        cdef str fault = head_fault(head)
        if fault is not None:
            self.is_foreign = is_sound(head) and head.version != FORMAT
            return fault
        if head.first != <uint64_t>self.next_offset:
            return f"the block there begins with offset {head.first}, not {self.next_offset}"
        if self.whole and block_size(head) <= size:
            return block_fault(block)
        return None


def tail_size(bytes data):
    """Return the size of the block that ends with these 8 bytes, if a block does."""
    return (<const BlockTail *>PyBytes_AS_STRING(data)).size if PyBytes_GET_SIZE(data) == TAIL else 0


def end_of(bytes head_data, bytes tail_data):
    """Return (next offset, latest time in ms) behind a block, by its head and its tail; None if it is none."""
    cdef const BlockHead *head = <const BlockHead *>PyBytes_AS_STRING(head_data)
    cdef const BlockTail *tail = <const BlockTail *>PyBytes_AS_STRING(tail_data)
    if PyBytes_GET_SIZE(head_data) != HEAD or PyBytes_GET_SIZE(tail_data) != TAIL or head_fault(head) is not None:
        return None
    if tail.checksum != head.checksum or tail.size != <uint32_t>block_size(head):
        return None
    return head.first + head.count, head.latest_ms
