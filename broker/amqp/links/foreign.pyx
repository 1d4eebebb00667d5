"""Links to nodes of other cells: what comes on one is passed to its other half, credit as well as messages.

A client's link and a link to the cell that has its node are two halves of one. Credit is chained one to one: what
the owner grants is granted to the client, what a client grants is granted to the owner, and nothing else is. A message
is passed on in the pieces that it comes in; it isn't read, stored or counted here. Two deliveries that are one know each
other by their contexts, until one of them is settled.

A half is dead once it has ended, and so is its other half then; Proton's link may be gone.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport IncomingLink, OutgoingLink
from broker.amqp.links.proton cimport *
from broker.amqp.links.sending cimport SendingLink

cdef enum:
    PIECE_BYTES = 1 << 14


# Of the greatest size (AMQP 1.0 §2.8.7), as nobody's own is.
cdef bytes NO_TAG = bytes(32)


cdef class NeighbourIO(ConnectionIO):
    """A connection to another cell of this broker, whose client this cell is: its frames need no guard."""

    cdef object pass_tail(self, ssize_t size):
        if size > 0:
            pn_transport_process(self.transport, size)
            self.events()

    cdef object follow_output(self, const uint8_t *at, ssize_t size):
        pass

    cdef object drop_delivery(self, void *link, void *delivery):
        """Leave a delivery of a link that is being detached to its owner, which takes it back with the link."""


cdef class IncomingHalf(IncomingLink):
    """The half on which messages come: they go on by ``other``, as far as that has room."""

    def __init__(self, ConnectionIO connection, size_t link):
        self.connection = connection
        self.link = <void *>link
        pn_link_set_context(self.link, <void *>self)

    def join(self, OutgoingHalf other):
        """Be one link with its other half."""
        self.other = other
        other.other = self

    def shut(self):
        """End: nothing is passed on any more, either way."""
        if self.dead:
            return
        self.dead = True
        forget_deliveries(self.link)
        pn_link_set_context(self.link, NULL)
        if self.other is not None:
            self.other.shut()

    cdef object on_delivery(self, void *delivery):
        cdef void *passed
        if self.dead or self.other is None:
            return
        if pn_delivery_updated(delivery) and pn_delivery_settled(delivery) and not pn_delivery_readable(delivery):
            # Its sender settles last what it has sent.
            passed = pn_delivery_get_context(delivery)
            if passed != NULL:
                copy_state(delivery, passed)
                part(delivery, passed)
                pn_delivery_settle(passed)
                self.other.connection.mark_dirty()
                pn_delivery_settle(delivery)
                return
            if not self.is_unread(delivery):
                pn_delivery_settle(delivery)
                return
        self.pass_on()
        if not self.dead:
            self.balance()

    cdef bint is_unread(self, void *delivery) except -1:
        """Return whether a delivery stands behind one that isn't passed on yet, as a pre-settled one may."""
        cdef void *waiting = pn_link_current(self.link)
        while waiting != NULL and waiting != delivery:
            waiting = pn_unsettled_next(waiting)
        return waiting != NULL

    cdef object balance(self):
        """Make the credit of both halves the same again."""
        raise NotImplementedError

    cdef object on_passed(self):
        """Do what has to wait until all that has come is passed on."""

    cdef bint may_pass(self, void *delivery) except -1:
        """Return whether a delivery that begins may be passed on."""
        return True

    cdef object pass_on(self):
        """Pass on all that has come, as far as the other half has room for it."""
        cdef char piece[PIECE_BYTES]
        cdef void *delivery
        cdef void *passed
        cdef ssize_t n
        cdef bint settled
        while not self.dead:
            delivery = pn_link_current(self.link)
            if delivery == NULL:
                break
            if pn_delivery_aborted(delivery):
                passed = pn_delivery_get_context(delivery)
                if passed != NULL:
                    part(delivery, passed)
                    pn_delivery_abort(passed)
                    self.other.connection.mark_dirty()
                pn_link_advance(self.link)
                pn_delivery_settle(delivery)
                continue
            if pn_delivery_pending(delivery) == 0 and pn_delivery_partial(delivery):
                break
            if not self.hurries and self.other.is_full():
                self.other.wait()
                return
            passed = self.begun(delivery)
            if passed == NULL:
                return
            while pn_delivery_pending(delivery) > 0:
                n = pn_link_recv(self.link, piece, PIECE_BYTES)
                if n <= 0:
                    break
                pn_link_send(self.other.link, piece, n)
            self.other.connection.mark_dirty()
            if pn_delivery_partial(delivery):
                break
            settled = pn_delivery_settled(delivery)
            pn_link_advance(self.link)
            pn_link_advance(self.other.link)
            self.other.delivered += 1
            if settled:
                part(delivery, passed)
                pn_delivery_settle(passed)
                pn_delivery_settle(delivery)
        if not self.dead:
            self.on_passed()

    cdef void *begun(self, void *delivery) except? NULL:
        """Return the delivery by which one goes on, made if need be; NULL where it may not be passed on."""
        cdef void *passed = pn_delivery_get_context(delivery)
        cdef pn_bytes_t tag
        if passed != NULL or not self.may_pass(delivery):
            return passed
        tag = pn_delivery_tag(delivery)
        if tag.size == 0:
            # Proton writes an empty tag as none at all. Of unsettled deliveries one has it at most.
            tag.start = PyBytes_AS_STRING(NO_TAG)
            tag.size = PyBytes_GET_SIZE(NO_TAG)
        passed = pn_delivery(self.other.link, tag)
        pn_delivery_set_context(passed, delivery)
        pn_delivery_set_context(delivery, passed)
        return passed


