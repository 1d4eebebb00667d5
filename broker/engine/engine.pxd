cimport cython

from broker.engine.changes cimport Changes
from broker.engine.credit cimport CreditDealer
from broker.engine.delivery cimport Delivery
from broker.engine.depths cimport Depths
from broker.engine.durability cimport Durability, GroupCommit
from broker.engine.expirations cimport Expirations
from broker.engine.intake cimport Intake
from broker.engine.node cimport Node
from broker.engine.paging cimport Paging
from broker.engine.schedules cimport Schedules
from broker.engine.settlement cimport Settlement
from broker.engine.streams cimport Streams
from broker.engine.transactions cimport Transactions
from broker.engine.turn cimport Turn
from broker.flow.allocator cimport CreditAllocator

@cython.final
cdef class Engine:
    cdef public Turn turn
    cdef public Changes changes
    cdef public Depths depths
    cdef public Durability durability
    cdef public Expirations expirations
    cdef public CreditDealer credit
    cdef public Intake intake
    cdef public Settlement settlement
    cdef public Schedules schedules
    cdef public Delivery delivery
    cdef public Paging paging
    cdef public Transactions transactions
    cdef public object topology, large, bodies, letters, parking, producers, lifecycle, configurator, actions, sampler
    cdef public Streams streams
    cdef public list moves
    cdef public str store_state

    cpdef object begin_turn(self, long now_ns)
    @cython.locals(node=Node, nodes=list, sharing=list, credit=CreditDealer)
    cpdef object end_turn(self)
    @cython.locals(node=Node, earliest=long, due=long, behind=bint)
    cpdef long next_deadline(self) except -1
    @cython.locals(commit=GroupCommit)
    cpdef object seal(self)
    @cython.locals(commit=GroupCommit, node=Node, was_behind=bint)
    cpdef object attend_store(self)
    cdef object _look_at_budgets(self)
    @cython.locals(node=Node, allocator=CreditAllocator, due=long, behind=bint)
    cdef object _wake_timed_nodes(self)
