"""A measuring stick: how fast Python compiled against Proton's C functions can be with no features.

One epoll, a deque of bytes per address, first come first served, credit always given anew. It checks
nothing, keeps nothing and trusts everyone: never run it as a broker. It is not installed.
"""

from collections import deque
import select
import socket
import sys

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from broker.client cimport wire
from broker.client.wire cimport Wire

import cproton_ffi

cdef extern from *:
    """
    extern void pn_transport_set_server(void *);
    extern void pn_session_set_incoming_capacity(void *, size_t);
    extern int pn_terminus_copy(void *, void *); extern bool pn_terminus_is_dynamic(void *);
    extern int pn_link_remote_snd_settle_mode(void *);
    """
    void pn_transport_set_server(void *)
    void pn_session_set_incoming_capacity(void *, size_t)
    int pn_terminus_copy(void *, void *)
    bint pn_terminus_is_dynamic(void *)
    int pn_link_remote_snd_settle_mode(void *)

cdef object C = cproton_ffi.lib
cdef int DELIVERY = C.PN_DELIVERY, LINK_FLOW = C.PN_LINK_FLOW
cdef int CONNECTION_REMOTE_OPEN = C.PN_CONNECTION_REMOTE_OPEN
cdef int CONNECTION_REMOTE_CLOSE = C.PN_CONNECTION_REMOTE_CLOSE
cdef int SESSION_REMOTE_OPEN = C.PN_SESSION_REMOTE_OPEN
cdef int LINK_REMOTE_OPEN = C.PN_LINK_REMOTE_OPEN
cdef int LINK_REMOTE_CLOSE = C.PN_LINK_REMOTE_CLOSE, LINK_REMOTE_DETACH = C.PN_LINK_REMOTE_DETACH
cdef uint64_t ACCEPTED = C.PN_ACCEPTED
cdef int SND_SETTLED = C.PN_SND_SETTLED

cdef enum:
    CREDIT = 1000
    SESSION_BYTES = 10 * 1024 * 1024

cdef dict queues = {}
cdef set dirty = set()


cdef class Queue:
    cdef object messages
    cdef list consumers

    def __cinit__(self):
        self.messages = deque()
        self.consumers = []