cdef class OutgoingHalf(SendingLink):
    """The half on which messages go on; ``waits``: it has more once its connection has written what it has."""

    def __init__(self, ConnectionIO connection, size_t link):
        self.connection = connection
        self.link = <void *>link
        if connection.halves is None:
            connection.halves = set()
        connection.halves.add(self)
        pn_link_set_context(self.link, <void *>self)

    def shut(self):
        """End, with the other half."""
        if self.dead:
            return
        if self.has_unsent(pn_link_session(self.link)):
            self.connection.note_leak()
        self.dead = True
        self.connection.halves.discard(self)
        forget_deliveries(self.link)
        pn_link_set_context(self.link, NULL)
        if self.waits:
            self.connection.streams.remove(self)
        self.waits = False
        if self.other is not None:
            self.other.shut()

    cdef bint is_full(self) except -1:
        """Return whether its session has as much unsent as it may."""
        cdef long limit = self.connection.session_output
        return self.connection.unsent_of(pn_link_session(self.link), limit) >= limit

    cdef bint has_unsent(self, void *session) except -1:
        cdef void *current
        if self.dead or pn_link_session(self.link) != session:
            return False
        current = pn_link_current(self.link)
        return pn_link_queued(self.link) > 0 or (current != NULL and pn_delivery_pending(current) > 0)

    def wait(self):
        """Go on once the connection has written what it has."""
        if not self.waits:
            self.waits = True
            self.connection.streams.append(self)

    cdef object stream(self):
        self.waits = False
        self.connection.streams.remove(self)
        if self.other is not None and not self.dead:
            self.other.pass_on()
            if not self.dead:
                self.other.balance()

    cdef object on_updated(self, void *delivery):
        """Pass an outcome back by the other half."""
        cdef void *passed = pn_delivery_get_context(delivery)
        if passed == NULL:
            if pn_delivery_settled(delivery):
                pn_delivery_settle(delivery)
            return
        copy_state(delivery, passed)
        if pn_delivery_settled(delivery):
            part(delivery, passed)
            pn_delivery_settle(passed)
            pn_delivery_settle(delivery)
        self.other.connection.mark_dirty()


