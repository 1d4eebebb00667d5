cimport cython

from broker.engine.changes cimport Changes
from broker.engine.durability cimport Durability
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.queues.named_readers cimport NamedReader, NamedReaders
from broker.queues.stream cimport StreamQueue

@cython.final
cdef class ReaderCommits:
    cdef Turn _turn
    cdef Changes _changes
    cdef Durability _durability
    cdef public list moved, selective

    cpdef object arrived(self, Node node)
    @cython.locals(offset=long, named=NamedReader)
    cdef object _commit(self, object link)
    @cython.locals(offset=long)
    cdef object _note(self, Node node, NamedReader named)
    @cython.locals(stream=StreamQueue, slowest=long, lag=long, before=long)
    cdef bint _measure(self, Node node) except -1
