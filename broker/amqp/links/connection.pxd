from libc.stdint cimport uint64_t

from broker.amqp.guard.outgoing_frames cimport OutgoingFrames
from broker.amqp.guard.frame_guard cimport FrameGuard
from broker.engine.engine cimport Engine
from broker.engine.node cimport Node
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.producer_credit cimport Port, ProducerCredit
from broker.flow.adaptive cimport Adaptive
from broker.flow.window cimport Shared, Window
from broker.queues.dispatch cimport Consumer
from broker.queues.queue cimport Entry

cdef class ConnectionIO:
    cdef void *transport
    cdef void *connection
    cdef void *collector
    cdef public int fd
    cdef public object control
    cdef public object owner
    # Who is shown what is read and written; None unless an operator traces this connection.
    cdef public object tap
    cdef public list to_flush
    cdef public bint flushing, blocked
    cdef public FrameGuard incoming
    cdef public OutgoingFrames outgoing
    cdef public object book
    cdef public long received, sent, numbered, handled, dismissed
    cdef public set links
    # Repairs what Proton says of links that were detached; None while none is. And what it has passed on that
    # waits for the socket.
    cdef object stale
    cdef bytes repaired_output
    # Links whose source doesn't offer the outcome `rejected`, by address: which it offers instead, 0 for none.
    cdef public dict refusals
    # The bytes that make up a session's incoming window, by which Proton is made to say that window.
    cdef public size_t session_bytes
    # Encoded but unsent bytes that each of its sessions may hold.
    cdef public long session_output
    cdef dict leaked_bytes
    cdef public list answers
    # Large messages: what comes in, what goes out, and whether the socket is left unread meanwhile.
    cdef public list inflows, streams
    cdef public bint paused
    # Something was read that waits for the next turn, where epoll doesn't know of it.
    cdef public bint held
    # It has read as much as one may in a turn: what was read is handled, and nothing is fetched any more.
    cdef bint yielded
    # What its frames have cost while it read nothing; ``input_stopped`` where it is read no more until it does.
    cdef public long output_cost
    cdef public bint input_stopped
    # Whether the last read is to be looked at by whoever shares the loop out.
    cdef public bint unusual
    # Its links are on their way out: they are sent nothing.
    cdef public bint parting
    # The window over all its consumers, None for none, and the reactor's list of those with turns to deal.
    cdef public Shared shared
    cdef public list turns
    cdef public bint turning
    # What its producers may have promised and parked together; None for no limit.
    cdef public ConnectionBudget budget

    cdef object mark_dirty(self)
    cdef object digest(self, ssize_t size)
    cdef object take_pieces(self)
    cdef object push(self, list pieces)
    cpdef bint pump_in(self) except -1
    cdef ssize_t receive(self, char *into, ssize_t room) except -2
    cdef bint holds(self) except -1
    cdef bint is_drained(self)
    cdef bint read_in(self) except -1
    cdef int pump_aside(self) except -2
    cdef long unsent_of(self, void *session, long limit) except -1
    cdef bint has_unsent(self, void *session) except -1
    cpdef bint pump_out(self) except -1
    cdef int write_repaired(self) except -2
    cdef bytes repaired(self, ssize_t pending)
    cdef object after_repairs(self)
    cpdef object events(self)
    cdef object on_flow(self, void *link)
    cdef object repeat_flow(self, void *link)
    cdef object reconsider(self)
    cdef object await_turn(self)
    cdef object throttle(self, Engine engine)
    cdef object stream(self)

cdef class PendingDelivery:
    cdef void *delivery
    cdef bytes data
    cdef bint settled
    cdef long bits
    cdef Node node
    cdef ProducerCredit account
    cdef object body

cdef class AwaitingSync:
    cdef void **deliveries
    cdef long *groups
    cdef long first, end, capacity

    cdef object push(self, void *delivery, long group)
    cdef object compact(self)
    cdef void *pop(self, long group)
    cdef object discard(self, void *delivery)
    cdef object clear(self)
    cdef object mark(self)

