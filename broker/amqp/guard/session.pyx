"""One session of a connection, as its incoming frames show it."""

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from libc.stdint cimport uint8_t, uint32_t


cdef class GuardedSession:
    """One session, by the channel its peer sends on."""

    def __cinit__(self):
        self.far = {}
        self.links = {}
        self.names = {}
        self.under_way = {}
        self.offered = {}
        self.wronged = set()
        self.refused = set()
        self.gone = set()
        self.second = set()

    def __dealloc__(self):
        free(self.handles)

    cdef int state_of(self, uint32_t handle):
        """Return the state of a handle's link."""
        if handle < self.reach:
            return self.handles[handle]
        if handle < NEAR:
            return UNATTACHED
        return self.far.get(handle, UNATTACHED)

    cdef object set_state(self, uint32_t handle, int state):
        """Note the state of a handle's link."""
        cdef uint8_t *grown
        cdef long reach
        if handle >= NEAR:
            if state == UNATTACHED or state == ERRANT:
                self.far.pop(handle, None)
            else:
                self.far[handle] = state
            return
        if handle >= self.reach:
            reach = 16 if handle < 16 else NEAR
            grown = <uint8_t *>calloc(reach, 1)
            if grown == NULL:
                raise MemoryError()
            if self.reach > 0:
                memcpy(grown, self.handles, self.reach)
            free(self.handles)
            self.handles = grown
            self.reach = reach
        self.handles[handle] = state

    cdef object attach(self, uint32_t handle, tuple key, bint receives, bint second):
        """Note a link under its handle and its ``key``, name and whether the peer receives."""
        self.names[key] = handle
        self.links[handle] = key
        if second:
            self.second.add(handle)
        else:
            self.second.discard(handle)
        self.set_state(handle, RECEIVES if receives else SENDS)

    cdef uint32_t steal(self, tuple key) except? 0xFFFFFFFF:
        """Take a link's name from it for another that attaches, and return its handle."""
        cdef uint32_t handle = self.names[key]
        self.set_state(handle, STOLEN)
        self.under_way.pop(handle, None)
        self.wronged.discard(key)
        self.refused.discard(key)
        self.links.pop(handle, None)
        return handle

    cdef object wrong(self, tuple key, bint refused):
        """Note that we have detached a link with an error, or ``refused`` it."""
        if key in self.names:
            self.wronged.add(key)
            if refused:
                self.refused.add(key)

    cdef object free_handle(self, uint32_t handle):
        """Forget a link that the peer has detached: the handle may name another."""
        if len(self.gone) < NEAR:
            self.gone.add(handle)
        self.offered.pop(handle, None)
        key = self.links.pop(handle, None)
        self.under_way.pop(handle, None)
        if key is not None and self.names.get(key) == handle:
            del self.names[key]
        if key in self.wronged:
            self.wronged.discard(key)
            self.refused.discard(key)
            self.set_state(handle, ERRANT)
        else:
            self.set_state(handle, UNATTACHED)
