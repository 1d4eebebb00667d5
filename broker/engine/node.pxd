cimport cython

from broker cimport constants
from broker.engine.hot cimport HotNumbers
from broker.engine.spool cimport Spool
from broker.flow.gate cimport Gate
from broker.flow.allocator cimport CreditAllocator
from broker.queues.dispatch cimport Consumer
from broker.queues.last_value cimport LastValueQueue
from broker.queues.queue cimport Queue
from broker.queues.schedule cimport Schedule
from broker.store.port cimport QueueLog

@cython.final
cdef class Node:
    cdef public str name, kind, address
    cdef public Gate gate
    cdef public CreditAllocator allocator
    cdef public Queue queue
    cdef public LastValueQueue last_values
    cdef public object stream
    cdef public list consumers, subscriptions, topics, browsers, bridges, bridge_sources
    cdef public object filter, not_from, awaiting
    cdef public object settings
    cdef public HotNumbers hot
    cdef public dict origins, arguments
    cdef public QueueLog shelf
    cdef public long group, kept_seq, stored_msgs, kept_bytes, attended_group, maybe_delivered_upto
    cdef public object expiry, duplicates, letters, spool
    cdef public Schedule schedule
    cdef public object redelivery
    cdef public long page_bytes, file_bytes
    cdef public dict bodies
    cdef public long expire_ns, used_ns, used_mark
    cdef public bint limits_ttl
    cdef public bint takes_as_is, is_topic
    cdef public bint ranked, ordered, reserves_room
    cdef public long reserve_from
    cdef public bint dirty, changed_nodes, deleted, never_blocks_publishers, reserves_at_subscriptions
    cdef public long shared, served, served_ns, passed_over, kept_ns
    cdef public long turn, hard_msgs, hard_bytes
    cdef public long park_timeout_ns, refuse_ns
    cdef public set timed_parked, transactions
    cdef public long received, received_bytes, delivered, accepted, rejected, released, modified
    cdef public long expired, dead_lettered, duplicated, replaced, timed_out
    cdef public long refused, dropped, unrouted, overrun, parked, sampled_in, sampled_out
    cdef public double rate_in, rate_out

    @cython.locals(consumer=Consumer)
    cpdef Consumer active_consumer(self)
    cpdef long mean_bytes(self)

@cython.locals(spool=Spool, msgs=long, nbytes=long)
cpdef long memory_of(Node node)
