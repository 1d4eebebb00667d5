from libc.stdint cimport uint64_t

from broker.amqp.links.proton cimport pn_bytes_t

# An outcome that a receiver tells in a transaction, as far as the broker acts on it.
cdef struct Provisional:
    uint64_t outcome
    bint failed, undeliverable, annotated

cdef pn_bytes_t transaction_name(void *delivery)
cdef Provisional provisional_of(void *delivery)
cdef object tell_transactional(void *delivery, bytes name)
cdef object tell_transaction(void *delivery, bytes name)
