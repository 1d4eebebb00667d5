cimport cython

from broker cimport constants
from broker.flow.gate cimport Gate
from broker.flow.allocator cimport CreditAllocator
from broker.flow.producer_credit cimport Port, ProducerCredit
from broker.engine.credit cimport CreditDealer
from broker.engine.node cimport Node
from broker.engine.paging cimport Paging
from broker.engine.durability cimport GroupCommit
from broker.engine.turn cimport Turn
from broker.queues.dispatch cimport Consumer, fair, fill, only
from broker.queues.queue cimport Entry, Queue, Reader

@cython.final
cdef class Engine:
    cdef public dict nodes
    cdef public bint flow_control, winding_down
    cdef public long now_ns, sampled_ns
    cdef public Turn turn
    cdef public CreditDealer credit
    cdef public object on_gate, watch, emit
    cdef public GroupCommit storing
    cdef public str store_state
    cdef public Gate disk, memory, temp
    cdef public long epoch_ns
    cdef public set expiring, fading
    cdef public list moves
    cdef public object find, large, origin, bridging
    cdef public Paging paging
    cdef public dict subscriptions
    cdef public list unfinished, changed_nodes, overdue

    @cython.locals(size=long, verdict=long, code=long)
    cpdef long arrive(self, Node node, ProducerCredit account, bytes data, long bits, bint settled) except -1
    @cython.locals(each=Node)
    cdef bint _fits(self, Node node, bytes data, long size, bint crossing) except -1
    @cython.locals(gate=Gate, size=long, entry=Entry, keep=bint, expires_ms=long, code=long)
    cpdef long put(self, Node node, bytes data, long bits) except -1
    cpdef object acknowledge(self, Node node, Entry entry)
    cpdef object reject(self, Node node, Entry entry)
    cpdef object requeue(self, Node node, Entry entry, bint failed)
    cpdef object spare(self, Node node, Entry entry)
    cdef object _take_back(self, Node node, Entry entry)
    cpdef object mark_dirty(self, Node node)
    cpdef object begin_turn(self, long now_ns)
    @cython.locals(node=Node, nodes=list, sharing=list, queue=Queue, credit=CreditDealer)
    cpdef object end_turn(self)
    @cython.locals(node=Node, earliest=long, due=long, behind=bint)
    cpdef long next_deadline(self) except -1
    @cython.locals(ledger=CreditAllocator, code=long)
    cdef long _arrive_unpromised(self, Node node, ProducerCredit account, bytes data, long bits, bint settled,
                                 long size) except -1
    @cython.locals(code=long)
    cpdef long put_awaited(self, Node topic, bytes data, long bits, bint settled) except -1
    cpdef object hold_settlement(self, Node topic, ProducerCredit account, object held)
    cpdef object forget_held(self, Node node, ProducerCredit account)
    cpdef long confirmed(self, Node topic, long bits) except -1
    cpdef object park(self, Node node, ProducerCredit account, object message, long size, bint settled)
    @cython.locals(subscription=Node, code=long, answer=long, routed=bint)
    cdef long _publish(self, Node topic, bytes data, long bits) except -1
    cdef bint _is_unstored(self, Node topic, long bits) except -1
    @cython.locals(size=long, each=Node)
    cdef bint _fits_unheeded(self, Node topic, bytes data, long bits) except -1
    cdef bint _wants(self, Node subscription, bytes data) except -1
    @cython.locals(gate=Gate, oldest=Entry)
    cdef bint _make_room(self, Node node, long size) except -1
    cpdef object dead_letter(self, Node node, Entry entry, str reason)
    cpdef object passed_on(self, Node node, Entry entry, object way)
    cdef long _overflow(self, Node node, bytes data, long bits) except -1
    cdef object _strip(self, Node node, Entry entry)
    cdef object _have_body(self, Node node, Entry entry, object body, bint keep)
    cpdef object let_go(self, Node node, long seq)
    cpdef object put_back(self, Node node, Entry entry)
    cpdef object give_up(self, Node node, Entry entry)
    cdef object _dead_letter_overdue(self)
    cdef object _way_of_letters(self, Node node)
    cdef bytes _letter(self, Node node, bytes data, str reason)
    cdef long _wall_ms(self)
    @cython.locals(ttl_ms=long, expires_ms=long, absolute_ms=long)
    cdef long _set_expiry(self, Node node, Entry entry, bytes data) except -1
    cdef object _expire_at(self, Node node, Entry entry, long expires_ms)
    cpdef object watch_expiry(self, Node node, Entry entry)
    @cython.locals(queue=Queue, entry=Entry, following=long, seq=long, flags=long, delivery_count=long,
                   expires_ms=long, data=bytes, size=long, redelivered=long, spared=long, large=long)
    cpdef object restore(self, Node node, object messages)
    cpdef bint is_without_body(self, Node node, long seq, long flags, bytes data) except -1
    @cython.locals(node=Node, entry=Entry)
    cdef object _expire(self)
    cdef bint _is_duplicate(self, Node node, bytes data) except -1
    cdef object _remember(self, Node node, bytes data)
    cdef long _answer_behind(self, Node node, long bits) except -1
    cdef object _keep(self, Node node, Entry entry, long expires_ms)
    cpdef object count_kept(self, Node node, long msgs, long nbytes)
    cdef object _forget(self, Node node, Entry entry)
    cdef bint _may_serve(self, Node node)
    cpdef object seal(self)
    cpdef long wait_for_disk(self, object waiter) except -1
    @cython.locals(queue=Queue, excess=long, count=long)
    cdef object _shed(self, Node node)
    cdef object _drop(self, Node node, Entry entry)
    cdef object _remove(self, Node node, Entry entry)
    @cython.locals(ledger=CreditAllocator, topic=Node)
    cdef object _leave(self, Node node, long size)
    @cython.locals(owners=list, owner=Node, first=long, ledger=CreditAllocator)
    cdef object _wake_in_turn(self, Node node)
    @cython.locals(consumers=list)
    cdef object _dispatch(self, Node node)
    @cython.locals(browser=Consumer, reader=Reader, entry=Entry)
    cdef object _show(self, Node node)
    @cython.locals(reader=Reader)
    cdef object _look_for_unfinished(self, Node node)
    @cython.locals(owner=Node)
    cpdef object overpromise(self, Node node)
    @cython.locals(node=Node, ledger=CreditAllocator, due=long, behind=bint)
    cdef object _wake_timed_nodes(self)
    @cython.locals(gate=Gate)
    cdef object _look_at_budgets(self)
    cdef object _refuse_overdue(self, Node node)
    @cython.locals(gate=Gate, owner=Node)
    cpdef object gate_changed(self, Node node)
    cdef object _links_changed(self, Node node)
