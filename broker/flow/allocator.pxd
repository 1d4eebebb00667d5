cimport cython
from broker.flow.address_credit cimport AddressCredit
from broker.flow.level cimport Level
from broker.flow.producer_credit cimport ProducerCredit
from broker.flow.reclaim cimport Reclaimer
from broker.flow.reservation cimport Reservation

@cython.final
cdef class CreditAllocator(AddressCredit):
    cdef public Reclaimer reclaimer

    @cython.locals(want=long)
    cpdef bint renew(self, ProducerCredit account, long now_ns) except -1
    cpdef object settle_turn(self, long now_ns)
    cpdef object wait_its_turn(self, long now_ns)
    @cython.locals(deadline=long)
    cpdef long next_deadline(self)
    cpdef long lend(self, long now_ns, Level shares, bint spared=*) except -1

    @cython.locals(size=long, each=Reservation)
    cpdef list terms(self, ProducerCredit account)
    @cython.locals(each=ProducerCredit, line=list, budget=long, room=long, batch=long)
    cdef long _common_share_of(self, ProducerCredit account) except -1
    cdef long _share_of(self, ProducerCredit account) except -1
    @cython.locals(size=long)
    cdef long _reserve_left(self, ProducerCredit account) except -1
    @cython.locals(size=long, left=long)
    cdef object _deal_single(self, ProducerCredit account, long now_ns)
    @cython.locals(account=ProducerCredit, left=long, msgs=long)
    cdef object _deal_reserve(self, long now_ns)
    @cython.locals(account=ProducerCredit, budget=long, room=long, batch=long)
    cdef object _deal(self, long now_ns)
    @cython.locals(stop_msgs=long, most=long)
    cdef long _batch(self, long room) except -1
    cdef long _part_of(self, ProducerCredit account, long batch) except -1
    @cython.locals(account=ProducerCredit)
    cdef object _admit_in_line(self)
    cdef long _admit_parked(self, ProducerCredit account, long budget) except -1
    @cython.locals(account=ProducerCredit, msgs=long, left=long, held_back=bint)
    cdef object _deal_credit(self, list askers, long now_ns)
    @cython.locals(account=ProducerCredit, room=long, total=long)
    cdef list _shares(self, list askers)
