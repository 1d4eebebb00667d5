"""Transactions of a load generator's link, declared ahead so that none waits for its id."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from broker.client cimport wire

cdef enum:
    COORDINATOR = 3
    ACCEPTED = 0x24
    DECLARED = 0x33
    TRANSACTIONAL = 0x34

cdef const char *DECLARE = b"\x00\x53\x77\x00\x53\x31\x45"


cdef void begin(Batches *batches, void *session, const char *name) noexcept nogil:
    """Attach to the coordinator."""
    batches.coordinator = wire.pn_sender(session, name)
    wire.pn_terminus_set_type(wire.pn_link_target(batches.coordinator), COORDINATOR)
    wire.pn_link_open(batches.coordinator)


cdef void declare_ahead(Batches *batches) noexcept nogil:
    """Declare as many as may be ahead."""
    while batches.ready + batches.declaring < AHEAD and wire.pn_link_credit(batches.coordinator) > 0:
        batches.declaring += 1
        wire.pn_delivery_set_context(request(batches, DECLARE, 7), NULL)


cdef void *request(Batches *batches, const char *data, size_t size) noexcept nogil:
    cdef wire.pn_bytes_t tag
    cdef void *delivery
    batches.requests += 1
    tag.size = 4
    tag.start = <char *>&batches.requests
    delivery = wire.pn_delivery(batches.coordinator, tag)
    wire.pn_link_send(batches.coordinator, data, size)
    wire.pn_link_advance(batches.coordinator)
    return delivery


cdef void post(Batches *batches, void *delivery) noexcept nogil:
    """Put a message into the first transaction, before it is advanced."""
    update(batches, delivery, False)


cdef void retire_some(Batches *batches, void *receiver) noexcept nogil:
    """Accept in transactions as much of a receiver's messages as can be, in order.

    The next transaction begins when the one before it is committed, as in a JMS session. A delivery whose context
    is set has been read.
    """
    cdef void *delivery = wire.pn_unsettled_head(receiver)
    cdef void *following
    while delivery != NULL and wire.pn_delivery_get_context(delivery) != NULL:
        if batches.ready == 0 or batches.committing:
            return
        following = wire.pn_unsettled_next(delivery)
        update(batches, delivery, True)
        wire.pn_delivery_settle(delivery)
        if batches.posted == batches.most:
            discharge(batches)
        delivery = following


cdef void update(Batches *batches, void *delivery, bint accepted) noexcept nogil:
    """Set a delivery's state to the first transaction, with the outcome if that is told."""
    cdef void *data = wire.pn_disposition_data(wire.pn_delivery_local(delivery))
    cdef wire.pn_bytes_t name
    name.start = batches.names[batches.first]
    name.size = batches.sizes[batches.first]
    wire.pn_data_clear(data)
    wire.pn_data_put_list(data)
    wire.pn_data_enter(data)
    wire.pn_data_put_binary(data, name)
    if accepted:
        wire.pn_data_put_described(data)
        wire.pn_data_enter(data)
        wire.pn_data_put_ulong(data, ACCEPTED)
        wire.pn_data_put_list(data)
        wire.pn_data_exit(data)
    wire.pn_data_exit(data)
    wire.pn_delivery_update(delivery, TRANSACTIONAL)
    batches.posted += 1


cdef void discharge(Batches *batches) noexcept nogil:
    """Commit the first transaction; its request's context is how many messages it has."""
    cdef char data[12 + NAME]
    cdef int size = batches.sizes[batches.first]
    memcpy(data, b"\x00\x53\x77\x00\x53\x32\xc0", 7)
    data[7] = size + 4
    data[8] = 2
    data[9] = <char>0xA0
    data[10] = size
    memcpy(data + 11, batches.names[batches.first], size)
    data[11 + size] = 0x42
    wire.pn_delivery_set_context(request(batches, data, 12 + size), <void *>batches.posted)
    batches.first = (batches.first + 1) % AHEAD
    batches.ready -= 1
    batches.committing += batches.posted
    batches.posted = 0


cdef bint answered(Batches *batches, void *delivery, uint64_t *committed) noexcept nogil:
    """Take an answer of the coordinator; false if it refused. ``committed`` grows by what counts now."""
    cdef uint64_t state = wire.pn_delivery_remote_state(delivery)
    cdef void *data
    cdef wire.pn_bytes_t name
    cdef int at
    if state == DECLARED:
        data = wire.pn_disposition_data(wire.pn_delivery_remote(delivery))
        wire.pn_data_rewind(data)
        wire.pn_data_next(data)
        wire.pn_data_enter(data)
        wire.pn_data_next(data)
        name = wire.pn_data_get_binary(data)
        batches.declaring -= 1
        if name.size == 0 or name.size > NAME:
            return False
        at = (batches.first + batches.ready) % AHEAD
        memcpy(batches.names[at], name.start, name.size)
        batches.sizes[at] = <int>name.size
        batches.ready += 1
    elif state == ACCEPTED:
        committed[0] += <uint64_t>wire.pn_delivery_get_context(delivery)
        batches.committing -= <uint64_t>wire.pn_delivery_get_context(delivery)
    else:
        return False
    wire.pn_delivery_settle(delivery)
    return True
