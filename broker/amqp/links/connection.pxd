from broker.amqp.links.transport cimport TransportIO
from broker.engine.engine cimport Engine
from broker.engine.transaction cimport Transaction
from broker.flow.connection_budget cimport ConnectionBudget
from broker.flow.window cimport Shared

cdef enum:
    # Encoded but unsent bytes a session may hold before its consumers have to wait, where its connection has few
    # sessions: as many as the socket takes in a few turns, so that neither a stalled reader nor a burst fills memory.
    OUTGOING_BYTES = 1 << 20

cdef class ConnectionIO(TransportIO):
    cdef void *collector
    cdef public object control
    cdef public long received, sent, numbered, rejected_late
    cdef public set links
    # Links that go on in another cell, or that come from one, as far as messages go out by them; None while there
    # was none.
    cdef public set halves
    # Links to nodes of other cells on which messages wait to be passed on; None while there was none.
    cdef public set held_up
    # Links whose source doesn't offer the outcome `rejected`, by address: which it offers instead, 0 for none.
    cdef public dict refusals
    # The bytes that make up a session's incoming window, by which Proton is made to say that window.
    cdef public size_t session_bytes
    # Encoded but unsent bytes that each of its sessions may hold.
    cdef public long session_output
    cdef dict leaked_bytes
    cdef public list answers
    # Large messages: what comes in, what goes out, and whether the socket is left unread meanwhile.
    cdef public list inflows, streams
    cdef public bint paused
    # Its links are on their way out: they are sent nothing.
    cdef public bint parting
    # The window over all its consumers, None for none, and the reactor's list of those with turns to deal.
    cdef public Shared shared
    cdef public list turns
    cdef public bint turning
    # Those that its links have declared, by id; None as long as it has no coordinator.
    cdef public dict transactions
    # The one that was named last.
    cdef Transaction named
    # What its producers may have promised and parked together; None for no limit.
    cdef public ConnectionBudget budget

    cdef object on_flow(self, void *link)
    cdef object repeat_flow(self, void *link)
    cdef long unsent_of(self, void *session, long limit) except -1
    cdef bint has_unsent(self, void *session) except -1
    cdef object note_leak(self)
    cdef Transaction transaction_at(self, void *delivery)
    cdef object fail_transaction(self, void *delivery, str fault)
    cdef object await_turn(self)
    cdef object throttle(self, Engine engine)
    cdef object drop_delivery(self, void *link, void *delivery)
    cdef object reject_late(self, void *link, void *delivery)
