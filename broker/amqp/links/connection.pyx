"""The events of one connection, handed to its links: deliveries and flow frames here, all else to the control plane.

A turn: ``pump_in`` reads a connection and handles its events; the engine ends its turn; ``pump_out`` writes what became
of it. Nothing on the message path decides about credit or order: it tells the engine what happened and does what the
engine asks of its ports.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from broker.amqp.links.link cimport IncomingLink, OutgoingLink
from broker.amqp.links.proton cimport *
from broker.amqp.links.transactional cimport transaction_name
from broker.amqp.links.transport cimport TransportIO
from broker.engine.engine cimport Engine
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.window cimport Shared

import cproton_ffi as _proton

from broker.engine.transaction import OPEN

cdef int EVENT_DELIVERY = _proton.lib.PN_DELIVERY
cdef int EVENT_FLOW = _proton.lib.PN_LINK_FLOW

cdef enum:
    # Deliveries behind a detach that are rejected one by one on a connection; nobody has more under way by mistake.
    MOST_REJECTED_LATE = 10000

# Large messages: bytes of them on a connection that wait for the disk before its socket is left unread, and
# the same while memory is short.
cdef enum:
    WRITING_BYTES = 8 << 20
    SCARCE_BYTES = 1 << 19


cdef class ConnectionIO(TransportIO):
    """One peer's links, and the events of its Proton connection.

    ``control`` takes every event but deliveries and flow frames: ``control(kind, event)``
    with the event's type and address. ``answers`` is the reactor's list of consumer links that owe a flow frame.
    """

    def __init__(self, int fd, size_t transport, size_t collector, object control, list to_flush, list answers):
        TransportIO.__init__(self, fd, transport, to_flush)
        self.collector = <void *>collector
        self.control = control
        self.answers = answers
        self.links = set()
        self.halves = None
        # By session, the bytes that went with their links; None while no link went so.
        self.leaked_bytes = None
        self.inflows = []
        self.streams = []
        self.turns = []
        self.session_output = OUTGOING_BYTES

    # --- events

    cpdef object events(self):
        """Handle every event Proton has collected."""
        cdef void *event
        cdef void *link
        cdef void *delivery
        cdef void *context
        cdef IncomingLink incoming
        cdef OutgoingLink outgoing
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
                    self.drop_delivery(link, delivery)
                elif pn_link_is_sender(link):
                    outgoing = <OutgoingLink>context
                    outgoing.on_updated(delivery)
                else:
                    # A name of its own keeps the link alive if it is detached while it is handled.
                    incoming = <IncomingLink>context
                    incoming.on_delivery(delivery)
            elif kind == EVENT_FLOW:
                self.on_flow(pn_event_link(event))
            else:
                self.control(kind, <size_t>event)
            pn_collector_pop(self.collector)

    cdef object on_flow(self, void *link):
        cdef void *context = pn_link_get_context(link)
        cdef IncomingLink incoming
        cdef OutgoingLink outgoing
        if context == NULL:
            return
        if pn_link_is_sender(link):
            outgoing = <OutgoingLink>context
            outgoing.on_flow()
            return
        incoming = <IncomingLink>context
        incoming.on_flow()
        if self.incoming.echo:
            self.repeat_flow(link)

    cdef object on_written(self):
        """Give Proton more of the large messages that go out here."""
        if self.streams:
            for link in self.streams[:]:
                (<OutgoingLink>link).stream()

    cdef object on_writable(self):
        """Have every link send again that has something to send."""
        for link in self.links:
            if isinstance(link, OutgoingLink):
                (<OutgoingLink>link).on_writable()

    def forget(self):
        """Let go of whoever handles this connection, so that no cycle waits for the collector."""
        self.control = None
        self.owner = None
        self.tap = None

    def skip_event(self):
        """Drop the event whose handling failed, so that it isn't met again."""
        pn_collector_pop(self.collector)

    # --- windows of sessions

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

    def repair_flows(self, size_t session, int channel, long low):
        """Repair Proton's flows for a link of this session, which the broker has detached while its peer may send.

        ``low``: how many frames the session's window has left when it is renewed.
        """
        self.repair_output()
        if self.incoming.window_left(channel) < low:
            # Proton may have meant to renew the window with a flow for that very link; then it never would.
            pn_session_set_incoming_capacity(<void *>session, self.session_bytes)

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
        """Whether a link of the session has something that waits for the peer's window or the socket."""
        for link in self.links:
            if isinstance(link, OutgoingLink) and (<OutgoingLink>link).has_unsent(session):
                return True
        if self.halves is not None:
            for half in self.halves:
                if (<OutgoingLink>half).has_unsent(session):
                    return True
        return False

    cdef object note_leak(self):
        """A link with unsent messages goes: from now on Proton's counts of such bytes are corrected."""
        if self.leaked_bytes is None:
            self.leaked_bytes = {}

    # --- what its links share

    cdef Transaction transaction_at(self, void *delivery):
        """Return the open transaction that the state which the peer gave a delivery names; None if it names none."""
        cdef pn_bytes_t name = transaction_name(delivery)
        cdef Transaction found = self.named
        if self.transactions is None or name.start == NULL:
            return None
        # Most messages name the same one as the message before them.
        if (found is None or found.state != OPEN or <size_t>PyBytes_GET_SIZE(found.name) != name.size
                or memcmp(PyBytes_AS_STRING(found.name), name.start, name.size) != 0):
            found = self.named = self.transactions.get(name.start[:name.size])
        return found

    cdef object fail_transaction(self, void *delivery, str fault):
        """Have the transaction that a delivery's state names fail, if any: its controller may not wait for outcomes."""
        cdef Transaction transaction
        if pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL:
            transaction = self.transaction_at(delivery)
            if transaction is not None:
                transaction.fail(fault)

    cdef object await_turn(self):
        """Have the room of the connection's window dealt out, where there is some and links wait for it."""
        if not self.turning and self.shared.due():
            self.turning = True
            self.turns.append(self)

    def take_turns(self):
        """Deal the room of the connection's window to the links that wait, and have their nodes dispatched."""
        for window in self.shared.deal():
            link = window.owner
            (<OutgoingLink>link).on_window()

    def sample(self, long now_ns, double seconds):
        """Once a second: every consumer's rate; those that have become slow, or aren't any more."""
        changed = []
        for link in list(self.links):
            if isinstance(link, OutgoingLink) and (<OutgoingLink>link).sample(now_ns, seconds):
                changed.append(link)
        return changed

    cdef object throttle(self, Engine engine):
        """Leave the socket unread while the disk has more to write than should be held for it.

        Proton's session window can't do this: it ends the connection of a peer that had sent on when its
        window was taken back (amqp:session:window-violation).
        """
        cdef long waiting = 0, most = WRITING_BYTES
        for inflow in self.inflows:
            # What Proton keeps takes up to twice its room there, and is copied out at once.
            waiting += inflow.writing_bytes + 4 * inflow.unread_bytes
        if engine.depths.memory.stop_bytes and engine.depths.memory.depth_bytes > engine.depths.memory.stop_bytes:
            most = SCARCE_BYTES
        self.paused = waiting > (most >> 1 if self.paused else most)
        self.mark_dirty()

    # --- links that go

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

    cdef object drop_delivery(self, void *link, void *delivery):
        """Free a delivery on a link that was refused or is being detached."""
        if pn_link_is_sender(link):
            # To settle what it says the last word on would confirm that, and the message is back in its queue.
            if pn_delivery_settled(delivery) or pn_delivery_remote_state(delivery) == 0:
                pn_delivery_settle(delivery)
            return
        if pn_delivery_partial(delivery) and not pn_delivery_aborted(delivery):
            discard(link, pn_delivery_pending(delivery))
            return
        self.reject_late(link, delivery)

    cdef object reject_late(self, void *link, void *delivery):
        """Reject a delivery with the error that its link is detached for.

        go-amqp reads all but `rejected` as success, a settlement without an outcome too; of a flood the rest is
        released, in ranges. A source that doesn't offer `rejected` gets what it offers.
        """
        cdef uint64_t refusal = STATE_REJECTED
        self.fail_transaction(delivery, "a message of it came for a link that is detached")
        if self.refusals is not None:
            refusal = self.refusals.get(<size_t>link, STATE_REJECTED)
        if pn_delivery_settled(delivery):
            pass
        elif refusal == 0 and self.rejected_late < MOST_REJECTED_LATE:
            self.rejected_late += 1
            return
        elif refusal != STATE_REJECTED:
            if refusal != 0:
                pn_delivery_update(delivery, refusal)
        elif self.rejected_late < MOST_REJECTED_LATE:
            self.rejected_late += 1
            pn_condition_copy(pn_disposition_condition(pn_delivery_local(delivery)), pn_link_condition(link))
            pn_delivery_update(delivery, STATE_REJECTED)
        else:
            pn_delivery_update(delivery, STATE_RELEASED)
        pn_delivery_settle(delivery)


cdef object discard(void *link, size_t size):
    """Read the next bytes of a link's current delivery, and forget them."""
    cdef char scratch[4096]
    cdef ssize_t n
    while size > 0:
        n = pn_link_recv(link, scratch, 4096 if size > 4096 else size)
        if n <= 0:
            return
        size -= n
