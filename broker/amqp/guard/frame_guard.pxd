from libc.stdint cimport uint8_t

from broker.amqp.guard.session_rules cimport SessionRules

cdef class FrameGuard(SessionRules):
    cdef bint dropping
    cdef bytes kept
    cdef public bint lost
    # A frame behind ``most_cost`` of a read waits, and ``more`` says that some do.
    cdef public long most_cost
    cdef public bint more
    # The largest frame there may be, before an open and after, and what may nest in one that controls.
    cdef long first_frame, most_frame, most_elements
    cdef int most_depth
    cdef public list pieces

    cdef long restore(self, uint8_t *into, long room)
    cdef object take_kept(self)
    cdef long filter(self, const uint8_t *start, long size) except -2
    cdef object cut_here(self, const uint8_t *run, const uint8_t *at)
    cdef long plain_transfer(self, const uint8_t *at, long left) noexcept
    cdef bint is_bounded(self, const uint8_t *at, const uint8_t *end) noexcept
