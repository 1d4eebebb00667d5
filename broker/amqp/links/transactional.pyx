"""Delivery states of transactions: transactional-state and declared (AMQP 1.0 §4.5.5, §4.5.8).

Proton keeps the fields of states that it doesn't know as one value, a list.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from broker.amqp.links.proton cimport *

cdef enum:
    # Proton's numbers of types.
    TYPE_NULL = 1
    TYPE_BOOL = 2
    TYPE_ULONG = 10
    TYPE_BINARY = 19
    TYPE_SYMBOL = 21
    TYPE_DESCRIBED = 22
    TYPE_LIST = 24
    TYPE_MAP = 25

cdef dict OUTCOMES = {
    b"amqp:received:list": STATE_RECEIVED,
    b"amqp:accepted:list": STATE_ACCEPTED,
    b"amqp:rejected:list": STATE_REJECTED,
    b"amqp:released:list": STATE_RELEASED,
    b"amqp:modified:list": STATE_MODIFIED,
}


cdef bint enter_fields(void *data):
    """Go to the first field of a state; whether there is one."""
    pn_data_rewind(data)
    if not pn_data_next(data) or pn_data_type(data) != TYPE_LIST:
        return False
    return pn_data_enter(data) and pn_data_next(data)


cdef pn_bytes_t transaction_name(void *delivery):
    """Return the transaction-id of the state that the peer gave a delivery, NULL if it names none.

    The bytes are Proton's, as long as the delivery has that state.
    """
    cdef void *data = pn_disposition_data(pn_delivery_remote(delivery))
    cdef pn_bytes_t name
    name.start = NULL
    name.size = 0
    if enter_fields(data) and pn_data_type(data) == TYPE_BINARY:
        name = pn_data_get_binary(data)
    return name


cdef Provisional provisional_of(void *delivery):
    """Return the outcome within a transactional-state: one of §3.4, 0 where it has none.

    One that isn't known is `released`, as outside a transaction.
    """
    cdef void *data = pn_disposition_data(pn_delivery_remote(delivery))
    cdef Provisional found
    found.outcome = 0
    found.failed = found.undeliverable = found.annotated = False
    if not enter_fields(data) or not pn_data_next(data) or pn_data_type(data) == TYPE_NULL:
        return found
    found.outcome = STATE_RELEASED
    if pn_data_type(data) != TYPE_DESCRIBED:
        return found
    pn_data_enter(data)
    if pn_data_next(data):
        found.outcome = outcome_named(data)
    if found.outcome != STATE_MODIFIED or not pn_data_next(data) or pn_data_type(data) != TYPE_LIST:
        return found
    pn_data_enter(data)
    if pn_data_next(data) and pn_data_type(data) == TYPE_BOOL:
        found.failed = pn_data_get_bool(data)
    if pn_data_next(data) and pn_data_type(data) == TYPE_BOOL:
        found.undeliverable = pn_data_get_bool(data)
    found.annotated = pn_data_next(data) and pn_data_type(data) == TYPE_MAP
    return found


cdef uint64_t outcome_named(void *data):
    """Return the code of the outcome that a descriptor names, by number or by symbol."""
    cdef uint64_t code
    cdef pn_bytes_t name
    if pn_data_type(data) == TYPE_ULONG:
        code = pn_data_get_ulong(data)
        return code if STATE_RECEIVED <= code <= STATE_MODIFIED else STATE_RELEASED
    if pn_data_type(data) != TYPE_SYMBOL:
        return STATE_RELEASED
    name = pn_data_get_symbol(data)
    return OUTCOMES.get(PyBytes_FromStringAndSize(name.start, name.size), STATE_RELEASED)


cdef object tell_transactional(void *delivery, bytes name):
    """Fill in the state of a message that was accepted in a transaction."""
    cdef void *data = begun(delivery, name)
    pn_data_put_described(data)
    pn_data_enter(data)
    pn_data_put_ulong(data, STATE_ACCEPTED)
    pn_data_put_list(data)
    pn_data_exit(data)
    pn_data_exit(data)


cdef object tell_transaction(void *delivery, bytes name):
    """Fill in a state that has a transaction-id and nothing else: the outcome of a declaration, or of a transfer."""
    pn_data_exit(begun(delivery, name))


cdef void *begun(void *delivery, bytes name):
    """Begin the fields of a delivery's local state with a transaction-id."""
    cdef void *data = pn_disposition_data(pn_delivery_local(delivery))
    cdef pn_bytes_t value
    value.start = PyBytes_AS_STRING(name)
    value.size = PyBytes_GET_SIZE(name)
    pn_data_clear(data)
    pn_data_put_list(data)
    pn_data_enter(data)
    pn_data_put_binary(data, value)
    return data
