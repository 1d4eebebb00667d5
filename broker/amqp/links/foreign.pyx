"""Links to nodes of other cells: what comes on one is passed to its other half, credit as well as messages.

A client's link and a link to the cell that has its node are two halves of one. Credit is chained one to one: what
the owner grants is granted to the client, what a client grants is granted to the owner, and nothing else is. A message
is passed on in the pieces that it comes in; it isn't read, stored or counted here. Two deliveries that are one know each
other by their contexts, until one of them is settled.

A half is dead once it has ended, and so is its other half then; Proton's link may be gone.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport OutgoingLink
from broker.amqp.links.neighbour_links cimport NeighbourCoordinator, PassingLink, TransactionPart
from broker.amqp.links.proton cimport *
from broker.amqp.links.sending cimport SendingLink
from broker.amqp.links.tags cimport MOST_TAGS, tag_of
from broker.engine.transaction cimport Transaction

cdef enum:
    PIECE_BYTES = 1 << 14


cdef class NeighbourIO(ConnectionIO):
    """A connection to another cell of this broker, whose client this cell is: its frames need no guard.

    ``coordinator``: its link for transactions, None while its client has none.
    """

    cdef object pass_tail(self, ssize_t size):
        if size > 0:
            pn_transport_process(self.transport, size)
            self.events()

    cdef object follow_output(self, const uint8_t *at, ssize_t size):
        pass

    cdef object drop_delivery(self, void *link, void *delivery):
        """Leave a delivery of a link that is being detached to its owner, which takes it back with the link."""


cdef class IncomingHalf(PassingLink):
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

    cdef object on_held_up(self):
        """Note that something waits until its other half has room."""

    cdef object on_aborted(self):
        """Forget a delivery that was begun and given up."""

    cdef object look_again(self):
        """See whether what wasn't written by the other half is now."""

    cdef object take_in(self, void *delivery):
        """Do what comes before a delivery in a transaction is passed on."""

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
                    self.on_aborted()
                    self.other.connection.mark_dirty()
                pn_link_advance(self.link)
                pn_delivery_settle(delivery)
                continue
            if pn_delivery_pending(delivery) == 0 and pn_delivery_partial(delivery):
                break
            if not self.hurries and self.other.is_full():
                self.on_held_up()
                self.other.wait()
                return
            passed = self.begun(delivery)
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
        """Return the delivery by which one goes on, made if need be."""
        cdef void *passed = pn_delivery_get_context(delivery)
        cdef pn_bytes_t tag
        cdef uint32_t[2] number
        cdef bint transacted
        if passed != NULL:
            return passed
        transacted = pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL
        if transacted:
            self.take_in(delivery)
        # A tag of this half's own: its peer may use one again as soon as the first delivery is settled, and a
        # message can be passed on before that settlement is.
        number[0] = tag_of(self.other.begun_msgs & MOST_TAGS)
        number[1] = tag_of(self.other.begun_msgs >> 24 & MOST_TAGS)
        self.other.begun_msgs += 1
        tag.start = <const char *>number
        tag.size = sizeof(number)
        passed = pn_delivery(self.other.link, tag)
        pn_delivery_set_context(passed, delivery)
        pn_delivery_set_context(delivery, passed)
        if transacted:
            # Its transfer says it.
            copy_state(delivery, passed)
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
            if not self.dead:
                self.other.look_again()

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
    """A link on which a client sends to a node of another cell."""

    def shut(self):
        """End: nothing is passed on any more, either way."""
        if not self.dead:
            self.lose_transacted()
        self.gives_up = None
        IncomingHalf.shut(self)

    def finish(self):
        """Pass on whatever has come, as the client is gone, and end."""
        self.leave()
        self.shut()

    def leave(self, gives_up=None):
        """Pass on whatever has come, as the client detaches the link; outcomes are still passed back.

        ``gives_up`` is called where the owner takes back the credit on which messages were passed on.
        """
        self.gives_up = gives_up
        if self.other is not None and not self.dead:
            self.hurries = True
            self.pass_on()

    def waits_for_credit(self):
        """Whether messages were passed on for which the owner gives no credit now."""
        return self.other is not None and not self.dead and pn_link_credit(self.other.link) < 0

    def awaits_outcomes(self):
        """Whether messages were passed on of which the client has yet to hear."""
        return self.other is not None and not self.dead and pn_unsettled_head(self.link) != NULL

    cdef object on_flow(self):
        """The client has nothing to say of credit that the owner would go by."""

    cdef object on_held_up(self):
        if self.connection.held_up is None:
            self.connection.held_up = set()
        self.connection.held_up.add(self)

    cdef object on_passed(self):
        if self.connection.held_up is not None:
            self.connection.held_up.discard(self)

    # --- transactions

    cdef object take_in(self, void *delivery):
        """Count a message in its transaction: which of those that Proton is given it is."""
        cdef Transaction transaction = self.connection.transaction_at(delivery)
        cdef TransactionPart passed_to = part_at(self.other.connection, transaction)
        if passed_to is None:
            return
        passed_to.add_link(self)
        if self.transacted is None:
            self.transacted = {}
        self.transacted[transaction] = self.other.delivered + 1

    cdef object on_aborted(self):
        if self.transacted is not None:
            for transaction, number in self.transacted.items():
                self.transacted[transaction] = min(number, self.other.delivered)

    cdef object forget_transaction(self, Transaction transaction):
        if self.transacted is not None:
            self.transacted.pop(transaction, None)

    cdef bint has_unpassed(self, Transaction transaction) except -1:
        """Return whether messages of a transaction wait here, or in Proton for the owner; it hears when none is left."""
        cdef void *waiting
        if self.dead:
            return False
        waiting = pn_link_current(self.link)
        while waiting != NULL:
            if (pn_delivery_remote_state(waiting) == STATE_TRANSACTIONAL
                    and self.connection.transaction_at(waiting) is transaction):
                break
            waiting = pn_unsettled_next(waiting)
        if waiting == NULL and not self.is_unwritten(transaction):
            return False
        if self.awaited_by is None:
            self.awaited_by = set()
        self.awaited_by.add(transaction)
        self.other.wait()
        return True

    cdef bint is_unwritten(self, Transaction transaction) except -1:
        """Return whether Proton keeps messages of a transaction, for which the owner has given no credit or window."""
        cdef long number = 0 if self.transacted is None else self.transacted.get(transaction, 0)
        return self.other.delivered - pn_link_queued(self.other.link) < number

    cdef object look_again(self):
        cdef Transaction transaction
        if self.awaited_by is None:
            return
        awaiting, self.awaited_by = self.awaited_by, None
        for each in awaiting:
            transaction = each
            if not self.has_unpassed(transaction):
                transaction.read(self)

    cdef object lose_transacted(self):
        """Have transactions fail whose messages don't get any further."""
        cdef Transaction transaction
        cdef void *waiting = pn_link_current(self.link)
        while waiting != NULL:
            self.connection.fail_transaction(waiting, LOST)
            waiting = pn_unsettled_next(waiting)
        self.on_passed()
        if self.transacted:
            # Have Proton write all that it can.
            pn_transport_pending(self.other.connection.transport)
            for each in self.transacted:
                transaction = each
                if self.is_unwritten(transaction):
                    transaction.fail(LOST)
        self.transacted = None
        if self.awaited_by is not None:
            awaiting, self.awaited_by = self.awaited_by, None
            for each in awaiting:
                transaction = each
                transaction.fail(LOST)
                transaction.read(self)

    cdef object balance(self):
        """Give the client as much credit as the owner has given for it.

        Less than nothing can't be told, nor less than what has come and waits here: a message that was under way
        when credit was taken back waits for credit on the owner's connection.
        """
        cdef int have = pn_link_credit(self.link)
        cdef int wanted = pn_link_credit(self.other.link)
        cdef int least = pn_link_queued(self.link)
        if self.hurries:
            # The client has detached it.
            if self.gives_up is not None and wanted < 0:
                gives_up, self.gives_up = self.gives_up, None
                gives_up()
            return
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
    """A link on which a client receives from a node of another cell; ``channel`` is its session's."""

    def __init__(self, ConnectionIO connection, size_t link, str name, int channel):
        OutgoingHalf.__init__(self, connection, link)
        self.name = name
        self.channel = channel

    def join(self, NeighbourReceiver other):
        """Be one link with its other half, on the owner's connection."""
        other.join(self)
        self.ask()

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
        if (pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL
                and pn_delivery_get_context(delivery) != NULL):
            part_at(self.other.connection, self.connection.transaction_at(delivery))
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


cdef str LOST = "a message was still on its way to another cell when its link went"


cdef TransactionPart part_at(ConnectionIO neighbour, Transaction transaction):
    """Return the part that a transaction has in another cell, begun if need be; None for no transaction."""
    return None if transaction is None else (<NeighbourIO>neighbour).coordinator.part_of(transaction)


cdef object copy_state(void *source, void *target):
    """Say of one delivery what its peer has said of another, which is the same message."""
    cdef uint64_t state = pn_delivery_remote_state(source)
    cdef void *said = pn_delivery_remote(source)
    cdef void *ours = pn_delivery_local(target)
    if state == 0:
        return
    if state == STATE_TRANSACTIONAL:
        pn_data_copy(pn_disposition_data(ours), pn_disposition_data(said))
    elif state == STATE_REJECTED:
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
