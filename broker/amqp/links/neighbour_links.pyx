"""A cell's own links on a client's connection to another cell: to its anonymous relay, to its coordinator, and
from its management.

A transaction that a client declares here has a part in each other cell that has nodes of its messages. Both cells know
it by one id, so that transfers and outcomes are passed on as they are. A part is declared on the same connection as
they are and before them, and is discharged behind them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from broker.amqp.links.proton cimport *
from broker.amqp.links.transactional cimport tell_transaction

from broker.codec import transactions as _requests

cdef enum:
    # Answers of another cell's management that may be under way to a client's cell; others wait there.
    REPLIES_CREDIT = 20


cdef class NeighbourLink(OutgoingLink):
    """A link on which each message has an outcome that somebody is told."""

    def __init__(self, ConnectionIO connection, size_t link):
        self.connection = connection
        self.link = <void *>link
        self.told = {}
        pn_link_set_context(self.link, <void *>self)

    def shut(self):
        """End: nobody is told anything any more."""
        if self.link != NULL:
            pn_link_set_context(self.link, NULL)
            self.link = NULL
        self.told.clear()

    def pass_message(self, bytes data, object told, bytes transaction=None):
        """Send a message, in a transaction if one is named; ``told(state, condition, text)`` hears its outcome."""
        cdef uint64_t number = self.number
        cdef pn_bytes_t tag
        cdef void *delivery
        if self.link == NULL:
            return
        tag.start = <const char *>&number
        tag.size = sizeof(number)
        self.number += 1
        delivery = pn_delivery(self.link, tag)
        if transaction is not None:
            tell_transaction(delivery, transaction)
            pn_delivery_update(delivery, STATE_TRANSACTIONAL)
        pn_link_send(self.link, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        pn_link_advance(self.link)
        self.told[number] = told
        self.connection.mark_dirty()

    cdef object on_flow(self):
        """Proton sends what waits."""

    cdef object on_updated(self, void *delivery):
        cdef uint64_t state = pn_delivery_remote_state(delivery)
        cdef pn_bytes_t tag
        cdef void *condition
        if not pn_delivery_settled(delivery):
            return
        tag = pn_delivery_tag(delivery)
        told = self.told.pop((<const uint64_t *>tag.start)[0], None)
        condition = pn_disposition_condition(pn_delivery_remote(delivery)) if state == STATE_REJECTED else NULL
        name = text = b""
        if condition != NULL:
            name = text_of(pn_condition_get_name(condition))
            text = text_of(pn_condition_get_description(condition))
        pn_delivery_settle(delivery)
        if told is not None:
            told(state, name, text)


cdef class NeighbourRelay(NeighbourLink):
    """A link to another cell's anonymous relay, for messages that name a node there.

    They wait in Proton for credit of that cell: the client's own link to the relay bounds how many.
    """


cdef class NeighbourCoordinator(NeighbourLink):
    """A link to the coordinator of ``cell``, another one than the client's ``own``.

    ``on_ready`` is called once that takes requests, of which it always takes more than there are.
    """

    def __init__(self, ConnectionIO connection, size_t link, int own, int cell, object on_ready):
        NeighbourLink.__init__(self, connection, link)
        self.own = own
        self.cell = cell
        self.on_ready = on_ready

    def shut(self):
        """End: nobody is told anything any more."""
        NeighbourLink.shut(self)
        self.on_ready = None

    cdef object on_flow(self):
        if not self.is_ready and pn_link_credit(self.link) > 0:
            self.is_ready = True
            if self.on_ready is not None:
                self.on_ready()

    cpdef TransactionPart part_of(self, Transaction transaction):
        """Return the part of a transaction in this cell, declared there if there was none."""
        cdef TransactionPart part
        if transaction.parts is None:
            transaction.parts = []
        for each in transaction.parts:
            part = each
            if part.coordinator is self:
                return part
        part = TransactionPart(self, transaction)
        transaction.parts.append(part)
        if self.link == NULL or (self.is_ready and pn_link_credit(self.link) <= 0):
            # A message would overtake its declaration.
            transaction.fail(f"cell {self.cell}, which has nodes of its messages, takes no transactions now")
        self.pass_message(_requests.declare(transaction.name), part.declared)
        return part


cdef class TransactionPart:
    """The part that a transaction has in another cell."""

    def __init__(self, NeighbourCoordinator coordinator, Transaction transaction):
        self.coordinator = coordinator
        self.transaction = transaction

    @property
    def cell(self):
        """The cell that it is in."""
        return self.coordinator.cell

    @property
    def own(self):
        """The cell that its client is in."""
        return self.coordinator.own

    def declared(self, unsigned long state, bytes name, bytes text):
        """Hear whether its cell has it."""
        if state != STATE_DECLARED:
            self.transaction.fail(text.decode(errors="replace") or "another cell refused it")

    cdef object add_link(self, PassingLink link):
        """Note a link on which messages of it came."""
        if self.links is None:
            self.links = set()
        self.links.add(link)

    def unpassed(self):
        """Return the links on which messages of it came that aren't on their way to its cell yet."""
        cdef PassingLink each
        if self.links is None or self.coordinator.link == NULL:
            return []
        # Have Proton write all that it can.
        pn_transport_pending(self.coordinator.connection.transport)
        found = []
        for each in self.links:
            if each.has_unpassed(self.transaction):
                found.append(each)
        return found

    def discharge(self, bint fail, object told):
        """End it; ``told(state, condition, text)``, unless None, hears its cell's answer."""
        cdef PassingLink each
        if self.links is not None:
            for each in self.links:
                each.forget_transaction(self.transaction)
            self.links = None
        self.coordinator.pass_message(_requests.discharge(self.transaction.name, fail=fail), told)


