"""One client connection's bytes: Proton's C functions, and the pump between a socket and a transport.

Everything here is inline C for the compiled files of this room. It decides nothing about messages.
Proton's symbols come from ``cproton_ffi``, which ``library.py`` loads first; no header is needed.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.security.tlsstream cimport TlsStream

cdef extern from *:
    """
    #include <errno.h>
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <time.h>
    #ifndef SLUICE_CLIENT_WIRE
    #define SLUICE_CLIENT_WIRE
    typedef struct { size_t size; const char *start; } pn_bytes_t;
    extern void *pn_transport(void), *pn_connection(void), *pn_collector(void), *pn_sasl(void *);
    extern void pn_transport_free(void *), pn_connection_free(void *), pn_collector_free(void *);
    extern void pn_sasl_allowed_mechs(void *, const char *);
    extern void pn_transport_set_max_frame(void *, uint32_t);
    extern int pn_transport_bind(void *, void *), pn_transport_unbind(void *);
    extern ssize_t pn_transport_capacity(void *), pn_transport_pending(void *);
    extern char *pn_transport_tail(void *); extern const char *pn_transport_head(void *);
    extern int pn_transport_process(void *, size_t), pn_transport_close_tail(void *);
    extern int pn_transport_close_head(void *);
    extern void pn_transport_pop(void *, size_t); extern bool pn_transport_closed(void *);
    extern int64_t pn_transport_tick(void *, int64_t); extern void *pn_transport_condition(void *);
    extern void pn_connection_collect(void *, void *), pn_connection_open(void *), pn_connection_close(void *);
    extern void pn_connection_set_container(void *, const char *), pn_connection_set_hostname(void *, const char *);
    extern void *pn_connection_remote_condition(void *); extern int pn_connection_state(void *);
    extern void *pn_session(void *); extern void pn_session_open(void *);
    extern size_t pn_session_outgoing_bytes(void *); extern void *pn_session_remote_condition(void *);
    extern void *pn_collector_peek(void *); extern bool pn_collector_pop(void *);
    extern int pn_event_type(void *); extern void *pn_event_delivery(void *), *pn_event_link(void *);
    extern void *pn_event_session(void *);
    extern void *pn_sender(void *, const char *), *pn_receiver(void *, const char *);
    extern void *pn_link_source(void *), *pn_link_target(void *), *pn_link_session(void *);
    extern void *pn_link_remote_source(void *), *pn_link_remote_target(void *);
    extern int pn_terminus_set_address(void *, const char *), pn_terminus_set_dynamic(void *, bool);
    extern int pn_terminus_get_type(void *), pn_terminus_set_type(void *, int);
    extern const char *pn_terminus_get_address(void *);
    extern void pn_link_set_snd_settle_mode(void *, int), pn_link_set_rcv_settle_mode(void *, int);
    extern void pn_link_open(void *), pn_link_close(void *), pn_link_flow(void *, int), pn_link_free(void *);
    extern int pn_link_credit(void *), pn_link_state(void *); extern bool pn_link_is_sender(void *);
    extern void *pn_link_remote_condition(void *), *pn_link_get_context(void *);
    extern void pn_link_set_context(void *, void *); extern int pn_link_drained(void *);
    extern ssize_t pn_link_recv(void *, char *, size_t), pn_link_send(void *, const char *, size_t);
    extern bool pn_link_advance(void *);
    extern void *pn_delivery(void *, pn_bytes_t), *pn_delivery_link(void *), *pn_delivery_remote(void *);
    extern void *pn_delivery_get_context(void *); extern void pn_delivery_set_context(void *, void *);
    extern bool pn_delivery_readable(void *), pn_delivery_partial(void *), pn_delivery_updated(void *);
    extern bool pn_delivery_settled(void *), pn_delivery_aborted(void *);
    extern size_t pn_delivery_pending(void *);
    extern uint64_t pn_delivery_remote_state(void *); extern void pn_delivery_update(void *, uint64_t);
    extern void pn_delivery_settle(void *); extern void *pn_disposition_condition(void *);
    extern bool pn_condition_is_set(void *);
    extern const char *pn_condition_get_name(void *), *pn_condition_get_description(void *);
    extern void pn_transport_set_idle_timeout(void *, uint32_t);
    extern int pn_terminus_set_durability(void *, int), pn_terminus_set_expiry_policy(void *, int);
    extern void *pn_terminus_capabilities(void *); extern int pn_data_put_symbol(void *, pn_bytes_t);
    extern void *pn_terminus_filter(void *); extern ssize_t pn_data_decode(void *, const char *, size_t);
    extern void *pn_disposition_data(void *); extern void pn_data_rewind(void *), pn_data_clear(void *);
    extern bool pn_data_next(void *), pn_data_enter(void *), pn_data_exit(void *);
    extern pn_bytes_t pn_data_get_binary(void *);
    extern int pn_data_put_list(void *), pn_data_put_binary(void *, pn_bytes_t);
    extern int pn_data_put_described(void *), pn_data_put_ulong(void *, uint64_t);
    extern void *pn_unsettled_head(void *), *pn_unsettled_next(void *);
    extern void *pn_delivery_local(void *); extern int pn_condition_set_name(void *, const char *);
    extern int pn_condition_set_description(void *, const char *);
    extern bool pn_disposition_is_failed(void *), pn_disposition_is_undeliverable(void *);
    extern void pn_disposition_set_failed(void *, bool), pn_disposition_set_undeliverable(void *, bool);
    extern uint64_t pn_link_remote_max_message_size(void *);
    #endif
    """
    ctypedef struct pn_bytes_t:
        size_t size
        const char *start

    void *pn_transport() nogil
    void *pn_connection() nogil
    void *pn_collector() nogil
    void *pn_sasl(void *transport) nogil
    void pn_transport_free(void *) nogil
    void pn_connection_free(void *) nogil
    void pn_collector_free(void *) nogil
    void pn_sasl_allowed_mechs(void *, const char *) nogil
    void pn_transport_set_max_frame(void *, uint32_t) nogil
    int pn_transport_bind(void *transport, void *connection) nogil
    int pn_transport_unbind(void *transport) nogil
    ssize_t pn_transport_capacity(void *) nogil
    ssize_t pn_transport_pending(void *) nogil
    char *pn_transport_tail(void *) nogil
    const char *pn_transport_head(void *) nogil
    int pn_transport_process(void *, size_t) nogil
    int pn_transport_close_tail(void *) nogil
    int pn_transport_close_head(void *) nogil
    void pn_transport_pop(void *, size_t) nogil
    bint pn_transport_closed(void *) nogil
    int64_t pn_transport_tick(void *, int64_t now_ms) nogil
    void *pn_transport_condition(void *) nogil
    void pn_connection_collect(void *, void *) nogil
    void pn_connection_open(void *) nogil
    void pn_connection_close(void *) nogil
    void pn_connection_set_container(void *, const char *) nogil
    void pn_connection_set_hostname(void *, const char *) nogil
    void *pn_connection_remote_condition(void *) nogil
    int pn_connection_state(void *) nogil
    void *pn_session(void *) nogil
    void pn_session_open(void *) nogil
    size_t pn_session_outgoing_bytes(void *) nogil
    void *pn_session_remote_condition(void *) nogil
    void *pn_collector_peek(void *) nogil
    bint pn_collector_pop(void *) nogil
    int pn_event_type(void *) nogil
    void *pn_event_delivery(void *) nogil
    void *pn_event_link(void *) nogil
    void *pn_event_session(void *) nogil
    void *pn_sender(void *, const char *) nogil
    void *pn_receiver(void *, const char *) nogil
    void *pn_link_source(void *) nogil
    void *pn_link_target(void *) nogil
    void *pn_link_session(void *) nogil
    void *pn_link_remote_source(void *) nogil
    void *pn_link_remote_target(void *) nogil
    int pn_terminus_set_address(void *, const char *) nogil
    int pn_terminus_set_dynamic(void *, bint) nogil
    int pn_terminus_get_type(void *) nogil
    const char *pn_terminus_get_address(void *) nogil
    void pn_link_set_snd_settle_mode(void *, int) nogil
    void pn_link_set_rcv_settle_mode(void *, int) nogil
    void pn_link_open(void *) nogil
    void pn_link_close(void *) nogil
    void pn_link_flow(void *, int credit) nogil
    int pn_link_credit(void *) nogil
    int pn_link_state(void *) nogil
    bint pn_link_is_sender(void *) nogil
    void *pn_link_remote_condition(void *) nogil
    void *pn_link_get_context(void *) nogil
    void pn_link_set_context(void *, void *) nogil
    int pn_link_drained(void *) nogil
    ssize_t pn_link_recv(void *, char *, size_t) nogil
    ssize_t pn_link_send(void *, const char *, size_t) nogil
    bint pn_link_advance(void *) nogil
    void *pn_delivery(void *, pn_bytes_t) nogil
    void *pn_delivery_link(void *) nogil
    void *pn_delivery_remote(void *) nogil
    void *pn_delivery_get_context(void *) nogil
    void pn_delivery_set_context(void *, void *) nogil
    bint pn_delivery_readable(void *) nogil
    bint pn_delivery_partial(void *) nogil
    bint pn_delivery_updated(void *) nogil
    bint pn_delivery_settled(void *) nogil
    bint pn_delivery_aborted(void *) nogil
    size_t pn_delivery_pending(void *) nogil
    uint64_t pn_delivery_remote_state(void *) nogil
    void pn_delivery_update(void *, uint64_t) nogil
    void pn_delivery_settle(void *) nogil
    void *pn_disposition_condition(void *) nogil
    bint pn_condition_is_set(void *) nogil
    const char *pn_condition_get_name(void *) nogil
    const char *pn_condition_get_description(void *) nogil
    void pn_transport_set_idle_timeout(void *, uint32_t ms) nogil
    int pn_terminus_set_durability(void *, int) nogil
    int pn_terminus_set_expiry_policy(void *, int) nogil
    void *pn_terminus_capabilities(void *) nogil
    void *pn_terminus_filter(void *) nogil
    ssize_t pn_data_decode(void *, const char *, size_t) nogil
    int pn_data_put_symbol(void *, pn_bytes_t) nogil
    void *pn_disposition_data(void *) nogil
    void pn_data_rewind(void *) nogil
    void pn_data_clear(void *) nogil
    bint pn_data_next(void *) nogil
    bint pn_data_enter(void *) nogil
    bint pn_data_exit(void *) nogil
    pn_bytes_t pn_data_get_binary(void *) nogil
    int pn_data_put_list(void *) nogil
    int pn_data_put_binary(void *, pn_bytes_t) nogil
    int pn_data_put_described(void *) nogil
    int pn_data_put_ulong(void *, uint64_t) nogil
    void *pn_unsettled_head(void *) nogil
    void *pn_unsettled_next(void *) nogil
    int pn_terminus_set_type(void *, int) nogil
    void *pn_delivery_local(void *) nogil
    int pn_condition_set_name(void *, const char *) nogil
    int pn_condition_set_description(void *, const char *) nogil
    bint pn_disposition_is_failed(void *) nogil
    bint pn_disposition_is_undeliverable(void *) nogil
    void pn_disposition_set_failed(void *, bint) nogil
    void pn_disposition_set_undeliverable(void *, bint) nogil
    uint64_t pn_link_remote_max_message_size(void *) nogil
    int errno
    const int EAGAIN
    const int EINTR
    const int MSG_NOSIGNAL
    const int MSG_DONTWAIT
    ssize_t recv(int, void *, size_t, int) nogil
    ssize_t send(int, const void *, size_t, int) nogil

    struct timespec:
        long tv_sec
        long tv_nsec
    const int CLOCK_MONOTONIC
    int clock_gettime(int, timespec *) nogil


cdef struct Wire:
    int fd
    void *transport
    void *connection
    void *collector


cdef inline uint64_t now_ns() noexcept nogil:
    """CLOCK_MONOTONIC in nanoseconds: the same clock in every process of this machine."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000000u + <uint64_t>t.tv_nsec


