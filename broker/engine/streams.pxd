cimport cython

from broker cimport constants
from broker.engine.depths cimport Depths
from broker.engine.durability cimport Durability
from broker.engine.node cimport Node
from broker.engine.reader_commits cimport ReaderCommits
from broker.engine.turn cimport Turn
from broker.queues.queue cimport Entry
from broker.queues.stream cimport StreamQueue

@cython.final
cdef class Streams:
    cdef Turn _turn
    cdef Depths _depths
    cdef Durability _durability
    cdef public object pager
    cdef public ReaderCommits commits
    cdef public set nodes
    cdef set _loading
    cdef long _pause_ns, _newest_id

    @cython.locals(stream=StreamQueue, keep=bint, now_ms=long, entry=Entry)
    cpdef long put(self, Node node, bytes data, long bits) except -1
    cpdef object make_room(self)
    cdef object _recount(self, Node node, StreamQueue stream)
