"""Producers' links: credit as the engine grants it, and an outcome for each message."""

from libc.stdint cimport uint64_t

from broker cimport constants
from broker.amqp.links.pending cimport AwaitingSync, PendingDelivery, pending_delivery
from broker.amqp.links.proton cimport *
from broker.amqp.links.transactional cimport tell_transactional

from proton import symbol

from broker.codec import message as _message
from broker.engine.transaction import OPEN

cdef bytes REFUSED_NAME = b"amqp:resource-limit-exceeded"
cdef bytes SIZE_NAME = b"amqp:link:message-size-exceeded"


cdef class ProducerLink(AssemblingLink):
    """A link on which the peer sends. ``open_credit`` above 0: credit that promises no room
    (a rejecting node, an anonymous relay), kept at that many less what is held unsettled."""

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size):
        AssemblingLink.__init__(self, connection, link, engine, name, max_size)
        self.unwritten = AwaitingSync()
        self.holding = set()
        self.most_unconfirmed = 1 << 60
        self.refusal = STATE_REJECTED

    # --- credit

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
                self.account.return_unused(lost, self.engine.turn.now_ns)
                if pn_link_credit(self.link) < 0:
                    pn_link_flow(self.link, -pn_link_credit(self.link))
                self.engine.turn.mark_dirty(self.node)

    cpdef object revoke(self, long msgs):
        # Never below 0, which a flow frame would tell the peer as 4,294,967,295.
        msgs = min(msgs, pn_link_credit(self.link))
        if msgs > 0:
            pn_link_flow(self.link, -msgs)
            self.connection.mark_dirty()

    def start_open(self, long credit):
        """Grant credit that promises no room and keep it up."""
        self.open_credit = credit
        self.renew_open()

    cdef object renew_open(self):
        """Grant what is missing of the open credit, half of it at a time."""
        cdef long standing, wanted
        if self.open_credit == 0 or self.dead:
            return
        standing = pn_link_credit(self.link)
        wanted = self.open_credit - self.kept
        if standing < wanted and (standing <= wanted >> 1 or self.kept > 0):
            pn_link_flow(self.link, wanted - standing)
            self.connection.mark_dirty()

    cdef bint may_begin(self) except -1:
        """Whether the peer was ever allowed the message whose first piece came: memory goes with credit."""
        if self.open_credit > 0:
            return pn_link_credit(self.link) > 0
        return self.account is None or self.account.outstanding + self.account.withdrawn > 0

    def offered(self):
        said = self.connection.incoming.offered(self.channel, self.name)
        return max(said - (self.received - self.offered_at), 0)

    cdef object on_aborted(self):
        if self.account is not None:
            self.account.use(0, self.engine.turn.now_ns)
        self.replace_credit()

    cdef object lift_credit(self):
        """Take Proton's count of credit back to 0 where a message on revoked credit took it below.

        The next flow frame would tell the peer of 4,294,967,295.
        """
        if pn_link_credit(self.link) < 0:
            pn_link_flow(self.link, 1)

    cdef object replace_credit(self):
        """Renew credit that was used up by something that is no message of the node's."""
        self.lift_credit()
        if self.open_credit > 0:
            self.renew_open()
        elif self.account is not None and self.account.outstanding <= self.account.low:
            self.node.allocator.renew(self.account, self.engine.turn.now_ns)
        if self.node is not None:
            self.engine.turn.mark_dirty(self.node)

    # --- messages

    cdef object on_message(self, void *delivery, bytes data, long bits, long size):
        cdef bint settled = pn_delivery_settled(delivery)
        self.received += 1
        self.connection.received += 1
        if bits < 0:
            self.decline(delivery, size, settled, b"amqp:decode-error", b"the message's sections are malformed")
            return
        if bits & constants.MAY_BE_DELAYED:
            data = self.delayed(delivery, data, size, settled)
            if data is None:
                return
        if self.open_credit > 0 and pn_link_credit(self.link) <= 0:
            self.oversent()
            self.connection.drop_delivery(self.link, delivery)
            return
        pn_link_advance(self.link)
        self.take(delivery, data, bits, settled)

    cdef bytes delayed(self, void *delivery, bytes data, long size, bint settled):
        """Return a message with the time of its delivery in the place of a delay; None if it can't be read, and
        the message is refused: at once would be wrong, too."""
        cdef long now_ms = (self.engine.turn.epoch_ns + self.engine.turn.now_ns) // 1000000
        cdef long time_ms = _message.delivery_time_ms(data, now_ms)
        if time_ms < 0:
            self.decline(delivery, size, settled, b"amqp:invalid-field",
                         b"the message annotation that asks for a delay is no number of milliseconds")
            return None
        if time_ms > 0 and _message.asks_for_delay(data):
            return _message.with_delivery_time(data, time_ms)
        return data

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        """Hand a message to the engine."""
        cdef long code
        if pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL:
            self.post(delivery, self.node, self.account, data, bits, settled)
            return
        code = self.engine.intake.arrive(self.node, self.account, data, bits, settled)
        self.apply_result(delivery, code, data, bits, settled, self.node, self.account)

    cdef object post(self, void *delivery, Node node, ProducerCredit account, bytes data, long bits, bint settled):
        """Hand a message to a node in the transaction that its transfer names (AMQP 1.0 §4.4.1)."""
        cdef Transaction transaction = self.connection.transaction_at(delivery)
        cdef PendingDelivery held
        cdef long code
        if transaction is None or not transaction.has_room(len(data)):
            self.refuse_post(delivery, transaction, account, len(data), settled)
            return
        code = self.engine.intake.arrive(node, account, data, bits, settled, transaction)
        if code == constants.ACCEPTED:
            self.settle_in(delivery, transaction)
        elif code == constants.PARK:
            held = pending_delivery(node, account, bits)
            held.transaction = transaction
            self.park(delivery, data, settled, held)
            transaction.park(held, account, len(data))
        else:
            self.apply_result(delivery, code, data, bits, settled, node, account)
            return
        if self.open_credit > 0:
            self.renew_open()
        else:
            self.lift_credit()

    cdef object refuse_post(self, void *delivery, Transaction transaction, ProducerCredit account, long size,
                            bint settled):
        """Refuse a message whose transaction isn't open, or holds as much as one may."""
        cdef bytes condition = b"amqp:transaction:unknown-id"
        cdef bytes text = b"no transaction of this id is open on this connection"
        if transaction is not None:
            condition = REFUSED_NAME
            limit, reason = transaction.refusal(size)
            text = reason.encode()
            self.connection.owner.over(limit)
            transaction.fault = "a message that it had no room for was refused"
        if account.use(size, self.engine.turn.now_ns) == constants.VIOLATION and self.open_credit == 0:
            self.oversent()
            self.connection.reject_late(self.link, delivery)
            return
        self.replace_credit()
        if settled:
            self.fail_for(delivery, condition.decode(), text.decode())
        else:
            self.reject(delivery, condition, text)

    cdef object settle_in(self, void *delivery, Transaction transaction):
        """Tell that a message was posted; a pre-settled delivery is only freed."""
        if pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)
            return
        tell_transactional(delivery, transaction.name)
        self.settle_with(delivery, STATE_TRANSACTIONAL)

    cdef bint has_unread(self, Transaction transaction) except -1:
        """Return whether a message of a transaction isn't taken in because a large one is on its way to its file;
        the transaction hears when none is left.
        """
        cdef void *waiting = pn_link_current(self.link) if self.inflow is not None else NULL
        while waiting != NULL:
            if (pn_delivery_remote_state(waiting) == STATE_TRANSACTIONAL
                    and self.connection.transaction_at(waiting) is transaction):
                if self.awaited_by is None:
                    self.awaited_by = set()
                self.awaited_by.add(transaction)
                return True
            waiting = pn_unsettled_next(waiting)
        return False

    cdef object on_read(self, bint lost):
        cdef Transaction transaction
        if self.awaited_by is None:
            return
        awaiting, self.awaited_by = self.awaited_by, None
        for each in awaiting:
            transaction = each
            if lost:
                transaction.fault = "a message of it was given up on its way"
            elif self.has_unread(transaction):
                continue
            transaction.read(self)

    cdef object apply_result(self, void *delivery, long code, bytes data, long bits, bint settled,
                             Node node, ProducerCredit account):
        """Do what the engine's answer ``code`` asks for."""
        cdef PendingDelivery held
        if code == constants.ACCEPTED and not settled:
            self.settle_with(delivery, STATE_ACCEPTED)
        elif code == constants.ACCEPTED or code == constants.STORING:
            self.outcome(delivery, code)
        elif code == constants.OVERSENT:
            self.oversent()
            self.connection.reject_late(self.link, delivery)
            return
        elif code == constants.HOLD:
            held = pending_delivery(node, account, bits)
            self.hold(held, delivery)
            self.kept += 1
            self.engine.producers.hold_settlement(node, account, held)
        elif code == constants.PARK:
            self.park(delivery, data, settled, pending_delivery(node, account, bits))
        elif bits >> constants.LARGE_SHIFT and (text := too_small_stream(self.engine, node, account, data)) is not None:
            if settled:
                self.fail_for(delivery, SIZE_NAME.decode(), text)
                return
            self.reject(delivery, SIZE_NAME, text.encode())
        elif settled:
            # Nothing can be told of a pre-settled message, so the link ends rather than lose it silently.
            self.fail_for(delivery, "amqp:resource-limit-exceeded", f"'{node.name}' is at its hard limit")
            return
        else:
            self.outcome(delivery, code)
        if self.open_credit > 0:
            self.renew_open()
        else:
            self.lift_credit()

    # --- messages that wait outside their node

    cdef object park(self, void *delivery, bytes data, bint settled, PendingDelivery held):
        """Keep a message outside its node until the engine admits it."""
        held.data = data
        held.settled = settled
        if held.bits >> constants.LARGE_SHIFT:
            held.body = self.engine.large.of(held.bits)
        self.kept += 1
        if settled:
            pn_delivery_settle(delivery)
        else:
            self.hold(held, delivery)
        self.engine.parking.park(held.node, held.account, held, len(data) + self.engine.large.size_of(held.bits), settled)

    cpdef object admit(self, object parked, long size):
        cdef PendingDelivery held = parked
        cdef long code
        if held.transaction is not None:
            self.admit_post(held)
            return
        self.engine.intake.origin = held.account.origin
        if held.node.awaiting is None or self.dead:
            code = self.engine.intake.put(held.node, held.data, held.bits)
        else:
            code = self.engine.intake.put_awaited(held.node, held.data, held.bits, held.settled)
        if code == constants.HOLD:
            held.data = None
            self.engine.producers.hold_settlement(held.node, held.account, held)
            return
        self.release_held(held, code)
        if self.dead and not held.account.parked:
            self.engine.producers.close(held.node, held.account)

    cdef object admit_post(self, PendingDelivery held):
        """Keep a message that waited for room in its transaction."""
        cdef Transaction transaction = held.transaction
        self.engine.intake.hold(transaction, held.node, held.account, held.data, held.bits)
        self.release_held(held, constants.ACCEPTED)
        if self.dead and not held.account.parked:
            self.engine.producers.close(held.node, held.account)
        transaction.unpark(held)

    cpdef object refuse(self, object parked):
        cdef PendingDelivery held = parked
        self.release_held(held, constants.REFUSED)
        if held.transaction is not None:
            held.transaction.unpark(held)

    cpdef object confirm(self, object parked):
        cdef PendingDelivery held = parked
        if not self.dead:
            self.release_held(held, self.engine.intake.confirmed(held.node, held.bits))

    cdef object hold(self, PendingDelivery held, void *delivery):
        """Leave a delivery unsettled: its outcome is told later."""
        held.delivery = delivery
        pn_delivery_set_context(delivery, <void *>held)
        self.holding.add(held)

    cdef object let_go(self, PendingDelivery held):
        """Separate a message from its delivery, which has its outcome or needs none any more."""
        pn_delivery_set_context(held.delivery, NULL)
        held.delivery = NULL
        self.holding.discard(held)

    cdef object release_held(self, PendingDelivery held, long code):
        """Tell the outcome of a message that was held."""
        cdef void *delivery = held.delivery
        if delivery != NULL:
            self.let_go(held)
            if code == constants.REFUSED and held.node.deleted and not pn_delivery_settled(delivery):
                self.reject(delivery, b"amqp:resource-deleted", f"'{held.node.name}' was deleted".encode())
            elif held.transaction is not None:
                self.end_post(delivery, held.transaction, code)
            else:
                self.outcome(delivery, code)
            self.connection.mark_dirty()
        self.kept -= 1
        self.renew_open()

    cdef object end_post(self, void *delivery, Transaction transaction, long code):
        """Tell the outcome of a message that was held, in its transaction."""
        if code == constants.ACCEPTED:
            self.settle_in(delivery, transaction)
        elif pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)
        elif transaction.state == OPEN:
            self.reject(delivery, REFUSED_NAME, b"the queue is full")
        else:
            self.reject(delivery, b"amqp:transaction:rollback", b"the transaction was rolled back")

    # --- outcomes

    cdef object outcome(self, void *delivery, long code):
        """Tell the engine's answer, at once or when it is on disk; a pre-settled delivery is only freed."""
        if pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)
            return
        if code == constants.STORING:
            self.unwritten.wait(self.engine, self, delivery)
            return
        if code != constants.ACCEPTED:
            self.reject(delivery, REFUSED_NAME, b"the queue is full")
            return
        self.settle_with(delivery, STATE_ACCEPTED)

    cdef object reject(self, void *delivery, bytes name, bytes text):
        """Give a delivery the outcome of a message that isn't taken."""
        cdef void *condition
        self.connection.fail_transaction(delivery, "a message of it was refused")
        if self.refusal == STATE_REJECTED:
            condition = pn_disposition_condition(pn_delivery_local(delivery))
            pn_condition_set_name(condition, name)
            pn_condition_set_description(condition, text)
        elif self.refusal == 0:
            self.fail_for(delivery, name.decode(), text.decode())
            return
        elif self.refusal == STATE_MODIFIED:
            pn_disposition_set_failed(pn_delivery_local(delivery), True)
        self.settle_with(delivery, self.refusal)

    cdef bint settle_with(self, void *delivery, uint64_t state) except -1:
        """Tell a delivery's outcome, and settle where the peer doesn't settle second; whether that ended the link."""
        pn_delivery_update(delivery, state)
        if self.second:
            return self.await_settlement()
        pn_delivery_settle(delivery)
        return False

    cdef bint await_settlement(self) except -1:
        """Count one more delivery that the peer settles second; whether it has left too many, and the link ends."""
        self.unconfirmed += 1
        if self.unconfirmed <= self.most_unconfirmed or self.dead:
            return self.dead
        self.connection.owner.over("max_unsettled")
        self.fail("amqp:resource-limit-exceeded", f"{self.unconfirmed} deliveries wait for their settlement")
        return True

    cpdef object stored(self, long group):
        cdef void *delivery
        if self.dead:
            return
        while True:
            delivery = self.unwritten.pop(group)
            if delivery == NULL:
                break
            if self.settle_with(delivery, STATE_ACCEPTED):
                break
        self.connection.mark_dirty()

    cdef object decline(self, void *delivery, long size, bint settled, bytes condition, bytes text):
        """Refuse a delivery, the smallest scope; a pre-settled one can't be, so the link ends."""
        pn_link_advance(self.link)
        if self.account is not None:
            if self.account.use(size, self.engine.turn.now_ns) == constants.VIOLATION and self.open_credit == 0:
                self.oversent()
                self.connection.reject_late(self.link, delivery)
                return
        self.replace_credit()
        if settled:
            self.fail_for(delivery, condition.decode(), text.decode())
            return
        self.reject(delivery, condition, text)

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

    # --- its end

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
        self.connection.fail_transaction(delivery, "a message of it was refused")
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
        self.engine.producers.forget_held(node, account)
        for parked, _, _ in list(account.parked):
            held = parked
            if not held.settled:
                account.unpark(held)
                if held.transaction is not None:
                    held.transaction.lose(held)
        if account.parked and not node.deleted:
            node.allocator.orphan(account, self.engine.turn.now_ns)
            self.engine.turn.mark_dirty(node)
        else:
            self.engine.producers.close(node, account)

    # --- for Python

    def credit(self):
        """The credit that stands, as Proton counts it."""
        return pn_link_credit(self.link) - pn_link_queued(self.link)

    def handle(self):
        """The address of the pn_link_t."""
        return <size_t>self.link


cdef str too_small_stream(Engine engine, Node node, ProducerCredit account, bytes data):
    """Return why a large message to a node was refused where a stream can't take it; None where that isn't why."""
    stream = engine.intake.too_small_for(node, data, account.origin)
    if stream is None:
        return None
    return f"'{stream.name}' is a stream: its messages have at most {engine.large.most} bytes"
