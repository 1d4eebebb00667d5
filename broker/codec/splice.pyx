"""Bytes put into the middle of a message, in one copy: Python's slices and joins would make four."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
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
