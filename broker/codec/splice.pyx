"""Messages made of other messages' bytes in one copy: Python's slices and joins would make four."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy


cpdef bytes with_numbers(bytes data, long at, bytes first, bytes second, unsigned long number):
    """Return ``data`` with ``first``, a number, ``second`` and the number again put in at ``at``.

    The number has eight bytes, the most significant first. Raises IndexError where ``at`` is outside.
    """
    cdef long size = PyBytes_GET_SIZE(data)
    cdef long before = PyBytes_GET_SIZE(first), between = PyBytes_GET_SIZE(second)
    cdef uint64_t encoded = __builtin_bswap64(number)
    cdef bytes made
    cdef char *to
    if at < 0 or at > size:
        raise IndexError(f"{at} is no place in {size} bytes")
    made = PyBytes_FromStringAndSize(NULL, size + before + between + 16)
    to = PyBytes_AS_STRING(made)
    memcpy(to, PyBytes_AS_STRING(data), at)
    to += at
    memcpy(to, PyBytes_AS_STRING(first), before)
    to += before
    memcpy(to, &encoded, 8)
    to += 8
    memcpy(to, PyBytes_AS_STRING(second), between)
    to += between
    memcpy(to, &encoded, 8)
    memcpy(to + 8, PyBytes_AS_STRING(data) + at, size - at)
    return made


cpdef bytes with_messages(bytes head, list messages):
    """Return a message of ``head``, its sections before the body, and a data section that has other messages.

    The data are their number, the length of each, and all of them one behind the other. Numbers have four
    bytes, the most significant first. Raises OverflowError where all of it is 2 GB or more.
    """
    cdef long count = len(messages), before = PyBytes_GET_SIZE(head), size = 4 + 4 * count
    cdef bytes message, made
    cdef char *to
    cdef char *lengths
    for message in messages:
        size += PyBytes_GET_SIZE(message)
    if size >> 31:
        raise OverflowError(f"{size:,} bytes are too many for a message")
    made = PyBytes_FromStringAndSize(NULL, before + 8 + size)
    to = PyBytes_AS_STRING(made)
    memcpy(to, PyBytes_AS_STRING(head), before)
    to += before
    # A data section (AMQP 1.0 §3.2.6), its value a binary with a length of four bytes.
    memcpy(to, <const char *>b"\x00\x53\x75\xb0", 4)
    put_number(to + 4, size)
    put_number(to + 8, count)
    lengths = to + 12
    to = lengths + 4 * count
    for message in messages:
        put_number(lengths, PyBytes_GET_SIZE(message))
        lengths += 4
        memcpy(to, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
        to += PyBytes_GET_SIZE(message)
    return made


cdef void put_number(char *to, uint32_t number) noexcept:
    cdef uint32_t encoded = __builtin_bswap32(number)
    memcpy(to, &encoded, 4)
