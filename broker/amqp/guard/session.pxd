from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    # Handles up to here stand in an array, others in a dict.
    NEAR = 1024

# States of a handle's link.
cdef enum:
    UNATTACHED = 0
    SENDS = 1  # the peer sends
    RECEIVES = 2
    STOLEN = 3  # Proton knows the handle no more, the peer has yet to confirm
    ERRANT = 4  # detached by us with an error, and confirmed

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
    cdef object attach(self, uint32_t handle, tuple key, bint receives, bint second)
    cdef uint32_t steal(self, tuple key) except? 0xFFFFFFFF
    cdef object wrong(self, tuple key, bint refused)
    cdef object free_handle(self, uint32_t handle)
