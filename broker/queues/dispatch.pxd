cimport cython
from broker.queues.queue cimport Entry, Queue, Reader

cdef class Consumer:
    cdef public long in_flight, load, left
    cdef public bint shares, slow, started, joins_groups
    cdef public Reader reader
    cdef public object origin
    cpdef long capacity(self) except -1
    cpdef object send(self, Entry entry)

@cython.locals(entry=Entry, reader=Reader)
cpdef object only(Queue queue, Consumer consumer)
@cython.locals(takers=list, taker=Consumer, other=Consumer, entry=Entry)
cpdef object fair(Queue queue, list consumers, long start)
@cython.locals(taker=Consumer)
cpdef object fill(Queue queue, list consumers, long start)
@cython.locals(takers=list, count=long, i=long, consumer=Consumer)
cdef list _with_capacity(list consumers, long start)
