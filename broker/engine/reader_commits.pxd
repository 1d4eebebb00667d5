cimport cython

from broker.engine.changes cimport Changes
from broker.engine.durability cimport Durability
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.flow.gate cimport Gate
from broker.queues.named_readers cimport NamedReader, NamedReaders
from broker.queues.stream cimport StreamQueue

@cython.final
cdef class ReaderCommits:
    cdef Turn _turn
    cdef Changes _changes
    cdef Durability _durability
    cdef public list moved, selective
    cdef public object counts

    cpdef object arrived(self, Node node, long size)
    @cython.locals(offset=long, named=NamedReader)
    cdef object _commit(self, object link)
    @cython.locals(offset=long)
    cdef object _note(self, Node node, NamedReader named)
    @cython.locals(stream=StreamQueue, gate=Gate, slowest=long, lag=long, nbytes=long, has_grown=bint)
    cdef bint _measure(self, Node node, bint anew=*, bint at_once=*) except -1
