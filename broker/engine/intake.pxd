cimport cython

from broker cimport constants
from broker.engine.changes cimport Changes
from broker.engine.departure cimport Departure
from broker.engine.depths cimport Depths
from broker.engine.durability cimport Durability
from broker.engine.expirations cimport Expirations
from broker.engine.last_values cimport LastValues
from broker.engine.node cimport Node
from broker.engine.transaction cimport Transaction
from broker.engine.schedules cimport Schedules
from broker.engine.streams cimport Streams
from broker.engine.turn cimport Turn
from broker.flow.gate cimport Gate
from broker.flow.allocator cimport CreditAllocator
from broker.flow.producer_credit cimport ProducerCredit
from broker.queues.last_value cimport LastValueQueue
from broker.queues.queue cimport Entry

@cython.final
cdef class Intake:
    cdef Turn _turn
    cdef Changes _changes
    cdef Depths _depths
    cdef Durability _durability
    cdef object _bodies
    cdef Expirations _expirations
    cdef Departure _departure
    cdef object _large, _letters
    cdef Schedules _schedules
    cdef LastValues _last_values
    cdef Streams _streams
    cdef bint _crossing
    cdef public bint keeps_repeats
    cdef public object origin

    @cython.locals(size=long, verdict=long, code=long, learned=long)
    cpdef long arrive(self, Node node, ProducerCredit account, bytes data, long bits, bint settled,
                      Transaction transaction=*) except -1
    @cython.locals(allocator=CreditAllocator)
    cdef long _arrive_unpromised(self, Node node, ProducerCredit account, bytes data, long bits, bint settled,
                                 long size, Transaction transaction) except -1
    @cython.locals(size=long)
    cpdef long hold(self, Transaction transaction, Node node, ProducerCredit account, bytes data, long bits) except -1
    @cython.locals(code=long)
    cpdef long put_awaited(self, Node topic, bytes data, long bits, bint settled) except -1
    @cython.locals(gate=Gate, size=long, entry=Entry, keep=bint, expires_ms=long, code=long, time_ms=long)
    cpdef long put(self, Node node, bytes data, long bits, bint compared=*) except -1
    @cython.locals(size=long, code=long, out=bint, older=Entry, queue=LastValueQueue)
    cdef long _put_value(self, Node node, bytes data, long bits) except -1
    cpdef list takers(self, Node node, bytes data, object origin)
    @cython.locals(each=Node)
    cdef object _add_takers(self, list found, Node node, bytes data, bint crossing)
    @cython.locals(entry=Entry)
    cpdef object put_behind(self, Node node, bytes data)
    cpdef long confirmed(self, Node topic, long bits) except -1
    @cython.locals(subscription=Node, code=long, answer=long, routed=bint)
    cdef long _publish(self, Node topic, bytes data, long bits) except -1
    @cython.locals(answer=long)
    cdef long _cross(self, Node node, bytes data, long bits, long code) except -1
    @cython.locals(taker=Node)
    cdef object _withdraw_excess(self, Node target)
    @cython.locals(each=Node)
    cdef bint _fits(self, Node node, bytes data, long size, bint crossing) except -1
    @cython.locals(size=long, each=Node)
    cdef bint _fits_unheeded(self, Node topic, bytes data, long bits) except -1
    cdef bint _wants(self, Node subscription, bytes data) except -1
    @cython.locals(gate=Gate, oldest=Entry)
    cdef bint _make_room(self, Node node, long size, bytes data) except -1
    cdef bint _is_least(self, Node node, bytes data) except -1
    cdef bint _waits_as_bulk(self, Node node, ProducerCredit account, bytes data, long size) except -1
    cdef long _overflow(self, Node node, bytes data, long bits) except -1
    cdef bint _is_duplicate(self, Node node, bytes data) except -1
    cdef object _remember(self, Node node, bytes data)
