cimport cython

from broker.flow.gate cimport Gate
from broker.engine.changes cimport Changes
from broker.engine.depths cimport Depths
from broker.engine.expirations cimport Expirations
from broker.engine.node cimport Node, memory_of
from broker.engine.settlement cimport Settlement
from broker.engine.turn cimport Turn
from broker.queues.queue cimport Entry
from broker.engine.spool cimport Run, Spool

@cython.final
cdef class Paging:
    cdef Turn _turn
    cdef Changes _changes
    cdef Depths _depths
    cdef Gate _memory, _temp
    cdef object _bodies, _letters, _topology
    cdef Expirations _expirations
    cdef Settlement _settlement
    cdef public object pager, scans
    cdef public set nodes
    cdef public long passing_bytes
    cdef long _pause_ns

    @cython.locals(spool=Spool, excess=long, now_ns=long)
    cpdef object look(self, Node node)
    @cython.locals(node=Node, over=long, held=long)
    cpdef object make_room(self)
    @cython.locals(spool=Spool, before=long, msgs=long, freed=long)
    cdef long _page_out(self, Node node, long nbytes) except -1
    @cython.locals(nbytes=long, late=list, seq=long, flags=long, delivery_count=long, expires_ns=long, now_ns=long,
                   data=bytes, reason=str, entry=Entry, near=Entry)
    cpdef object _loaded(self, Node node, Run run, list messages)

cdef bint _letters_wait(Node node) except -1
