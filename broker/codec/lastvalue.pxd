cimport cython
from broker.codec.message cimport WantedFields, list_fields, skip_value, value_places

@cython.final
cdef class ValueKey:
    cdef public str name
    cdef public WantedFields _wanted
    cdef public bytes _symbol

    @cython.locals(key=bytes, places=list, at=long, code=long)
    cpdef bytes of(self, bytes data)
    @cython.locals(encoded=bytes, fields=list, at=long)
    cdef bytes _annotated(self, bytes data)

@cython.locals(code=long)
cdef bytes _plain(bytes value)
