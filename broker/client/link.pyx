"""A blocking AMQP 1.0 client, compiled: connections, senders and receivers on Proton's C functions.

Every call that may have to wait pumps the one socket until what it waits for has come true, and
takes a timeout in seconds. Messages go in and come out encoded; nothing here looks inside them.
A connection belongs to one thread.
"""

from collections import deque
import os
import select
import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from broker.client cimport wire
from broker.client.wire cimport Wire
from broker.security.tlsstream cimport TlsStream

import cproton_ffi

from broker.client import plugin
from broker.client.dial import dial
from broker.client.errors import ClientError, ClientTimeoutError, ConnectionLostError
from broker.client.errors import MessageTooLargeError, RefusedError
from broker.client.tls import lost as tls_lost
from broker.client.tls import secured
from broker.client.url import parse
from broker.codec.offsets import offset_filter
from broker.security.tlsstream import TlsError

cdef object C = cproton_ffi.lib
cdef int DELIVERY = C.PN_DELIVERY, LINK_FLOW = C.PN_LINK_FLOW
cdef int LINK_REMOTE_OPEN = C.PN_LINK_REMOTE_OPEN
cdef int LINK_REMOTE_CLOSE = C.PN_LINK_REMOTE_CLOSE, LINK_REMOTE_DETACH = C.PN_LINK_REMOTE_DETACH
cdef int SESSION_REMOTE_CLOSE = C.PN_SESSION_REMOTE_CLOSE
cdef int CONNECTION_REMOTE_OPEN = C.PN_CONNECTION_REMOTE_OPEN
cdef int CONNECTION_REMOTE_CLOSE = C.PN_CONNECTION_REMOTE_CLOSE
cdef int TRANSPORT_CLOSED = C.PN_TRANSPORT_CLOSED
cdef int SND_SETTLED = C.PN_SND_SETTLED, SND_UNSETTLED = C.PN_SND_UNSETTLED
cdef int SND_MIXED = C.PN_SND_MIXED, RCV_FIRST = C.PN_RCV_FIRST
cdef uint64_t ACCEPTED = C.PN_ACCEPTED, REJECTED = C.PN_REJECTED
cdef uint64_t RELEASED = C.PN_RELEASED, MODIFIED = C.PN_MODIFIED, RECEIVED = C.PN_RECEIVED
cdef int UNSPECIFIED = C.PN_UNSPECIFIED, DELIVERIES = C.PN_DELIVERIES, EXPIRE_NEVER = C.PN_EXPIRE_NEVER

# Bytes a session may hold back before send() waits for the socket: several turns of the pump.
cdef size_t OUTGOING_LIMIT = 1 << 20
KEPT_REJECTIONS = 20


OUTCOMES = {ACCEPTED: "accepted", REJECTED: "rejected", RELEASED: "released", MODIFIED: "modified"}
STATES = {name: state for state, name in OUTCOMES.items()}


cdef str text(const char *value):
    return "" if value == NULL else (<bytes>value).decode("utf-8", "replace")


cdef object condition(void *cond):
    """The peer's error as an exception, or None if it gave none."""
    if cond == NULL or not wire.pn_condition_is_set(cond):
        return None
    return RefusedError(text(wire.pn_condition_get_name(cond)), text(wire.pn_condition_get_description(cond)))


