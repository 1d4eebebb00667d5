cimport cython
from libc.stdint cimport uint64_t
from broker.amqp.links.pending cimport AwaitingSync
from broker.amqp.links.sending cimport SendingLink
from broker.engine.engine cimport Engine
from broker.engine.node cimport Node
from broker.engine.transaction cimport Retirement, Transaction
from broker.flow.adaptive cimport Adaptive
from broker.flow.window cimport Window
from broker.queues.queue cimport Entry

@cython.final
cdef class ConsumerLink(SendingLink):
    cdef void *session
    cdef public Engine engine
    cdef public Node node
    cdef public Window window
    cdef public Adaptive pace
    cdef public object watch
    cdef public double rate
    cdef public str id
    cdef public bint presettled, echo, browses
    cdef public long settled
    cdef long sampled
    # When it attached, was last sent a message, and last settled one.
    cdef public long attached_ns, served_ns, settled_ns
    cdef long next_tag
    cdef list slots
    cdef list free
    # How long its peer may hold a message, 0 for as long as it likes; when that of each slot was sent, where it
    # may not; how many it held too long; and what its attach asked for.
    cdef public long timeout_ns, asked_timeout_ns, timed_out
    cdef list sent_ns
    # A large message on its way out, and its delivery.
    cdef object outflow
    cdef void *streaming
    cdef Entry streamed
    # When a part of it went out last.
    cdef long streamed_ns
    cdef AwaitingSync unwritten
    # Outcomes that wait for their transactions, of deliveries that are unsettled, and those deliveries, by slot.
    cdef dict provisional, pending_discharge
    # The reader of a stream that it reads for, and whether it has had outcomes since the last commit.
    cdef public object named
    cdef public bint has_moved
    # Of a stream's reader, the bytes of what its peer holds.
    cdef bint reads_stream
    cdef long held_bytes
    # How many bytes a chunk of a stream has, where it is sent chunks; else 0.
    cdef public long chunk_bytes
    # Its outcomes come in transactions: what has none was never its receiver's.
    cdef bint transacted

    cpdef long wanted(self) except -1
    cdef long link_capacity(self) except -1
    cdef object count_sent(self, long nbytes)
    cdef object begin_stream(self, Entry entry, void *delivery)
    cdef object end_stream(self)
    cdef object drop_stream(self)
    cdef object leave_slot(self, long number)
    cdef object deal_with(self, void *delivery, Entry entry, unsigned long state)
    cdef object note_moved(self)
    cdef bint is_provisional(self, void *delivery, Entry entry, long number, uint64_t state) except -1
    cdef Retirement retire(self, Transaction transaction, void *delivery, Entry entry)
    cdef object confirm(self, void *delivery)
    cdef object free_slot(self, void *delivery, long number)
    cpdef object stored(self, long group)
    cpdef object limit_hold(self, long timeout_ns)
    cdef object note_sent(self, long number)
    cdef object release_overdue(self, long now_ns)
    cdef object end_for_timeout(self)
    cdef object take_back(self, void *delivery, long number, Entry entry)
    cdef object settle_as(self, void *delivery, Entry entry, unsigned long state)
    cdef bint has_more(self)
    cdef bint has_work(self) except -1
    cdef object leave_provisional(self)
    cdef Entry first_unsettled(self)
    cpdef object close(self)
