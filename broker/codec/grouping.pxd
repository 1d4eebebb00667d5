cimport cython
from broker.codec.message cimport WantedFields, after_descriptor, list_fields, section_code, skip_value, value_places

cdef long _PROPERTIES, _APPLICATION_PROPERTIES, _GROUP_ID

@cython.locals(end=long, at=long, code=long, start=long)
cpdef long group_at(bytes data) except -2
@cython.locals(at=long, left=long)
cdef long _element_at(bytes data, long start, long end) except -2
@cython.locals(at=long)
cpdef bytes group_id(bytes data)
@cython.locals(at=long)
cpdef bint closes_group(bytes data) except -1

@cython.final
cdef class PropertyKey:
    cdef public str name
    cdef public WantedFields _wanted

    @cython.locals(places=list, at=long)
    cpdef bytes of(self, bytes data)
