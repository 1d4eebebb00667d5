cimport cython
from broker.codec.grouping cimport PropertyKey
from broker.codec.message cimport list_fields, skip_value

@cython.final
cdef class ValueKey:
    cdef public str name
    cdef public PropertyKey _property
    cdef public bytes _symbol

    @cython.locals(key=bytes)
    cpdef bytes of(self, bytes data)
    @cython.locals(encoded=bytes, fields=list, at=long)
    cdef bytes _annotated(self, bytes data)

@cython.locals(code=long)
cdef bytes _plain(bytes value)