cdef inline void prepare(Wire *wire, int fd) noexcept nogil:
    """Gives the socket a transport, a connection and a collector; the caller sets them up and binds them."""
    wire.fd = fd
    wire.transport = pn_transport()
    wire.connection = pn_connection()
    wire.collector = pn_collector()
    pn_connection_collect(wire.connection, wire.collector)


cdef inline void go_without_password(Wire *wire, bint secure) noexcept nogil:
    """Chooses ANONYMOUS, or behind TLS what a certificate says; before the bind.

    Whoever has a name begins with ``plugin.begin``.
    """
    pn_sasl_allowed_mechs(pn_sasl(wire.transport), b"EXTERNAL ANONYMOUS" if secure else b"ANONYMOUS")


cdef inline void dispose(Wire *wire) noexcept nogil:
    """Frees what prepare() made; safe to call twice. The socket is the caller's."""
    if wire.transport == NULL:
        return
    pn_transport_unbind(wire.transport)
    pn_connection_free(wire.connection)
    while pn_collector_pop(wire.collector):
        pass
    pn_transport_free(wire.transport)
    pn_collector_free(wire.collector)
    wire.transport = wire.connection = wire.collector = NULL


cdef inline bint read_some(Wire *wire) noexcept nogil:
    """Takes one helping from the socket; true while another may be waiting there.

    The caller handles the events before it calls again, so that Proton's buffers stay small.
    """
    cdef ssize_t room = pn_transport_capacity(wire.transport), got
    if room <= 0:
        return False
    got = recv(wire.fd, pn_transport_tail(wire.transport), room, MSG_DONTWAIT)
    if got > 0:
        pn_transport_process(wire.transport, got)
        return got == room
    if got == 0 or (errno != EAGAIN and errno != EINTR):
        pn_transport_close_tail(wire.transport)
    return False


