cimport cython

from broker cimport constants
from broker.codec.lastvalue cimport ValueKey
from broker.queues.queue cimport Entry, Queue, Reader

# Not final: what overrides methods in a .pxd can't be.
cdef class LastValueQueue(Queue):
    cdef public ValueKey key
    cdef public bint keeps_place
    cdef public dict newest
    cdef bytes _seen, _seen_name
    cdef long _place
    cdef Entry _behind_place

    @cython.locals(name=bytes, entry=Entry)
    cpdef Entry replaceable(self, bytes data)
    @cython.locals(name=bytes, newest=Entry)
    cpdef bint has_after(self, bytes data, long seq) except -1
    @cython.locals(name=bytes)
    cpdef bint is_newest(self, Entry entry) except -1
    @cython.locals(reader=Reader)
    cpdef object vacate(self, Entry entry)
    @cython.locals(entry=Entry, name=bytes)
    cpdef Entry append(self, bytes data, bint keep=*)
    @cython.locals(name=bytes)
    cpdef object release(self, Entry entry)
    cpdef object settle(self, Entry entry)
    cpdef object drop(self, Entry entry)
    cpdef object clear(self)
    @cython.final
    @cython.locals(seq=long, entry=Entry, reader=Reader)
    cdef Entry _take_place(self, bytes data)
    @cython.final
    @cython.locals(name=bytes)
    cdef object _forget(self, Entry entry)
    @cython.final
    cdef bytes _name_of(self, bytes data)
