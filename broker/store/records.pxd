from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include "broker/store/checksum.h"
    """
    uint32_t sluice_crc32c(uint32_t crc, const void *data, size_t size) nogil
    uint32_t sluice_crc32c_table(uint32_t crc, const unsigned char *data, size_t size) nogil

cdef packed struct Head:
    uint32_t checksum
    uint8_t kind
    uint8_t flags
    uint16_t unused
    uint32_t node
    uint32_t length
    uint64_t seq
    uint32_t delivery_count
    uint32_t back
    uint64_t expires_ms

cdef enum:
    HEAD_BYTES = 40

cdef inline uint64_t chained(uint64_t chain, uint32_t checksum) noexcept nogil:
    """Of the checksums of records in their order: another record, or another order, gives another chain."""
    return ((chain ^ checksum) + 1) * <uint64_t>0x9E3779B97F4A7C15

cdef inline size_t padded(size_t size) noexcept nogil:
    return (size + 7) & ~<size_t>7

cdef long next_record(const char *data, long at, long end) noexcept nogil

cdef uint32_t checksum_at(const char *data, long at) noexcept nogil

cdef long original(const char *data, long at) noexcept nogil

cdef struct Range:
    uint32_t node
    uint64_t seq, count, nbytes

cdef class Ranges

cdef bint is_sound(const char *data, long at, Ranges ranges) noexcept nogil

cdef class Buffer

cdef class Ranges:
    cdef Range *items
    cdef long count, capacity
    # Where the record stands whose list this is, as far as one was read.
    cdef long at

    cdef Range *another(self) except NULL
    cdef object add(self, uint32_t node, uint64_t seq, uint64_t nbytes)
    cdef object place(self, uint32_t node, uint64_t seq)
    cdef object remove_first(self)
    cdef int64_t step_from(self, Ranges other) noexcept nogil
    cdef bint read_places(self, const char *data, long at) noexcept nogil
    cdef bint read_ranges(self, const char *data, long at) noexcept nogil
    cdef bint read(self, const char *data, long size, bint with_counts) noexcept nogil
    cdef object write(self, Buffer into, bint with_counts)

cdef class Buffer:
    cdef char *data
    cdef readonly long size, count
    cdef readonly uint64_t chain
    cdef long capacity

    cdef char *room(self, long size) except NULL
    cpdef object add(self, int kind, long node, long seq, int flags, long delivery_count, long expires_ms,
                     bytes payload)
    cdef object add_copy(self, long node, long seq, int flags, long delivery_count, long expires_ms, long back)
    cdef object copy(self, const char *record, long size)
    cdef object add_copies(self, Ranges places, int flags, long delivery_count, long expires_ms, long back,
                           long list_back, uint64_t step)
    cdef object add_forgotten(self, Ranges ranges)
    cdef object end_payload(self, long length)
    cdef object expand(self, const char *data, long at, long of, long node, long seq)
    cpdef bytes take(self)
    cpdef object clear(self)
    cdef char *release(self)
