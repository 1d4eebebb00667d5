cimport cython

from broker.engine.departure cimport Departure
from broker.engine.durability cimport Durability
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.queues.dispatch cimport Consumer, by_priority, fair, fill, only
from broker.queues.queue cimport Entry, Queue, QueueOrder, Reader

@cython.final
cdef class Delivery:
    cdef Turn _turn
    cdef Durability _durability
    cdef Departure _departure
    cdef object _topology
    cdef readonly bint winding_down
    cdef public bint held_back
    cdef public long until_ns
    # What is asked before anything goes out: whether it has to be looked at what stands still.
    cdef bint _some_stand
    cdef readonly set frozen

    @cython.locals(queue=Queue)
    cpdef object serve(self, Node node)
    cpdef bint is_noted(self, Node node) except -1
    cpdef bint may_serve(self, Node node) except -1
    @cython.locals(consumers=list, order=QueueOrder)
    cdef object _dispatch(self, Node node)
    @cython.locals(consumer=Consumer, active=Consumer)
    cdef object _serve_single(self, Node node)
    @cython.locals(queue=Queue, spooled=long, excess=long, entry=Entry)
    cdef object _shed(self, Node node)
    @cython.locals(browser=Consumer, reader=Reader, entry=Entry, shown=long)
    cdef object _show(self, Node node)
    @cython.locals(reader=Reader)
    cdef object _look_for_unfinished(self, Node node)
