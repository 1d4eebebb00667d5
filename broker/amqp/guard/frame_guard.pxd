from libc.stdint cimport uint8_t, uint32_t

cdef struct Fields:
    const uint8_t *at
    const uint8_t *end
    long count
    bint bad

cdef class GuardedSession:
    cdef uint32_t seen, allowed, next_id
    cdef bint numbered, ended
    cdef long reach
    cdef uint8_t *handles
    cdef dict far, links, names, under_way
    # By handle: how many messages a sender says it has that it has no credit for.
    cdef dict offered
    # Handles the peer has let go of: what it still says of them crossed its own detach.
    cdef set gone
    # Links that we detached with an error, and of these the ones that never came to be, until the peer
    # has let go of them.
    cdef set wronged, refused
    # Handles of links whose receiver settles second.
    cdef set second

    cdef int state_of(self, uint32_t handle)
    cdef object set_state(self, uint32_t handle, int state)
    cdef object free_handle(self, uint32_t handle)

cdef class FrameGuard:
    cdef long skip, behind
    cdef bint dropping, opened
    cdef bytes kept
    cdef list channels
    cdef object instead
    # What is left of a frame of which Proton got a part.
    cdef bytes ahead
    cdef public bint lost, echo
    # What the frames since it was last set to 0 cost, about, in microseconds; a frame behind ``most_cost`` of
    # it waits, and ``more`` says that some do.
    cdef public long cost, most_cost
    cdef public bint more
    # The largest frame there may be, before an open and after, and what may nest in one that controls.
    cdef long first_frame, most_frame, most_elements
    cdef int most_depth, most_channels
    cdef long most_refused
    # The setting whose limit the fault is about; empty for none.
    cdef public str limit
    # How many deliveries the peer was sent on a channel at most.
    cdef public object sent_on
    cdef public list rare, pieces, session_echoes
    cdef public dict ended
    cdef public set stolen, odd, sourceless
    # The session the last transfer belonged to, and its channel.
    cdef GuardedSession busy
    cdef int busy_channel
    # Channels whose session the peer has ended.
    cdef set over
    cdef public object fault

    cdef long restore(self, uint8_t *into, long room)
    cdef object take_kept(self)
    cdef long filter(self, const uint8_t *start, long size) except -2
    cdef object cut_here(self, const uint8_t *run, const uint8_t *at)
    cdef long plain_transfer(self, const uint8_t *at, long left) noexcept
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
    cdef bint is_bounded(self, const uint8_t *at, const uint8_t *end) noexcept
    cdef bint on_open(self, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint on_begin(self, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint holds_too_many(self)
    cdef bint on_attach(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                        long left) except -1
    cdef object note_termini(self, Fields *fields, tuple link)
    cdef bint on_detach(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long left) except -1
    cdef bint end(self, int channel, str condition, str text) except -1
    cdef bint fail(self, str condition, str text) except -1