cdef inline bint write_some(Wire *wire) noexcept nogil:
    """Sends what the transport holds until the socket is full; true when all of it is gone."""
    cdef ssize_t held, sent
    while True:
        held = pn_transport_pending(wire.transport)
        if held <= 0:
            return True
        sent = send(wire.fd, pn_transport_head(wire.transport), held, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            pn_transport_pop(wire.transport, sent)
        elif errno == EAGAIN:
            return False
        elif errno != EINTR:
            pn_transport_close_head(wire.transport)
            pn_transport_close_tail(wire.transport)
            return True


cdef enum:
    NOTHING = 0  # is left to read
    MORE = 1  # may be waiting in the socket
    HELD = 2  # by TLS: nothing else would tell of it
    SEALED_AT_ONCE = 1 << 16


cdef inline int open_some(Wire *wire, TlsStream tls) except -1:
    """``read_some`` through TLS."""
    cdef ssize_t room, got
    while not tls.ready():
        got = tls.fetch()
        if got <= 0:
            if got == 0:
                pn_transport_close_tail(wire.transport)
            return NOTHING
    room = pn_transport_capacity(wire.transport)
    if room <= 0:
        return NOTHING
    got = tls.open(pn_transport_tail(wire.transport), room)
    if got > 0:
        pn_transport_process(wire.transport, got)
    elif got == 0:
        pn_transport_close_tail(wire.transport)
        return NOTHING
    if tls.ready():
        return HELD
    return NOTHING if tls.drained else MORE


cdef inline bint seal_some(Wire *wire, TlsStream tls) except -1:
    """``write_some`` through TLS."""
    cdef ssize_t held, sealed
    cdef int state
    while True:
        state = tls.flush()
        if state < 0:
            pn_transport_close_head(wire.transport)
            pn_transport_close_tail(wire.transport)
            return True
        if state == 0:
            return False
        sealed = 0
        while sealed < SEALED_AT_ONCE:
            held = pn_transport_pending(wire.transport)
            if held <= 0:
                break
            tls.seal(pn_transport_head(wire.transport), held)
            pn_transport_pop(wire.transport, held)
            sealed += held
        if sealed == 0:
            return True
