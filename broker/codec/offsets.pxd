cimport cython

from broker.codec.message cimport after_descriptor, section_code, skip_value

from broker.codec.splice cimport with_numbers

cdef long ANNOTATIONS
cdef bytes _HEAD, _MIDDLE, _SECTION_HEAD

@cython.locals(added=bytes, at=long, end=long, code=long, following=long)
cpdef bytes with_offset(bytes data, long offset)
