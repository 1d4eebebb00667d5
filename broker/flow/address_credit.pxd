cimport cython
from broker cimport constants
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.gate cimport Gate
from broker.flow.producer_credit cimport AllocatorPort, Port, ProducerCredit
from broker.flow.reservation cimport Reservation, ReservationSet

cdef class AddressCredit(AllocatorPort):
    cdef public Gate gate
    cdef public list accounts, budgets_in_demand
    cdef public object line, rest
    cdef public long promised_msgs, parked_msgs, parked_bytes, used_total, revoked_count
    cdef public long reclaim_ns, probe_ns
    cdef public long urgents
    cdef public bint overpromised
    cdef public long uncommitted_msgs, uncommitted_bytes
    cdef dict _uncommitted
    cdef long _last_size, _last_msgs

    @cython.locals(account=ProducerCredit)
    cpdef ProducerCredit open(self, Port port, long window_max, long initial, long now_ns, ConnectionBudget budget=*)
    cpdef object orphan(self, ProducerCredit account, long now_ns)
    @cython.locals(account=ProducerCredit, waits=bint)
    cpdef long blocked(self)

    cpdef object budget(self, Gate memory, long most_held=*)
    @cython.locals(memory=Reservation, before=long)
    cpdef object copy(self, long copies)
    @cython.locals(disk=Reservation)
    cpdef object claim(self, Gate gate, long copies)
    @cython.locals(other=Reservation, account=ProducerCredit)
    cpdef object attach_gate(self, Gate gate, long now_ns)
    @cython.locals(other=Reservation)
    cpdef object detach_gate(self, Gate gate)
    cpdef long takes(self, Gate gate, long size) except -1
    cpdef long room(self, long reserve_bytes) except -1
    cpdef long urgent_room(self, long reserve_bytes) except -1
    @cython.locals(change=long)
    cpdef object classify(self, ProducerCredit account, bint urgent)
    @cython.locals(account=ProducerCredit, taken=long)
    cpdef object trim_bulk(self, long now_ns)
    cpdef bint is_only_promised(self, long size) except -1
    cpdef bint is_shut_by_other(self, Gate gate)
    @cython.locals(account=ProducerCredit, size=long, msgs=long)
    cdef object _change(self, Reservation reservation, long ways, long copies)

    cpdef object hold_uncommitted(self, long size)
    @cython.locals(left=long)
    cpdef object release_uncommitted(self, long size, long msgs)
    cdef object _count_last(self)
    cpdef dict uncommitted(self)
    cdef object grant(self, ProducerCredit account, long msgs, long now_ns)
    @cython.final
    cdef object _release(self, ProducerCredit account, long msgs)
    @cython.locals(account=ProducerCredit, excess=long, taken=long)
    cpdef object trim(self, long now_ns)
    cdef object trim_if_overpromised(self, long now_ns)
    cdef long _excess(self) except -1
    @cython.locals(before=long, size=long, change=long)
    cdef object learn(self, ProducerCredit account)
    cdef object enter_budget_queue(self, ProducerCredit account)
