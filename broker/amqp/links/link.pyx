"""A connection's view of its links: the events it hands to them.

The connection finds a link by the context of Proton's link, and calls it through these classes; it needs to know
nothing else of producers and consumers.
"""


cdef class IncomingLink(Port):
    """A link on which the peer sends."""

    cdef object on_delivery(self, void *delivery):
        """Take transfers, or a settlement by the peer."""
        raise NotImplementedError

    cdef object on_flow(self):
        """Take the peer's word on the link's credit."""
        raise NotImplementedError


cdef class OutgoingLink(Consumer):
    """A link on which the broker sends."""

    cdef object on_updated(self, void *delivery):
        """Take the peer's outcome of a delivery."""
        raise NotImplementedError

    cdef object on_flow(self):
        """Take the credit that the peer has given."""
        raise NotImplementedError

    cdef object on_writable(self):
        """Have messages sent again: the socket took nothing for a while, and now does."""
        raise NotImplementedError

    cdef object on_window(self):
        """Have messages sent again: the window over the connection's links has room for this one."""
        raise NotImplementedError

    cdef object stream(self):
        """Write more of a large message."""
        raise NotImplementedError

    cdef long sample(self, long now_ns, double seconds) except -1:
        """Measure the link's rate over ``seconds``: SLOWED or RECOVERED of ``flow.slow``, or 0."""
        raise NotImplementedError

    cdef bint has_unsent(self, void *session) except -1:
        """Return whether something of it, a link of ``session``, waits for the peer's window or the socket."""
        raise NotImplementedError
