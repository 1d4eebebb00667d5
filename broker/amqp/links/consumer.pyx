"""Consumers' links: messages as their nodes dispatch them, and their consumers' outcomes."""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from broker.amqp.links.connection cimport OUTGOING_BYTES, ConnectionIO
from broker.amqp.links.pending cimport AwaitingSync
from broker.amqp.links.proton cimport *
from broker.amqp.links.tags cimport MOST_TAGS, slot_of, tag_of
from broker.amqp.links.transactional cimport Provisional, provisional_of
from broker.queues.dispatch cimport Consumer

from broker.codec import grouping as _grouping
from broker.codec import message as _message

_log = logging.getLogger("sluice.amqp")

cdef enum:
    MOST_PER_DISPATCH = 4096
    # Messages of this size are counted by the room they fill, smaller ones by MOST_PER_DISPATCH alone.
    LARGE_ENOUGH = OUTGOING_BYTES // MOST_PER_DISPATCH
    # Bytes of a large message that a session holds unsent at a time.
    STREAM_BYTES = 1 << 18
    # What a peer that reads a stream may hold without an outcome: it is in memory for that link alone.
    READ_BYTES = 1 << 25


cdef class ConsumerLink(SendingLink):
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
        self.reads_stream = node.stream is not None
        self.attached_ns = engine.turn.now_ns
        self.slots = []
        self.free = []
        self.sent_ns = []
        self.unwritten = AwaitingSync()
        connection.numbered += 1
        self.id = f"{connection.owner.id}.{connection.numbered}"
        connection.links.add(self)
        pn_link_set_context(self.link, <void *>self)

    # --- messages

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
        if self.node.queue.order is not None and not self.browses:
            return room if self.node.queue.order.has_more(self) else 0
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
            if self.held_bytes >= READ_BYTES:
                return 0
        limit = self.connection.session_output
        unsent = self.connection.unsent_of(self.session, limit)
        if unsent >= limit:
            return 0
        mean = self.chunk_bytes if self.chunk_bytes > 0 else self.node.mean_bytes()
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
            data = rewritten(entry, self.engine.turn.now_ns)
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
        if self.timeout_ns > 0:
            self.note_sent(slot_of(number))
        if large:
            self.begin_stream(entry, delivery)
            return
        pn_link_advance(self.link)
        self.delivered += 1
        self.served_ns = self.engine.turn.now_ns
        self.count_sent(PyBytes_GET_SIZE(entry.data))
        if self.presettled:
            pn_delivery_settle(delivery)
            if not self.browses:
                self.engine.settlement.acknowledge(self.node, entry)
            elif self.named is not None:
                self.note_moved()

    cdef object count_sent(self, long nbytes):
        """Count a message that is on its way, of so many bytes in memory."""
        if self.chunk_bytes == 0:
            self.node.delivered += 1
        else:
            self.node.delivered += <long>self.reader.run.in_chunk
        self.connection.sent += 1
        if not self.presettled:
            self.in_flight += 1
            if self.reads_stream:
                self.held_bytes += nbytes
            self.window.sent()
            if self.pace is not None:
                self.pace.sent(self.engine.turn.now_ns)
        self.connection.mark_dirty()

    # --- large messages: from a file, a little at a time

    cdef object begin_stream(self, Entry entry, void *delivery):
        """Begin to send a body, all before which is sent; the link is taken until the rest is, too (§2.6.14)."""
        self.left = 0
        self.streaming = delivery
        self.streamed = entry
        self.streamed_ns = self.engine.turn.now_ns
        self.outflow = self.engine.large.send(entry.extra.body, self.on_block)
        self.connection.streams.append(self)
        self.count_sent(PyBytes_GET_SIZE(entry.data))

    def on_block(self):
        """Go on with a large message: more of it has been read, or can't be."""
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
            self.streamed_ns = self.engine.turn.now_ns

    cdef object end_stream(self):
        """Complete a large message: all of it is sent."""
        cdef Entry entry = self.streamed
        pn_link_advance(self.link)
        self.delivered += 1
        if self.presettled:
            pn_delivery_settle(self.streaming)
        self.drop_stream()
        if self.presettled and not self.browses:
            self.engine.settlement.acknowledge(self.node, entry)
        self.engine.turn.mark_dirty(self.node)

    cdef object drop_stream(self):
        """Let go of the large message under way."""
        self.outflow.close()
        self.outflow = None
        self.streaming = NULL
        self.streamed = None
        self.connection.streams.remove(self)

    def unreadable(self, reason):
        """What it is to be sent next can't be read from disk: where its files are is nothing for the peer."""
        _log.error("%s: link %s can't be sent its next message: %s", self.node.name, self.id, reason)
        if not self.dead:
            self.connection.owner.detach(
                self, "amqp:internal-error", "the next message can't be read, as the broker's log says")

    # --- the peer's word

    cdef object on_flow(self):
        if self.dead:
            return
        if (pn_link_get_drain(self.link) or self.connection.incoming.echo) and not self.draining:
            self.draining = True
            self.echo = self.connection.incoming.echo
            self.connection.answers.append(self)
        if not self.started and pn_link_credit(self.link) > 0:
            self.started = True
            self.engine.topology.consumers_changed(self.node)
        self.on_writable()

    cdef object on_writable(self):
        if self.node.queue.ready > 0 or self.node.queue.gap:
            self.engine.turn.mark_dirty(self.node)

    cdef object on_window(self):
        self.engine.turn.mark_dirty(self.node)

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
        if state == STATE_TRANSACTIONAL or self.provisional is not None:
            if self.is_provisional(delivery, entry, number, state):
                return
        self.leave_slot(number)
        if self.browses:
            # It took nothing: no word on a copy changes anything, but how far a named reader has come.
            if self.named is not None:
                self.deal_with(delivery, entry, state)
            self.free_slot(delivery, number)
            self.connection.mark_dirty()
            self.engine.turn.mark_dirty(self.node)
            return
        if state == STATE_ACCEPTED or state == 0 or state == STATE_RECEIVED:
            # Settled without an outcome counts as accepted, as with qpidd and Artemis.
            self.engine.settlement.acknowledge(self.node, entry)
        else:
            self.settle_as(delivery, entry, state)
        if delivery == self.streaming:
            # It has its answer before all of it was sent: the rest needn't be.
            self.free.append(number)
            self.delivered += 1
            pn_delivery_abort(delivery)
            self.drop_stream()
            self.connection.mark_dirty()
            self.engine.turn.mark_dirty(self.node)
        elif entry.durable and not pn_delivery_settled(delivery):
            # The peer waits for our settlement until its own is on disk.
            self.unwritten.wait(self.engine, self, delivery)
        else:
            self.free_slot(delivery, number)
            self.connection.mark_dirty()
        self.on_writable()

    cdef object leave_slot(self, long number):
        """Count a message that has its outcome."""
        if self.reads_stream:
            self.held_bytes -= PyBytes_GET_SIZE((<Entry>self.slots[number]).data)
        self.slots[number] = None
        self.in_flight -= 1
        self.settled += 1
        self.settled_ns = self.engine.turn.now_ns
        self.window.settled()
        if self.pace is not None:
            self.pace.settled(self.engine.turn.now_ns)
        if self.connection.shared is not None:
            self.connection.await_turn()

    # --- a named reader's place

    cdef object deal_with(self, void *delivery, Entry entry, unsigned long state):
        """Take the word of a named reader on a message: it has dealt with it, or wants it again."""
        cdef void *remote = pn_delivery_remote(delivery)
        cdef bint failed = state == STATE_MODIFIED and pn_disposition_is_failed(remote)
        cdef bint again = state == STATE_RELEASED or (
            state == STATE_MODIFIED and not pn_disposition_is_undeliverable(remote))
        if again:
            if (self.node.stream.give_back(self.reader, entry, failed, self.node.settings.max_delivery_count)
                    and not self.engine.settlement.pass_over(self.node, entry)):
                # Its dead letter has no room yet: it comes again, rather than be passed over without.
                self.node.stream.give_back(self.reader, entry, failed, 0)
        elif entry.redelivered:
            self.node.stream.deal_with(self.reader, entry.seq - 1)
        self.note_moved()

    cdef object note_moved(self):
        """Have what it has dealt with committed at the end of the turn."""
        if not self.has_moved:
            self.has_moved = True
            self.engine.streams.commits.moved.append(self)

    def dealt_offset(self):
        """The offset of a stream before which its peer has dealt with everything."""
        cdef Entry first = self.first_unsettled()
        cdef long offset = self.reader.passed if first is None else first.seq - 1
        cdef long owed = self.node.stream.first_owed(self.reader)
        return offset if owed < 0 else min(offset, owed)

    # --- transactions

    cdef bint is_provisional(self, void *delivery, Entry entry, long number, uint64_t state) except -1:
        """Keep an outcome that counts only once its transaction commits (AMQP 1.0 §4.4.2): true if it is one.

        A delivery that the peer has settled leaves the link at once. One that it hasn't stays unsettled until the
        transaction is discharged, and is still the link's if that rolls back.
        """
        cdef Retirement retired = None
        cdef Transaction transaction
        if self.provisional is not None:
            retired = self.provisional.get(number)
        if retired is None:
            if state != STATE_TRANSACTIONAL:
                return False
            transaction = self.connection.transaction_at(delivery)
            if transaction is None:
                text = "no transaction of this id is open on this connection"
                self.dead = True
                self.connection.owner.detach(self, "amqp:transaction:unknown-id", text)
                self.connection.mark_dirty()
                return True
            if self.named is not None:
                self.dead = True
                self.connection.owner.detach(
                    self, "amqp:not-implemented", "a stream's named reader settles outside transactions")
                self.connection.mark_dirty()
                return True
            if self.browses or (self.streaming == delivery):
                return False
            retired = self.retire(transaction, delivery, entry)
            if not pn_delivery_settled(delivery):
                if self.provisional is None:
                    self.provisional = {}
                    self.pending_discharge = {}
                retired.link = self
                retired.number = number
                self.provisional[number] = retired
                self.pending_discharge[number] = <size_t>delivery
                return True
        elif not pn_delivery_settled(delivery):
            # Another outcome of the same transaction: the first one stands.
            return True
        else:
            retired.link = None
            del self.provisional[number]
            del self.pending_discharge[number]
        self.leave_slot(number)
        self.free_slot(delivery, number)
        self.connection.mark_dirty()
        self.on_writable()
        return True

    cdef Retirement retire(self, Transaction transaction, void *delivery, Entry entry):
        """Put the outcome of a message into a transaction."""
        cdef Provisional told = provisional_of(delivery)
        cdef Retirement retired = transaction.retire(self.node, entry, told.outcome)
        self.transacted = True
        retired.failed = told.failed
        if told.undeliverable:
            retired.forbids = self
        if told.annotated:
            retired.annotations = self.connection.owner.provisional_annotations(<size_t>delivery)
        return retired

    def discharged(self, long number, bint committed):
        """The transaction of a delivery in this slot has ended: settle it if that committed."""
        cdef void *delivery = <void *><size_t>self.pending_discharge.pop(number)
        cdef Retirement retired = self.provisional.pop(number)
        if not committed:
            if self.timeout_ns > 0:
                # It is its receiver's again, to tell another outcome in time.
                self.note_sent(number)
            return
        self.leave_slot(number)
        pn_delivery_update(delivery, retired.outcome if retired.outcome else <long>STATE_ACCEPTED)
        if retired.entry.durable:
            self.unwritten.wait(self.engine, self, delivery)
        else:
            self.free_slot(delivery, number)
        self.connection.mark_dirty()
        self.on_writable()

    cdef object confirm(self, void *delivery):
        """Settle a delivery whose settlement by the peer is on disk."""
        cdef pn_bytes_t tag = pn_delivery_tag(delivery)
        self.free_slot(delivery, slot_of((<uint32_t *>tag.start)[0]))

    cdef object free_slot(self, void *delivery, long number):
        """Settle on our side; the slot, and with it the tag, is free again."""
        self.free.append(number)
        pn_delivery_settle(delivery)

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
        """Give a message back that the peer has rejected, modified or released."""
        cdef void *remote = pn_delivery_remote(delivery)
        cdef Node node = self.node
        if state == STATE_REJECTED:
            self.engine.settlement.reject(node, entry)
        elif state == STATE_MODIFIED:
            node.modified += 1
            if not node.deleted:
                if pn_disposition_is_undeliverable(remote):
                    node.queue.forbid(entry, self)
                self.connection.owner.annotate(<size_t>delivery, entry)
            self.engine.settlement.requeue(node, entry, pn_disposition_is_failed(remote))
        else:
            node.released += 1
            self.engine.settlement.requeue(node, entry, False)

    # --- messages held too long

    cpdef object limit_hold(self, long timeout_ns):
        """Set how long the peer may hold a message, the shorter of a node's time and its own; 0 is no limit.

        Messages it holds already count from now where there was none.
        """
        if self.asked_timeout_ns > 0 and (timeout_ns == 0 or self.asked_timeout_ns < timeout_ns):
            timeout_ns = self.asked_timeout_ns
        if self.presettled or self.browses:
            timeout_ns = 0
        if timeout_ns > 0 and self.timeout_ns == 0:
            self.sent_ns = [self.engine.turn.now_ns] * len(self.slots)
        self.timeout_ns = timeout_ns

    cdef object note_sent(self, long number):
        """Note when the message of a slot was sent."""
        if self.presettled or self.browses:
            return
        while len(self.sent_ns) <= number:
            self.sent_ns.append(0)
        self.sent_ns[number] = self.engine.turn.now_ns

    cdef object release_overdue(self, long now_ns):
        """Take back what the peer has held too long, and tell it: `modified` with delivery-failed (§3.4.5).

        A late outcome of the peer's finds no delivery any more. One that still waits for the socket, or a large
        one of which nothing goes out any more, can't be taken back from a peer that doesn't read: its link ends. One whose outcome was told in a transaction is
        that transaction's until it ends, which has a time limit of its own.
        """
        cdef void *delivery = pn_unsettled_head(self.link)
        cdef void *following
        cdef pn_bytes_t tag
        cdef uint32_t number
        cdef Entry entry
        cdef long since_ns
        while delivery != NULL and not self.dead:
            following = pn_unsettled_next(delivery)
            tag = pn_delivery_tag(delivery)
            number = slot_of((<uint32_t *>tag.start)[0]) if tag.size == 4 else MOST_TAGS
            entry = self.slots[number] if number < len(self.slots) else None
            if self.provisional is not None and number in self.provisional:
                entry = None
            if entry is not None and delivery == self.streaming:
                if now_ns - self.streamed_ns >= self.timeout_ns:
                    self.end_for_timeout()
                    return
            elif entry is not None:
                since_ns = self.sent_ns[number] if number < len(self.sent_ns) else now_ns
                if now_ns - since_ns < self.timeout_ns:
                    if self.transacted:
                        # Its time may have begun anew at a rollback: those behind it count from earlier.
                        delivery = following
                        continue
                    # Those behind it were sent later.
                    break
                if pn_delivery_buffered(delivery):
                    self.end_for_timeout()
                    return
                self.take_back(delivery, number, entry)
            delivery = following

    cdef object end_for_timeout(self):
        """End the link of a peer that doesn't read what it was sent."""
        self.connection.owner.detach(
            self, "amqp:resource-limit-exceeded",
            f"consumer_timeout: messages waited {self.timeout_ns // 1000000:,} ms to be read")

    cdef object take_back(self, void *delivery, long number, Entry entry):
        """Give a message back that the peer held too long, and settle its delivery on our own."""
        self.slots[number] = None
        self.in_flight -= 1
        self.timed_out += 1
        self.node.timed_out += 1
        self.window.settled()
        if self.pace is not None:
            self.pace.settled(self.engine.turn.now_ns)
        if self.connection.shared is not None:
            self.connection.await_turn()
        self.engine.settlement.requeue(self.node, entry, True)
        pn_disposition_set_failed(pn_delivery_local(delivery), True)
        pn_delivery_update(delivery, STATE_MODIFIED)
        self.free_slot(delivery, number)
        self.connection.mark_dirty()
        self.on_writable()

    # --- drain and echo

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
        if not self.browses:
            if self.engine.delivery.winding_down:
                return False
            if self.node.queue.ready > 0 and not self.engine.delivery.may_serve(self.node):
                # Whether any of it is for this one shows once it is dispatched.
                return True
            if self.node.hot.single_active and self.node.active_consumer() is not self:
                return False
        if self.node.queue.order is not None and not self.browses:
            if not self.node.queue.order.has_more(self):
                return False
            self.engine.turn.mark_dirty(self.node)
            return True
        if self.reader is not None:
            # Where nothing is ready what it hasn't looked at is others', for as long as they like.
            if self.node.queue.ready == 0 and not self.node.queue.gap and not self.browses:
                return False
            if not self.node.queue.has_more(self.reader):
                return False
            if not self.reader.waits:
                self.engine.turn.mark_dirty(self.node)
            return True
        if self.node.queue.gap:
            # More is on its way from disk.
            return True
        if self.node.queue.ready > 0 and self.node.queue.picky == 0:
            self.engine.turn.mark_dirty(self.node)
            return True
        return False

    def ready_msgs(self):
        """How many messages its node has for it or others."""
        return self.node.queue.ready

    # --- its rate

    cdef long sample(self, long now_ns, double seconds) except -1:
        cdef long count = self.delivered if self.presettled else self.settled
        cdef long found = 0
        self.rate = (count - self.sampled) / seconds
        self.sampled = count
        if self.timeout_ns > 0 and self.in_flight > 0:
            self.release_overdue(now_ns)
        if self.pace is not None and self.window.unsettled > 0:
            self.pace.look(now_ns)
            self.engine.turn.mark_dirty(self.node)
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
        if self.node.hot.single_active and self.node.active_consumer() is not self:
            return False
        if self.node.queue.order is not None:
            return self.node.queue.order.waits_for(self) and self.link_capacity() == 0
        if self.reader is not None and not self.node.queue.has_more(self.reader):
            return False
        return self.link_capacity() == 0

    # --- its end

    cdef bint has_unsent(self, void *session) except -1:
        return self.session == session and (
            pn_link_queued(self.link) > 0 or (self.streaming != NULL and pn_delivery_pending(self.streaming) > 0)
        )

    cpdef object close(self):
        """The link is gone: what it held goes back to its place. Of what its peer was sent, the first counts as
        a failed delivery: that is where a peer that takes them in order was. At a stop none does, nor where outcomes
        come in transactions: a receiver tells them before it works, and the rollback counts.
        """
        cdef Entry entry, first
        if self.has_unsent(self.session):
            self.connection.note_leak()
        self.dead = True
        if self.named is not None:
            self.engine.streams.commits.leave(self)
        first = None if self.engine.delivery.winding_down or self.transacted else self.first_unsettled()
        if self.outflow is not None:
            if self.presettled and not self.browses:
                self.engine.settlement.requeue(self.node, self.streamed, not self.engine.delivery.winding_down)
            self.drop_stream()
        pn_link_set_context(self.link, NULL)
        self.connection.links.discard(self)
        if self.provisional:
            self.leave_provisional()
        for entry in self.slots:
            if entry is not None:
                self.window.settled()
                if entry is first and not self.browses:
                    self.engine.settlement.requeue(self.node, entry, True)
                elif not self.browses:
                    self.engine.settlement.spare(self.node, entry)
        self.slots = []
        self.free = []
        self.unwritten.mark()
        self.unwritten.clear()
        self.in_flight = 0
        if self.connection.shared is not None:
            self.connection.shared.leave(self.window)
            self.connection.await_turn()
        self.window.owner = None

    cdef object leave_provisional(self):
        """Leave messages whose outcome waits for a transaction to that: it alone decides what becomes of them."""
        for number, retired in self.provisional.items():
            (<Retirement>retired).link = None
            self.slots[number] = None
            self.window.settled()
        self.provisional = None
        self.pending_discharge = None

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
            self.engine.delivery.remove_browser(self.node, self)
        else:
            self.engine.delivery.remove_consumer(self.node, self)

    # --- for Python

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


cdef bint is_untouched(Entry entry):
    """Whether a message goes out as it came."""
    return not (
        entry.redelivered
        or entry.delivery_count
        or entry.extra.annotations
        or entry.extra.expires_ns
        or entry.extra.mark
    )


cdef bytes rewritten(Entry entry, long now_ns):
    """Return a message with its header, and the annotations it was given, as they are to be told now."""
    cdef long left_ms = -1
    data = entry.data
    if entry.extra is not None and entry.extra.body is not None and is_untouched(entry):
        return data
    if entry.extra is not None and entry.extra.annotations:
        data = _message.with_annotations(data, entry.extra.annotations)
    if entry.extra is not None and entry.extra.mark:
        data = _grouping.with_property(data, entry.extra.mark)
    if entry.extra is not None and entry.extra.expires_ns:
        left_ms = max((entry.extra.expires_ns - now_ns) // 1000000, 0)
    return _message.with_delivery(data, entry.delivery_count, entry.redelivered, 0, left_ms, True)
