cimport cython
from broker.queues.queue cimport Entry, Queue, Reader

cdef class Consumer:
    cdef public long in_flight, load, left, priority
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
@cython.locals(everyone=list, peers=list, first=long, head=Consumer, other=Consumer)
cpdef object by_priority(Queue queue, list consumers, long start, bint by_turn)
@cython.locals(takers=list, count=long, i=long, consumer=Consumer)
cdef list _with_capacity(list consumers, long start)
