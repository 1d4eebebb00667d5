cimport cython
from broker cimport constants
from broker.flow.gate cimport Gate

cdef class Port:
    cpdef object grant(self, long msgs)
    cpdef object revoke(self, long msgs)
    cpdef object admit(self, object parked, long size)
    cpdef object refuse(self, object parked)
    cpdef object confirm(self, object held)

cdef class ProducerCredit
cdef class Level

@cython.final
cdef class Reservation:
    cdef public Gate gate
    cdef public long copies, most

    cpdef long takes(self, long size)
    cpdef object promise(self, long msgs, long reserve_bytes)

@cython.final
cdef class ConnectionBudget:
    cdef public Gate gate
    cdef public list accounts, budget_queue
    cdef public long asking

    cpdef object hold(self, long msgs, long size)
    @cython.locals(room=long)
    cpdef long share(self, long size) except -1
    @cython.locals(account=ProducerCredit, room=long, hungry_ns=long, overdue=bint)
    cpdef list lend(self, long now_ns)

@cython.final
cdef class ProducerCredit:
    cdef public CreditAllocator ledger
    cdef public Port port
    cdef public long window_max, initial, window, low
    cdef public long outstanding, withdrawn, held, used, used_mark
    cdef public long reserve_bytes, learned_bytes
    cdef public long last_used_ns, granted_ns, blocked_since_ns
    cdef public long burst, had, gap_ns, peak, peak_before, peak_ns, flow, flow_ns, flow_mark
    cdef public bint waiting, resting, closed, waits_for_budget
    cdef public ConnectionBudget budget
    cdef public object place
    cdef public long passed_over
    cdef public long late_count, overrun_count, parked_bytes
    cdef public object parked, origin

    cpdef long use(self, long size, long now_ns)
    cpdef object return_unused(self, long msgs, long now_ns)
    cpdef bint unpark(self, object message) except -1
    cpdef object park(self, object message, long size, long now_ns, bint patient=*)
    cpdef long wants(self)
    @cython.locals(most=long)
    cpdef long claim(self, long now_ns) except -1
    cpdef long park_timeout_ns(self) except -1
    cpdef bint held_in_vain(self, long now_ns) except -1
    @cython.locals(passed_ns=long)
    cpdef long served(self, long now_ns) except -1
    cpdef long demand(self, long now_ns) except -1
    cpdef bint is_idle(self, long now_ns)
    cdef object _count_out(self, long size)

@cython.final
cdef class Level:
    cdef readonly Gate budget
    cdef readonly long capacity, share, flow, most, strangers, spare

    @cython.locals(account=ProducerCredit, demands=list, served=list, capacity=long, past=long, unit=long, flow=long,
                   demand=long)
    cdef object _weigh(self, list accounts, long room, long whole, long now_ns)
    cpdef long unit(self, ProducerCredit account) except -1
    @cython.locals(unit=long, behind=long)
    cpdef long of(self, ProducerCredit account) except -1
    @cython.locals(unit=long, part=long, keep=long)
    cpdef long spared(self, ProducerCredit account) except -1

