cimport cython
from broker cimport constants
from broker.flow.gate cimport Gate

@cython.final
cdef class Reservation:
    cdef public Gate gate
    cdef public long most, ways, copies
    cdef public bint in_memory, on_disk

    cpdef long weight(self, long size)
    cpdef void promise(self, long msgs, long reserve_bytes) noexcept
    cpdef void promise_urgent(self, long msgs, long reserve_bytes) noexcept
    @cython.locals(room=long, empty=bint, weight=long)
    cpdef long room(self, long reserve_bytes, bint urgent=*)
    cdef bint admits(self, long size, bint urgent=*)
    cdef bint could_hold(self, long msgs, long nbytes, long size)

@cython.final
cdef class ReservationSet:
    cdef public Gate gate, bottleneck
    cdef public Reservation memory
    cdef public list members, others, disks
    cdef public long most_held

    cdef Reservation add_memory(self, Gate gate, long most_held)
    @cython.locals(each=Reservation, added=Reservation)
    cdef Reservation node_at(self, Gate gate)
    @cython.locals(each=Reservation)
    cdef Reservation disk_at(self, Gate gate)
    @cython.locals(added=Reservation)
    cdef Reservation add_disk(self, Gate gate)
    cdef object remove(self, Reservation reservation)
    cdef object forget_bottleneck(self, Gate gate)
    cpdef long held(self, long size)
    @cython.locals(found=Reservation)
    cpdef long takes(self, Gate gate, long size) except -1
    @cython.locals(each=Reservation)
    cpdef object promise(self, long msgs, long reserve_bytes)
    @cython.locals(each=Reservation)
    cpdef object promise_urgent(self, long msgs, long reserve_bytes)
    @cython.locals(each=Reservation, change=long)
    cdef object reprice(self, long msgs, long before, long after, bint urgent=*)
    @cython.locals(each=Reservation, least=long)
    cpdef long room(self, long reserve_bytes, bint urgent=*) except -1
    @cython.locals(each=Reservation)
    cdef bint has_reserve(self) except -1
    @cython.locals(each=Reservation, gate=Gate, least=long)
    cpdef long reserve_part(self, long urgents, long reserve_bytes) except -1
    @cython.locals(each=Reservation, most=long)
    cdef long reserve_excess(self, long size) except -1
    @cython.locals(each=Reservation)
    cdef bint admit(self, long size, bint urgent=*) except -1
    @cython.locals(each=Reservation)
    cdef bint could_hold(self, long msgs, long nbytes, long size) except -1
    @cython.locals(each=Reservation, most=long)
    cdef long excess_msgs(self) except -1
    @cython.locals(each=Reservation, most=long)
    cdef long strict_bytes(self) except -1
    @cython.locals(each=Reservation, gate=Gate, least=long, allowed=long)
    cdef long threshold_msgs(self) except -1
    @cython.locals(each=Reservation)
    cdef bint is_wanted(self) except -1
    @cython.locals(each=Reservation)
    cdef bint is_closed(self) except -1
    cdef bint is_shut(self)
    cdef bint is_shut_by_other(self, Gate gate)
    @cython.locals(each=Reservation)
    cdef object find_bottleneck(self)