cdef class Link:
    cdef Queue queue
    cdef Peer peer
    cdef void *link
    cdef bint presettled

    cdef dispatch(self):
        """Sends as much of its queue as its credit allows; the peer flushes at the end of the turn."""
        cdef int credit = wire.pn_link_credit(self.link)
        cdef object messages = self.queue.messages
        cdef wire.pn_bytes_t tag
        cdef void *delivery
        cdef bytes message
        if credit <= 0 or not messages:
            return
        dirty.add(self.peer)
        while credit > 0 and messages:
            message = messages.popleft()
            self.peer.tag += 1
            tag.size, tag.start = 8, <char *>&self.peer.tag
            delivery = wire.pn_delivery(self.link, tag)
            wire.pn_link_send(self.link, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
            wire.pn_link_advance(self.link)
            if self.presettled:
                wire.pn_delivery_settle(delivery)
            credit -= 1

    cdef take(self, void *delivery):
        """Accepts one whole message into the queue and offers it around."""
        cdef size_t size = wire.pn_delivery_pending(delivery)
        cdef bytes message = PyBytes_FromStringAndSize(NULL, size)
        cdef Link consumer
        wire.pn_link_recv(self.link, PyBytes_AS_STRING(message), size)
        wire.pn_link_advance(self.link)
        if not wire.pn_delivery_settled(delivery):
            wire.pn_delivery_update(delivery, ACCEPTED)
        wire.pn_delivery_settle(delivery)
        self.queue.messages.append(message)
        if wire.pn_link_credit(self.link) < CREDIT // 2:
            wire.pn_link_flow(self.link, CREDIT // 2)
        for consumer in self.queue.consumers:
            consumer.dispatch()
            if not self.queue.messages:
                break


cdef class Peer:
    cdef Wire wire
    cdef readonly object socket
    cdef uint64_t tag
    cdef bint wants_out
    cdef list links

    def __cinit__(self, accepted):
        self.socket, self.links = accepted, []
        wire.prepare(&self.wire, accepted.fileno())
        pn_transport_set_server(self.wire.transport)
        wire.pn_sasl_allowed_mechs(wire.pn_sasl(self.wire.transport), b"ANONYMOUS")
        wire.pn_transport_bind(self.wire.transport, self.wire.connection)

    def __dealloc__(self):
        wire.dispose(&self.wire)

    cdef read_in(self):
        cdef bint more = True
        while more:
            more = wire.read_some(&self.wire)
            self.handle()

    cdef handle(self):
        cdef void *event
        while True:
            event = wire.pn_collector_peek(self.wire.collector)
            if event == NULL:
                return
            self.on_event(event, wire.pn_event_type(event))
            wire.pn_collector_pop(self.wire.collector)

    cdef on_event(self, void *event, int kind):
        if kind == DELIVERY:
            self.on_delivery(wire.pn_event_delivery(event))
        elif kind == LINK_FLOW:
            self.on_flow(wire.pn_event_link(event))
        elif kind == CONNECTION_REMOTE_OPEN:
            wire.pn_connection_open(self.wire.connection)
        elif kind == SESSION_REMOTE_OPEN:
            pn_session_set_incoming_capacity(wire.pn_event_session(event), SESSION_BYTES)
            wire.pn_session_open(wire.pn_event_session(event))
        elif kind == LINK_REMOTE_OPEN:
            self.on_attach(wire.pn_event_link(event))
        elif kind == LINK_REMOTE_CLOSE or kind == LINK_REMOTE_DETACH:
            self.forget(wire.pn_event_link(event))
            wire.pn_link_close(wire.pn_event_link(event))
        elif kind == CONNECTION_REMOTE_CLOSE:
            wire.pn_connection_close(self.wire.connection)

    cdef on_delivery(self, void *delivery):
        if wire.pn_delivery_readable(delivery):
            if not wire.pn_delivery_partial(delivery):
                (<Link>wire.pn_link_get_context(wire.pn_delivery_link(delivery))).take(delivery)
        elif wire.pn_delivery_updated(delivery):
            if wire.pn_delivery_remote_state(delivery) or wire.pn_delivery_settled(delivery):
                wire.pn_delivery_settle(delivery)

    cdef on_flow(self, void *link):
        if wire.pn_link_is_sender(link) and wire.pn_link_get_context(link) != NULL:
            (<Link>wire.pn_link_get_context(link)).dispatch()

    cdef on_attach(self, void *raw):
        cdef bint sends = wire.pn_link_is_sender(raw)
        cdef void *remote = wire.pn_link_remote_source(raw) if sends else wire.pn_link_remote_target(raw)
        cdef Link link
        if wire.pn_terminus_get_address(remote) == NULL or pn_terminus_is_dynamic(remote):
            wire.pn_link_open(raw)  # a refusal has no terminus (AMQP 1.0 §2.6.3)
            wire.pn_link_close(raw)
            return
        link = self.remember(raw, <bytes>wire.pn_terminus_get_address(remote))
        pn_terminus_copy(wire.pn_link_source(raw), wire.pn_link_remote_source(raw))
        pn_terminus_copy(wire.pn_link_target(raw), wire.pn_link_remote_target(raw))
        wire.pn_link_open(raw)
        if sends:
            link.presettled = pn_link_remote_snd_settle_mode(raw) == SND_SETTLED
            link.queue.consumers.append(link)
        else:
            wire.pn_link_flow(raw, CREDIT)

    cdef Link remember(self, void *raw, bytes address):
        cdef Link link = Link()
        link.peer, link.link = self, raw
        link.queue = queues.setdefault(address, Queue())
        wire.pn_link_set_context(raw, <void *>link)
        self.links.append(link)
        return link

    cdef forget(self, void *raw):
        cdef Link link
        for link in self.links:
            if (raw == NULL or link.link == raw) and link in link.queue.consumers:
                link.queue.consumers.remove(link)

    cdef bint write_out(self):
        """Flushes; false when the connection has ended."""
        cdef bint flushed = wire.write_some(&self.wire)
        self.handle()
        flushed = flushed and wire.pn_transport_pending(self.wire.transport) <= 0
        self.wants_out = not flushed
        return not wire.pn_transport_closed(self.wire.transport)

    cdef leave(self):
        self.forget(NULL)
        self.links.clear()
        self.socket.close()


cdef flush_all(poll, dict peers):
    cdef Peer peer
    cdef bint wanted
    while dirty:
        peer = dirty.pop()
        wanted = peer.wants_out
        if not peer.write_out():
            poll.unregister(peer.wire.fd)
            peers.pop(peer.wire.fd)
            peer.leave()
        elif peer.wants_out != wanted:
            poll.modify(peer.wire.fd, select.EPOLLIN | (select.EPOLLOUT if peer.wants_out else 0))


def serve(int port):
    """Serves 127.0.0.1:port until the process is ended; says so in the broker's words on stderr."""
    cdef Peer peer
    cdef dict peers = {}
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    print(f"listening amqp://127.0.0.1:{listener.getsockname()[1]}\nready", file=sys.stderr, flush=True)
    while True:
        for fd, events in poll.poll():
            if fd == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = Peer(accepted)
                peers[peer.wire.fd] = peer
                poll.register(accepted, select.EPOLLIN)
            else:
                peer = peers[fd]
                if events & ~select.EPOLLOUT:
                    peer.read_in()
            dirty.add(peer)
        flush_all(poll, peers)
