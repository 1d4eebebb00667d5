"""Links to the transaction coordinator: declarations and discharges (AMQP 1.0 §4.2, §4.3)."""

from collections import OrderedDict

from broker cimport constants
from broker.amqp.links.pending cimport PendingDelivery
from broker.amqp.links.proton cimport *
from broker.amqp.links.transactional cimport tell_declared

from broker.codec import transactions as _requests

cdef enum:
    # Of so many transactions whose time was over, the coordinator can still say that this was why.
    MOST_LATE = 1000


cdef class CoordinatorLink(ProducerLink):
    """The link of one transaction controller. Its transactions are known on all links of the connection, and
    are rolled back when it goes.

    ``limits`` has ``max_transactions`` of one connection, ``max_transaction_size`` and
    ``transaction_timeout_ms``. The bounds of one user, whatever its connections, are the engine's.
    """

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size, object limits):
        ProducerLink.__init__(self, connection, link, engine, name, max_size)
        self.limits = limits
        self.declared = set()
        self.discharging = {}
        self.late = OrderedDict()
        # A request is decoded whole; max_size bounds it.
        self.most_held = self.look_again = constants.UNBOUNDED
        if connection.transactions is None:
            connection.transactions = {}

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        request = _requests.parse(data)
        if request is None:
            self.refuse_request(delivery, b"amqp:decode-error", "neither a declare nor a discharge")
        elif request.declares:
            self.declare(delivery, request, settled)
        else:
            self.discharge(delivery, request, settled)
        if not self.dead:
            self.renew_open()

    cdef object declare(self, void *delivery, object request, bint settled):
        cdef Transaction transaction
        cdef bytes name
        if settled:
            self.fail_for(delivery, "amqp:not-allowed", "a declare that is settled can't be told its transaction-id")
            return
        if request.is_global:
            self.refuse_request(delivery, b"amqp:not-implemented", "global transactions are not available")
            return
        if len(self.connection.transactions) >= self.limits.max_transactions:
            self.connection.owner.over("max_transactions")
            text = f"limits.max_transactions: {self.limits.max_transactions} are open on this connection"
            self.refuse_request(delivery, b"amqp:resource-limit-exceeded", text)
            return
        user = self.connection.owner.user
        if not self.engine.transactions.may_declare(user):
            self.connection.owner.over("max_transactions_per_user")
            most = self.engine.transactions.limits.most_per_user
            text = f"limits.max_transactions_per_user: {most} transactions of user {user} are open"
            self.refuse_request(delivery, b"amqp:resource-limit-exceeded", text)
            return
        self.connection.numbered += 1
        name = f"{self.connection.owner.id}.{self.connection.numbered}".encode()
        transaction = self.engine.transactions.declare(
            name, self, self.limits.transaction_timeout_ms * 1000000, self.limits.max_transaction_size, user
        )
        self.declared.add(transaction)
        self.connection.transactions[name] = transaction
        tell_declared(delivery, name)
        self.settle_with(delivery, STATE_DECLARED)

    cdef object discharge(self, void *delivery, object request, bint settled):
        cdef Transaction transaction = self.connection.transactions.get(request.name)
        cdef PendingDelivery held
        cdef long code
        if transaction is None or transaction in self.discharging:
            if request.name in self.late:
                del self.late[request.name]
                self.refuse_request(delivery, b"amqp:transaction:timeout", "the transaction's time was over")
                return
            text = "no transaction of this id is open on this connection"
            self.refuse_request(delivery, b"amqp:transaction:unknown-id", text)
            return
        if self.must_wait(transaction) and not request.fail and not transaction.fault:
            # It commits once all of its messages have room (FLOW §2 rule 6); its time goes on.
            held = PendingDelivery()
            held.transaction = transaction
            if settled:
                pn_delivery_settle(delivery)
            else:
                self.hold(held, delivery)
            self.kept += 1
            self.discharging[transaction] = held
            return
        code = self.end(transaction, request.fail)
        self.answer(delivery, code, transaction)

    cdef bint must_wait(self, Transaction transaction) except -1:
        """Return whether messages of a transaction are here that it doesn't have yet: they came before its end."""
        if self.connection.inflows:
            for link in list(self.connection.links):
                if isinstance(link, ProducerLink) and (<ProducerLink>link).has_unread(transaction):
                    transaction.unread.add(link)
        return bool(transaction.parked) or bool(transaction.unread)

    cdef object end(self, Transaction transaction, bint fail):
        """End a transaction: ACCEPTED, STORING or REFUSED."""
        cdef long code = constants.ACCEPTED
        self.forget(transaction)
        if fail:
            self.engine.transactions.roll_back(transaction)
        else:
            code = self.engine.transactions.commit(transaction)
        return code

    cdef object forget(self, Transaction transaction):
        cdef CoordinatorLink owner = transaction.owner
        owner.declared.discard(transaction)
        self.connection.transactions.pop(transaction.name, None)

    cdef object answer(self, void *delivery, long code, Transaction transaction):
        """Tell what came of a discharge."""
        if pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)
        elif code == constants.REFUSED:
            self.refuse_request(delivery, b"amqp:transaction:rollback", transaction.fault)
        else:
            self.outcome(delivery, code)

    cdef object refuse_request(self, void *delivery, bytes condition, str text):
        if pn_delivery_settled(delivery):
            self.fail_for(delivery, condition.decode(), text)
        else:
            self.reject(delivery, condition, text.encode())

    # --- for the engine

    def came_in(self, Transaction transaction):
        """Have a transaction committed whose discharge waited for its messages."""
        if transaction in self.discharging:
            self.engine.transactions.finish_later(transaction)

    def finish(self, Transaction transaction):
        """Commit a transaction whose discharge waited for its messages."""
        cdef PendingDelivery held = self.discharging.pop(transaction, None)
        cdef void *delivery
        cdef long code
        if held is None:
            return
        code = self.end(transaction, False)
        delivery = held.delivery
        if delivery != NULL:
            self.let_go(held)
            self.answer(delivery, code, transaction)
            self.connection.mark_dirty()
        self.kept -= 1
        self.renew_open()

    def timed_out(self, Transaction transaction):
        """Roll a transaction back whose time is over."""
        cdef PendingDelivery held = self.discharging.pop(transaction, None)
        cdef void *delivery
        self.forget(transaction)
        self.engine.transactions.roll_back(transaction)
        if held is None:
            self.late[transaction.name] = True
            if len(self.late) > MOST_LATE:
                self.late.popitem(last=False)
            return
        delivery = held.delivery
        if delivery != NULL:
            self.let_go(held)
            self.refuse_request(delivery, b"amqp:transaction:timeout", "the transaction's time was over")
            self.connection.mark_dirty()
        self.kept -= 1
        self.renew_open()

    def shut(self):
        """The link is gone: what it declared is rolled back (§4.2)."""
        ProducerLink.shut(self)
        self.discharging.clear()
        for transaction in list(self.declared):
            self.forget(transaction)
            self.engine.transactions.roll_back(transaction)
