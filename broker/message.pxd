cimport cython

# The constants of message.py under names of their own, so that both stand side by side.
cdef long MALFORMED, DURABLE, HAS_HEADER, HAS_TTL, HAS_EXPIRY, TTL_FIELD, EXPIRY_FIELD
cdef long HEADER, ANNOTATIONS, PROPERTIES, DATA, SEQUENCE, AMQP_VALUE, BODY_FIRST, BODY_LAST, FOOTER
cdef long MAX_DEPTH, MAX_UINT

@cython.locals(end=long, at=long, last=long, bits=long, code=long, start=long)
cpdef long scan(bytes data)
cpdef bint may_follow(long last, long code)
cpdef bint is_typed(long code, long constructor)
@cython.locals(left=long)
cpdef long section_code(bytes data, long at)
cdef long _after_descriptor(bytes data, long at)
@cython.locals(constructor=long, kind=long, size=long)
cpdef long skip_value(bytes data, long at, long end, long depth)
@cython.locals(at=long, bits=long)
cdef long _header_bits(bytes data, long start, long end)
cdef long _count(bytes data, long start)
@cython.locals(end=long, at=long)
cdef long _field_at(bytes data, long start, long index)
@cython.locals(end=long, at=long, code=long, start=long)
cdef long _section_at(bytes data, long wanted)
@cython.locals(start=long, at=long)
cpdef long ttl_ms(bytes data)
@cython.locals(at=long)
cpdef long absolute_expiry_at(bytes data, long start)
@cython.locals(start=long)
cpdef long absolute_expiry_ms(bytes data)
@cython.locals(start=long, at=long)
cpdef bytes message_id(bytes data)
cdef long _first_field(bytes data, long start)
