cimport cython
from broker.codec.message cimport is_typed, may_follow, section_code

cdef long MALFORMED, SHORT, BODY_FIRST, FOOTER, LONGEST_HEAD, MAX_DEPTH

@cython.locals(at=long, last=long, end=long, code=long, start=long)
cpdef long body_start(bytes data)

@cython.final
cdef class BodyScan:
    cdef public long last, skip
    cdef public bytes carry

    @cython.locals(at=long, end=long, following=long)
    cpdef bint feed(self, bytes data) except -1
    cpdef bint is_whole(self)
    @cython.locals(code=long, start=long, following=long)
    cdef long _section(self, bytes data, long at, long end)

@cython.locals(left=long, code=long)
cdef long code_at(bytes data, long at, long end)
cdef long descriptor_bytes(bytes data, long at)
@cython.locals(constructor=long, kind=long, size=long)
cdef long value_end(bytes data, long at, long end, long depth)
