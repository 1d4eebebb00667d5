"""Links to the transaction coordinator: declarations and discharges (AMQP 1.0 §4.2, §4.3)."""

from collections import OrderedDict

from broker cimport constants
from broker.amqp.links.neighbour_links cimport PassingLink, TransactionPart
from broker.amqp.links.pending cimport PendingDelivery
from broker.amqp.links.proton cimport *
from broker.amqp.links.transactional cimport tell_transaction

from broker.codec import transactions as _requests

cdef enum:
    # Of so many transactions whose time was over, the coordinator can still say that this was why.
    MOST_LATE = 1000


cdef class PassedDischarge:
    """A discharge that other cells were told: ``left`` of them have yet to answer.

    ``condition`` and ``text`` are those of the first that refused it.
    """

    def __init__(self, PendingDelivery held, bint fail, bint settled, long left):
        self.held = held
        self.fail = fail
        self.settled = settled
        self.left = left
        self.condition = self.text = b""


cdef class CoordinatorLink(ProducerLink):
    """The link of one transaction controller. Its transactions are known on all links of the connection, and
    are rolled back when it goes.

    One may have parts in other cells (``neighbour_links``): a discharge that is to commit succeeds if all of its work
    is in one cell, which answers it then.

    ``limits`` has ``max_transactions`` of one connection, ``max_transaction_size`` and
    ``transaction_timeout_ms``. The bounds of one user, whatever its connections, are the engine's.
    """

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size, object limits):
        ProducerLink.__init__(self, connection, link, engine, name, max_size)
        self.limits = limits
        self.declared = set()
        self.discharging = {}
        self.passed = {}
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
            self.declare_part(delivery, request.name)
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
        self.begin(delivery, f"{self.connection.owner.id}.{self.connection.numbered}".encode())

    cdef object declare_part(self, void *delivery, bytes name):
        """Declare the part of a transaction of another cell, where it is counted."""
        if not self.connection.owner.relays or not name or name in self.connection.transactions:
            self.refuse_request(delivery, b"amqp:not-implemented", "global transactions are not available")
            return
        self.begin(delivery, name)

    cdef object begin(self, void *delivery, bytes name):
        cdef Transaction transaction = self.engine.transactions.declare(
            name, self, self.limits.transaction_timeout_ms * 1000000, self.limits.max_transaction_size,
            self.connection.owner.user
        )
        self.declared.add(transaction)
        self.connection.transactions[name] = transaction
        tell_transaction(delivery, name)
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
        if self.must_wait(transaction, request.fail or bool(transaction.fault)):
            # It commits once all of its messages have room (FLOW §2 rule 6); its time goes on.
            held = self.discharging[transaction] = self.keep(delivery, transaction, settled)
            held.fails = request.fail
            return
        if transaction.parts is not None:
            held = self.keep(delivery, transaction, settled)
            self.discharge_parts(transaction, PassedDischarge(held, request.fail, settled, len(transaction.parts)))
            return
        code = self.end(transaction, request.fail)
        self.answer(delivery, code, transaction)

    cdef PendingDelivery keep(self, void *delivery, Transaction transaction, bint settled):
        """Keep a discharge that is answered later."""
        cdef PendingDelivery held = PendingDelivery()
        held.transaction = transaction
        if settled:
            pn_delivery_settle(delivery)
        else:
            self.hold(held, delivery)
        self.kept += 1
        return held

    cdef bint must_wait(self, Transaction transaction, bint fails) except -1:
        """Return whether messages of a transaction are here that it doesn't have yet: they came before its end.

        One that is rolled back waits for them too, as it would be unknown to those behind it, but not for room.
        """
        if fails:
            transaction.unread = set()
        if self.connection.inflows:
            for link in list(self.connection.links):
                if isinstance(link, ProducerLink) and (<ProducerLink>link).has_unread(transaction):
                    transaction.unread.add(link)
        if transaction.parts is not None or self.connection.held_up:
            self.await_passing(transaction)
        if not fails:
            return bool(transaction.parked) or bool(transaction.unread)
        if transaction.unread:
            transaction.fail("it is rolled back")
        return bool(transaction.unread)

    cdef object await_passing(self, Transaction transaction):
        """Have a transaction wait for messages that aren't on their way to another cell yet."""
        cdef TransactionPart part
        cdef PassingLink link
        if self.connection.held_up:
            for each in self.connection.held_up:
                link = each
                if link.has_unpassed(transaction):
                    transaction.unread.add(link)
        if transaction.parts is not None:
            for each in transaction.parts:
                part = each
                transaction.unread.update(part.unpassed())

    # --- parts in other cells

    cdef object discharge_parts(self, Transaction transaction, PassedDischarge passed):
        """Have other cells end a transaction; it commits if one cell has all of its work."""
        cdef TransactionPart part
        if passed.left > 1 or transaction.has_work():
            transaction.fail(spread(transaction))
        self.forget(transaction)
        # Its time is a matter of the other cells now.
        transaction.deadline_ns = 0
        self.passed[transaction] = passed
        for each in transaction.parts:
            part = each
            part.discharge(passed.fail or bool(transaction.fault), lambda *said: self.part_ended(transaction, *said))

    def part_ended(self, Transaction transaction, unsigned long state, bytes condition, bytes text):
        """Take another cell's answer to a discharge, and answer the client after the last."""
        cdef PassedDischarge passed = self.passed.get(transaction)
        if passed is None:
            return
        passed.left -= 1
        if state != STATE_ACCEPTED and not passed.condition:
            passed.condition = condition or b"amqp:transaction:rollback"
            passed.text = text
        if passed.left > 0:
            return
        del self.passed[transaction]
        self.end_here(transaction)
        if transaction.fault and not passed.fail:
            passed.condition, passed.text = b"amqp:transaction:rollback", transaction.fault.encode()
        self.answer_passed(passed)

    cdef object end_here(self, Transaction transaction):
        """End a transaction here that ends in other cells."""
        if transaction.has_work():
            self.engine.transactions.roll_back(transaction)
        else:
            self.engine.transactions.leave(transaction)

    cdef object answer_passed(self, PassedDischarge passed):
        """Tell the outcome of a discharge that other cells were told."""
        cdef PendingDelivery held = passed.held
        cdef void *delivery = held.delivery
        self.kept -= 1
        if delivery != NULL:
            self.let_go(held)
            if not passed.condition:
                self.outcome(delivery, constants.ACCEPTED)
            elif pn_delivery_settled(delivery):
                pn_delivery_settle(delivery)
            else:
                self.reject(delivery, passed.condition, passed.text)
            self.connection.mark_dirty()
        elif passed.settled and passed.condition and not self.dead:
            self.fail(passed.condition.decode(), passed.text.decode(errors="replace"))
        self.renew_open()

    cdef object roll_back_parts(self, Transaction transaction):
        """Have other cells roll a transaction back, whatever they answer."""
        cdef TransactionPart part
        if transaction.parts is not None:
            for each in transaction.parts:
                part = each
                part.discharge(True, None)

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
        if self.connection.named is transaction:
            self.connection.named = None

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
        if transaction.parts is not None:
            self.discharge_parts(
                transaction, PassedDischarge(held, held.fails, held.delivery == NULL, len(transaction.parts)))
            return
        code = self.end(transaction, held.fails)
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
        self.roll_back_parts(transaction)
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
            self.roll_back_parts(transaction)
            self.engine.transactions.roll_back(transaction)
        for transaction in list(self.passed):
            # Its cells were told how it ends.
            self.end_here(transaction)
        self.passed.clear()


cdef str spread(Transaction transaction):
    """Say that the work of a transaction is in several cells, and in which."""
    cdef set cells = {part.cell for part in transaction.parts}
    if transaction.has_work():
        cells.add(transaction.parts[0].own)
    *others, last = map(str, sorted(cells))
    return f"its messages are of nodes in cells {', '.join(others)} and {last}, and a transaction takes those of one cell"