cdef class ForeignProducer(IncomingHalf):
    """A link on which a client sends to a node of another cell.

    ``failed(condition, text)`` is called where the client does on it what can't be passed on.
    """

    def __init__(self, ConnectionIO connection, size_t link, object failed):
        IncomingHalf.__init__(self, connection, link)
        self.failed = failed

    def shut(self):
        """End: nothing is passed on any more, either way."""
        IncomingHalf.shut(self)
        self.failed = None

    def finish(self):
        """Pass on whatever has come, as the client is gone, and end."""
        if self.other is not None and not self.dead:
            self.hurries = True
            self.pass_on()
        self.shut()

    cdef object on_flow(self):
        """The client has nothing to say of credit that the owner would go by."""

    cdef bint may_pass(self, void *delivery) except -1:
        if pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL:
            self.connection.fail_transaction(delivery, ELSEWHERE)
            self.failed("amqp:not-implemented", TRANSACTIONS)
            return False
        return True

    cdef object balance(self):
        """Give the client as much credit as the owner has given for it.

        Less than nothing can't be told, nor less than what has come and waits here: a message that was under way
        when credit was taken back waits for credit on the owner's connection.
        """
        cdef int have = pn_link_credit(self.link)
        cdef int wanted = pn_link_credit(self.other.link)
        cdef int least = pn_link_queued(self.link)
        if wanted < least:
            wanted = least
        if wanted != have:
            pn_link_flow(self.link, wanted - have)
            self.connection.mark_dirty()


cdef class NeighbourSender(OutgoingHalf):
    """The other half of a ``ForeignProducer``: it sends to the cell that has the node."""

    cdef object on_flow(self):
        if self.other is not None and not self.dead:
            self.other.balance()


cdef class ForeignConsumer(OutgoingHalf):
    """A link on which a client receives from a node of another cell; ``channel`` is its session's.

    ``failed(condition, text)`` is called where the client does on it what can't be passed on.
    """

    def __init__(self, ConnectionIO connection, size_t link, str name, int channel, object failed):
        OutgoingHalf.__init__(self, connection, link)
        self.name = name
        self.channel = channel
        self.failed = failed

    def join(self, NeighbourReceiver other):
        """Be one link with its other half, on the owner's connection."""
        other.join(self)
        self.ask()

    def shut(self):
        """End: nothing is passed on any more, either way."""
        OutgoingHalf.shut(self)
        self.failed = None

    def finish(self):
        """End: the client is gone, and what it has settled is passed on already."""
        self.shut()

    def ready_msgs(self):
        """How many messages the owner has said it has for this link."""
        return 0 if self.other is None or self.dead else max(pn_link_available(self.other.link), 0)

    cdef object on_flow(self):
        if self.dead or self.other is None:
            return
        self.ask()
        if self.connection.incoming.echo and not self.draining:
            self.answer_echo()

    cdef object on_updated(self, void *delivery):
        """Pass the client's outcome to the owner."""
        if (pn_delivery_get_context(delivery) != NULL
                and pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL):
            self.connection.fail_transaction(delivery, ELSEWHERE)
            self.failed("amqp:not-implemented", TRANSACTIONS)
            return
        OutgoingHalf.on_updated(self, delivery)

    cdef object ask(self):
        """Ask the owner for as many messages as the client has asked for, in the same way."""
        cdef int have = pn_link_credit(self.other.link)
        cdef int wanted = pn_link_credit(self.link)
        cdef int least = pn_link_queued(self.other.link)
        cdef bint drains = pn_link_get_drain(self.link)
        if wanted < least:
            wanted = least
        if drains and wanted == have and wanted == least:
            # Nothing is left to drain: the owner would have nothing to say.
            self.draining = True
            self.answer_drain()
            return
        if wanted == have and drains == pn_link_get_drain(self.other.link):
            return
        self.draining = drains
        pn_link_set_drain(self.other.link, drains)
        pn_link_flow(self.other.link, wanted - have)
        self.other.connection.mark_dirty()

    cdef object level(self):
        """Have the owner's credit be the client's, as it is after messages that came when there was none."""
        cdef int have = pn_link_credit(self.other.link)
        cdef int wanted = pn_link_credit(self.link)
        cdef int least = pn_link_queued(self.other.link)
        if wanted < least:
            wanted = least
        if wanted != have:
            pn_link_flow(self.other.link, wanted - have)
            self.other.connection.mark_dirty()

    cdef object answer_drain(self):
        """Tell a client that drains what the owner has told, once all that came before has been passed on."""
        cdef int given_back = 0
        if not self.draining or pn_link_queued(self.other.link) > 0:
            return
        self.draining = False
        if pn_link_credit(self.link) > 0:
            given_back = pn_link_drained(self.link)
        self.drained += given_back
        if given_back == 0:
            self.answer_echo()
        self.connection.mark_dirty()


