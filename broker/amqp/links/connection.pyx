"""The message path on Proton's C functions: socket to queue, queue to socket.

A turn: ``pump_in`` reads a connection and handles its events, deliveries and flow frames here,
everything else in ``control``; the engine ends its turn; ``pump_out`` writes what became of it.
Nothing in this file decides about credit or order: it tells the engine what happened and does what
the engine asks of its ports.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, realloc
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker cimport constants
from broker.amqp.guard.outgoing_frames cimport OutgoingFrames
from broker.amqp.links.proton cimport *
from broker.amqp.guard.frame_guard cimport FrameGuard
from broker.engine.engine cimport Engine
from broker.engine.node cimport Node
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.producer_credit cimport Port, ProducerCredit
from broker.flow.adaptive cimport Adaptive
from broker.flow.window cimport Shared, Window
from broker.queues.dispatch cimport Consumer
from broker.queues.queue cimport Entry

from broker.codec import message as _message
from broker.codec.bodyscan cimport SHORT, body_start
from broker.amqp.guard.flow_reply import SessionFlowState
from broker.amqp.guard.stale_flows import StaleFlows

import cproton_ffi as _proton
from proton import symbol

from broker.codec.message cimport scan

cdef extern from "sys/socket.h":
    ssize_t c_recv "recv"(int fd, void *buffer, size_t size, int flags) nogil
    ssize_t c_send "send"(int fd, const void *buffer, size_t size, int flags) nogil
    int MSG_NOSIGNAL

cdef int EVENT_DELIVERY = _proton.lib.PN_DELIVERY
cdef int EVENT_FLOW = _proton.lib.PN_LINK_FLOW
cdef uint64_t STATE_RECEIVED = _proton.lib.PN_RECEIVED
cdef uint64_t STATE_ACCEPTED = _proton.lib.PN_ACCEPTED
cdef uint64_t STATE_REJECTED = _proton.lib.PN_REJECTED
cdef uint64_t STATE_RELEASED = _proton.lib.PN_RELEASED
cdef uint64_t STATE_MODIFIED = _proton.lib.PN_MODIFIED

# Encoded but unsent bytes a session may hold before its consumers have to wait, where its connection has few
# sessions: what the socket takes in a few turns, so that neither a stalled reader nor a burst fills memory.
cdef enum:
    OUTGOING_BYTES = 1 << 20
    # Messages of this size are counted by what they fill, smaller ones by MOST_PER_DISPATCH alone.
    LARGE_ENOUGH = OUTGOING_BYTES // 4096
    # Reads a connection may make in one turn, and events after which it makes no more. Few, so that
    # what was read is still in the processor's cache when it is dispatched, and nobody waits long:
    # with 16 reads of small messages, 4+4 connections ran at 0.7 of this.
    READS_PER_TURN = 16
    EVENTS_PER_TURN = 192
    MOST_PER_DISPATCH = 4096
    # Deliveries behind a detach that are rejected one by one on a connection; nobody has more under way by mistake.
    MOST_DISMISSED = 10000

# Large messages: bytes of them on a connection that wait for the disk before its socket is left unread,
# the same while memory is short, and bytes of one that a session holds unsent at a time.
cdef enum:
    WRITING_BYTES = 8 << 20
    SCARCE_BYTES = 1 << 19
    STREAM_BYTES = 1 << 18

cdef enum:
    # Frames other than plain transfers, about in microseconds, that are handled in one go.
    MOST_COST = 2000
    # Less is what an ordinary read brings.
    UNNOTICED = 200
    # What is read at once of a frame that is larger than Proton's room for it.
    ASIDE_BYTES = 1 << 14
    # A piece of a message that is less than this is put to the one before it: an object of its own takes more.
    SMALL_PIECE = 512

cdef bytes REFUSED_NAME = b"amqp:resource-limit-exceeded"


cdef class ConnectionIO:
    """One peer's socket and Proton engine.

    ``control`` takes every event but deliveries and flow frames: ``control(kind, event)``
    with the event's type and address. ``to_flush`` is the reactor's list of connections to write.
    """

    def __init__(self, int fd, size_t transport, size_t connection, size_t collector, object control,
                 list to_flush, list answers):
        self.fd = fd
        self.transport = <void *>transport
        self.connection = <void *>connection
        self.collector = <void *>collector
        self.control = control
        self.to_flush = to_flush
        self.answers = answers
        self.links = set()
        # By session, the bytes that went with their links; None while no link went so.
        self.leaked_bytes = None
        self.incoming = FrameGuard()
        self.inflows = []
        self.streams = []
        self.turns = []
        self.outgoing = OutgoingFrames()
        self.book = SessionFlowState(self.incoming, self.outgoing)
        self.incoming.sent_on = self.book.sent_on
        self.incoming.most_cost = MOST_COST
        self.session_output = OUTGOING_BYTES

    cdef object mark_dirty(self):
        if not self.flushing:
            self.flushing = True
            self.to_flush.append(self)

    def mark(self):
        """Write this connection's output at the end of the turn."""
        self.mark_dirty()

    def feed(self, bytes data):
        """Hand over bytes that were read before Proton was there (what followed the handshake)."""
        cdef long taken
        data = self.incoming.take_kept() + data
        taken = self.incoming.watch(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.push([data[:taken]] if taken >= 0 else self.take_pieces())

    cdef object digest(self, ssize_t size):
        """Give Proton what stands at its tail, or what it is to have instead."""
        cdef long taken = self.incoming.watch(<const uint8_t *>pn_transport_tail(self.transport), size)
        if taken < 0:
            self.push(self.take_pieces())
            return
        if self.incoming.rare:
            self.book.read_incoming()
        if taken > 0:
            pn_transport_process(self.transport, taken)
            self.events()
        if self.incoming.session_echoes:
            self.owner.answer_sessions()

    cdef object take_pieces(self):
        pieces = self.incoming.pieces
        self.incoming.pieces = []
        return pieces

    cdef object push(self, list pieces):
        """Give Proton bytes that stand elsewhere, and let it answer each piece before the next."""
        cdef ssize_t n, at, size
        if self.incoming.rare:
            self.book.read_incoming()
        for piece in pieces:
            if not isinstance(piece, bytes):
                self.owner.on_link_fault(*piece)
                continue
            at = 0
            size = len(piece)
            while at < size:
                n = pn_transport_push(self.transport, PyBytes_AS_STRING(piece) + at, size - at)
                self.events()
                if n <= 0:
                    break  # it hears no more
                at += n
            pn_transport_pending(self.transport)
        if self.incoming.session_echoes:
            self.owner.answer_sessions()
        if self.incoming.fault is not None:
            self.owner.close(*self.incoming.fault)

    cpdef bint pump_in(self) except -1:
        """Read and handle what has arrived; false once nothing more will come."""
        cdef bint going = self.read_in()
        self.unusual = self.incoming.cost > UNNOTICED or self.incoming.more or self.blocked
        return going

    cdef bint read_in(self) except -1:
        cdef ssize_t capacity, n, kept
        cdef int reads = 0
        cdef int aside
        self.mark_dirty()
        self.handled = 0
        self.incoming.cost = 0
        self.yielded = False
        while self.incoming.cost < MOST_COST:
            if reads >= READS_PER_TURN or self.handled >= EVENTS_PER_TURN:
                if not self.holds():
                    return True
                self.yielded = True
            capacity = pn_transport_capacity(self.transport)
            if capacity <= 0:
                return capacity == 0
            if self.incoming.kept is not None:
                if self.incoming.more or PyBytes_GET_SIZE(self.incoming.kept) >= capacity:
                    aside = self.pump_aside()
                    if aside <= 0 or self.incoming.more:
                        return aside != 0
                    reads += 1
                    continue
            kept = self.incoming.restore(<uint8_t *>pn_transport_tail(self.transport), capacity)
            capacity -= kept
            n = self.receive(pn_transport_tail(self.transport) + kept, capacity)
            if n < 0:
                return True
            if n == 0:
                pn_transport_close_tail(self.transport)
                self.events()
                return False
            self.incoming.kept = None
            if self.tap is not None:
                self.tap.came((<const uint8_t *>pn_transport_tail(self.transport))[kept:kept + n])
            self.digest(kept + n)
            self.incoming.echo = False
            if self.incoming.fault is not None:
                return False
            if self.incoming.more:
                return pn_transport_capacity(self.transport) >= 0
            if n < capacity and self.is_drained():
                # Proton hears no more after a frame it can't decode; nothing else would tell us.
                return pn_transport_capacity(self.transport) >= 0
            reads += 1
        return True

    cdef ssize_t receive(self, char *into, ssize_t room) except -2:
        """Read from the peer: how many bytes, 0 at the end, -1 if there are none now."""
        cdef ssize_t n = c_recv(self.fd, into, room, 0)
        if n < 0:
            return -1 if errno == EAGAIN or errno == EINTR else 0
        return n

    cdef bint holds(self) except -1:
        """Whether something was read from the socket that ``receive`` has yet to give."""
        return False

    cdef bint is_drained(self):
        """Whether a read that brought less than there was room for was the last there is."""
        return True

    cdef int pump_aside(self) except -2:
        """What waits before the next read, or is larger than Proton's room: 1 if more may be there, 0 at the end,
        -1 if nothing is for now.
        """
        cdef bytes data, came
        cdef ssize_t n
        cdef long taken
        cdef bint more = self.incoming.more
        self.incoming.more = False
        data = self.incoming.kept
        if not more:
            came = PyBytes_FromStringAndSize(NULL, ASIDE_BYTES)
            n = self.receive(PyBytes_AS_STRING(came), ASIDE_BYTES)
            if n < 0:
                return -1
            if n == 0:
                pn_transport_close_tail(self.transport)
                self.events()
                return 0
            if self.tap is not None:
                self.tap.came(came[:n])
            data += came[:n]
        self.incoming.kept = None
        taken = self.incoming.watch(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.push([data[:taken]] if taken >= 0 else self.take_pieces())
        self.incoming.echo = False
        if self.incoming.fault is not None or pn_transport_capacity(self.transport) < 0:
            return 0
        return 1

    cdef long unsent_of(self, void *session, long limit) except -1:
        """Encoded bytes of a session's messages that wait for the peer's window or the socket.

        Proton counts those of a link for ever that went while some of its messages were unsent. How many they
        are is seen whenever ``limit`` seems to be reached and none of the links there are has anything unsent.
        """
        cdef long total = pn_session_outgoing_bytes(session)
        cdef long lost
        if self.leaked_bytes is None:
            return total
        lost = self.leaked_bytes.get(<size_t>session, 0)
        if lost > total or (total - lost >= limit and not self.has_unsent(session)):
            self.leaked_bytes[<size_t>session] = lost = total
        return total - lost

    cdef bint has_unsent(self, void *session) except -1:
        cdef ConsumerLink consumer
        for link in self.links:
            if isinstance(link, ConsumerLink):
                consumer = link
                if consumer.session == session and consumer.unsent():
                    return True
        return False

    cpdef bint pump_out(self) except -1:
        """Write what Proton has; false when it has said its last. ``blocked``: the socket is full."""
        cdef ssize_t pending, n
        cdef bint was_blocked = self.blocked
        self.flushing = False
        self.blocked = False
        while True:
            if self.repaired_output is not None:
                n = self.write_repaired()
                if n <= 0:
                    return n == 0
            pending = pn_transport_pending(self.transport)
            if pending == 0:
                if self.streams:
                    self.stream()
                self.events()
                pending = pn_transport_pending(self.transport)
            if pending <= 0:
                if self.stale is not None:
                    self.after_repairs()
                if pending < 0:
                    self.events()
                elif was_blocked:
                    self.output_cost = 0
                    self.input_stopped = False
                    # The socket took it before epoll could say that it would: whoever was passed over
                    # while it was full has no other call.
                    self.reconsider()
                return pending == 0
            if self.stale is not None:
                self.repaired_output = self.repaired(pending)
                continue
            n = c_send(self.fd, pn_transport_head(self.transport), pending, MSG_NOSIGNAL)
            if n < 0:
                if errno == EAGAIN or errno == EINTR:
                    self.blocked = True
                    return True
                pn_transport_close_head(self.transport)
                pn_transport_close_tail(self.transport)
                self.events()
                return False
            if self.tap is not None:
                self.tap.went((<const uint8_t *>pn_transport_head(self.transport))[:n])
            self.outgoing.watch(<const uint8_t *>pn_transport_head(self.transport), n)
            if self.outgoing.rare:
                self.book.read_outgoing()
            pn_transport_pop(self.transport, n)

    def repair_flows(self, size_t session, int channel, long low):
        """The broker has detached a link its peer may still send on: what Proton says of it is repaired on its
        way out, until the peer has confirmed.
        """
        if self.stale is None and not self.outgoing.lost:
            self.stale = StaleFlows(*self.outgoing.position())
        if self.incoming.window_left(channel) < low:
            # Proton may have meant to renew the window with a flow for that very link; then it never would.
            pn_session_set_incoming_capacity(<void *>session, self.session_bytes)

    cdef bytes repaired(self, ssize_t pending):
        """Take what Proton has for the socket, as it is to be written."""
        cdef bytes data = self.stale.feed(pn_transport_head(self.transport)[:pending])
        pn_transport_pop(self.transport, pending)
        if self.tap is not None:
            self.tap.went(data)
        self.outgoing.watch(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if self.outgoing.rare:
            self.book.read_outgoing()
        return data

    cdef int write_repaired(self) except -2:
        """1 once the socket has taken what was repaired, 0 while it is full, -1 if it is gone."""
        cdef ssize_t n
        while self.repaired_output:
            n = c_send(self.fd, PyBytes_AS_STRING(self.repaired_output), PyBytes_GET_SIZE(self.repaired_output),
                       MSG_NOSIGNAL)
            if n >= 0:
                self.repaired_output = self.repaired_output[n:]
            elif errno == EAGAIN or errno == EINTR:
                self.blocked = True
                return 0
            else:
                pn_transport_close_head(self.transport)
                pn_transport_close_tail(self.transport)
                self.events()
                return -1
        self.repaired_output = None
        return 1

    cdef object after_repairs(self):
        """Proton has nothing more to say for now: once it knows no such link any more, nothing is repaired."""
        if not self.incoming.has_wronged() and self.stale.is_between_frames:
            self.stale = None

    cpdef object events(self):
        """Handle every event Proton has collected."""
        cdef void *event
        cdef void *link
        cdef void *delivery
        cdef void *context
        cdef ProducerLink producer
        cdef ConsumerLink consumer
        cdef int kind
        while True:
            event = pn_collector_peek(self.collector)
            if event == NULL:
                return
            kind = pn_event_type(event)
            self.handled += 1
            if kind == EVENT_DELIVERY:
                delivery = pn_event_delivery(event)
                link = pn_delivery_link(delivery)
                context = pn_link_get_context(link)
                if context == NULL:
                    drop_delivery(self, link, delivery)
                elif pn_link_is_sender(link):
                    consumer = <ConsumerLink>context
                    consumer.on_updated(delivery)
                else:
                    # A name of its own keeps the link alive if it is detached while it is handled.
                    producer = <ProducerLink>context
                    producer.on_delivery(delivery)
            elif kind == EVENT_FLOW:
                self.on_flow(pn_event_link(event))
            else:
                self.control(kind, <size_t>event)
            pn_collector_pop(self.collector)

    cdef object on_flow(self, void *link):
        cdef void *context = pn_link_get_context(link)
        cdef ConsumerLink consumer
        if context == NULL:
            return
        if not pn_link_is_sender(link):
            (<ProducerLink>context).on_flow()
            if self.incoming.echo:
                self.repeat_flow(link)
            return
        consumer = <ConsumerLink>context
        if consumer.dead:
            return
        if (pn_link_get_drain(link) or self.incoming.echo) and not consumer.draining:
            consumer.draining = True
            consumer.echo = self.incoming.echo
            self.answers.append(consumer)
        if not consumer.started and pn_link_credit(link) > 0:
            consumer.started = True
            consumer.engine.consumers_changed(consumer.node)
        if consumer.node.queue.ready > 0 or consumer.node.queue.gap:
            consumer.engine.mark_dirty(consumer.node)

    cdef object repeat_flow(self, void *link):
        """Make Proton send this receiver's flow state: a session that needs a flow takes a link along."""
        pn_session_set_incoming_capacity(pn_link_session(link), self.session_bytes)
        pn_link_flow(link, 0)
        self.mark_dirty()

    def set_window(self, size_t session, uint32_t frames):
        """Say how many frames a session that is about to begin may receive; half of it is when Proton renews it.

        Proton repeats a window that it is told as so many bytes in a flow behind its begin.
        """
        pn_session_set_incoming_window_and_lwm(<void *>session, frames, 0)

    def send_performative(self, int channel, bytes performative):
        """Write a frame of our own between Proton's."""
        cdef pn_bytes_t frame
        frame.size = len(performative)
        frame.start = PyBytes_AS_STRING(performative)
        pn_framing_send_amqp(self.transport, channel, frame)
        self.mark_dirty()

    def tick(self, long now_ms):
        """Let Proton mind its idle timeouts; when to call again in ms, 0 for never."""
        cdef long following = pn_transport_tick(self.transport, now_ms)
        if pn_transport_pending(self.transport) != 0:
            self.mark_dirty()
        self.events()
        return following

    def closed(self):
        """True when both directions are done."""
        return bool(pn_transport_closed(self.transport))

    cdef object await_turn(self):
        """Have the room of the connection's window dealt out, where there is some and links wait for it."""
        if not self.turning and self.shared.due():
            self.turning = True
            self.turns.append(self)

    def take_turns(self):
        """Deal the room of the connection's window to the links that wait, and have their nodes dispatched."""
        for window in self.shared.deal():
            link = window.owner
            (<ConsumerLink>link).engine.mark_dirty((<ConsumerLink>link).node)

    def sample(self, long now_ns, double seconds):
        """Once a second: every consumer's rate; those that have become slow, or aren't any more."""
        changed = []
        for link in list(self.links):
            if isinstance(link, ConsumerLink) and (<ConsumerLink>link).sample(now_ns, seconds):
                changed.append(link)
        return changed

    cdef object reconsider(self):
        """Its socket has room again: every link on it may have something to send."""
        for link in self.links:
            if isinstance(link, ConsumerLink) and (
                (<ConsumerLink>link).node.queue.ready > 0 or (<ConsumerLink>link).node.queue.gap
            ):
                (<ConsumerLink>link).engine.mark_dirty((<ConsumerLink>link).node)

    cdef object throttle(self, Engine engine):
        """Leave the socket unread while the disk has more to write than should be held for it.

        Proton's session window can't do this: it ends the connection of a peer that had sent on when its
        window was taken back (amqp:session:window-violation).
        """
        cdef long waiting = 0, most = WRITING_BYTES
        for inflow in self.inflows:
            # What Proton keeps takes up to twice its room there, and is copied out at once.
            waiting += inflow.writing_bytes + 4 * inflow.unread_bytes
        if engine.memory.stop_bytes and engine.memory.depth_bytes > engine.memory.stop_bytes:
            most = SCARCE_BYTES
        if waiting > (most >> 1 if self.paused else most):
            self.paused = True
        else:
            self.paused = False
        self.mark_dirty()

    def part(self, size_t handle):
        """A link goes whose messages were given back: say so of those that the peer has not settled.

        Proton settles them with the link, and a settlement without an outcome would confirm what the peer
        said last. ``received`` is no outcome either (§3.4.1), where only the disk knows.
        """
        cdef void *link = <void *>handle
        cdef void *delivery
        cdef void *following
        cdef bint in_doubt
        if not pn_link_is_sender(link):
            return
        delivery = pn_unsettled_head(link)
        while delivery != NULL:
            following = pn_unsettled_next(delivery)
            if not (pn_delivery_settled(delivery) or pn_delivery_buffered(delivery)):
                in_doubt = pn_delivery_get_context(delivery) != NULL
                pn_delivery_update(delivery, STATE_RECEIVED if in_doubt else STATE_RELEASED)
            delivery = following

    cdef object stream(self):
        """All is written: more of the large messages that go out here."""
        for consumer in self.streams[:]:
            (<ConsumerLink>consumer).stream()

    def forget(self):
        """Let go of whoever handles this connection, so that no cycle waits for the collector."""
        self.control = None
        self.owner = None
        self.tap = None

    def skip_event(self):
        """Drop the event whose handling failed, so that it isn't met again."""
        pn_collector_pop(self.collector)

    def has_output(self):
        """True while bytes wait for the socket."""
        return self.repaired_output is not None or pn_transport_pending(self.transport) > 0

    def abort(self):
        """No more input: Proton reports what that means for the connection."""
        pn_transport_close_tail(self.transport)
        self.mark_dirty()


cdef object drop_delivery(ConnectionIO connection, void *link, void *delivery):
    """A delivery on a link that was refused or is being detached: free what it holds."""
    if pn_link_is_sender(link):
        # To settle what it says the last word on would confirm that, and the message is back in its queue.
        if pn_delivery_settled(delivery) or pn_delivery_remote_state(delivery) == 0:
            pn_delivery_settle(delivery)
        return
    if pn_delivery_partial(delivery) and not pn_delivery_aborted(delivery):
        discard(link, pn_delivery_pending(delivery))
        return
    reject_late(connection, link, delivery)


cdef object reject_late(ConnectionIO connection, void *link, void *delivery):
    """It isn't taken, for what its link is detached for. go-amqp reads all but `rejected` as success, a settlement
    without an outcome too; of a flood the rest is released, in ranges. A source that doesn't offer `rejected`
    gets what it offers.
    """
    cdef uint64_t refusal = STATE_REJECTED
    if connection.refusals is not None:
        refusal = connection.refusals.get(<size_t>link, STATE_REJECTED)
    if pn_delivery_settled(delivery):
        pass
    elif refusal == 0 and connection.dismissed < MOST_DISMISSED:
        connection.dismissed += 1
        return
    elif refusal != STATE_REJECTED:
        if refusal != 0:
            pn_delivery_update(delivery, refusal)
    elif connection.dismissed < MOST_DISMISSED:
        connection.dismissed += 1
        pn_condition_copy(pn_disposition_condition(pn_delivery_local(delivery)), pn_link_condition(link))
        pn_delivery_update(delivery, STATE_REJECTED)
    else:
        pn_delivery_update(delivery, STATE_RELEASED)
    pn_delivery_settle(delivery)


cdef object discard(void *link, size_t size):
    cdef char scratch[4096]
    cdef ssize_t n
    while size > 0:
        n = pn_link_recv(link, scratch, 4096 if size > 4096 else size)
        if n <= 0:
            return
        size -= n


cdef class PendingDelivery:
    """A message parked outside its node; its delivery stays unsettled until it is admitted."""


cdef class AwaitingSync:
    """Deliveries whose last word waits for the disk, in the order they came, each with its group."""

    def __dealloc__(self):
        free(self.deliveries)
        free(self.groups)

    cdef object push(self, void *delivery, long group):
        if self.first > 0 and self.end == self.capacity:
            self.compact()
        if self.end == self.capacity:
            self.capacity = max(self.capacity * 2, 64)
            self.deliveries = <void **>realloc(self.deliveries, self.capacity * sizeof(void *))
            self.groups = <long *>realloc(self.groups, self.capacity * sizeof(long))
            if self.deliveries == NULL or self.groups == NULL:
                raise MemoryError()
        self.deliveries[self.end] = delivery
        self.groups[self.end] = group
        self.end += 1

    cdef object compact(self):
        cdef long i
        for i in range(self.end - self.first):
            self.deliveries[i] = self.deliveries[self.first + i]
            self.groups[i] = self.groups[self.first + i]
        self.end -= self.first
        self.first = 0

    cdef void *pop(self, long group):
        """The oldest delivery of a group that is on disk; NULL if there is none."""
        cdef void *delivery
        while self.first < self.end and self.groups[self.first] <= group:
            delivery = self.deliveries[self.first]
            self.first += 1
            if delivery != NULL:
                return delivery
        if self.first == self.end:
            self.first = self.end = 0
        return NULL

    cdef object discard(self, void *delivery):
        """The peer settled it itself: nothing is left to say."""
        cdef long i
        for i in range(self.first, self.end):
            if self.deliveries[i] == delivery:
                self.deliveries[i] = NULL

    cdef object clear(self):
        self.first = self.end = 0

    cdef object mark(self):
        """Let ``ConnectionIO.part`` know them: nobody knows yet whether they are on disk."""
        cdef long i
        for i in range(self.first, self.end):
            if self.deliveries[i] != NULL:
                pn_delivery_set_context(self.deliveries[i], <void *>self)


cdef class ProducerLink(Port):
    """A link on which the peer sends. ``open_credit`` above 0: credit that promises no room
    (a rejecting node, an anonymous relay), kept at that many less what is held unsettled."""

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size):
        self.connection = connection
        self.link = <void *>link
        self.engine = engine
        self.name = name
        self.max_size = max_size
        self.most_held = self.look_again = engine.large.most
        self.unwritten = AwaitingSync()
        self.holding = set()
        self.most_unconfirmed = 1 << 60
        self.refusal = STATE_REJECTED
        connection.numbered += 1
        self.id = f"{connection.owner.id}.{connection.numbered}"
        connection.links.add(self)
        pn_link_set_context(self.link, <void *>self)

    cpdef object grant(self, long msgs):
        pn_link_flow(self.link, msgs)
        self.connection.mark_dirty()

    cdef object on_flow(self):
        """A flow came: how many messages the peer has, and perhaps that it gave up credit unasked (§2.6.7)."""
        cdef long lost
        self.offered_at = self.received
        if self.dead:
            return
        if self.open_credit > 0:
            self.renew_open()
        elif self.account is not None:
            lost = self.account.outstanding - pn_link_credit(self.link)
            if lost > 0:
                self.account.return_unused(lost, self.engine.now_ns)
                if pn_link_credit(self.link) < 0:
                    pn_link_flow(self.link, -pn_link_credit(self.link))
                self.engine.mark_dirty(self.node)

    cpdef object revoke(self, long msgs):
        # Never below 0, which a flow frame would tell the peer as 4,294,967,295.
        msgs = min(msgs, pn_link_credit(self.link))
        if msgs > 0:
            pn_link_flow(self.link, -msgs)
            self.connection.mark_dirty()

    cpdef object admit(self, object parked, long size):
        cdef PendingDelivery held = parked
        cdef long code
        self.engine.origin = held.account.origin
        if held.node.awaiting is None or self.dead:
            code = self.engine.put(held.node, held.data, held.bits)
        else:
            code = self.engine.put_awaited(held.node, held.data, held.bits, held.settled)
        if code == constants.HOLD:
            held.data = None
            self.engine.hold_settlement(held.node, held.account, held)
            return
        self.release_held(held, code)
        if self.dead and not held.account.parked:
            self.engine.close_producer(held.node, held.account)

    cpdef object refuse(self, object parked):
        self.release_held(parked, constants.REFUSED)

    def offered(self):
        said = self.connection.incoming.offered(self.channel, self.name)
        return max(said - (self.received - self.offered_at), 0)

    cpdef object confirm(self, object parked):
        cdef PendingDelivery held = parked
        if not self.dead:
            self.release_held(held, self.engine.confirmed(held.node, held.bits))

    cdef object until_stored(self, void *delivery):
        """Its outcome is told once the group that holds the message is on disk."""
        cdef long group = self.engine.storing.last_group()
        if self.group != group:
            self.group = self.engine.wait_for_disk(self)
        self.unwritten.push(delivery, group)

    cpdef object stored(self, long group):
        cdef void *delivery
        if self.dead:
            return
        while True:
            delivery = self.unwritten.pop(group)
            if delivery == NULL:
                break
            pn_delivery_update(delivery, STATE_ACCEPTED)
            if not self.second:
                pn_delivery_settle(delivery)
            elif self.await_settlement():
                break
        self.connection.mark_dirty()

    cdef bint await_settlement(self):
        """One more that the peer settles second; whether it has left too many, and the link ends."""
        self.unconfirmed += 1
        if self.unconfirmed <= self.most_unconfirmed or self.dead:
            return self.dead
        self.connection.owner.over("max_unsettled")
        self.fail("amqp:resource-limit-exceeded", f"{self.unconfirmed} deliveries wait for their settlement")
        return True

    cdef object hold(self, PendingDelivery held, void *delivery):
        """Its outcome is told later."""
        held.delivery = delivery
        pn_delivery_set_context(delivery, <void *>held)
        self.holding.add(held)

    cdef object let_go(self, PendingDelivery held):
        """Its delivery has its outcome, or needs none any more."""
        pn_delivery_set_context(held.delivery, NULL)
        held.delivery = NULL
        self.holding.discard(held)

    cdef object release_held(self, PendingDelivery held, long code):
        cdef void *delivery = held.delivery
        if delivery != NULL:
            self.let_go(held)
            if code == constants.REFUSED and held.node.deleted and not pn_delivery_settled(delivery):
                self.reject(delivery, b"amqp:resource-deleted", f"'{held.node.name}' was deleted".encode())
            else:
                self.outcome(delivery, code)
            self.connection.mark_dirty()
        self.kept -= 1
        self.renew_open()

    def start_open(self, long credit):
        """Grant credit that promises no room and keep it up."""
        self.open_credit = credit
        self.renew_open()

    cdef object renew_open(self):
        cdef long standing, wanted
        if self.open_credit == 0 or self.dead:
            return
        standing = pn_link_credit(self.link)
        wanted = self.open_credit - self.kept
        if standing < wanted and (standing <= wanted >> 1 or self.kept > 0):
            pn_link_flow(self.link, wanted - standing)
            self.connection.mark_dirty()

    cdef object on_delivery(self, void *delivery):
        cdef size_t pending
        cdef bytes data
        cdef char *into
        if self.dead:
            drop_delivery(self.connection, self.link, delivery)
            return
        if self.inflow is not None:
            self.on_piece(delivery)
            return
        if not pn_delivery_readable(delivery):
            if pn_delivery_updated(delivery) and pn_delivery_settled(delivery):
                self.peer_settled(delivery)
            return
        pending = pn_delivery_pending(delivery)
        if pn_delivery_aborted(delivery):
            self.aborted(delivery)
            return
        if self.partial_bytes + <long>pending > self.max_size:
            self.fail("amqp:link:message-size-exceeded",
                      f"the message is larger than max-message-size, {self.max_size} bytes")
            drop_delivery(self.connection, self.link, delivery)
            return
        if pn_delivery_partial(delivery) and pending == 0:
            return
        data = PyBytes_FromStringAndSize(NULL, pending)
        into = PyBytes_AS_STRING(data)
        if pending > 0:
            pn_link_recv(self.link, into, pending)
        if pn_delivery_partial(delivery):
            if self.chunks is None:
                if not self.may_begin():
                    self.oversent()
                    return
                self.chunks = []
            self.partial_bytes += pending
            self.engine.memory.depth_bytes += pending
            self.gather(data)
            if self.connection.budget is not None:
                self.connection.budget.hold(0, pending)
                self.connection.budget.trim(self.engine.now_ns)
                self.engine.credit.budgets_in_demand[self.connection.budget] = None
            if self.engine.memory.stop_bytes and self.engine.memory.depth_bytes > self.engine.memory.stop_bytes:
                # Nothing else bounds messages that never end.
                self.fail("amqp:resource-limit-exceeded", "the broker's memory_limit leaves no room for the rest")
            elif self.connection.budget is not None and self.is_too_much():
                self.fail("amqp:resource-limit-exceeded",
                          "the connection's connection_memory_limit leaves no room for the rest")
            elif self.partial_bytes > self.look_again:
                self.go_large(delivery)
            return
        if self.chunks is not None:
            self.chunks.append(data)
            data = b"".join(self.chunks)
            self.forget_pieces()
        self.whole(delivery, data)

    cdef object gather(self, bytes data):
        if len(data) >= SMALL_PIECE:
            self.chunks.append(data)
        elif self.chunks and isinstance(self.chunks[len(self.chunks) - 1], bytearray):
            (<bytearray>self.chunks[len(self.chunks) - 1]).extend(data)
        else:
            self.chunks.append(bytearray(data))

    # --- large messages: through a file

    cdef object go_large(self, void *delivery):
        """More of a message has come than memory should hold: what stands before its body stays there."""
        cdef bytes data = b"".join(self.chunks)
        cdef long start = body_start(data)
        if start == SHORT:
            # Properties this large are held as before; the memory_limit bounds them.
            self.chunks = [data]
            self.look_again = 2 * self.partial_bytes
            return
        if start < 0:
            self.fail("amqp:decode-error", "the message's sections are malformed")
            return
        self.forget_pieces()
        self.current = delivery
        self.inflow = self.engine.large.begin(data[:start], self.on_told)
        self.connection.inflows.append(self.inflow)
        self.feed(data[start:])

    cdef object on_piece(self, void *delivery):
        """More of a large message, or of what comes behind it on this link, which waits."""
        cdef size_t pending
        cdef bytes data
        if delivery != self.current:
            if pn_delivery_updated(delivery) and pn_delivery_settled(delivery) and not self.is_unread(delivery):
                self.peer_settled(delivery)
                return
            self.inflow.unread_bytes = pn_session_incoming_bytes(pn_link_session(self.link))
            self.connection.throttle(self.engine)
            return
        if self.inflow.ended or not pn_delivery_readable(delivery):
            return
        if pn_delivery_aborted(delivery):
            self.aborted(delivery)
            return
        pending = pn_delivery_pending(delivery)
        if self.inflow.size + <long>pending > self.max_size:
            self.fail("amqp:link:message-size-exceeded",
                      f"the message is larger than max-message-size, {self.max_size} bytes")
            drop_delivery(self.connection, self.link, delivery)
            return
        if pending > 0:
            data = PyBytes_FromStringAndSize(NULL, pending)
            pn_link_recv(self.link, PyBytes_AS_STRING(data), pending)
            self.feed(data)
        if not self.dead and not pn_delivery_partial(delivery):
            self.inflow.end()
            if self.inflow.done:
                self.end_large()

    cdef bint is_unread(self, void *delivery):
        cdef void *waiting = pn_link_current(self.link)
        while waiting != NULL and waiting != delivery:
            waiting = pn_unsettled_next(waiting)
        return waiting != NULL

    cdef object feed(self, bytes data):
        self.inflow.feed(data)
        budget = self.inflow.overdrawn()
        if budget:
            self.fail("amqp:resource-limit-exceeded", f"the broker's {budget} leaves no room for the rest")
        else:
            self.connection.throttle(self.engine)

    def on_told(self):
        """The disk has taken some of the message, all of it, or can't."""
        try:
            if self.dead or self.inflow is None:
                return
            if self.inflow.fault is not None:
                self.fail(*self.inflow.condition())
                return
            self.connection.throttle(self.engine)
            if self.inflow.done:
                self.end_large()
                self.go_on()
        except Exception:
            self.fail("amqp:internal-error", "an internal error ended this link")
            raise

    cdef object end_large(self):
        cdef object inflow = self.inflow
        cdef void *delivery = self.current
        self.inflow = None
        self.current = NULL
        self.connection.inflows.remove(inflow)
        self.connection.throttle(self.engine)
        try:
            self.whole_large(delivery, inflow)
        finally:
            # Whoever took the message has its file now; without one it goes.
            inflow.drop()

    cdef object whole_large(self, void *delivery, object inflow):
        cdef bint settled = pn_delivery_settled(delivery)
        self.received += 1
        self.connection.received += 1
        if inflow.malformed:
            self.malformed(delivery, inflow.size, settled)
            return
        if inflow.bits & constants.MAY_BE_DELAYED and self.is_delayed(delivery, inflow.head, inflow.size, settled):
            return
        if self.open_credit > 0 and pn_link_credit(self.link) <= 0:
            self.oversent()
            drop_delivery(self.connection, self.link, delivery)
            return
        pn_link_advance(self.link)
        self.take(delivery, inflow.head, inflow.bits, settled)

    cdef object go_on(self):
        """Take what came behind the large message: its events are long over."""
        cdef void *before = NULL
        cdef void *following
        while not self.dead and self.inflow is None:
            following = pn_link_current(self.link)
            if following == NULL or following == before:
                return
            before = following
            self.on_delivery(following)

    cdef object drop_inflow(self):
        cdef object inflow = self.inflow
        self.inflow = None
        self.current = NULL
        inflow.drop()
        self.connection.inflows.remove(inflow)
        self.connection.throttle(self.engine)

    cdef bint is_too_much(self):
        """Whether the connection holds too much, and other messages than this one: one alone may be large."""
        return (self.connection.budget.is_overdrawn()
                and self.connection.budget.gate.depth_bytes > self.partial_bytes)

    cdef bint may_begin(self):
        """Whether the peer was ever allowed the message whose first piece came: memory goes with credit."""
        if self.open_credit > 0:
            return pn_link_credit(self.link) > 0
        return self.account is None or self.account.outstanding + self.account.withdrawn > 0

    cdef object whole(self, void *delivery, bytes data):
        cdef bint settled = pn_delivery_settled(delivery)
        cdef long bits = scan(data)
        self.received += 1
        self.connection.received += 1
        if bits < 0:
            self.malformed(delivery, len(data), settled)
            return
        if bits & constants.MAY_BE_DELAYED and self.is_delayed(delivery, data, len(data), settled):
            return
        if self.open_credit > 0 and pn_link_credit(self.link) <= 0:
            self.oversent()
            drop_delivery(self.connection, self.link, delivery)
            return
        pn_link_advance(self.link)
        if bits & constants.HAS_DELIVERY_NOTES:
            data = _message.without_delivery_annotations(data)
        self.take(delivery, data, bits, settled)

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        cdef long code = self.engine.arrive(self.node, self.account, data, bits, settled)
        self.apply_result(delivery, code, data, bits, settled, self.node, self.account)

    cdef object apply_result(self, void *delivery, long code, bytes data, long bits, bint settled,
                        Node node, ProducerCredit account):
        cdef PendingDelivery held
        if code == constants.ACCEPTED:
            if settled:
                pn_delivery_settle(delivery)
            else:
                pn_delivery_update(delivery, STATE_ACCEPTED)
                if not self.second:
                    pn_delivery_settle(delivery)
                else:
                    self.await_settlement()
        elif code == constants.STORING:
            if settled:
                pn_delivery_settle(delivery)
            else:
                self.until_stored(delivery)
        elif code == constants.OVERSENT:
            self.oversent()
            reject_late(self.connection, self.link, delivery)
            return
        elif code == constants.HOLD:
            held = PendingDelivery()
            held.bits = bits
            held.node = node
            held.account = account
            self.hold(held, delivery)
            self.kept += 1
            self.engine.hold_settlement(node, account, held)
        elif code == constants.PARK:
            held = PendingDelivery()
            held.data = data
            held.bits = bits
            held.node = node
            held.account = account
            held.settled = settled
            if bits >> constants.LARGE_SHIFT:
                held.body = self.engine.large.of(bits)
            self.kept += 1
            if settled:
                pn_delivery_settle(delivery)
            else:
                self.hold(held, delivery)
            self.engine.park(node, account, held, len(data) + self.engine.large.size_of(bits), settled)
        elif settled:
            # Nothing can be told of a pre-settled message, so the link ends rather than lose it silently.
            self.fail_for(delivery, "amqp:resource-limit-exceeded", f"'{node.name}' is at its hard limit")
            return
        else:
            self.outcome(delivery, code)
        if self.open_credit > 0:
            self.renew_open()
        elif pn_link_credit(self.link) < 0:
            # A message on revoked credit took it below 0, which the next flow frame would tell the
            # peer as 4,294,967,295.
            pn_link_flow(self.link, 1)

    cdef object outcome(self, void *delivery, long code):
        if pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)
            return
        if code == constants.STORING:
            self.until_stored(delivery)
            return
        if code != constants.ACCEPTED:
            self.reject(delivery, REFUSED_NAME, b"the queue is full")
            return
        pn_delivery_update(delivery, STATE_ACCEPTED)
        if not self.second:
            pn_delivery_settle(delivery)
        else:
            self.await_settlement()

    cdef object reject(self, void *delivery, bytes name, bytes text):
        cdef void *condition
        if self.refusal == STATE_REJECTED:
            condition = pn_disposition_condition(pn_delivery_local(delivery))
            pn_condition_set_name(condition, name)
            pn_condition_set_description(condition, text)
        elif self.refusal == 0:
            self.fail_for(delivery, name.decode(), text.decode())
            return
        elif self.refusal == STATE_MODIFIED:
            pn_disposition_set_failed(pn_delivery_local(delivery), True)
        pn_delivery_update(delivery, self.refusal)
        if not self.second:
            pn_delivery_settle(delivery)
        else:
            self.await_settlement()

    cdef object malformed(self, void *delivery, long size, bint settled):
        self.decline(delivery, size, settled, b"amqp:decode-error", b"the message's sections are malformed")

    cdef bint is_delayed(self, void *delivery, bytes data, long size, bint settled) except -1:
        """Whether the sender wants it delivered later, which is refused: at once would be wrong, too."""
        cdef long now_ms = (self.engine.epoch_ns + self.engine.now_ns) // 1000000
        cdef bytes name = _message.delay_of(data, now_ms)
        if not name:
            return False
        self.decline(delivery, size, settled, b"amqp:not-implemented",
                     b"delivery can't be delayed, as the message annotation " + name + b" asks for")
        return True

    cdef object decline(self, void *delivery, long size, bint settled, bytes condition, bytes text):
        """The delivery is refused, the smallest scope; a pre-settled one can't be, so the link ends."""
        pn_link_advance(self.link)
        if self.account is not None:
            if self.account.use(size, self.engine.now_ns) == constants.VIOLATION and self.open_credit == 0:
                self.oversent()
                reject_late(self.connection, self.link, delivery)
                return
        self.after_unused()
        if settled:
            self.fail_for(delivery, condition.decode(), text.decode())
            return
        self.reject(delivery, condition, text)

    cdef object forget_pieces(self):
        """What came of a message so far is not held any more, or held as a whole."""
        if self.inflow is not None:
            self.drop_inflow()
        self.chunks = None
        self.engine.memory.depth_bytes -= self.partial_bytes
        if self.connection.budget is not None:
            self.connection.budget.hold(0, -self.partial_bytes)
        self.partial_bytes = 0
        self.look_again = self.most_held

    cdef object aborted(self, void *delivery):
        self.forget_pieces()
        pn_delivery_settle(delivery)
        if self.account is not None:
            self.account.use(0, self.engine.now_ns)
        self.after_unused()

    cdef object after_unused(self):
        """Credit was used up by something that is no message of the node's: renew it."""
        if pn_link_credit(self.link) < 0:
            pn_link_flow(self.link, 1)
        if self.open_credit > 0:
            self.renew_open()
        elif self.account is not None and self.account.outstanding <= self.account.low:
            self.node.ledger.renew(self.account, self.engine.now_ns)
        if self.node is not None:
            self.engine.mark_dirty(self.node)

    cdef object peer_settled(self, void *delivery):
        cdef void *context = pn_delivery_get_context(delivery)
        if context != NULL:
            # Held: the peer no longer asks for the outcome, the message is still taken in its turn.
            self.let_go(<PendingDelivery>context)
        else:
            self.unwritten.discard(delivery)
            if self.unconfirmed > 0:
                self.unconfirmed -= 1
        pn_delivery_settle(delivery)

    cdef object oversent(self):
        self.fail("amqp:link:transfer-limit-exceeded", "more transfers than credit was ever granted for")

    cpdef object fail(self, str condition, str text):
        """Detach this link with an error; what still arrives on it is discarded."""
        self.dead = True
        self.forget_pieces()
        self.connection.owner.detach(self, condition, text)
        self.connection.mark_dirty()

    cdef object fail_for(self, void *delivery, str condition, str text):
        """Detach this link for one delivery, and say which: no outcome can tell of it."""
        cdef pn_bytes_t tag = pn_delivery_tag(delivery)
        cdef bytes name = tag.start[:tag.size] if tag.size > 0 else b""
        self.dead = True
        if pn_delivery_settled(delivery):
            # Else it stays unsettled: some clients read a settlement without an outcome as success.
            pn_delivery_settle(delivery)
        self.forget_pieces()
        self.connection.owner.detach(self, condition, text, {symbol("delivery-tag"): name})
        self.connection.mark_dirty()

    def shut(self):
        """The link is gone: reservations go back, what was parked is forgotten."""
        self.dead = True
        self.forget_pieces()
        self.unwritten.clear()
        for held in list(self.holding):
            self.let_go(held)
        pn_link_set_context(self.link, NULL)
        self.connection.links.discard(self)
        self.close_accounts()

    def close_accounts(self):
        if self.account is not None:
            self.close_account(self.node, self.account)

    cdef object close_account(self, Node node, ProducerCredit account):
        """Pre-settled messages are the broker's since they came: parked ones keep their place in line."""
        cdef PendingDelivery held
        self.engine.forget_held(node, account)
        for parked, _, _ in list(account.parked):
            held = parked
            if not held.settled:
                account.unpark(held)
        if account.parked and not node.deleted:
            node.ledger.orphan(account, self.engine.now_ns)
            self.engine.mark_dirty(node)
        else:
            self.engine.close_producer(node, account)

    def credit(self):
        """The credit that stands, as Proton counts it."""
        return pn_link_credit(self.link) - pn_link_queued(self.link)

    def handle(self):
        """The address of the pn_link_t."""
        return <size_t>self.link


cdef class RelayLink(ProducerLink):
    """The anonymous relay: each message goes to the node its ``to`` names.

    ``resolve`` takes an address and answers with a node or raises PeerError. The link has an
    account at every node it sent to, made when it is first needed.
    """

    cdef object resolve
    cdef dict accounts

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size, object resolve):
        ProducerLink.__init__(self, connection, link, engine, name, max_size)
        self.resolve = resolve
        self.accounts = {}

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        cdef ProducerCredit account
        cdef Node node
        cdef long code
        address = _message.address_of(data)
        entry = self.accounts.get(address)
        if entry is None or (<Node>entry[0]).deleted:
            entry = self.open_account(delivery, address, settled)
            if entry is None:
                return
        node = entry[0]
        account = entry[1]
        code = self.engine.arrive(node, account, data, bits, settled)
        self.apply_result(delivery, code, data, bits, settled, node, account)

    cdef object open_account(self, void *delivery, str address, bint settled):
        try:
            node = self.resolve(address)
        except Exception as fault:
            name = getattr(fault, "condition", "amqp:not-found")
            text = getattr(fault, "description", str(fault))
            # Anonymous terminus for message routing, §2.2.2: who can't be told by `rejected` is told by a detach.
            if settled or self.refusal != STATE_REJECTED:
                self.fail_for(delivery, name, text)
                return None
            self.reject(delivery, name.encode(), text.encode())
            self.renew_open()
            return None
        entry = (node, self.engine.open_producer(node, self, False, self.connection.budget))
        entry[1].origin = self.connection.owner
        if len(self.accounts) >= 1000:
            self.forget_idle()
        self.accounts[address] = entry
        return entry

    cdef object forget_idle(self):
        for address, (node, account) in list(self.accounts.items()):
            if not account.parked:
                self.engine.close_producer(node, account)
                del self.accounts[address]

    def open_accounts(self):
        """The nodes it sent to and its account at each."""
        return list(self.accounts.values())

    def close_accounts(self):
        for node, account in self.accounts.values():
            self.close_account(node, account)
        self.accounts.clear()