cdef class Connection:
    """An open connection to a broker; a context manager. ``socket``: over one that is connected already.
    ``credentials``: of TLS, in place of the environment's.

    Raises RefusedError with the broker's reason, ConnectionLostError or ClientTimeoutError.
    """

    cdef Wire wire
    cdef TlsStream tls
    cdef object socket, poll, failure, login
    cdef void *session
    cdef list links
    cdef bint opened, closed
    cdef int64_t tick_at_ms
    cdef readonly object url
    cdef public double timeout_s

    def __init__(self, url, *, container_id=None, timeout_s=10.0, socket=None, int idle_timeout_ms=0,
                 credentials=None):
        self.url = parse(url)
        self.timeout_s = timeout_s
        self.links = []
        self.socket = dial(self.url, timeout_s) if socket is None else socket
        self.poll = select.poll()
        wire.prepare(&self.wire, self.socket.fileno())
        wire.pn_transport_set_idle_timeout(self.wire.transport, idle_timeout_ms)
        try:
            if self.url.scheme == "amqps":
                self.tls = secured(self.socket, self.url, credentials, timeout_s)
            self.begin(container_id or f"sluice-{os.getpid()}-{time.monotonic_ns():x}")
            self.wait(lambda: self.opened, timeout_s, "the connection to be opened")
        except BaseException:
            self.drop()
            raise

    cdef begin(self, str container_id):
        cdef void *connection = self.wire.connection
        wire.pn_connection_set_container(connection, container_id.encode())
        wire.pn_connection_set_hostname(connection, self.url.host.encode())
        if self.url.user is None:
            wire.go_without_password(&self.wire, self.tls is not None)
        else:
            self.login = plugin.begin(<size_t>self.wire.transport, self.url.user, self.url.password or "")
        wire.pn_transport_bind(self.wire.transport, connection)
        wire.pn_connection_open(connection)
        self.session = wire.pn_session(connection)
        wire.pn_session_open(self.session)

    def sender(self, str address, *, int window=1000, bint presettled=False, timeout_s=None, str name=None,
               str kind=None, bint durable=False, bint tracked=False):
        """Attaches a sender to ``address`` (None: the anonymous relay) and waits until it is.

        ``kind`` is the capability to ask for, ``queue`` or ``topic``, ``durable`` whether the node should last,
        where the broker makes it. A ``tracked`` one keeps the outcome of
        every message for ``outcomes``.
        """
        cdef Sender link = Sender.__new__(Sender)
        link.told = deque() if tracked else None
        link.kind = kind
        link.durable = durable
        link.window = max(window, 1)
        link.presettled = presettled
        cdef bytes named = name.encode() if name else self.name("s")
        link.attach(self, wire.pn_sender(self.session, named), address)
        self.attached(link, timeout_s)
        return link

    def receiver(self, str address, *, int credit=1000, limit=None, timeout_s=None, str name=None, str kind=None,
                 bint durable=False, bint manual=False, start=None):
        """Attaches a receiver to ``address``; None makes a dynamic node, named in ``Receiver.address``.

        ``limit`` is the most messages it will ever ask for. A ``durable`` one comes back to its subscription
        by ``name``. A ``manual`` one asks for nothing by itself: ``grant``, ``hand_over`` and ``settle`` are
        for whoever passes messages on. ``start`` is where a reader of a stream begins, an offset or a word such
        as `first`.
        """
        cdef Receiver link = Receiver.__new__(Receiver)
        link.kind = kind
        link.durable = durable
        link.manual = manual
        link.filters = b"" if start is None else offset_filter(start)
        link.credit = max(credit, 1)
        link.unasked = -1 if limit is None else limit
        link.held = deque()
        cdef bytes named = name.encode() if name else self.name("r")
        link.attach(self, wire.pn_receiver(self.session, named), address)
        self.attached(link, timeout_s)
        return link

    cdef bytes name(self, str kind):
        return f"sluice-{kind}{len(self.links)}-{time.monotonic_ns():x}".encode()

    cdef attached(self, Link link, timeout_s):
        self.links.append(link)
        wire.pn_link_open(link.link)
        self.wait(link.is_attached, timeout_s, f"{link.address or 'a dynamic node'} to be attached")

    def wait(self, ready, timeout_s=None, str what="the broker"):
        """Pumps the socket until ``ready()`` holds; ClientTimeoutError names ``what`` was waited for."""
        if not self.wait_until(ready, self.timeout_s if timeout_s is None else timeout_s):
            raise ClientTimeoutError(f"timed out waiting for {what}")

    def wait_until(self, ready, double timeout_s):
        """Pumps the socket until ``ready()`` holds; false if that took longer than ``timeout_s``."""
        cdef uint64_t deadline = wire.now_ns() + <uint64_t>(max(timeout_s, 0.0) * 1e9), now
        while True:
            flushed = self.pump()
            self.check()
            if ready():
                return True
            now = wire.now_ns()
            if now >= deadline:
                return False
            self.sleep(flushed, (deadline - now + 999999) // 1000000)

    cdef check(self):
        """Raises why the connection is of no more use, if it is."""
        if self.failure is not None and not self.closed:
            raise self.failure

    cdef sleep(self, bint flushed, int64_t wait_ms):
        cdef int64_t now_ms = wire.now_ns() // 1000000
        if self.tick_at_ms:
            wait_ms = min(wait_ms, self.tick_at_ms - now_ms if self.tick_at_ms > now_ms else 1)
        self.poll.register(self.wire.fd, select.POLLIN | (0 if flushed else select.POLLOUT))
        self.poll.poll(min(wait_ms, 3600000))

    def fileno(self):
        """The socket's descriptor, for those who wait for several."""
        return self.wire.fd

    def due_ms(self, int64_t most_ms):
        """How long ``pump`` may wait although nothing arrives, ``most_ms`` at most."""
        cdef int64_t now_ms = wire.now_ns() // 1000000
        if self.tick_at_ms:
            return min(most_ms, max(self.tick_at_ms - now_ms, 1))
        return most_ms

    def ensure(self):
        """Raises why the connection is of no more use, if it is."""
        self.check()

    def pump(self):
        """Reads and writes what can be without waiting; true when nothing is left to write."""
        cdef bint more = True, flushed
        if self.wire.transport == NULL:
            return True
        self.tick_at_ms = wire.pn_transport_tick(self.wire.transport, wire.now_ns() // 1000000)
        if self.tls is not None:
            flushed = self.pump_tls()
        else:
            while more:
                with nogil:
                    more = wire.read_some(&self.wire)
                self.events()
            with nogil:
                flushed = wire.write_some(&self.wire)
            self.events()
        if wire.pn_transport_closed(self.wire.transport):
            self.lose()
        return flushed

    cdef bint pump_tls(self) except -1:
        cdef bint flushed = True
        try:
            while wire.open_some(&self.wire, self.tls) != wire.NOTHING:
                self.events()
            self.events()
            flushed = wire.seal_some(&self.wire, self.tls)
        except TlsError as fault:
            if self.failure is None:
                self.failure = tls_lost(self.url, fault)
            wire.pn_transport_close_tail(self.wire.transport)
            wire.pn_transport_close_head(self.wire.transport)
        self.events()
        return flushed

    cdef events(self):
        cdef void *event
        while True:
            event = wire.pn_collector_peek(self.wire.collector)
            if event == NULL:
                return
            self.on_event(event, wire.pn_event_type(event))
            wire.pn_collector_pop(self.wire.collector)

    cdef on_event(self, void *event, int kind):
        cdef void *link
        if kind == DELIVERY:
            link = wire.pn_event_link(event)
            (<Link>wire.pn_link_get_context(link)).on_delivery(wire.pn_event_delivery(event))
        elif kind == LINK_REMOTE_OPEN:
            (<Link>wire.pn_link_get_context(wire.pn_event_link(event))).on_attach()
        elif kind == LINK_REMOTE_CLOSE or kind == LINK_REMOTE_DETACH:
            (<Link>wire.pn_link_get_context(wire.pn_event_link(event))).on_detach()
        elif kind == CONNECTION_REMOTE_OPEN:
            self.opened = True
        elif kind == CONNECTION_REMOTE_CLOSE:
            self.fail(condition(wire.pn_connection_remote_condition(self.wire.connection)))
        elif kind == SESSION_REMOTE_CLOSE:
            self.fail(condition(wire.pn_session_remote_condition(self.session)))

    cdef fail(self, failure):
        if self.failure is None:
            self.failure = failure or ConnectionLostError(f"{self.url} closed the connection")
        wire.pn_connection_close(self.wire.connection)

    cdef lose(self):
        if self.failure is None:
            found = condition(wire.pn_transport_condition(self.wire.transport))
            self.failure = lost(self.url, found)

    def close(self):
        """Closes in order, waiting a second at most for the broker to agree; safe to call twice."""
        if self.closed:
            return
        self.closed = True
        if self.wire.transport != NULL:
            wire.pn_connection_close(self.wire.connection)
            try:
                self.wait_until(lambda: self.failure is not None, 1.0)
            finally:
                self.drop()

    cdef drop(self):
        self.closed = True
        for link in self.links:
            (<Link>link).link = NULL
            (<Link>link).forget()
        wire.dispose(&self.wire)
        if self.tls is not None:
            self.tls.bid_farewell()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __dealloc__(self):
        wire.dispose(&self.wire)


cdef class Link:
    """What senders and receivers share: being attached, being refused, being closed."""

    cdef Connection connection
    cdef void *link
    cdef bint opened, detached
    cdef object failure, kind
    cdef bint durable
    cdef readonly object address

    cdef attach(self, Connection connection, void *link, address):
        """Names the ends of the link and how it settles; the connection opens it."""
        cdef bint sends = wire.pn_link_is_sender(link)
        cdef void *remote = wire.pn_link_target(link) if sends else wire.pn_link_source(link)
        self.connection = connection
        self.link = link
        self.address = address
        wire.pn_link_set_context(link, <void *>self)
        if address is not None:
            wire.pn_terminus_set_address(remote, address.encode())
        elif not sends:
            wire.pn_terminus_set_dynamic(remote, True)
        wire.pn_link_set_rcv_settle_mode(link, RCV_FIRST)
        if self.durable:
            wire.pn_terminus_set_durability(remote, DELIVERIES)
            wire.pn_terminus_set_expiry_policy(remote, EXPIRE_NEVER)
        if self.kind is not None:
            self.ask(wire.pn_terminus_capabilities(remote))
        self.dress()

    cdef ask(self, void *capabilities):
        cdef bytes name = self.kind.encode()
        cdef wire.pn_bytes_t symbol
        symbol.size = PyBytes_GET_SIZE(name)
        symbol.start = PyBytes_AS_STRING(name)
        wire.pn_data_put_symbol(capabilities, symbol)

    cdef dress(self):
        """Sets what only this kind of link sets before it is opened."""

    cdef on_delivery(self, void *delivery):
        pass

    cdef on_attach(self):
        cdef void *terminus
        self.opened = True
        if self.address is None and not wire.pn_link_is_sender(self.link):
            terminus = wire.pn_link_remote_source(self.link)
            self.address = text(wire.pn_terminus_get_address(terminus))

    cdef on_detach(self):
        self.detached = True
        self.failure = condition(wire.pn_link_remote_condition(self.link)) or ClientError(
            f"the broker detached {self.address or 'the link'} without a reason")
        wire.pn_link_close(self.link)

    cdef forget(self):
        """The connection is gone: nothing of Proton's may be touched any more."""

    cdef check(self):
        if self.failure is not None:
            raise self.failure
        if self.link == NULL:
            raise self.connection.failure or ClientError("the connection is closed")

    def is_attached(self):
        """Whether the broker has attached the link; raises why it refused to."""
        cdef void *terminus
        if self.failure is not None:
            raise self.failure
        if not self.opened:
            return False
        # A refused link is attached with an empty terminus first, and detached with the reason after
        # that (AMQP 1.0 §2.6.3): wait for it.
        terminus = (wire.pn_link_remote_target(self.link) if wire.pn_link_is_sender(self.link)
                    else wire.pn_link_remote_source(self.link))
        if wire.pn_terminus_get_type(terminus) == UNSPECIFIED:
            return False
        return self.address is None or wire.pn_terminus_get_address(terminus) != NULL

    def close(self, timeout_s=None):
        """Detaches the link and waits until the broker has done so too."""
        if self.link == NULL or self.detached:
            return
        wire.pn_link_close(self.link)
        self.connection.wait(lambda: self.detached, timeout_s, f"{self.address} to be detached")


cdef class Sender(Link):
    """Sends encoded messages, many under way at once, and counts what became of them.

    ``rejections`` keeps the first of them as (number of the message, condition, description), counted
    from 1; ``blocked_ns`` is the time ``send`` spent without credit.
    """

    cdef uint64_t tag
    cdef readonly int window
    cdef readonly bint presettled
    cdef readonly uint64_t sent, accepted, rejected, released, modified, unknown, blocked_ns
    cdef readonly list rejections
    cdef object told
    # Bytes; 0: the broker named no limit when it attached the link.
    cdef readonly uint64_t max_message_size

    cdef dress(self):
        self.rejections = []
        wire.pn_link_set_snd_settle_mode(self.link, SND_SETTLED if self.presettled else SND_UNSETTLED)

    cdef on_attach(self):
        Link.on_attach(self)
        self.max_message_size = wire.pn_link_remote_max_message_size(self.link)

    def check_size(self, size):
        """Raises MessageTooLargeError for more bytes than the broker said it takes in a message here."""
        if 0 < self.max_message_size < size:
            raise MessageTooLargeError(size, self.max_message_size, self.address)

    @property
    def settled(self):
        """How many messages have an outcome; a pre-settled one has it when sent."""
        if self.presettled:
            return self.sent
        return self.accepted + self.rejected + self.released + self.modified + self.unknown

    @property
    def credit(self):
        """Messages the broker would take now."""
        return 0 if self.link == NULL else wire.pn_link_credit(self.link)

    cpdef bint may_send(self) except? False:
        """Whether credit, window and buffers leave room for one more message."""
        self.check()
        if wire.pn_link_credit(self.link) <= 0:
            return False
        if not self.presettled and self.sent - <uint64_t>self.settled >= <uint64_t>self.window:
            return False
        return wire.pn_session_outgoing_bytes(self.connection.session) < OUTGOING_LIMIT

    def send(self, bytes message, timeout_s=None):
        """Sends one encoded message, waiting for credit as long as it takes or ``timeout_s`` says.

        One that is larger than the broker takes is not sent: MessageTooLargeError.
        """
        if 0 < self.max_message_size < <uint64_t>PyBytes_GET_SIZE(message):
            self.check_size(len(message))
        if not self.may_send():
            self.block(timeout_s)
        self.put(message)

    cdef block(self, timeout_s):
        cdef uint64_t begin = wire.now_ns()
        cdef bint dry = wire.pn_link_credit(self.link) <= 0
        try:
            limit = 1e9 if timeout_s is None else timeout_s
            if not self.connection.wait_until(self.may_send, limit):
                raise ClientTimeoutError(f"no credit for {self.address} within {limit:g} s")
        finally:
            if dry:
                self.blocked_ns += wire.now_ns() - begin

    cdef put(self, bytes message):
        cdef wire.pn_bytes_t tag
        cdef void *delivery
        self.tag += 1
        tag.size = sizeof(self.tag)
        tag.start = <char *>&self.tag
        delivery = wire.pn_delivery(self.link, tag)
        wire.pn_delivery_set_context(delivery, <void *>self.tag)
        wire.pn_link_send(self.link, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
        wire.pn_link_advance(self.link)
        self.sent += 1
        if self.presettled:
            wire.pn_delivery_settle(delivery)

    def flush(self, timeout_s=None):
        """Waits until every message sent has its outcome, or for pre-settled ones is on its way."""
        self.connection.wait(self.is_flushed, timeout_s, f"outcomes from {self.address}")

    def is_flushed(self):
        """Whether nothing sent is still under way; raises why it never will be."""
        self.check()
        if self.settled < self.sent:
            return False
        # Pending asks Proton to encode first, so nothing hides behind the transport.
        return wire.pn_transport_pending(self.connection.wire.transport) <= 0

    cdef on_delivery(self, void *delivery):
        cdef uint64_t state = wire.pn_delivery_remote_state(delivery)
        if not wire.pn_delivery_updated(delivery):
            return
        if state == RECEIVED or (state == 0 and not wire.pn_delivery_settled(delivery)):
            return
        self.count(state, delivery)
        if self.told is not None:
            self.tell(state, delivery)
        wire.pn_delivery_settle(delivery)

    cdef tell(self, uint64_t state, void *delivery):
        cdef void *remote = wire.pn_delivery_remote(delivery)
        cdef void *cond = wire.pn_disposition_condition(remote)
        self.told.append((
            <uint64_t>wire.pn_delivery_get_context(delivery),
            OUTCOMES.get(state, "accepted" if state == 0 else "released"),
            bool(state == MODIFIED and wire.pn_disposition_is_failed(remote)),
            bool(state == MODIFIED and wire.pn_disposition_is_undeliverable(remote)),
            text(wire.pn_condition_get_name(cond)),
            text(wire.pn_condition_get_description(cond)),
        ))

    def outcomes(self):
        """What became of messages since the last call: (number counted from 1, outcome, failed,
        undeliverable, condition, description). Settled without an outcome counts as accepted.
        """
        cdef list found = list(self.told)
        self.told.clear()
        return found

    cdef count(self, uint64_t state, void *delivery):
        if state == ACCEPTED:
            self.accepted += 1
        elif state == REJECTED:
            self.rejected += 1
            self.keep(delivery)
        elif state == RELEASED:
            self.released += 1
        elif state == MODIFIED:
            self.modified += 1
        else:
            self.unknown += 1

    cdef keep(self, void *delivery):
        cdef void *cond = wire.pn_disposition_condition(wire.pn_delivery_remote(delivery))
        if len(self.rejections) < KEPT_REJECTIONS:
            self.rejections.append((
                <uint64_t>wire.pn_delivery_get_context(delivery),
                text(wire.pn_condition_get_name(cond)),
                text(wire.pn_condition_get_description(cond)),
            ))


cdef class Receiver(Link):
    """Receives encoded messages; each is accepted when it is taken, not before.

    Messages arrived and not taken count against the credit, so that it bounds what is held here.
    """

    cdef object held
    cdef int64_t unasked
    cdef readonly int credit
    cdef readonly uint64_t received
    cdef bint manual
    cdef bytes filters

    cdef dress(self):
        wire.pn_link_set_snd_settle_mode(self.link, SND_MIXED)
        if self.filters:
            wire.pn_data_decode(wire.pn_terminus_filter(wire.pn_link_source(self.link)),
                                PyBytes_AS_STRING(self.filters), PyBytes_GET_SIZE(self.filters))

    cdef on_attach(self):
        Link.on_attach(self)
        if not self.manual:
            self.renew()

    cdef renew(self):
        """Asks for more once half the credit is used, as far as the limit allows."""
        cdef int64_t standing = wire.pn_link_credit(self.link) + len(self.held)
        cdef int64_t more = self.credit - standing
        if standing > self.credit // 2:
            return
        if 0 <= self.unasked < more:
            more = self.unasked
        if more > 0:
            wire.pn_link_flow(self.link, <int>more)
            if self.unasked >= 0:
                self.unasked -= more

    cdef on_delivery(self, void *delivery):
        cdef ssize_t size
        cdef bytes message
        if not wire.pn_delivery_readable(delivery) or wire.pn_delivery_partial(delivery):
            return
        size = wire.pn_delivery_pending(delivery)
        message = PyBytes_FromStringAndSize(NULL, size)
        size = wire.pn_link_recv(self.link, PyBytes_AS_STRING(message), size)
        wire.pn_link_advance(self.link)
        if self.manual and wire.pn_link_credit(self.link) < 0:
            # It was under way when the credit was taken back; below 0 the next flow frame would say 2³² - 1.
            wire.pn_link_flow(self.link, -wire.pn_link_credit(self.link))
        if size < 0 or wire.pn_delivery_aborted(delivery):
            wire.pn_delivery_settle(delivery)
            return
        self.received += 1
        self.held.append((<size_t>delivery, message))

    def take(self, int most=1, timeout_s=None):
        """Accepts and returns up to ``most`` messages; waits for the first, [] if none came in time."""
        cdef list taken = []
        self.check()
        if not self.held:
            self.connection.wait_until(self.has_message, 1e9 if timeout_s is None else timeout_s)
        while self.held and len(taken) < most:
            delivery, message = self.held.popleft()
            self.accept(<void *><size_t>delivery)
            taken.append(message)
        if self.link != NULL and not self.detached:
            self.renew()
        return taken

    @property
    def asked(self):
        """Credit that stands: messages the broker may still send."""
        return 0 if self.link == NULL else max(wire.pn_link_credit(self.link), 0)

    def grant(self, int msgs):
        """Asks for so many more; a negative number takes credit back."""
        self.check()
        wire.pn_link_flow(self.link, msgs)

    def hand_over(self):
        """What has arrived, unsettled: (delivery, message) each; the delivery is 0 where it came pre-settled."""
        cdef list found = []
        self.check()
        while self.held:
            delivery, message = self.held.popleft()
            if wire.pn_delivery_settled(<void *><size_t>delivery):
                wire.pn_delivery_settle(<void *><size_t>delivery)
                delivery = 0
            found.append((delivery, message))
        return found

    def settle(self, size_t delivery, str outcome, bint failed=False, bint undeliverable=False,
               str name=None, str description=None):
        """Says what became of a message that was handed over, once for each."""
        cdef void *local
        cdef void *cond
        if self.link == NULL or delivery == 0:
            return
        local = wire.pn_delivery_local(<void *>delivery)
        if outcome == "modified":
            wire.pn_disposition_set_failed(local, failed)
            wire.pn_disposition_set_undeliverable(local, undeliverable)
        elif outcome == "rejected" and name:
            cond = wire.pn_disposition_condition(local)
            wire.pn_condition_set_name(cond, name.encode())
            wire.pn_condition_set_description(cond, (description or "").encode())
        wire.pn_delivery_update(<void *>delivery, <uint64_t>STATES[outcome])
        wire.pn_delivery_settle(<void *>delivery)

    def has_message(self):
        """Whether a message is waiting to be taken; raises why none will come."""
        if not self.held:
            self.check()
        return bool(self.held)

    cdef accept(self, void *delivery):
        if not wire.pn_delivery_settled(delivery):
            wire.pn_delivery_update(delivery, ACCEPTED)
        wire.pn_delivery_settle(delivery)

    cdef forget(self):
        self.held.clear()


cdef explained(url, str text):
    """Proton's words, and what they mean where nothing was offered that we could have chosen."""
    if "mech=none" not in text:
        return text
    if url.user is None:
        return f"{text}: {url} wants to know who you are: give a user and a password"
    return f"{text}: {url} offers no way to log in with a password here"


cdef lost(url, found):
    """How a connection that nobody closed ended, with what Proton made of it."""
    if found is None:
        return ConnectionLostError(f"{url} closed the connection")
    if found.condition == "amqp:unauthorized-access":
        return RefusedError(found.condition, explained(url, found.description))
    return ConnectionLostError(f"connection to {url} lost: {found}")
