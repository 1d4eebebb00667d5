"""Messages put together from the transfers of one link, large ones in a file.

A piece counts in memory and in its connection's budget from its arrival on.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from broker cimport constants
from broker.amqp.links.proton cimport *
from broker.codec.bodyscan cimport SHORT, body_start
from broker.codec.message cimport scan

from broker.codec import message as _message

cdef enum:
    # A piece of a message that is less than this is put to the one before it: an object of its own takes more.
    SMALL_PIECE = 512


cdef class AssemblingLink(IncomingLink):
    """A link whose deliveries become messages."""

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size):
        self.connection = connection
        self.link = <void *>link
        self.engine = engine
        self.name = name
        self.max_size = max_size
        self.most_held = self.look_again = engine.large.most
        connection.numbered += 1
        self.id = f"{connection.owner.id}.{connection.numbered}"
        connection.links.add(self)
        pn_link_set_context(self.link, <void *>self)

    # --- for the class that knows credit and outcomes

    cdef object on_message(self, void *delivery, bytes data, long bits, long size):
        """Take a whole message of ``size`` bytes; ``bits`` are ``scan``'s, below 0 where it is malformed.

        Of a large message ``data`` is all that stands before its body, and ``bits`` bear the body's number.
        """
        raise NotImplementedError

    cdef object on_aborted(self):
        """Renew the credit that a delivery used up which was aborted."""
        raise NotImplementedError

    cdef object peer_settled(self, void *delivery):
        """Settle a delivery that the peer has settled."""
        raise NotImplementedError

    cdef object on_read(self, bint lost):
        """Look again at what waits for messages behind a large one: it is taken in, or ``lost``."""
        raise NotImplementedError

    cdef bint may_begin(self) except -1:
        """Return whether the peer was ever allowed the message whose first piece came: memory goes with credit."""
        raise NotImplementedError

    cdef object oversent(self):
        """Detach the link: its peer sent more than it had credit for."""
        raise NotImplementedError

    cpdef object fail(self, str condition, str text):
        """Detach the link with an error."""
        raise NotImplementedError

    # --- in memory

    cdef object on_delivery(self, void *delivery):
        cdef size_t pending
        cdef bytes data
        cdef long bits, size
        if self.dead:
            self.connection.drop_delivery(self.link, delivery)
            return
        if self.inflow is not None:
            self.on_large_piece(delivery)
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
            self.too_large(delivery)
            return
        if pn_delivery_partial(delivery) and pending == 0:
            return
        data = self.received_bytes(pending)
        if pn_delivery_partial(delivery):
            self.on_piece(delivery, data)
            return
        if self.chunks is not None:
            self.chunks.append(data)
            data = b"".join(self.chunks)
            self.forget_pieces()
        bits = scan(data)
        size = len(data)
        if bits >= 0 and bits & constants.HAS_DELIVERY_NOTES:
            data = _message.without_delivery_annotations(data)
        self.on_message(delivery, data, bits, size)

    cdef object on_piece(self, void *delivery, bytes data):
        """Keep the piece of a message whose rest is still to come."""
        if self.chunks is None:
            if not self.may_begin():
                self.oversent()
                return
            self.chunks = []
        self.partial_bytes += len(data)
        self.engine.depths.memory.depth_bytes += len(data)
        self.gather(data)
        if self.connection.budget is not None:
            self.connection.budget.hold(0, len(data))
            self.connection.budget.trim(self.engine.turn.now_ns)
            self.engine.credit.budgets_in_demand[self.connection.budget] = None
        if self.engine.depths.memory.stop_bytes and self.engine.depths.memory.depth_bytes > self.engine.depths.memory.stop_bytes:
            # Nothing else bounds messages that never end.
            self.fail("amqp:resource-limit-exceeded", "the broker's memory_limit leaves no room for the rest")
        elif self.connection.budget is not None and self.is_too_much():
            self.fail("amqp:resource-limit-exceeded",
                      "the connection's connection_memory_limit leaves no room for the rest")
        elif self.partial_bytes > self.look_again:
            self.go_large(delivery)

    cdef object gather(self, bytes data):
        """Put a piece to those that came before."""
        if len(data) >= SMALL_PIECE:
            self.chunks.append(data)
        elif self.chunks and isinstance(self.chunks[len(self.chunks) - 1], bytearray):
            (<bytearray>self.chunks[len(self.chunks) - 1]).extend(data)
        else:
            self.chunks.append(bytearray(data))

    cdef bytes received_bytes(self, size_t size):
        """Take bytes of the current delivery from Proton."""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
        if size > 0:
            pn_link_recv(self.link, PyBytes_AS_STRING(data), size)
        return data

    cdef object too_large(self, void *delivery):
        """Detach the link for a message that is larger than it may be."""
        self.fail("amqp:link:message-size-exceeded",
                  f"the message is larger than max-message-size, {self.max_size} bytes")
        self.connection.drop_delivery(self.link, delivery)

    cdef bint is_too_much(self):
        """Whether the connection holds too much, and other messages than this one: one alone may be large."""
        return (self.connection.budget.is_overdrawn()
                and self.connection.budget.gate.depth_bytes > self.partial_bytes)

    cdef object forget_pieces(self):
        """Give back the memory of a message's pieces: it is whole now, or given up."""
        if self.inflow is not None:
            self.drop_inflow()
        self.chunks = None
        self.engine.depths.memory.depth_bytes -= self.partial_bytes
        if self.connection.budget is not None:
            self.connection.budget.hold(0, -self.partial_bytes)
        self.partial_bytes = 0
        self.look_again = self.most_held

    cdef object aborted(self, void *delivery):
        """The peer has given up a delivery it had begun."""
        self.forget_pieces()
        pn_delivery_settle(delivery)
        self.on_aborted()

    # --- in a file

    cdef object go_large(self, void *delivery):
        """Begin a file for the body of a message of which memory should hold no more."""
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

    cdef object on_large_piece(self, void *delivery):
        """Take more of a large message; messages behind it on this link wait."""
        cdef size_t pending
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
            self.too_large(delivery)
            return
        if pending > 0:
            self.feed(self.received_bytes(pending))
        if not self.dead and not pn_delivery_partial(delivery):
            self.inflow.end()
            if self.inflow.done:
                self.end_large()
                self.on_read(False)

    cdef bint is_unread(self, void *delivery):
        """Whether a delivery is the link's current one or stands behind it."""
        cdef void *waiting = pn_link_current(self.link)
        while waiting != NULL and waiting != delivery:
            waiting = pn_unsettled_next(waiting)
        return waiting != NULL

    cdef object feed(self, bytes data):
        """Hand bytes of a large message's body to its file."""
        self.inflow.feed(data)
        budget = self.inflow.overdrawn()
        if budget:
            self.fail("amqp:resource-limit-exceeded", f"the broker's {budget} leaves no room for the rest")
        else:
            self.connection.throttle(self.engine)

    def on_told(self):
        """Go on: the disk has taken some of the message or all of it, or can't."""
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
                self.on_read(False)
        except Exception:
            self.fail("amqp:internal-error", "an internal error ended this link")
            raise

    cdef object end_large(self):
        """Hand on a large message, all of which is in its file."""
        cdef object inflow = self.inflow
        cdef void *delivery = self.current
        cdef long bits
        self.inflow = None
        self.current = NULL
        self.connection.inflows.remove(inflow)
        self.connection.throttle(self.engine)
        try:
            bits = -1 if inflow.malformed else inflow.bits
            self.on_message(delivery, inflow.head, bits, inflow.size)
        finally:
            # The node that took the message has its file now; a file that nobody has goes.
            inflow.drop()

    cdef object go_on(self):
        """Take the messages that came behind the large one: their events are long over."""
        cdef void *before = NULL
        cdef void *following
        while not self.dead and self.inflow is None:
            following = pn_link_current(self.link)
            if following == NULL or following == before:
                return
            before = following
            self.on_delivery(following)

    cdef object drop_inflow(self):
        """Give up the large message under way."""
        cdef object inflow = self.inflow
        self.inflow = None
        self.current = NULL
        inflow.drop()
        self.connection.inflows.remove(inflow)
        self.connection.throttle(self.engine)
        self.on_read(True)