@cython.final
cdef class CreditAllocator:
    cdef public Gate gate
    cdef public list others, claims
    cdef public dict repeated
    cdef public list accounts
    cdef public object line, rest
    cdef public long promised_msgs, parked_msgs, parked_bytes
    cdef public long reclaim_ns, probe_ns, used_total, used_at_probe, revoked_count, scan
    cdef public bint overpromised
    cdef public Gate memory, bottleneck
    cdef public long copies, most_held
    cdef public list budgets_in_demand

    cdef long _held(self, long size)
    cdef object _count_ways(self, Gate gate)
    @cython.locals(gate=Gate, count=long, least=long, room=long, empty=bint)
    cdef long _repeated_room(self, long reserve_bytes) except -1
    cpdef bint is_shut_by_other(self, Gate gate)
    @cython.locals(gate=Gate, claim=Reservation)
    cdef bint _may_open(self)
    cdef bint _is_shut(self)
    @cython.locals(gate=Gate, claim=Reservation)
    cdef Gate _find_bottleneck(self)
    @cython.locals(gate=Gate, claim=Reservation)
    cdef long _excess(self) except -1

    cpdef object orphan(self, ProducerCredit account, long now_ns)
    @cython.locals(gate=Gate, claim=Reservation)
    cpdef void release(self, long msgs, long reserve_bytes)
    @cython.locals(claim=Reservation, account=ProducerCredit)
    cpdef object claim(self, Gate gate, long copies)
    cpdef long takes(self, Gate gate, long size) except -1
    @cython.locals(claim=Reservation)
    cdef Reservation _claim_on(self, Gate gate)
    @cython.locals(room=long, gate=Gate, claim=Reservation)
    cpdef long room(self, long reserve_bytes)
    @cython.locals(msgs=long, nbytes=long, gate=Gate, claim=Reservation)
    cpdef bint is_only_promised(self, long size) except -1
    @cython.locals(want=long)
    cpdef bint renew(self, ProducerCredit account, long now_ns) except -1
    cpdef object wait(self, ProducerCredit account, long now_ns)
    cpdef object budget(self, Gate memory, long most_held=*)
    @cython.locals(before=long, held=long, account=ProducerCredit)
    cpdef object copy(self, long copies)
    @cython.locals(freed=long, account=ProducerCredit)
    cpdef long lend(self, long now_ns, Level shares, bint spared=*) except -1
    cpdef object settle_turn(self, long now_ns)
    @cython.locals(deadline=long)
    cpdef long next_deadline(self)
    cpdef object misjudged(self, ProducerCredit account)
    @cython.locals(account=ProducerCredit, budget=long)
    cdef object _deal(self, long now_ns)
    cdef object _admit_in_line(self)
    @cython.locals(gate=Gate, claim=Reservation)
    cdef bint _fits(self, long size) except -1
    cdef long _admit_parked(self, ProducerCredit account, long budget) except -1
    @cython.locals(account=ProducerCredit, room=long, msgs=long, left=long, held_back=bint)
    cdef object _deal_credit(self, list askers, long now_ns)
    @cython.locals(account=ProducerCredit, total=long)
    cdef long _line_room_for(self, list askers)
    @cython.locals(size=long, change=long, held=long, before=long, gate=Gate, claim=Reservation)
    cdef object _learn(self, ProducerCredit account)
    cdef long _strict(self) except -1
    @cython.locals(size=long, gate=Gate, claim=Reservation)
    cdef object _grant(self, ProducerCredit account, long msgs, long now_ns)
    cdef object _pinch(self, ProducerCredit account)
    cdef object _unpinch(self, ProducerCredit account)
    @cython.locals(due=long, keep=long, freed=long)
    cpdef long lend_of(self, ProducerCredit account, long now_ns, Level shares, bint overdue=*) except -1
    @cython.locals(claim=Reservation)
    cdef bint _is_wanted(self) except -1
    cdef object _withdraw(self, ProducerCredit account, long msgs, long now_ns)
    cdef object _return(self, ProducerCredit account, long msgs)
    @cython.locals(account=ProducerCredit, need=long, freed=long, count=long, hungry_ns=long, prompt=long, waiting=long,
                   park_timeout_ns=long, longest_ns=long, singles=long, strangers=long, overdue=bint, others=long,
                   keep=long, each=long, shares=Level, fresh=bint, accounts=list)
    cdef bint _reclaim(self, long now_ns) except -1
    @cython.locals(account=ProducerCredit)
    cdef object _content(self, long now_ns)
    @cython.locals(gate=Gate, whole=long, allowed=long)
    cdef long _whole(self) except -1
    @cython.locals(recent=long, keep=long, using=long)
    cdef long _due_to(self, ProducerCredit account, long share, bint overdue, long now_ns) except -1
    @cython.locals(taken=long)
    cdef long _reclaim_from(self, ProducerCredit account, long keep, long need, long now_ns, bint lent=*) except -1
    cdef object _rest(self, ProducerCredit account)
    @cython.locals(account=ProducerCredit, room=long, count=long, share=long, busy=bint)
    cdef object _probe(self, long now_ns)
    cdef long _probe_count(self, long room, bint busy)