cdef class SinkLink(ProducerLink):
    """A link whose messages go to a function, not to a queue (the management node).

    ``sink(data, done)`` says whether it has taken the message: without ``done`` it has then dealt with it, with it
    it calls that when it has.
    """

    cdef object sink

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size, object sink):
        ProducerLink.__init__(self, connection, link, engine, name, max_size)
        self.sink = sink
        # A function takes whole messages; max_size bounds them.
        self.most_held = self.look_again = constants.UNBOUNDED

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        cdef PendingDelivery held
        if self.sink(data, None):
            self.outcome(delivery, constants.ACCEPTED)
            self.renew_open()
            return
        held = PendingDelivery()
        if settled:
            pn_delivery_settle(delivery)
        else:
            self.hold(held, delivery)
        self.kept += 1
        if not self.sink(data, lambda: self.handled(held)):
            self.fail("amqp:resource-limit-exceeded", "too many requests wait already")

    def handled(self, PendingDelivery held):
        """A request that waited has been answered."""
        if not self.dead:
            self.release_held(held, constants.ACCEPTED)


cdef class ConsumerLink(Consumer):
    """A link on which the broker sends. An unsettled message has a slot; its delivery tag is the slot."""

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, Node node, Window window, str name,
                 bint presettled, int channel):
        Consumer.__init__(self)
        self.channel = channel
        self.connection = connection
        self.link = <void *>link
        self.session = pn_link_session(self.link)
        self.engine = engine
        self.node = node
        self.window = window
        window.owner = self
        self.name = name
        self.started = False
        self.presettled = presettled
        self.attached_ns = engine.now_ns
        self.slots = []
        self.free = []
        self.unwritten = AwaitingSync()
        connection.numbered += 1
        self.id = f"{connection.owner.id}.{connection.numbered}"
        connection.links.add(self)
        pn_link_set_context(self.link, <void *>self)

    cpdef long capacity(self) except -1:
        cdef long room = self.link_capacity()
        if room > 0 and self.connection.shared is not None and not self.presettled:
            room = min(room, self.connection.shared.room(self.window))
            if room == 0:
                self.connection.await_turn()
        return room

    cpdef long wanted(self) except -1:
        """How many it could be sent now if the connection's window weren't there."""
        cdef long room = self.link_capacity()
        if room <= 0:
            return 0
        if self.reader is not None:
            return room if self.node.queue.has_more(self.reader) else 0
        return min(room, self.node.queue.ready)

    cdef long link_capacity(self) except -1:
        """Its capacity, but for the connection's window."""
        cdef long room
        cdef long unsent
        cdef long limit
        cdef long mean
        if self.dead or self.connection.blocked or self.connection.parting or self.outflow is not None:
            return 0
        room = pn_link_credit(self.link)
        if room <= 0:
            return 0
        if not self.presettled:
            room = min(room, self.window.own_room())
        limit = self.connection.session_output
        unsent = self.connection.unsent_of(self.session, limit)
        if unsent >= limit:
            return 0
        mean = self.node.mean_bytes()
        if mean > LARGE_ENOUGH:
            # About as many as fill what may wait for the socket.
            room = min(room, 1 + (limit - unsent) // mean)
        return min(room, MOST_PER_DISPATCH)

    cpdef object send(self, Entry entry):
        cdef bytes data = entry.data
        cdef pn_bytes_t tag
        cdef void *delivery
        cdef uint32_t number
        cdef bint large = False
        if entry.redelivered or entry.delivery_count > 0 or entry.extra is not None:
            large = entry.extra is not None and entry.extra.body is not None
            data = rewritten(entry, self.engine.now_ns)
        if self.presettled:
            self.next_tag += 1
            number = self.next_tag & MOST_TAGS
        elif self.free:
            number = self.free.pop()
            self.slots[number] = entry
        else:
            number = len(self.slots)
            self.slots.append(entry)
        number = tag_of(number)
        tag.size = 4
        tag.start = <const char *>&number
        delivery = pn_delivery(self.link, tag)
        pn_link_send(self.link, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if large:
            self.begin_stream(entry, delivery)
            return
        pn_link_advance(self.link)
        self.node.delivered += 1
        self.delivered += 1
        self.connection.sent += 1
        self.served_ns = self.engine.now_ns
        if self.presettled:
            pn_delivery_settle(delivery)
            if not self.browses:
                self.engine.acknowledge(self.node, entry)
        else:
            self.in_flight += 1
            self.window.sent()
            if self.pace is not None:
                self.pace.sent(self.engine.now_ns)
        self.connection.mark_dirty()

    # --- large messages: from a file, a little at a time

    cdef object begin_stream(self, Entry entry, void *delivery):
        """What stands before the body is sent; the link is taken until the rest is (§2.6.14)."""
        self.left = 0
        self.streaming = delivery
        self.streamed = entry
        self.outflow = self.engine.large.send(entry.extra.body, self.on_block)
        self.connection.streams.append(self)
        self.node.delivered += 1
        self.connection.sent += 1
        if not self.presettled:
            self.in_flight += 1
            self.window.sent()
            if self.pace is not None:
                self.pace.sent(self.engine.now_ns)
        self.connection.mark_dirty()

    def on_block(self):
        """More of it has been read, or can't be."""
        cdef object fault
        if self.outflow is None:
            return
        fault = self.outflow.fault
        if fault is None:
            self.connection.mark_dirty()
            return
        pn_delivery_abort(self.streaming)
        self.connection.owner.detach(self, "amqp:internal-error", f"the message can't be read: {fault}")

    cdef object stream(self):
        cdef bytes block
        cdef long limit = min(<long>STREAM_BYTES, self.connection.session_output)
        while self.connection.unsent_of(self.session, limit) < limit:
            block = self.outflow.next()
            if block is None:
                return
            if not block:
                self.end_stream()
                return
            pn_link_send(self.link, PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block))

    cdef object end_stream(self):
        cdef Entry entry = self.streamed
        pn_link_advance(self.link)
        self.delivered += 1
        if self.presettled:
            pn_delivery_settle(self.streaming)
        self.drop_stream()
        if self.presettled and not self.browses:
            self.engine.acknowledge(self.node, entry)
        self.engine.mark_dirty(self.node)

    cdef object drop_stream(self):
        self.outflow.close()
        self.outflow = None
        self.streaming = NULL
        self.streamed = None
        self.connection.streams.remove(self)

    cdef object on_updated(self, void *delivery):
        cdef uint64_t state
        cdef pn_bytes_t tag
        cdef uint32_t number
        cdef Entry entry
        if not pn_delivery_updated(delivery):
            return
        state = pn_delivery_remote_state(delivery)
        if (state == 0 or state == STATE_RECEIVED) and not pn_delivery_settled(delivery):
            return
        if self.dead or self.presettled:
            pn_delivery_settle(delivery)
            return
        tag = pn_delivery_tag(delivery)
        number = slot_of((<uint32_t *>tag.start)[0]) if tag.size == 4 else MOST_TAGS
        if number >= len(self.slots):
            # Proton takes a transfer on a link the peer receives on for a delivery of ours.
            pn_delivery_settle(delivery)
            return
        entry = self.slots[number]
        if entry is None:
            # A second word on what waits to be confirmed: the peer forgets it before we have told it.
            if pn_delivery_settled(delivery):
                self.unwritten.discard(delivery)
                self.free_slot(delivery, number)
            return
        self.slots[number] = None
        self.in_flight -= 1
        self.settled += 1
        self.settled_ns = self.engine.now_ns
        self.window.settled()
        if self.pace is not None:
            self.pace.settled(self.engine.now_ns)
        if self.connection.shared is not None:
            self.connection.await_turn()
        if self.browses:
            # It took nothing: whatever it says of a copy changes nothing.
            self.free_slot(delivery, number)
            self.connection.mark_dirty()
            self.engine.mark_dirty(self.node)
            return
        if state == STATE_ACCEPTED or state == 0 or state == STATE_RECEIVED:
            # Settled without an outcome counts as accepted, as with qpidd and Artemis.
            self.engine.acknowledge(self.node, entry)
        else:
            self.settle_as(delivery, entry, state)
        if delivery == self.streaming:
            # It has its answer before all of it was sent: the rest needn't be.
            self.free.append(number)
            self.delivered += 1
            pn_delivery_abort(delivery)
            self.drop_stream()
            self.connection.mark_dirty()
            self.engine.mark_dirty(self.node)
        elif entry.durable and not pn_delivery_settled(delivery):
            self.until_stored(delivery)
        else:
            self.free_slot(delivery, number)
            self.connection.mark_dirty()
        if self.node.queue.ready > 0 or self.node.queue.gap:
            self.engine.mark_dirty(self.node)

    cdef long sample(self, long now_ns, double seconds) except -1:
        """Its rate since the last time; SLOWED or RECOVERED of slow.py, or 0."""
        cdef long count = self.delivered if self.presettled else self.settled
        cdef long found = 0
        self.rate = (count - self.sampled) / seconds
        self.sampled = count
        if self.pace is not None and self.window.unsettled > 0:
            self.pace.look(now_ns)
            self.engine.mark_dirty(self.node)
        if self.watch is not None and not self.browses:
            found = self.watch.look(now_ns, count, self.has_work())
            self.slow = self.watch.slow
        return found

    cdef bint has_work(self) except -1:
        """Whether it holds messages, or holds some up by having no credit or by not reading."""
        if self.in_flight > 0:
            return True
        if self.node.queue.ready == 0 and (self.reader is None or not self.node.queue.gap):
            return False
        if self.node.single_active and self.node.consumers[0] is not self:
            return False
        if self.reader is not None and not self.node.queue.has_more(self.reader):
            return False
        return self.link_capacity() == 0

    cdef object confirm(self, void *delivery):
        """Settle on our side; its slot, and with it the tag, is free again."""
        cdef pn_bytes_t tag = pn_delivery_tag(delivery)
        self.free_slot(delivery, slot_of((<uint32_t *>tag.start)[0]))

    cdef object free_slot(self, void *delivery, long number):
        self.free.append(number)
        pn_delivery_settle(delivery)

    cdef object until_stored(self, void *delivery):
        """A peer that waits for our settlement gets it once what it settled is on disk."""
        cdef long group = self.engine.storing.last_group()
        if self.group != group:
            self.group = self.engine.wait_for_disk(self)
        self.unwritten.push(delivery, group)

    cpdef object stored(self, long group):
        cdef void *delivery
        if self.dead:
            return
        while True:
            delivery = self.unwritten.pop(group)
            if delivery == NULL:
                break
            self.confirm(delivery)
        self.connection.mark_dirty()

    cdef object settle_as(self, void *delivery, Entry entry, unsigned long state):
        cdef void *remote = pn_delivery_remote(delivery)
        cdef Node node = self.node
        if state == STATE_REJECTED:
            self.engine.reject(node, entry)
        elif state == STATE_MODIFIED:
            node.modified += 1
            if not node.deleted:
                if pn_disposition_is_undeliverable(remote):
                    node.queue.forbid(entry, self)
                self.connection.owner.annotate(<size_t>delivery, entry)
            self.engine.requeue(node, entry, pn_disposition_is_failed(remote))
        else:
            node.released += 1
            self.engine.requeue(node, entry, False)

    def answer_drain(self):
        """Give a draining peer the credit back that nothing is there for (AMQP 1.0 §2.6.7).

        False if messages are still on their way to it: ask again when they are written.
        """
        cdef int given_back, queued
        if not self.dead and pn_link_get_drain(self.link):
            queued = pn_link_queued(self.link)
            # A drain may take the credit back (link-credit 0): what waits to be written has none any more.
            if self.connection.blocked or self.outflow is not None or (queued > 0 and self.link_credit() > 0):
                return False
            if self.capacity() > 0 and self.has_more():
                return False
            # Proton would give back less than nothing where the drain crossed messages.
            given_back = pn_link_drained(self.link) if pn_link_credit(self.link) > 0 else 0
            self.drained += given_back
            if given_back == 0:
                # Proton says nothing where there was no credit left, and a peer may wait for the word.
                self.echo = True
            self.connection.mark_dirty()
        if self.echo and self.connection.blocked and not self.dead:
            # It reads none of our answers: they would pile up.
            return False
        self.draining = False
        if self.echo and not self.dead:
            self.echo = False
            self.answer_echo()
        return True

    cdef bint has_more(self):
        """Whether there is something for it that it has not been sent, though it has credit."""
        if self.node.single_active and not self.browses and self.node.consumers[0] is not self:
            return False
        if self.reader is not None:
            # Where nothing is ready what it hasn't looked at is others', for as long as they like.
            if self.node.queue.ready == 0 and not self.node.queue.gap and not self.browses:
                return False
            if not self.node.queue.has_more(self.reader):
                return False
            if not self.reader.waits:
                self.engine.mark_dirty(self.node)
            return True
        if self.node.queue.gap:
            # More is on its way from disk.
            return True
        if self.node.queue.ready > 0 and self.node.queue.picky == 0:
            self.engine.mark_dirty(self.node)
            return True
        return False

    def answer_echo(self):
        """Tell the peer this link's flow state, with how many messages are available to it."""
        answer = self.connection.book.flow_frame(self.channel, self)
        if answer is not None:
            self.connection.send_performative(answer[0], answer[1])

    def delivery_count(self):
        """The link's delivery-count on the wire: what was sent, and credit that was drained."""
        return self.delivered - pn_link_queued(self.link) + self.drained

    def drains(self):
        """Whether the peer has asked for its credit to be used up."""
        return bool(pn_link_get_drain(self.link))

    def link_credit(self):
        """The link-credit that goes with ``delivery_count``; not less than nothing, though Proton counts on."""
        return max(pn_link_credit(self.link) + pn_link_queued(self.link), 0)

    cdef bint unsent(self):
        """Whether something of it waits for the peer's window or the socket."""
        return pn_link_queued(self.link) > 0 or (self.streaming != NULL and pn_delivery_pending(self.streaming) > 0)

    cpdef object close(self):
        """The link is gone: what it held goes back to its place. Of what its peer was sent, the first counts as
        a failed delivery: that is where a peer that takes them in order was. At a stop none does.
        """
        cdef Entry entry, first
        if self.connection.leaked_bytes is None and self.unsent():
            self.connection.leaked_bytes = {}
        self.dead = True
        first = None if self.engine.winding_down else self.first_unsettled()
        if self.outflow is not None:
            if self.presettled and not self.browses:
                self.engine.requeue(self.node, self.streamed, not self.engine.winding_down)
            self.drop_stream()
        pn_link_set_context(self.link, NULL)
        self.connection.links.discard(self)
        for entry in self.slots:
            if entry is not None:
                self.window.settled()
                if entry is first and not self.browses:
                    self.engine.requeue(self.node, entry, True)
                elif not self.browses:
                    self.engine.spare(self.node, entry)
        self.slots = []
        self.free = []
        self.unwritten.mark()
        self.unwritten.clear()
        self.in_flight = 0
        if self.connection.shared is not None:
            self.connection.shared.leave(self.window)
            self.connection.await_turn()
        self.window.owner = None

    cdef Entry first_unsettled(self):
        """What was sent first of all that has no outcome yet; None if nothing is out."""
        cdef pn_bytes_t tag
        cdef uint32_t number
        cdef void *delivery = pn_unsettled_head(self.link) if self.in_flight > 0 else NULL
        while delivery != NULL:
            tag = pn_delivery_tag(delivery)
            number = slot_of((<uint32_t *>tag.start)[0]) if tag.size == 4 else MOST_TAGS
            if number < len(self.slots) and self.slots[number] is not None:
                return self.slots[number]
            delivery = pn_unsettled_next(delivery)
        return None

    def shut(self):
        """The link is gone; its node stops sending to it."""
        self.close()
        if self.browses:
            self.engine.remove_browser(self.node, self)
        else:
            self.engine.remove_consumer(self.node, self)

    def unsent_bytes(self):
        """Encoded bytes of its session that wait for the socket."""
        return self.connection.unsent_of(self.session, self.connection.session_output)

    def is_choked(self):
        """Whether it is sent nothing because its peer doesn't read."""
        limit = self.connection.session_output
        unsent = self.connection.unsent_of(self.session, limit)
        return bool(self.connection.blocked or unsent >= limit)

    def is_streaming(self):
        """Whether a large message is on its way out."""
        return self.outflow is not None

    def credit(self):
        """The credit the peer has given and not used."""
        return pn_link_credit(self.link)

    def handle(self):
        """The address of the pn_link_t."""
        return <size_t>self.link


cdef enum:
    MOST_TAGS = (1 << 24) - 1


cdef inline uint32_t tag_of(uint32_t slot) noexcept:
    """Four bytes from '0' to 'o', six bits each: some clients read a tag as text."""
    return 0x30303030 + ((slot & 0x3F) | (slot & 0xFC0) << 2 | (slot & 0x3F000) << 4 | (slot & 0xFC0000) << 6)


cdef inline uint32_t slot_of(uint32_t tag) noexcept:
    tag -= 0x30303030
    return (tag & 0x3F) | (tag >> 2 & 0xFC0) | (tag >> 4 & 0x3F000) | (tag >> 6 & 0xFC0000)


cdef bint is_untouched(Entry entry):
    return not (entry.redelivered or entry.delivery_count or entry.extra.annotations or entry.extra.expires_ns)


cdef bytes rewritten(Entry entry, long now_ns):
    cdef long left_ms = -1
    data = entry.data
    if entry.extra is not None and entry.extra.body is not None and is_untouched(entry):
        return data
    if entry.extra is not None and entry.extra.annotations:
        data = _message.with_annotations(data, entry.extra.annotations)
    if entry.extra is not None and entry.extra.expires_ns:
        left_ms = max((entry.extra.expires_ns - now_ns) // 1000000, 0)
    return _message.with_delivery(data, entry.delivery_count, entry.redelivered, 0, left_ms, True)
