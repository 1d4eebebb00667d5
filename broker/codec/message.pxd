cimport cython
from broker.codec.encoding cimport compound, symbol, text

# The constants of message.py under names of their own, so that both stand side by side.
cdef long MALFORMED, SHORT, DURABLE, HAS_HEADER, HAS_TTL, HAS_EXPIRY, HAS_DELIVERY_NOTES, MAY_BE_DELAYED, PRIORITY_FIELD, TTL_FIELD, EXPIRY_FIELD
cdef long HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, AMQP_VALUE
cdef long BODY_FIRST, BODY_LAST, FOOTER, MAX_DEPTH, MAX_UINT, DEFAULT_PRIORITY, MAX_PRIORITY, LONG_NAME, LONGEST_HEADER, MOST_WALKED

@cython.locals(end=long, at=long, last=long, bits=long, code=long, start=long)
cpdef long scan(bytes data)
@cython.locals(at=long, place=long, length=long)
cdef bint _names_a_delay(bytes data, long start, long end) except -1
cpdef long delivery_time_ms(bytes data, long now_ms) except? -1
cpdef long delivery_time_in(bytes annotations, long now_ms) except? -1
cpdef bint asks_for_delay(bytes data) except -1
cpdef bint may_follow(long last, long code)
cpdef bint is_typed(long code, long constructor)
@cython.locals(left=long)
cpdef long section_code(bytes data, long at)
cpdef long after_descriptor(bytes data, long at)
@cython.locals(constructor=long, kind=long, size=long)
cpdef long value_end(bytes data, long at, long end, long depth)
@cython.locals(following=long)
cpdef long skip_value(bytes data, long at, long end)
@cython.locals(at=long, bits=long)
cdef long _header_bits(bytes data, long start, long end)
cdef long _count(bytes data, long start)
@cython.locals(end=long, at=long)
cdef long _field_at(bytes data, long start, long index)
@cython.locals(end=long, at=long, code=long, start=long)
cdef long _section_at(bytes data, long wanted)
@cython.locals(start=long, at=long)
cpdef long ttl_ms(bytes data)
@cython.locals(start=long, at=long)
cpdef long priority(bytes data)
@cython.locals(at=long)
cpdef long absolute_expiry_at(bytes data, long start)
@cython.locals(start=long)
cpdef long absolute_expiry_ms(bytes data)
@cython.locals(start=long, at=long)
cpdef bytes message_id(bytes data)
cdef long _first_field(bytes data, long start)
cpdef long header_end(bytes data)
@cython.locals(end=long, at=long, following=long, fields=list)
cpdef list list_fields(bytes data, long start)
cpdef list header_fields(bytes data)
cdef bytes _encode_header(list fields)
cdef bytes _encode_uint(object value)
cdef long _uint(bytes field) except -1

@cython.final
cdef class WantedFields:
    cdef public dict header, properties, names
    cdef public long lengths, last, slots
    cpdef long field(self, long section, long index) except -1
    cpdef long name(self, bytes name) except -1
    cdef long _slot(self, dict slots, object key) except -1

@cython.locals(places=list, last=long, end=long, at=long, before=long, code=long, start=long)
cpdef list value_places(bytes data, WantedFields wanted)
@cython.locals(count=long, at=long, left=long, index=long, following=long, slot=long)
cdef bint _find_fields(bytes data, long start, long end, dict wanted, list places) except -1
@cython.locals(at=long, left=long, value=long, following=long, slot=long)
cdef bint _find_names(bytes data, long start, long end, WantedFields wanted, list places) except -1
@cython.locals(length=long)
cdef long _slot_of_key(bytes data, long at, long end, WantedFields wanted) except -2
@cython.locals(constructor=long)
cpdef object value_at(bytes data, long at)
@cython.locals(constructor=long)
cdef object _seldom_value_at(bytes data, long at)
cdef object _text(bytes raw)
