"""The anonymous relay, for senders that name a node in each message."""

from cpython.bytes cimport PyBytes_GET_SIZE

from broker cimport constants
from broker.amqp.links.pending cimport PendingDelivery
from broker.amqp.links.proton cimport (
    STATE_ACCEPTED,
    STATE_REJECTED,
    STATE_RELEASED,
    STATE_TRANSACTIONAL,
    pn_delivery_remote_state,
    pn_delivery_settle,
)

from broker.codec import message as _message

cdef bytes SIZE_NAME = b"amqp:link:message-size-exceeded"


cdef class RelayLink(ProducerLink):
    """The anonymous relay: each message goes to the node its ``to`` names.

    ``resolve`` takes an address and answers with a node or raises PeerError. The link has an
    account at every node it sent to, made when it is first needed.
    """

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size, object resolve):
        ProducerLink.__init__(self, connection, link, engine, name, max_size)
        self.resolve = resolve
        self.accounts = {}
        self.foreign = None

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        cdef ProducerCredit account
        cdef Node node
        cdef long code, size
        address = _message.address_of(data)
        entry = self.accounts.get(address)
        if entry is None or (<Node>entry[0]).deleted:
            entry = self.open_account(delivery, address, data, bits, settled)
            if entry is None:
                return
        node = entry[0]
        account = entry[1]
        size = PyBytes_GET_SIZE(data)
        if bits >> constants.LARGE_SHIFT:
            size += self.engine.large.size_of(bits)
        if size > node.settings.max_message_size:
            self.refuse_size(delivery, node, account, settled)
            return
        if pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL:
            self.post(delivery, node, account, data, bits, settled)
            return
        code = self.engine.intake.arrive(node, account, data, bits, settled)
        self.apply_result(delivery, code, data, bits, settled, node, account)

    cdef object refuse_size(self, void *delivery, Node node, ProducerCredit account, bint settled):
        """Refuse a message that its node's own senders couldn't send: the link's limit is the broker's."""
        text = f"'{node.name}' takes messages of at most {node.settings.max_message_size} bytes"
        account.used += 1
        account.last_used_ns = self.engine.turn.now_ns
        node.refused += 1
        if settled:
            self.fail_for(delivery, SIZE_NAME.decode(), text)
            return
        self.reject(delivery, SIZE_NAME, text.encode())
        self.renew_open()

    cdef bint pass_on(self, void *delivery, object fault, bytes data, long bits, bint settled) except -1:
        """Pass a message on to the cell that has the node it names; false where that can't be."""
        cdef PendingDelivery held
        cdef object cell = getattr(fault, "cell", None)
        if cell is None or self.foreign is None or bits >> constants.LARGE_SHIFT:
            return False
        held = PendingDelivery()
        if pn_delivery_remote_state(delivery) == STATE_TRANSACTIONAL:
            held.transaction = self.connection.transaction_at(delivery)
            if held.transaction is None:
                self.refuse_unknown(delivery, settled)
                return True
            # Its discharge waits for the outcome.
            held.transaction.unread.add(held)
        if settled:
            pn_delivery_settle(delivery)
        else:
            self.hold(held, delivery)
        self.kept += 1
        self.foreign(cell, data, lambda *outcome: self.passed(held, *outcome), held.transaction)
        return True

    cdef object refuse_unknown(self, void *delivery, bint settled):
        """Refuse a message whose transaction isn't open."""
        cdef bytes condition = b"amqp:transaction:unknown-id"
        cdef bytes text = b"no transaction of this id is open on this connection"
        if settled:
            self.fail_for(delivery, condition.decode(), text.decode())
            return
        self.reject(delivery, condition, text)
        self.renew_open()

    def passed(self, PendingDelivery held, unsigned long state, bytes name, bytes text):
        """Tell the outcome of a message that was passed on: a delivery's state, and why it was rejected."""
        cdef void *delivery = held.delivery
        if held.transaction is not None:
            if state != STATE_TRANSACTIONAL:
                held.transaction.fail("a message of it was refused")
            held.transaction.read(held)
        if self.dead:
            return
        if delivery != NULL:
            self.let_go(held)
            if state == STATE_TRANSACTIONAL:
                self.settle_in(delivery, held.transaction)
            elif state == STATE_ACCEPTED:
                self.outcome(delivery, constants.ACCEPTED)
            elif state == STATE_REJECTED:
                self.reject(delivery, name, text)
            else:
                self.settle_with(delivery, STATE_RELEASED)
            self.connection.mark_dirty()
        self.kept -= 1
        self.renew_open()

    cdef object open_account(self, void *delivery, str address, bytes data, long bits, bint settled):
        """Return the node of an address and a new account there; None where the delivery was refused, or passed on."""
        try:
            node = self.resolve(address)
        except Exception as fault:
            if self.pass_on(delivery, fault, data, bits, settled):
                return None
            name = getattr(fault, "condition", "amqp:not-found")
            text = getattr(fault, "description", str(fault))
            # Anonymous terminus for message routing, §2.2.2: a peer that can't be told by `rejected` is told by a detach.
            if settled or self.refusal != STATE_REJECTED:
                self.fail_for(delivery, name, text)
                return None
            self.reject(delivery, name.encode(), text.encode())
            self.renew_open()
            return None
        entry = (node, self.engine.producers.open(node, self, False, self.connection.budget))
        entry[1].origin = self.connection.owner
        if len(self.accounts) >= 1000:
            self.forget_idle()
        self.accounts[address] = entry
        return entry

    cdef object forget_idle(self):
        """Close the accounts that no message of the link waits at."""
        for address, (node, account) in list(self.accounts.items()):
            if not account.parked:
                self.engine.producers.close(node, account)
                del self.accounts[address]

    def open_accounts(self):
        """The nodes it sent to and its account at each."""
        return list(self.accounts.values())

    def close_accounts(self):
        for node, account in self.accounts.values():
            self.close_account(node, account)
        self.accounts.clear()
