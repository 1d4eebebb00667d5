cimport cython

from broker.codec.message cimport after_descriptor, section_code, skip_value

from broker.codec.splice cimport with_messages, with_numbers

cdef long ANNOTATIONS
cdef bytes _HEAD, _MIDDLE, _SECTION_HEAD, _CHUNK_HEAD, _CHUNK_KEY

@cython.locals(added=bytes, at=long, end=long, code=long, following=long)
cpdef bytes with_offset(bytes data, long offset)
cpdef bytes chunk(list messages, long offset)
