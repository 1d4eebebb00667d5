cimport cython

from broker cimport constants

@cython.final
cdef class Gate:
    cdef public str name
    cdef public bint enforced, held, full, closed, wanted, reserves
    cdef public long stop_msgs, resume_msgs, stop_bytes, resume_bytes, strict_bytes
    cdef public long reserve_msgs, reserve_bytes, urgent_msgs, urgent_bytes
    cdef public long depth_msgs, depth_bytes, promised_msgs, promised_bytes, parked_bytes
    cdef public long typical_bytes, peak_msgs, peak_bytes
    cdef public long closed_count, closed_since_ns, closed_total_ns

    @cython.locals(raised=bint)
    cpdef bint configure(self, long stop_msgs, long resume_msgs, long stop_bytes, long resume_bytes,
                         long strict_bytes, long now_ns)
    cpdef object reserve(self, long percent)
    cpdef bint enforce(self, bint enforced, long now_ns)
    cpdef bint hold(self, bint held, long now_ns)
    cpdef bint enter(self, long size, long now_ns)
    cpdef bint leave(self, long size, long now_ns)
    cpdef bint look(self, long now_ns)
    cpdef bint measure(self, long msgs, long nbytes, long now_ns, bint anew=*)
    cpdef void learn(self, long size)
    cpdef void promise(self, long msgs, long size)
    cpdef void promise_urgent(self, long msgs, long size)
    cpdef void park(self, long size)
    @cython.locals(entered=long)
    cpdef bint takes_parked(self, long size)
    @cython.locals(room=long)
    cpdef long room(self, long reserve_bytes)
    @cython.locals(room=long, kept=long, left=long)
    cdef long _room_beside_reserve(self, long reserve_bytes)
    @cython.locals(excess=long, kept=long, over=long)
    cpdef long reserve_excess(self, long size)
    @cython.locals(room=long)
    cpdef long whole_room(self, long reserve_bytes)
    @cython.locals(alone=bint)
    cpdef bint could_hold(self, long msgs, long size)
    @cython.locals(excess=long, over_bytes=long, each=long)
    cpdef long excess_msgs(self)
    cpdef long unit_bytes(self)
    @cython.locals(room=long)
    cdef long _room_by_bytes(self, long reserve_bytes)
    cdef bint _is_full(self)
    cdef bint _is_drained(self)
    cdef bint _reconsider(self, long now_ns)
    @cython.locals(closed=bint)
    cdef bint _settle_state(self, long now_ns)

cdef bint _is_raised(long before, long after)
