"""The few functions of Proton's C library that the message path calls."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <sys/types.h>
    #ifndef SLUICE_AMQP_PROTON
    #define SLUICE_AMQP_PROTON
    typedef struct { size_t size; const char *start; } pn_bytes_t;
    extern ssize_t pn_transport_capacity(void *), pn_transport_pending(void *);
    extern char *pn_transport_tail(void *);
    extern const char *pn_transport_head(void *);
    extern int pn_transport_process(void *, size_t), pn_transport_close_tail(void *);
    extern int pn_transport_close_head(void *), pn_transport_unbind(void *);
    extern ssize_t pn_transport_push(void *, const char *, size_t);
    extern void pn_transport_pop(void *, size_t);
    extern bool pn_transport_closed(void *);
    extern int64_t pn_transport_tick(void *, int64_t);
    extern int pn_framing_send_amqp(void *, uint16_t, pn_bytes_t);
    extern void *pn_collector_peek(void *);
    extern bool pn_collector_pop(void *);
    extern int pn_event_type(void *);
    extern void *pn_event_delivery(void *), *pn_event_link(void *);
    extern bool pn_link_is_sender(void *), pn_link_advance(void *), pn_link_get_drain(void *);
    extern void *pn_link_get_context(void *), *pn_link_session(void *);
    extern void pn_link_set_context(void *, void *);
    extern void pn_link_flow(void *, int);
    extern int pn_link_credit(void *), pn_link_queued(void *), pn_link_drained(void *);
    extern ssize_t pn_link_recv(void *, char *, size_t), pn_link_send(void *, const char *, size_t);
    extern size_t pn_session_outgoing_bytes(void *);
    extern size_t pn_session_incoming_bytes(void *);
    extern void *pn_link_current(void *), *pn_unsettled_head(void *), *pn_unsettled_next(void *);
    extern void pn_delivery_abort(void *);
    extern void pn_session_set_incoming_capacity(void *, size_t);
    extern int pn_session_set_incoming_window_and_lwm(void *, uint32_t, uint32_t);
    extern void *pn_delivery(void *, pn_bytes_t), *pn_delivery_link(void *);
    extern pn_bytes_t pn_delivery_tag(void *);
    extern bool pn_delivery_readable(void *), pn_delivery_partial(void *), pn_delivery_updated(void *);
    extern bool pn_delivery_settled(void *), pn_delivery_aborted(void *), pn_delivery_buffered(void *);
    extern size_t pn_delivery_pending(void *);
    extern uint64_t pn_delivery_remote_state(void *), pn_delivery_local_state(void *);
    extern void pn_delivery_update(void *, uint64_t), pn_delivery_settle(void *);
    extern void *pn_delivery_local(void *), *pn_delivery_remote(void *), *pn_disposition_condition(void *);
    extern void *pn_delivery_get_context(void *);
    extern void pn_delivery_set_context(void *, void *);
    extern bool pn_disposition_is_failed(void *), pn_disposition_is_undeliverable(void *);
    extern void *pn_disposition_data(void *);
    extern void pn_data_clear(void *), pn_data_rewind(void *);
    extern bool pn_data_next(void *), pn_data_enter(void *), pn_data_exit(void *);
    extern int pn_data_type(void *);
    extern pn_bytes_t pn_data_get_binary(void *), pn_data_get_symbol(void *);
    extern uint64_t pn_data_get_ulong(void *);
    extern bool pn_data_get_bool(void *);
    extern int pn_data_put_list(void *), pn_data_put_described(void *), pn_data_put_ulong(void *, uint64_t);
    extern int pn_data_put_binary(void *, pn_bytes_t);
    extern ssize_t pn_data_encode(void *, char *, size_t), pn_data_encoded_size(void *);
    extern void pn_disposition_set_failed(void *, bool);
    extern int pn_condition_set_name(void *, const char *), pn_condition_set_description(void *, const char *);
    extern int pn_condition_copy(void *, void *);
    extern void *pn_link_condition(void *);
    extern const char *pn_condition_get_name(void *), *pn_condition_get_description(void *);
    extern void pn_link_set_drain(void *, bool);
    extern int pn_link_available(void *);
    extern void pn_disposition_set_undeliverable(void *, bool);
    extern void *pn_disposition_annotations(void *);
    extern int pn_data_copy(void *, void *);
    extern uint32_t pn_disposition_get_section_number(void *);
    extern void pn_disposition_set_section_number(void *, uint32_t);
    extern uint64_t pn_disposition_get_section_offset(void *);
    extern void pn_disposition_set_section_offset(void *, uint64_t);
    #endif
    """
    ctypedef struct pn_bytes_t:
        size_t size
        const char *start

    ssize_t pn_transport_capacity(void *transport)
    ssize_t pn_transport_pending(void *transport)
    char *pn_transport_tail(void *transport)
    const char *pn_transport_head(void *transport)
    int pn_transport_process(void *transport, size_t size)
    int pn_transport_close_tail(void *transport)
    int pn_transport_close_head(void *transport)
    int pn_transport_unbind(void *transport)
    ssize_t pn_transport_push(void *transport, const char *start, size_t size)
    void pn_transport_pop(void *transport, size_t size)
    bint pn_transport_closed(void *transport)
    int64_t pn_transport_tick(void *transport, int64_t now_ms)
    int pn_framing_send_amqp(void *transport, unsigned short channel, pn_bytes_t performative)
    void *pn_collector_peek(void *collector)
    bint pn_collector_pop(void *collector)
    int pn_event_type(void *event)
    void *pn_event_delivery(void *event)
    void *pn_event_link(void *event)
    bint pn_link_is_sender(void *link)
    bint pn_link_advance(void *link)
    bint pn_link_get_drain(void *link)
    void *pn_link_get_context(void *link)
    void *pn_link_session(void *link)
    void pn_link_set_context(void *link, void *context)
    void pn_link_flow(void *link, int credit)
    int pn_link_credit(void *link)
    int pn_link_queued(void *link)
    int pn_link_drained(void *link)
    ssize_t pn_link_recv(void *link, char *start, size_t size)
    ssize_t pn_link_send(void *link, const char *start, size_t size)
    size_t pn_session_incoming_bytes(void *session)
    void *pn_link_current(void *link)
    void *pn_unsettled_head(void *link)
    void *pn_unsettled_next(void *delivery)
    void pn_delivery_abort(void *delivery)
    size_t pn_session_outgoing_bytes(void *session)
    void pn_session_set_incoming_capacity(void *session, size_t capacity)
    int pn_session_set_incoming_window_and_lwm(void *session, uint32_t frames, uint32_t low)
    void *pn_delivery(void *link, pn_bytes_t tag)
    void *pn_delivery_link(void *delivery)
    pn_bytes_t pn_delivery_tag(void *delivery)
    bint pn_delivery_readable(void *delivery)
    bint pn_delivery_partial(void *delivery)
    bint pn_delivery_updated(void *delivery)
    bint pn_delivery_settled(void *delivery)
    bint pn_delivery_aborted(void *delivery)
    bint pn_delivery_buffered(void *delivery)
    size_t pn_delivery_pending(void *delivery)
    uint64_t pn_delivery_remote_state(void *delivery)
    uint64_t pn_delivery_local_state(void *delivery)
    void pn_delivery_update(void *delivery, uint64_t state)
    void pn_delivery_settle(void *delivery)
    void *pn_delivery_local(void *delivery)
    void *pn_delivery_remote(void *delivery)
    void *pn_disposition_condition(void *disposition)
    void *pn_delivery_get_context(void *delivery)
    void pn_delivery_set_context(void *delivery, void *context)
    bint pn_disposition_is_failed(void *disposition)
    bint pn_disposition_is_undeliverable(void *disposition)
    void pn_disposition_set_failed(void *disposition, bint failed)
    void *pn_disposition_data(void *disposition)
    void pn_data_clear(void *data)
    void pn_data_rewind(void *data)
    bint pn_data_next(void *data)
    bint pn_data_enter(void *data)
    bint pn_data_exit(void *data)
    int pn_data_type(void *data)
    pn_bytes_t pn_data_get_binary(void *data)
    pn_bytes_t pn_data_get_symbol(void *data)
    uint64_t pn_data_get_ulong(void *data)
    bint pn_data_get_bool(void *data)
    int pn_data_put_list(void *data)
    int pn_data_put_described(void *data)
    int pn_data_put_ulong(void *data, uint64_t value)
    int pn_data_put_binary(void *data, pn_bytes_t value)
    int pn_condition_set_name(void *condition, const char *name)
    int pn_condition_set_description(void *condition, const char *text)
    int pn_condition_copy(void *condition, void *source)
    void *pn_link_condition(void *link)
    const char *pn_condition_get_name(void *condition)
    const char *pn_condition_get_description(void *condition)
    void pn_link_set_drain(void *link, bint drain)
    int pn_link_available(void *link)
    void pn_disposition_set_undeliverable(void *disposition, bint undeliverable)
    void *pn_disposition_annotations(void *disposition)
    int pn_data_copy(void *data, void *source)
    uint32_t pn_disposition_get_section_number(void *disposition)
    void pn_disposition_set_section_number(void *disposition, uint32_t number)
    uint64_t pn_disposition_get_section_offset(void *disposition)
    void pn_disposition_set_section_offset(void *disposition, uint64_t offset)

# Delivery states, by the codes of their descriptors (AMQP 1.0 §3.4).
cdef enum:
    STATE_RECEIVED = 0x23
    STATE_ACCEPTED = 0x24
    STATE_REJECTED = 0x25
    STATE_RELEASED = 0x26
    STATE_MODIFIED = 0x27
    STATE_DECLARED = 0x33
    STATE_TRANSACTIONAL = 0x34
