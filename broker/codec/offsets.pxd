cimport cython

from broker.codec.message cimport after_descriptor, section_code, skip_value

cdef long ANNOTATIONS

@cython.locals(encoded=bytes, added=bytes, at=long, end=long, code=long, following=long)
cpdef bytes with_offset(bytes data, long offset)
