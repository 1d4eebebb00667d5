from libc.stdint cimport uint64_t

cdef extern from *:
    uint64_t __builtin_bswap64(uint64_t number) nogil

cpdef bytes with_numbers(bytes data, long at, bytes first, bytes second, unsigned long number)
