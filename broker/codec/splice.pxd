from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    uint32_t __builtin_bswap32(uint32_t number) nogil
    uint64_t __builtin_bswap64(uint64_t number) nogil

cpdef bytes with_numbers(bytes data, long at, bytes first, bytes second, unsigned long number)
cpdef bytes with_messages(bytes head, list messages)
cdef void put_number(char *to, uint32_t number) noexcept