cdef class ProducerLink(Port):
    cdef void *link
    cdef public ConnectionIO connection
    cdef public Engine engine
    cdef public Node node
    cdef public ProducerCredit account
    cdef public str id, name
    cdef public bint presettled, second, dead
    cdef public long open_credit, kept, max_size, partial_bytes, received
    # The outcome of a message that isn't taken; 0 where the source offers none for it.
    cdef public uint64_t refusal
    # Of the session; and how many messages had come when the peer last said how many it has.
    cdef public int channel
    cdef long offered_at
    cdef list chunks
    # How many deliveries wait for the peer to settle them, where it settles second.
    cdef public long unconfirmed, most_unconfirmed
    # A large message on its way to a file, its delivery, and how much of one memory holds before.
    cdef object inflow
    cdef void *current
    cdef public long most_held
    cdef long look_again
    cdef AwaitingSync unwritten
    cdef long group
    # Those whose deliveries point to them: they live until the delivery has its outcome, whoever forgets them.
    cdef set holding

    cdef object on_delivery(self, void *delivery)
    cdef object on_flow(self)
    cdef object hold(self, PendingDelivery held, void *delivery)
    cdef object let_go(self, PendingDelivery held)
    cdef object reject(self, void *delivery, bytes name, bytes text)
    cdef object take(self, void *delivery, bytes data, long bits, bint settled)
    cdef object apply_result(self, void *delivery, long code, bytes data, long bits, bint settled,
                        Node node, ProducerCredit account)
    cdef object outcome(self, void *delivery, long code)
    cdef object renew_open(self)
    cdef object close_account(self, Node node, ProducerCredit account)
    cdef object until_stored(self, void *delivery)
    cpdef object stored(self, long group)
    cdef bint await_settlement(self)
    cdef object release_held(self, PendingDelivery held, long code)
    cdef object whole(self, void *delivery, bytes data)
    cdef bint may_begin(self)
    cdef bint is_too_much(self)
    cdef object malformed(self, void *delivery, long size, bint settled)
    cdef bint is_delayed(self, void *delivery, bytes data, long size, bint settled) except -1
    cdef object decline(self, void *delivery, long size, bint settled, bytes condition, bytes text)
    cdef object aborted(self, void *delivery)
    cdef object forget_pieces(self)
    cdef object gather(self, bytes data)
    cdef object go_large(self, void *delivery)
    cdef object on_piece(self, void *delivery)
    cdef object feed(self, bytes data)
    cdef object end_large(self)
    cdef object whole_large(self, void *delivery, object inflow)
    cdef object go_on(self)
    cdef object drop_inflow(self)
    cdef bint is_unread(self, void *delivery)
    cdef object after_unused(self)
    cdef object peer_settled(self, void *delivery)
    cdef object oversent(self)
    cpdef object fail(self, str condition, str text)
    cdef object fail_for(self, void *delivery, str condition, str text)

cdef class ConsumerLink(Consumer):
    cdef void *link
    cdef void *session
    cdef public ConnectionIO connection
    cdef public Engine engine
    cdef public Node node
    cdef public Window window
    cdef public Adaptive pace
    cdef public object watch
    cdef public double rate
    cdef public str id, name
    cdef public bint presettled, dead, draining, echo, browses
    cdef public long delivered, settled, drained
    cdef long sampled
    # When it attached, was last sent a message, and last settled one.
    cdef public long attached_ns, served_ns, settled_ns
    cdef public int channel
    cdef long next_tag
    cdef list slots
    cdef list free
    # A large message on its way out, and its delivery.
    cdef object outflow
    cdef void *streaming
    cdef Entry streamed
    cdef AwaitingSync unwritten
    cdef long group

    cdef long link_capacity(self) except -1
    cpdef long wanted(self) except -1
    cdef bint has_work(self) except -1
    cdef long sample(self, long now_ns, double seconds) except -1
    cdef object on_updated(self, void *delivery)
    cdef object begin_stream(self, Entry entry, void *delivery)
    cdef object stream(self)
    cdef object end_stream(self)
    cdef object drop_stream(self)
    cdef bint unsent(self)
    cdef Entry first_unsettled(self)
    cdef object confirm(self, void *delivery)
    cdef object free_slot(self, void *delivery, long number)
    cdef object until_stored(self, void *delivery)
    cpdef object stored(self, long group)
    cdef bint has_more(self)
    cdef object settle_as(self, void *delivery, Entry entry, unsigned long state)
    cpdef object close(self)
