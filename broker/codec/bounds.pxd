from libc.stdint cimport uint8_t

cdef const uint8_t *walk(const uint8_t *at, const uint8_t *end, int depth, long *elements) noexcept nogil
