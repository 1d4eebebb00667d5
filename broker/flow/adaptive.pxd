cimport cython

from broker.flow.window cimport Window

@cython.final
cdef class Adaptive:
    cdef public Window window
    cdef public long least, most, threshold, size
    cdef public long since_ns, first, awaited, counted, took_ns, rated_ns, rated, shut_count
    cdef public long trip_ns, last_trip_ns, trip_at_ns
    cdef public double rate, rate_before, last_rate
    cdef public long burst, burst_before, samples, epoch_ns, settled_ns, batch, stuck_ns, narrow_ns

    cdef public long count, headroom_ns, usual_ns, patience, rest
    cdef public bint partly
    cdef public double usual_rate

    cpdef object configure(self, long least, long most, long threshold)
    cpdef void sent(self, long now_ns)
    cpdef void settled(self, long now_ns)
    cpdef object look(self, long now_ns)
    @cython.locals(trip_ns=long, rate=double, limited=bint)
    cdef void _sample(self, long now_ns)
    cdef void _next_epoch(self, long now_ns, double rate)
    @cython.locals(wider=bint)
    cdef void _try(self, double rate)
    cdef void _end_trial(self, bint kept)
    @cython.locals(rate=double, burst=long)
    cdef long _target(self)
    cdef void _narrow(self, long now_ns)
    cdef void _widen(self, long now_ns)
    cdef void _resize(self, long size)
