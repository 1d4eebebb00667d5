cimport cython
from broker cimport constants
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.reservation cimport ReservationSet

cdef class Port:
    cpdef object grant(self, long msgs)
    cpdef object revoke(self, long msgs)
    cpdef object admit(self, object parked, long size)
    cpdef object refuse(self, object parked)
    cpdef object confirm(self, object held)

cdef class ProducerCredit

cdef class AllocatorPort:
    cdef public ReservationSet reservations

    cdef object spend(self, ProducerCredit account)
    cdef object misjudged(self, ProducerCredit account)
    cdef object give_back(self, ProducerCredit account, long msgs)
    cdef object withdraw(self, ProducerCredit account, long msgs, long now_ns)
    cpdef object take_back(self, ProducerCredit account, long msgs, long now_ns)
    cpdef object wait(self, ProducerCredit account, long now_ns)
    cdef object leave_line(self, ProducerCredit account)
    cdef object leave_budget_queue(self, ProducerCredit account)
    cdef object let_rest(self, ProducerCredit account)
    cdef object put_off_probe(self, long now_ns)
    cdef object count_parked(self, ProducerCredit account, long msgs, long size)
    cdef object leave(self, ProducerCredit account)

@cython.final
cdef class ProducerCredit:
    cdef public AllocatorPort allocator
    cdef public Port port
    cdef public long window_max, initial, window, low
    cdef public long outstanding, withdrawn, held, used, used_mark
    cdef public long reserve_bytes, learned_bytes
    cdef public long last_used_ns, granted_ns, blocked_since_ns
    cdef public long burst, had, gap_ns, peak, peak_before, peak_ns, flow, flow_ns, flow_mark
    cdef public bint waiting, resting, closed, waits_for_budget, urgent, mixed, parks_bulk
    cdef public ConnectionBudget budget
    cdef public object place
    cdef public long passed_over, stated
    cdef public long late_count, overrun_count, parked_bytes, began, sharers
    cdef public object parked, origin

    cpdef long use(self, long size, long now_ns)
    cpdef object return_unused(self, long msgs, long now_ns)
    cpdef object park(self, object message, long size, long now_ns, bint patient=*)
    cpdef bint unpark(self, object message) except -1
    cpdef long wants(self)
    cdef object set_window(self, long window)
    cdef object shrink_to_use(self, long now_ns)
    @cython.locals(most=long)
    cpdef long expected_use(self, long now_ns) except -1
    cpdef long park_timeout_ns(self) except -1
    cpdef bint held_in_vain(self, long now_ns) except -1
    @cython.locals(passed_ns=long)
    cpdef long served(self, long now_ns) except -1
    cpdef long demand(self, long now_ns) except -1
    cdef long unused_ns(self, long now_ns)
    cpdef bint is_idle(self, long now_ns)
