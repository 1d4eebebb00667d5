cimport cython
from broker cimport constants
from broker.flow.address_credit cimport AddressCredit
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.gate cimport Gate
from broker.flow.level cimport Level
from broker.flow.producer_credit cimport ProducerCredit

@cython.locals(due=long, keep=long, freed=long, excess=long)
cpdef long lend_of(ProducerCredit account, long now_ns, Level shares, bint overdue=*) except -1
@cython.locals(gate=Gate, account=ProducerCredit, room=long, hungry_ns=long, overdue=bint)
cpdef list lend_in_connection(ConnectionBudget budget, long now_ns)
@cython.locals(taken=long)
cdef long take_idle(ProducerCredit account, long keep, long need, long now_ns, bint lent=*) except -1

@cython.final
cdef class Reclaimer:
    cdef public long scan, used_at_probe

    @cython.locals(freed=long, account=ProducerCredit)
    cpdef long lend(self, AddressCredit credit, long now_ns, Level shares, bint spared=*) except -1
    @cython.locals(account=ProducerCredit, need=long, freed=long, count=long, room=long,
                   hungry_ns=long, prompt=long, waiting=long, park_timeout_ns=long, longest_ns=long, singles=long,
                   strangers=long, overdue=bint, others=long, keep=long, each=long, part=long, shares=Level, fresh=bint,
                   accounts=list)
    cdef bint reclaim(self, AddressCredit credit, long now_ns) except -1
    @cython.locals(account=ProducerCredit)
    cdef object _let_satisfied_go(self, AddressCredit credit, long now_ns)
    @cython.locals(recent=long, keep=long, using=long)
    cdef long _due_to(self, ProducerCredit account, long share, bint overdue, long now_ns) except -1
    @cython.locals(account=ProducerCredit, room=long, count=long, share=long, busy=bint)
    cdef object probe(self, AddressCredit credit, long now_ns)
    cdef long _probe_count(self, AddressCredit credit, long room, bint busy)