cdef class NeighbourReplies(IncomingLink):
    """A link on which another cell's management sends its answers to a client of this one.

    ``deliver(data)`` takes each of them, an encoded message.
    """

    def __init__(self, ConnectionIO connection, size_t link, object deliver):
        self.connection = connection
        self.link = <void *>link
        self.deliver = deliver
        self.pieces = []
        pn_link_set_context(self.link, <void *>self)
        pn_link_flow(self.link, REPLIES_CREDIT)

    def shut(self):
        """End: no answer is taken any more."""
        if self.link != NULL:
            pn_link_set_context(self.link, NULL)
            self.link = NULL
        self.deliver = None
        self.pieces.clear()

    cdef object on_flow(self):
        """The other cell has nothing to say of credit."""

    cdef object on_delivery(self, void *delivery):
        cdef void *current
        cdef bytes piece
        cdef bytes data
        cdef size_t size
        while self.link != NULL:
            current = pn_link_current(self.link)
            if current == NULL:
                return
            size = pn_delivery_pending(current)
            if size > 0:
                piece = PyBytes_FromStringAndSize(NULL, size)
                pn_link_recv(self.link, PyBytes_AS_STRING(piece), size)
                self.pieces.append(piece)
            if pn_delivery_partial(current) and not pn_delivery_aborted(current):
                return
            data = b"" if pn_delivery_aborted(current) else b"".join(self.pieces)
            self.pieces.clear()
            pn_link_advance(self.link)
            pn_delivery_settle(current)
            pn_link_flow(self.link, 1)
            self.connection.mark_dirty()
            if data:
                self.deliver(data)


cdef class PassingLink(IncomingLink):
    """A link on which a client sends messages that go on to another cell."""

    cdef object forget_transaction(self, Transaction transaction):
        """Forget a transaction that ends."""
        raise NotImplementedError

    cdef bint has_unpassed(self, Transaction transaction) except -1:
        """Return whether messages of a transaction aren't written yet; it hears when none is left."""
        raise NotImplementedError


cdef bytes text_of(const char *text):
    return b"" if text == NULL else <bytes>text
