from libc.stdint cimport uint8_t, uint32_t

from broker.amqp.guard.performative cimport Fields
from broker.amqp.guard.session cimport GuardedSession

cdef class SessionRules:
    cdef list channels
    # The session the last transfer belonged to, and its channel.
    cdef GuardedSession busy
    cdef int busy_channel
    # Channels whose session the peer has ended.
    cdef set over
    cdef bint opened
    # Of the frame under way: how many bytes are still to come that Proton gets, or doesn't where ``instead`` is given,
    # and of these last ones how many it gets nevertheless behind them.
    cdef long skip, behind
    cdef object instead
    # What is left of a frame of which Proton got a part.
    cdef bytes ahead
    cdef public bint echo
    # What the frames since it was last set to 0 cost, about, in microseconds.
    cdef public long cost
    cdef int most_channels
    cdef long most_refused
    # The setting whose limit the fault is about; empty for none.
    cdef public str limit
    # How many deliveries the peer was sent on a channel at most.
    cdef public object sent_on
    cdef public list rare, session_echoes
    cdef public dict ended
    cdef public set stolen, odd, sourceless
    cdef public object fault

    cdef GuardedSession channel_at(self, int channel)
    cdef bint check(self, int code, int channel, const uint8_t *frame, long offset, long whole, long left) except -1
    cdef bint on_transfer(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                            long left) except -1
    cdef bint on_piece(self, GuardedSession session, int channel, const uint8_t *frame, long before, long tag_bytes,
                       long whole, uint32_t handle, bint has_id, uint32_t id, bint has_tag, object format,
                       bint settled, bint unsettled, bint more, bint resumed) except -1
    cdef bint ignore(self, int channel, uint32_t handle, uint32_t id) except -1
    cdef bint on_flow(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint on_disposition(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                             long left) except -1
    cdef bint split(self, GuardedSession session, int channel, bytes before, bytes role, bytes rest, long listed,
                    bint receives, uint32_t first, uint32_t last, long each) except -1
    cdef bint on_open(self, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint on_begin(self, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint holds_too_many(self)
    cdef bint on_attach(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                        long left) except -1
    cdef object note_termini(self, Fields *fields, tuple link)
    cdef bint on_detach(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint end(self, int channel, str condition, str text) except -1
    cdef bint fail(self, str condition, str text) except -1
