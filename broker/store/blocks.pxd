from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef packed struct BlockHead:
    char magic[4]
    uint16_t version
    uint16_t flags
    uint64_t first
    uint32_t count
    uint32_t length
    uint64_t time_ms
    uint64_t latest_ms
    uint32_t payload_checksum
    uint32_t checksum

cdef packed struct BlockTail:
    uint32_t size
    uint32_t checksum

cdef class BlockWalk:
    cdef readonly long position, next_offset, latest_ms, need, payload_bytes
    cdef readonly list marks
    cdef readonly str fault
    cdef readonly bint is_foreign
    cdef long step, marked
    cdef bint whole

    cdef str check(self, const char *block, long size)
