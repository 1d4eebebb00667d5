cimport cython

@cython.final
cdef class NamedReader:
    cdef public str name
    cdef public long committed, stored
    cdef public object link

@cython.final
cdef class NamedReaders:
    cdef public dict by_name
    cdef public long slowest

    cpdef NamedReader add(self, str name, long offset)
    cpdef bint commit(self, NamedReader reader, long offset) except -1
    @cython.locals(was_slowest=bint, before=long)
    cpdef bint store(self, NamedReader reader, long offset) except -1
    @cython.locals(each=NamedReader, least=long)
    cdef object _measure(self)
