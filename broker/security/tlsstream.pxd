from libc.stdint cimport uint8_t

cdef class TlsStream:
    cdef int fd
    cdef object ssl, incoming, outgoing, ssl_read, ssl_write
    cdef bytes unsent
    cdef ssize_t gone
    cdef long spare, refilled_ms, shaken
    # The record under way: bytes of it that came, of its head, and that are to come of its body.
    cdef long partial, body
    cdef int head, length
    cdef bint more, drained
    cdef readonly bint complete, broken, server_side

    cdef bint step(self, ssize_t got) except -1
    cdef ssize_t fetch(self) except -2
    cdef void follow(self, const uint8_t *at, ssize_t size) noexcept
    cdef bint ready(self) except -1
    cdef ssize_t open(self, char *into, ssize_t room) except -2
    cdef object refill(self)
    cdef object seal(self, const char *start, ssize_t size)
    cdef int flush(self) except -2