cdef class NeighbourReceiver(IncomingHalf):
    """The other half of a ``ForeignConsumer``: it receives from the cell that has the node."""

    cdef object on_flow(self):
        """The owner has used up credit that a client drains."""
        if self.other is None or self.dead:
            return
        if pn_link_drained(self.link) > 0 or (self.other.draining and pn_link_credit(self.link) == 0):
            (<ForeignConsumer>self.other).answer_drain()

    cdef object balance(self):
        (<ForeignConsumer>self.other).level()

    cdef object on_passed(self):
        if self.other.draining and pn_link_credit(self.link) == 0:
            (<ForeignConsumer>self.other).answer_drain()


cdef class NeighbourRelay(OutgoingLink):
    """A link to another cell's anonymous relay, for messages that name a node there.

    They wait in Proton for credit of that cell: the client's own link to the relay bounds how many.
    """

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

    def pass_message(self, bytes data, object told):
        """Send a message; ``told(state, condition, text)`` hears its outcome."""
        cdef uint64_t number = self.number
        cdef pn_bytes_t tag
        tag.start = <const char *>&number
        tag.size = sizeof(number)
        self.number += 1
        pn_delivery(self.link, tag)
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
        condition = pn_disposition_condition(pn_delivery_remote(delivery))
        name, text = text_of(pn_condition_get_name(condition)), text_of(pn_condition_get_description(condition))
        pn_delivery_settle(delivery)
        if told is not None:
            told(state, name, text)


cdef bytes text_of(const char *text):
    return b"" if text == NULL else <bytes>text


cdef str ELSEWHERE = "a message of it belongs to a node of another cell"

TRANSACTIONS = (
    "a transaction takes no messages of nodes in another cell than its connection's: use a connection of its own,"
    " whose first link is to such a node"
)


cdef object copy_state(void *source, void *target):
    """Say of one delivery what its peer has said of another, which is the same message."""
    cdef uint64_t state = pn_delivery_remote_state(source)
    cdef void *said = pn_delivery_remote(source)
    cdef void *ours = pn_delivery_local(target)
    if state == 0 or state == STATE_TRANSACTIONAL:
        return
    if state == STATE_REJECTED:
        pn_condition_copy(pn_disposition_condition(ours), pn_disposition_condition(said))
    elif state == STATE_MODIFIED:
        pn_disposition_set_failed(ours, pn_disposition_is_failed(said))
        pn_disposition_set_undeliverable(ours, pn_disposition_is_undeliverable(said))
        pn_data_copy(pn_disposition_annotations(ours), pn_disposition_annotations(said))
    elif state == STATE_RECEIVED:
        pn_disposition_set_section_number(ours, pn_disposition_get_section_number(said))
        pn_disposition_set_section_offset(ours, pn_disposition_get_section_offset(said))
    pn_delivery_update(target, state)


cdef object forget_deliveries(void *link):
    """Have no delivery of a link know one of its other half any more, nor be known by it."""
    cdef void *delivery = pn_unsettled_head(link)
    cdef void *passed
    while delivery != NULL:
        passed = pn_delivery_get_context(delivery)
        if passed != NULL:
            part(delivery, passed)
        delivery = pn_unsettled_next(delivery)


cdef object part(void *delivery, void *passed):
    """Have two deliveries that were one know each other no more."""
    pn_delivery_set_context(delivery, NULL)
    pn_delivery_set_context(passed, NULL)
