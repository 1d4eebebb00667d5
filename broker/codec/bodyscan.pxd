cimport cython
from broker.codec.message cimport after_descriptor, is_typed, may_follow, section_code, value_end

cdef long MALFORMED, SHORT, BODY_FIRST, FOOTER, LONGEST_HEAD

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
cpdef long code_at(bytes data, long at, long end)
