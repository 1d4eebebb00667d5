cimport cython

from broker cimport constants
from broker.codec.grouping cimport PropertyKey, closes_group, group_id
from broker.queues.dispatch cimport Consumer
from broker.queues.message_group cimport GroupMember, MessageGroup
from broker.queues.queue cimport Entry, Queue, QueueOrder, Reader

cdef long _NOWHERE, _OWNED, _FREE

# Not final: Cython then refuses a .py's methods that override those of its base.
cdef class MessageGroups(QueueOrder):
    cdef public Queue queue
    cdef public PropertyKey property_key
    cdef public str first_key
    cdef public bint rebalance, shared
    cdef public long most_idle, selective, unwanted, looks, stuck_groups
    cdef public dict groups, held, members, pools
    cdef long _stale, _serial
    cdef bint _moved
    cdef object _idle
    cdef list _left
    cdef public Reader reader

    cpdef object taken(self, Entry entry)
    @cython.locals(group=MessageGroup)
    cpdef object gone(self, Entry entry)
    @cython.locals(group=MessageGroup)
    cpdef object let_go(self, Entry entry)
    @cython.locals(group=MessageGroup, owner=GroupMember)
    cpdef object returned(self, Entry entry)
    @cython.locals(group=MessageGroup, member=GroupMember)
    cpdef object restart(self)
    @cython.locals(group=MessageGroup)
    cdef object _lost(self, Entry entry)
    @cython.locals(takers=list, member=GroupMember)
    cpdef object dispatch(self, list consumers, bint only_first, bint by_turn, long start)
    @cython.locals(member=GroupMember, entry=Entry)
    cpdef bint has_more(self, object consumer) except -1
    @cython.locals(member=GroupMember, group=MessageGroup)
    cpdef bint waits_for(self, object consumer) except -1
    @cython.locals(takers=list, count=long, served=long, first=long, i=long, consumer=Consumer, member=GroupMember)
    cdef list _takers_of(self, list consumers, bint only_first, long start)
    @cython.locals(member=GroupMember, group=MessageGroup)
    cdef object _free_left(self)
    @cython.locals(entry=Entry)
    cdef object _serve_any(self, Consumer consumer)
    @cython.locals(found=bint, at=long, member=GroupMember)
    cdef bint _serve_own(self, list takers) except -1
    cdef bint _may_send(self, GroupMember member) except -1
    @cython.locals(group=MessageGroup, entry=Entry, wanted=bint)
    cdef bint _send_own(self, GroupMember member) except -1
    @cython.locals(member=GroupMember, taker=GroupMember, entry=Entry, best=list, pool=list)
    cdef bint _serve_free(self, list takers, bint by_turn) except -1
    @cython.locals(before=long)
    cdef bint _still(self, list takers) except -1
    @cython.locals(at=long, member=GroupMember)
    cdef object _drop_full(self, list takers)
    @cython.locals(reader=Reader, entry=Entry, group=MessageGroup, member=GroupMember)
    cdef bint _look(self, list takers, bint by_turn) except -1
    @cython.locals(owner=GroupMember)
    cdef GroupMember _taker_of(self, MessageGroup group, list takers, Entry entry)
    @cython.locals(best=GroupMember, member=GroupMember)
    cdef GroupMember _least_loaded(self, list takers, Entry entry, bint by_turn)
    @cython.locals(best=GroupMember, member=GroupMember)
    cdef GroupMember _fewest_groups(self, list takers, Entry entry)
    @cython.locals(consumer=Consumer)
    cdef object _send(self, GroupMember member, MessageGroup group, Entry entry)
    cdef bint _wants(self, GroupMember member, Entry entry) except -1
    @cython.locals(member=GroupMember)
    cdef object _wanted_by(self, Entry entry)
    @cython.locals(key=bytes, group=MessageGroup)
    cdef MessageGroup _group_of(self, Entry entry)
    cdef object _set_place(self, MessageGroup group, long place)
    cdef bytes _key_of(self, Entry entry)
    cdef object _bind(self, MessageGroup group, GroupMember member)
    @cython.locals(owner=GroupMember)
    cdef object _free(self, MessageGroup group)
    @cython.locals(entry=Entry)
    cdef object _offer(self, MessageGroup group)
    cdef object _offer_message(self, Entry entry)
    @cython.locals(pool=list)
    cdef object _put(self, object wanted_by, long seq, object found)
    @cython.locals(pool=list)
    cdef list _first_of(self, object wanted_by)
    @cython.locals(entry=Entry)
    cdef bint _is_first(self, MessageGroup group, object wanted_by) except -1
    @cython.locals(owner=GroupMember, is_first=bint)
    cdef object _wait(self, MessageGroup group, Entry entry)
    @cython.locals(owner=GroupMember)
    cdef object _skip(self, MessageGroup group, Entry entry)
    @cython.locals(owner=GroupMember, entry=Entry)
    cdef object _list(self, MessageGroup group)
    @cython.locals(owner=GroupMember)
    cdef object _let_go(self, MessageGroup group)
    @cython.locals(tries=long, found=MessageGroup)
    cdef object _rest(self, MessageGroup group)
    cdef Entry _first(self, MessageGroup group)
    cdef bint _insert(self, MessageGroup group, Entry entry) except -1
    @cython.locals(group=MessageGroup)
    cpdef bint reset(self, bytes key) except -1
