"""The load generator's loop: many connections, one thread, one epoll, no interpreter per message.

It must outrun every broker it measures, so all of it is C without the GIL; ``load.py`` decides when to
warm up, measure and stop, and reads the counters between two calls of ``spin``. A body begins with a
stamp (run, sender, sequence number, CLOCK_MONOTONIC at sending), found from the end of the message
whatever sections a broker puts in front.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strncpy

from broker.client cimport wire
from broker.client.load cimport batches
from broker.client.load.batches cimport Batches
from broker.client.wire cimport Wire, now_ns
from broker.security.tlsstream cimport TlsStream

import cproton_ffi

from broker.client import plugin
from broker.client.dial import dial
from broker.client.errors import ClientError, ConnectionLostError, RefusedError
from broker.client.tls import secured
from broker.client.url import parse
from broker.security.tlsstream import TlsError

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    const uint32_t EPOLLIN
    const uint32_t EPOLLOUT
    const int EPOLL_CTL_ADD
    const int EPOLL_CTL_MOD
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)

cdef extern from "<sys/timerfd.h>" nogil:
    struct itimerspec:
        wire.timespec it_interval
        wire.timespec it_value
    const int TFD_NONBLOCK
    const int TFD_TIMER_ABSTIME
    int timerfd_create(int, int)
    int timerfd_settime(int, int, const itimerspec *, itimerspec *)

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int, void *, size_t)
    int close(int)

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long)

cdef object C = cproton_ffi.lib
cdef int DELIVERY = C.PN_DELIVERY, LINK_REMOTE_OPEN = C.PN_LINK_REMOTE_OPEN
cdef int LINK_REMOTE_CLOSE = C.PN_LINK_REMOTE_CLOSE, LINK_REMOTE_DETACH = C.PN_LINK_REMOTE_DETACH
cdef int CONNECTION_REMOTE_CLOSE = C.PN_CONNECTION_REMOTE_CLOSE
cdef int TRANSPORT_CLOSED = C.PN_TRANSPORT_CLOSED
cdef int SND_SETTLED = C.PN_SND_SETTLED, SND_UNSETTLED = C.PN_SND_UNSETTLED, RCV_FIRST = C.PN_RCV_FIRST
cdef uint64_t ACCEPTED = C.PN_ACCEPTED, RECEIVED = C.PN_RECEIVED

cdef enum:
    MOST = 256                # connections; an index fits the epoll tag with room to spare
    TIMER = 0xFFFF            # the timer's epoll tag
    STAMP = 32                # bytes
    GROUP_DIGITS = 8          # of a group-id, decimal
    MINOR = 128               # cells per power of two: 1/128 wide, so the middle errs by 0.4 %
    CELLS = 128 * 58
    SPAN = 1 << 20            # sequence numbers a receiver may lag behind the newest and still be checked
    SPAN_BYTES = 1 << 17
    LATE_NS = 2000000         # a paced send later than this counts from when it was due
    HELPINGS = 8              # of 16 KiB; with one, 1 KiB messages were a quarter slower (make bench)
    OUTGOING_LIMIT = 1 << 20  # bytes a session may hold back

cdef struct Histogram:
    uint64_t count
    uint64_t largest
    uint64_t cells[CELLS]

cdef struct Stamp:
    uint64_t run
    uint64_t sender
    uint64_t seq
    uint64_t sent_ns

cdef struct Seen:
    uint64_t highest
    uint8_t bits[SPAN_BYTES]

cdef struct Peer:
    Wire wire
    # A TlsStream that the Loop keeps; NULL for plain AMQP.
    void *tls
    void *session
    void *link
    bint is_sender
    bint attached
    bint gone
    bint touched
    bint wants_out
    uint64_t index
    uint64_t run
    uint64_t sent
    uint64_t done
    uint64_t quota
    uint64_t dry_since_ns
    uint64_t last_seq[MOST]
    Batches batches


cdef void add(Histogram *h, uint64_t value) noexcept nogil:
    cdef uint64_t cell = value
    cdef int shift
    if value >= MINOR:
        shift = 63 - __builtin_clzll(value) - 7
        cell = (<uint64_t>(shift + 1)) * MINOR + ((value >> shift) & (MINOR - 1))
    h.cells[cell if cell < CELLS else CELLS - 1] += 1
    h.count += 1
    if value > h.largest:
        h.largest = value


cdef double quantile_us(Histogram *h, double share) noexcept nogil:
    """The middle of the cell that holds the wanted rank, in microseconds."""
    cdef uint64_t want = <uint64_t>(share * h.count), seen = 0, cell, shift, low
    for cell in range(CELLS):
        seen += h.cells[cell]
        if seen > want:
            shift = cell // MINOR - 1 if cell >= MINOR else 0
            low = cell if cell < MINOR else (MINOR + cell % MINOR) << shift
            return (low + (<uint64_t>1 << shift) / 2.0) / 1e3
    return h.largest / 1e3


cdef dict percentiles(Histogram *h):
    if not h.count:
        return None
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    result = {"n": h.count} | {name: round(quantile_us(h, share), 1) for name, share in named.items()}
    return result | {"max": round(h.largest / 1e3, 1)}


cdef bint is_repeat(Seen *seen, uint64_t seq) noexcept nogil:
    """Notes a sequence number; true if it was noted before. One too old to tell is taken as new."""
    cdef uint64_t k
    cdef uint8_t bit = 1 << (seq & 7)
    if seq > seen.highest:
        if seq - seen.highest >= SPAN:
            memset(seen.bits, 0, SPAN_BYTES)
        else:
            for k in range(seen.highest + 1, seq):
                seen.bits[(k % SPAN) >> 3] &= ~(1 << (k & 7))
        seen.highest = seq
    elif seen.highest - seq < SPAN and seen.bits[(seq % SPAN) >> 3] & bit:
        return True
    seen.bits[(seq % SPAN) >> 3] |= bit
    return False


cdef class LoadLoop:
    """All connections of one run. Counters may be read between two calls of ``spin``."""

    cdef Peer *peers
    cdef Seen *seen
    cdef Histogram *latency
    cdef Histogram *ack
    cdef char *frame
    cdef char *incoming
    cdef size_t frame_size, body_size, incoming_room
    cdef int epoll, timer, count, senders
    cdef uint64_t run, window, max_backlog, batch, retire, started_ns, timer_ns, groups
    cdef size_t group_at
    cdef int credit
    cdef double gap_ns
    cdef bint presettled, stop
    cdef list sockets, addresses, streams, logins
    cdef Peer *broken
    cdef object fault
    cdef char condition[64]
    cdef char description[256]
    cdef public bint measuring, sending
    cdef readonly uint64_t sent, done, received, refused, repeated, unordered, foreign, blocked_ns

    def __cinit__(self, uint64_t run, bytes frame, size_t body_size, int senders, *, uint64_t window=1000,
                  int credit=1000, bint presettled=False, uint64_t max_backlog=0, double rate=0.0,
                  uint64_t batch=0, uint64_t retire=0, uint64_t groups=0, size_t group_at=0):
        self.peers = <Peer *>calloc(MOST, sizeof(Peer))
        self.seen = <Seen *>calloc(max(senders, 1), sizeof(Seen))
        self.latency = <Histogram *>calloc(1, sizeof(Histogram))
        self.ack = <Histogram *>calloc(1, sizeof(Histogram))
        self.frame_size = len(frame)
        self.frame = <char *>malloc(self.frame_size)
        self.incoming_room = 65536
        self.incoming = <char *>malloc(self.incoming_room)
        if not (self.peers and self.seen and self.latency and self.ack and self.frame and self.incoming):
            raise MemoryError
        memcpy(self.frame, <const char *>frame, self.frame_size)
        self.run, self.body_size, self.senders = run, body_size, senders
        self.epoll = epoll_create1(0)
        self.timer = timerfd_create(wire.CLOCK_MONOTONIC, TFD_NONBLOCK)
        self.watch(self.timer, TIMER, EPOLLIN, EPOLL_CTL_ADD)
        self.sockets, self.addresses, self.streams, self.logins = [], [], [], []
        self.window, self.credit, self.presettled = window, credit, presettled
        self.max_backlog, self.batch, self.retire = max_backlog, batch, retire
        self.groups, self.group_at = groups, group_at
        self.gap_ns = 1e9 * senders / rate if rate else 0.0

    def __dealloc__(self):
        cdef int i
        if self.peers != NULL:
            for i in range(self.count):
                wire.dispose(&self.peers[i].wire)
        for at in (<size_t>self.peers, <size_t>self.seen, <size_t>self.latency, <size_t>self.ack,
                   <size_t>self.frame, <size_t>self.incoming):
            free(<void *>at)
        close(self.timer)
        close(self.epoll)

    cdef void watch(self, int fd, uint32_t tag, uint32_t events, int how) noexcept nogil:
        cdef epoll_event event
        event.events = events
        event.data.u32 = tag
        epoll_ctl(self.epoll, how, fd, &event)

    # --- setting up ---------------------------------------------------------------------------

    def connect(self, url, str address, *, bint is_sender, int index, uint64_t quota=0, timeout_s=10.0):
        """Opens one connection with one link; ``attached`` tells when the broker has agreed."""
        cdef Peer *peer
        if self.count == MOST:
            raise ClientError(f"more than {MOST} connections")
        target = parse(url)
        connected = dial(target, timeout_s)
        self.sockets.append(connected)
        self.addresses.append(address)
        peer = &self.peers[self.count]
        peer.is_sender, peer.index, peer.quota = is_sender, index, quota
        wire.prepare(&peer.wire, connected.fileno())
        if target.scheme == "amqps":
            stream = secured(connected, target, None, timeout_s)
            self.streams.append(stream)
            peer.tls = <void *>stream
        self.introduce(peer, target)
        self.attach(peer, address.encode(), f"load-{self.run:x}-{'s' if is_sender else 'r'}{index}".encode())
        self.watch(peer.wire.fd, self.count, EPOLLIN, EPOLL_CTL_ADD)
        self.count += 1
        self.write_out(peer)

    cdef introduce(self, Peer *peer, url):
        cdef bytes name = f"sluice-load-{self.run:x}-{self.count}".encode()
        wire.pn_connection_set_container(peer.wire.connection, name)
        wire.pn_connection_set_hostname(peer.wire.connection, url.host.encode())
        if url.user is None:
            wire.go_without_password(&peer.wire, peer.tls != NULL)
        else:
            self.logins.append(plugin.begin(<size_t>peer.wire.transport, url.user, url.password or ""))
        wire.pn_transport_bind(peer.wire.transport, peer.wire.connection)

    cdef attach(self, Peer *peer, bytes address, bytes name):
        wire.pn_connection_open(peer.wire.connection)
        peer.session = wire.pn_session(peer.wire.connection)
        wire.pn_session_open(peer.session)
        if peer.is_sender:
            peer.link = wire.pn_sender(peer.session, name)
            wire.pn_terminus_set_address(wire.pn_link_target(peer.link), address)
        else:
            peer.link = wire.pn_receiver(peer.session, name)
            wire.pn_terminus_set_address(wire.pn_link_source(peer.link), address)
        wire.pn_link_set_snd_settle_mode(peer.link, SND_SETTLED if self.presettled else SND_UNSETTLED)
        wire.pn_link_set_rcv_settle_mode(peer.link, RCV_FIRST)
        wire.pn_link_open(peer.link)
        if not peer.is_sender:
            wire.pn_link_flow(peer.link, self.credit)
        peer.batches.most = self.batch if peer.is_sender else self.retire
        if peer.batches.most:
            batches.begin(&peer.batches, peer.session, b"load-transactions")

    # --- reading the counters -----------------------------------------------------------------

    @property
    def attached(self):
        """Whether the broker has attached every link."""
        return all(self.peers[i].attached for i in range(self.count))

    def latency_us(self):
        """Percentiles from stamp to receipt, in microseconds; None without a measured message."""
        return percentiles(self.latency)

    def ack_us(self):
        """Percentiles from stamp to outcome, in microseconds; None without a measured message."""
        return percentiles(self.ack)

    def begin(self):
        """Lets the senders send; a paced schedule counts from now."""
        self.started_ns = now_ns()
        self.sending = True

    # --- turning ------------------------------------------------------------------------------

    def spin(self, double seconds, uint64_t until_received=0, uint64_t until_done=0):
        """Drives every connection for so long, or until so many messages were received or settled.

        Raises RefusedError or ConnectionLostError when a connection or link ends.
        """
        cdef uint64_t deadline = now_ns() + <uint64_t>(seconds * 1e9)
        with nogil:
            self.commit_rest()
            while self.broken == NULL and self.turn(deadline):
                if until_received and self.received >= until_received:
                    break
                if until_done and self.done >= until_done:
                    break
        if self.broken != NULL:
            self.complain()

    cdef complain(self):
        address = self.addresses[self.broken - self.peers]
        condition = (<bytes>self.condition).decode("utf-8", "replace")
        description = (<bytes>self.description).decode("utf-8", "replace")
        if condition:
            raise RefusedError(condition, description)
        if self.fault is not None:
            raise ConnectionLostError(f"the connection for {address} was closed: TLS: {self.fault}")
        raise ConnectionLostError(f"the connection for {address} was closed")

    cdef bint turn(self, uint64_t deadline) noexcept nogil:
        """Sends, flushes, waits and reads once; false when the time is up or a signal came.

        Sending comes first: what is possible when spin() begins has no event to announce it.
        """
        cdef epoll_event events[64]
        cdef uint64_t now, expired
        cdef int n, i
        self.push()
        now = now_ns()
        if now >= deadline:
            return False
        n = epoll_wait(self.epoll, events, 64, <int>((deadline - now + 999999) // 1000000))
        for i in range(n):
            if events[i].data.u32 == TIMER:
                read(self.timer, &expired, 8)
            else:
                self.read_in(&self.peers[events[i].data.u32])
        return n >= 0

    cdef void push(self) noexcept nogil:
        cdef int i
        for i in range(self.count):
            if self.peers[i].batches.most and self.peers[i].attached:
                batches.declare_ahead(&self.peers[i].batches)
                if not self.peers[i].is_sender:
                    batches.retire_some(&self.peers[i].batches, self.peers[i].link)
                self.peers[i].touched = True
            if self.peers[i].is_sender and self.peers[i].attached:
                if self.sending:
                    self.send_some(&self.peers[i])
                elif self.peers[i].batches.posted and self.started_ns:
                    batches.discharge(&self.peers[i].batches)
                    self.peers[i].touched = True
        for i in range(self.count):
            if self.peers[i].touched:
                self.flush(&self.peers[i])

    cdef void commit_rest(self) noexcept nogil:
        """Commit receivers' transactions that nothing was added to since the last time: no more may come."""
        cdef int i
        cdef Batches *open
        for i in range(self.count):
            open = &self.peers[i].batches
            if not self.peers[i].is_sender and open.posted and open.posted == open.noted:
                batches.discharge(open)
            open.noted = open.posted

    cdef void read_in(self, Peer *peer) noexcept nogil:
        """A few helpings at most: level-triggered epoll comes back for the rest, and no peer starves."""
        cdef int helping
        cdef bint more
        peer.touched = True
        if peer.tls != NULL:
            self.open_in(peer)
            return
        for helping in range(HELPINGS):
            more = wire.read_some(&peer.wire)
            self.handle(peer)
            if not more:
                return

    cdef void open_in(self, Peer *peer) noexcept with gil:
        """The same through TLS, to the end of what that holds."""
        cdef int left, helping = 0
        try:
            while True:
                left = wire.open_some(&peer.wire, <TlsStream>peer.tls)
                self.handle(peer)
                helping += 1
                if left == wire.NOTHING or (left == wire.MORE and helping >= HELPINGS):
                    return
        except TlsError as fault:
            self.fault = fault
            wire.pn_transport_close_tail(peer.wire.transport)
            self.handle(peer)

    cdef bint write_out(self, Peer *peer) noexcept nogil:
        if peer.tls == NULL:
            return wire.write_some(&peer.wire)
        with gil:
            return wire.seal_some(&peer.wire, <TlsStream>peer.tls)

    cdef void flush(self, Peer *peer) noexcept nogil:
        cdef bint blocked = not self.write_out(peer)
        wire.pn_transport_tick(peer.wire.transport, now_ns() // 1000000)
        self.handle(peer)
        peer.touched = False
        if blocked != peer.wants_out:
            peer.wants_out = blocked
            self.watch(peer.wire.fd, <uint32_t>(peer - self.peers), EPOLLIN | (EPOLLOUT if blocked else 0),
                       EPOLL_CTL_MOD)

    cdef void handle(self, Peer *peer) noexcept nogil:
        cdef void *event
        cdef int kind
        while True:
            event = wire.pn_collector_peek(peer.wire.collector)
            if event == NULL:
                return
            kind = wire.pn_event_type(event)
            if kind == DELIVERY:
                if peer.is_sender or wire.pn_delivery_link(wire.pn_event_delivery(event)) != peer.link:
                    self.on_outcome(peer, wire.pn_event_delivery(event))
                else:
                    self.on_message(peer, wire.pn_event_delivery(event))
            elif kind == LINK_REMOTE_OPEN:
                peer.attached = peer.attached or wire.pn_event_link(event) == peer.link
            elif kind == LINK_REMOTE_CLOSE or kind == LINK_REMOTE_DETACH:
                self.broke(peer, wire.pn_link_remote_condition(peer.link))
            elif kind == CONNECTION_REMOTE_CLOSE:
                self.broke(peer, wire.pn_connection_remote_condition(peer.wire.connection))
            elif kind == TRANSPORT_CLOSED:
                self.broke(peer, wire.pn_transport_condition(peer.wire.transport))
            wire.pn_collector_pop(peer.wire.collector)

    cdef void broke(self, Peer *peer, void *cond) noexcept nogil:
        """Keeps the first peer that ended, and why; spin() raises it."""
        if self.broken != NULL or self.stop:
            return
        self.broken = peer
        if cond != NULL and wire.pn_condition_is_set(cond):
            copy(self.condition, wire.pn_condition_get_name(cond), sizeof(self.condition))
            copy(self.description, wire.pn_condition_get_description(cond), sizeof(self.description))

    # --- senders ------------------------------------------------------------------------------

    cdef bint may_send(self, Peer *peer) noexcept nogil:
        if self.max_backlog and self.sent - self.refused >= self.received + self.max_backlog:
            return False
        if not self.presettled and peer.sent - peer.done >= self.window:
            return False
        if peer.quota and peer.sent >= peer.quota:
            return False
        if peer.batches.most and not peer.batches.ready:
            return False
        return wire.pn_session_outgoing_bytes(peer.session) < OUTGOING_LIMIT

    cdef void send_some(self, Peer *peer) noexcept nogil:
        cdef uint64_t now, due
        if not self.has_credit(peer):
            return
        while wire.pn_link_credit(peer.link) > 0 and self.may_send(peer):
            now = now_ns()
            if self.gap_ns > 0:
                due = self.started_ns + <uint64_t>((peer.sent + peer.index / <double>self.senders) * self.gap_ns)
                if now < due:
                    self.wake_at(due)
                    break
                if now > due + LATE_NS:
                    now = due
            self.send_one(peer, now)

    cdef bint has_credit(self, Peer *peer) noexcept nogil:
        """Whether the broker lets it send; keeps the time it did not."""
        if wire.pn_link_credit(peer.link) <= 0:
            if peer.dry_since_ns == 0:
                peer.dry_since_ns = now_ns()
            return False
        if peer.dry_since_ns:
            if self.measuring:
                self.blocked_ns += now_ns() - peer.dry_since_ns
            peer.dry_since_ns = 0
        return True

    cdef void wake_at(self, uint64_t when_ns) noexcept nogil:
        """Arms the one timer for the earliest sender that waits for its turn."""
        cdef itimerspec at
        if self.timer_ns > now_ns() and self.timer_ns <= when_ns:
            return
        self.timer_ns = when_ns
        memset(&at, 0, sizeof(at))
        at.it_value.tv_sec = when_ns // 1000000000
        at.it_value.tv_nsec = when_ns % 1000000000
        timerfd_settime(self.timer, TFD_TIMER_ABSTIME, &at, NULL)

    cdef void send_one(self, Peer *peer, uint64_t stamped_ns) noexcept nogil:
        cdef Stamp stamp
        cdef uint64_t number
        cdef int place
        cdef wire.pn_bytes_t tag
        cdef void *delivery
        peer.sent += 1
        self.sent += 1
        stamp.run, stamp.sender, stamp.seq, stamp.sent_ns = self.run, peer.index, peer.sent, stamped_ns
        memcpy(self.frame + self.frame_size - self.body_size, &stamp, STAMP)
        if self.groups:
            number = peer.sent % self.groups
            for place in range(GROUP_DIGITS):
                self.frame[self.group_at + GROUP_DIGITS - 1 - place] = 48 + number % 10
                number //= 10
        tag.size = 4
        tag.start = <char *>&peer.sent
        delivery = wire.pn_delivery(peer.link, tag)
        wire.pn_link_send(peer.link, self.frame, self.frame_size)
        peer.touched = True
        if self.batch:
            batches.post(&peer.batches, delivery)
        if self.presettled:
            wire.pn_delivery_settle(delivery)
            peer.done += 1
            self.done += 1
        else:
            wire.pn_delivery_set_context(delivery, <void *>stamped_ns)
            wire.pn_link_advance(peer.link)
        if peer.batches.most and (peer.batches.posted == peer.batches.most or peer.sent == peer.quota):
            batches.discharge(&peer.batches)

    cdef void on_outcome(self, Peer *peer, void *delivery) noexcept nogil:
        cdef uint64_t state = wire.pn_delivery_remote_state(delivery)
        if not wire.pn_delivery_updated(delivery):
            return
        if state == RECEIVED or (state == 0 and not wire.pn_delivery_settled(delivery)):
            return
        if wire.pn_delivery_link(delivery) == peer.batches.coordinator:
            self.on_answer(peer, delivery)
            return
        if self.batch:
            # What it was posted as counts with its transaction.
            wire.pn_delivery_settle(delivery)
            return
        if state != ACCEPTED:
            self.refused += 1
        if self.measuring:
            add(self.ack, now_ns() - <uint64_t>wire.pn_delivery_get_context(delivery))
        peer.done += 1
        self.done += 1
        wire.pn_delivery_settle(delivery)

    cdef void on_answer(self, Peer *peer, void *delivery) noexcept nogil:
        """The coordinator has declared or discharged a transaction."""
        cdef uint64_t committed = 0
        if not batches.answered(&peer.batches, delivery, &committed):
            self.broke(peer, wire.pn_disposition_condition(wire.pn_delivery_remote(delivery)))
            return
        peer.touched = True
        if not peer.is_sender:
            self.received += committed
            return
        peer.done += committed
        self.done += committed

    # --- receivers ----------------------------------------------------------------------------

    cdef void on_message(self, Peer *peer, void *delivery) noexcept nogil:
        cdef ssize_t size
        cdef int credit
        cdef bint counts
        if not wire.pn_delivery_readable(delivery) or wire.pn_delivery_partial(delivery):
            return
        size = wire.pn_delivery_pending(delivery)
        if <size_t>size > self.incoming_room:
            self.incoming_room = 2 * size
            self.incoming = <char *>realloc(self.incoming, self.incoming_room)
        size = wire.pn_link_recv(peer.link, self.incoming, size)
        wire.pn_link_advance(peer.link)
        if size >= <ssize_t>self.body_size:
            counts = self.check(peer, self.incoming + size - self.body_size)
        else:
            counts = self.senders == 0
            self.foreign += not counts
        if counts and self.retire:
            # Counted when its transaction is committed.
            wire.pn_delivery_set_context(delivery, <void *>1)
        else:
            self.received += counts
            if not wire.pn_delivery_settled(delivery):
                wire.pn_delivery_update(delivery, ACCEPTED)
            wire.pn_delivery_settle(delivery)
        credit = wire.pn_link_credit(peer.link)
        if credit <= self.credit // 2:
            wire.pn_link_flow(peer.link, self.credit - credit)

    cdef bint check(self, Peer *peer, const char *body) noexcept nogil:
        """Notes what is wrong with a message; whether it counts, which one of another run or seen before doesn't."""
        cdef Stamp stamp
        memcpy(&stamp, body, STAMP)
        if self.senders == 0:
            self.drain(peer, &stamp)
            return True
        if stamp.run != self.run or stamp.sender >= <uint64_t>self.senders:
            self.foreign += 1
            return False
        if is_repeat(&self.seen[stamp.sender], stamp.seq):
            self.repeated += 1
            return False
        if stamp.seq < peer.last_seq[stamp.sender]:
            self.unordered += 1
        peer.last_seq[stamp.sender] = stamp.seq
        if self.measuring:
            add(self.latency, now_ns() - stamp.sent_ns)
        return True

    cdef void drain(self, Peer *peer, const Stamp *stamp) noexcept nogil:
        """Without senders of its own it takes any run's messages, as long as each run's numbers rise."""
        if stamp.run != peer.run:
            peer.run = stamp.run
            memset(peer.last_seq, 0, sizeof(peer.last_seq))
        if stamp.run and stamp.sender < MOST:
            if stamp.seq <= peer.last_seq[stamp.sender]:
                self.unordered += 1
            peer.last_seq[stamp.sender] = stamp.seq
        if self.measuring:
            add(self.latency, now_ns() - stamp.sent_ns)

    def close(self):
        """Closes every connection without waiting long for the broker's word; frees what Proton held."""
        cdef int i
        self.sending = False
        self.stop = True
        self.broken = NULL
        for i in range(self.count):
            if self.peers[i].wire.transport != NULL:
                wire.pn_connection_close(self.peers[i].wire.connection)
                self.peers[i].touched = True
        self.spin(0.05)
        for i in range(self.count):
            wire.dispose(&self.peers[i].wire)
        self.count = 0
        for connected in self.sockets:
            connected.close()


cdef void copy(char *to, const char *given, size_t room) noexcept nogil:
    to[0] = 0
    if given != NULL:
        strncpy(to, given, room - 1)
        to[room - 1] = 0
