cimport cython

from broker.flow.gate cimport Gate
from broker.flow.allocator cimport CreditAllocator
from broker.flow.producer_credit cimport ProducerCredit
from broker.engine.durability cimport GroupCommit
from broker.engine.node cimport Node, memory_of
from broker.engine.turn cimport Turn

@cython.final
cdef class CreditDealer:
    cdef Turn _turn
    cdef Gate _memory, _disk, _temp
    cdef GroupCommit _storing
    cdef object _rivals
    cdef list _bridges
    cdef public dict timed_nodes, wanted, budgets_in_demand, borrowing
    cdef public Gate contested, kept
    cdef public Node keeper
    cdef public long entering_bytes, lend_ns
    cdef long _sharers_turn

    cpdef bint is_waited_for(self) except -1
    @cython.locals(allocator=CreditAllocator)
    cpdef list add_sharer(self, list sharing, Node node)
    @cython.locals(node=Node, allocator=CreditAllocator, before=long)
    cpdef object deal_in_turn(self, list sharing)
    @cython.locals(allocator=CreditAllocator)
    cpdef object deal(self, Node node)
    @cython.locals(account=ProducerCredit, size=long, taken=long, gate=Gate)
    cdef object _want(self, CreditAllocator allocator)
    @cython.locals(account=ProducerCredit, taken=long)
    cdef object _want_entry(self, CreditAllocator allocator)
    @cython.locals(gate=Gate, node=Node, idle=bint)
    cpdef object look_at_budgets(self, object nodes)
    cdef bint _has_room(self) except -1
    cdef object _serve_connections(self, bint idle)
    @cython.locals(each=Node, gate=Gate, allocator=CreditAllocator, size=long)
    cdef list _lenders(self, Node node)
    cpdef long _rank(self, Node node) except? -1
    @cython.locals(part=Node, taken=long)
    cdef long _taken(self, Node node, Gate budget) except -1
    @cython.locals(gate=Gate)
    cdef object _pass_over(self, Node node)
    cdef bint _goes_on_keeping(self, Node node) except -1
    @cython.locals(keeper=Node)
    cdef bint _leaves_room(self, Node node) except -1
    cdef bint _comes_before(self, Node node, Gate budget, Node keeper) except -1
    cdef long _goal(self, Node node, Gate budget) except -1
    @cython.locals(account=ProducerCredit, gate=Gate, size=long, taken=long)
    cdef Gate _short_for(self, CreditAllocator allocator)
