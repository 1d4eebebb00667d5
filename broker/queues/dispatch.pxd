cimport cython
from broker.queues.queue cimport Entry, Queue

cdef class Consumer:
    cdef public long in_flight
    cpdef long capacity(self) except -1
    cpdef object send(self, Entry entry)

@cython.locals(count=long, entry=Entry)
cpdef object only(Queue queue, Consumer consumer)
@cython.locals(takers=list, room=list, least=long, fewest=long, flying=long, i=long, taker=Consumer,
               other=Consumer, entry=Entry)
cpdef object fair(Queue queue, list consumers, long start)
@cython.locals(takers=list, taker=Consumer)
cpdef object fill(Queue queue, list consumers, long start)
@cython.locals(takers=list, room=list, count=long, i=long, capacity=long, consumer=Consumer)
cdef tuple _with_capacity(list consumers, long start)
