from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    PREFIX = 24

cdef class OutgoingFrames:
    cdef uint8_t prefix[PREFIX]
    cdef long held, skip, wanted
    cdef bytearray gathered
    cdef public bint lost
    # By channel, for as many as have begun.
    cdef uint32_t *transfers
    cdef long reach
    cdef public list rare

    cdef object follow(self, const uint8_t *at, long size)
    cdef object replay(self)
    cdef object restart(self, int channel)
    cdef long begin_frame(self, const uint8_t *at, long size) except -1
