from libc.stdint cimport uint8_t, uint32_t

# The channels a session may have are bounded by the settings; more are not watched.
cdef enum:
    CHANNELS = 256
    PREFIX = 24

cdef class Direction:
    cdef uint8_t prefix[PREFIX]
    cdef long held, skip, wanted
    cdef bytearray gathered
    cdef public bint lost
    cdef uint32_t transfers[CHANNELS]
    cdef public list rare

    cdef object watch(self, const uint8_t *at, long size)
    cdef object replay(self)
    cdef long begin_frame(self, const uint8_t *at, long size) except -1
