cimport cython

from broker cimport constants

# Entries are the backlog's memory: no garbage collector header, no dictionary, no weak references.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Entry:
    cdef public bytes data
    cdef public Entry prev, next
    cdef public long seq
    cdef public object extra
    cdef public unsigned int delivery_count
    cdef public char state
    cdef public char durable, redelivered, spared

@cython.final
cdef class Reader:
    cdef public object owner, wanted
    cdef public bint browses, unfinished, waits
    cdef public Entry position
    cdef public list returned, parts
    cdef public long passed, left
    cdef public object run

cdef class QueueOrder:
    cdef public long stuck
    cpdef object taken(self, Entry entry)
    cpdef object returned(self, Entry entry)
    cpdef object gone(self, Entry entry)
    cpdef object let_go(self, Entry entry)
    cpdef object restart(self)
    cpdef object dispatch(self, list consumers, bint only_first, bint by_turn, long start)
    cpdef bint has_more(self, object consumer) except -1
    cpdef bint waits_for(self, object consumer) except -1

# Not final: a priority queue (priority.py) is one of these for each level.
cdef class Queue:
    cdef public Entry head, tail, cursor
    cdef public Entry first_pending, first_behind
    cdef public bint gap
    cdef public long behind, behind_bytes, gap_first, aside, aside_bytes
    cdef public object disk
    cdef public long ready, acquired, next_seq, picky, pending
    cdef public list readers
    cdef public QueueOrder order

    @cython.locals(entry=Entry, tail=Entry)
    cpdef Entry append(self, bytes data, bint keep=*)
    @cython.locals(entry=Entry)
    cpdef object stored(self, long upto)
    @cython.locals(entry=Entry)
    cpdef object cut(self, long keep_msgs, long keep_bytes)
    @cython.locals(entry=Entry)
    cpdef Entry take_behind(self)
    @cython.locals(entry=Entry)
    cpdef Entry fill(self, bytes data, long seq, Entry near=*)
    @cython.locals(entry=Entry)
    cpdef Entry extract(self, bytes data, long seq, Entry near)
    @cython.locals(entry=Entry)
    cpdef object join(self, long before)
    @cython.locals(entry=Entry)
    cpdef object close_gap(self)
    @cython.final
    cdef object _make_ready(self, Entry entry)
    @cython.final
    cdef object _put_behind(self, Entry entry)
    @cython.final
    @cython.locals(following=Entry)
    cdef object _leave_behind(self, Entry entry)
    @cython.final
    @cython.locals(entry=Entry)
    cdef Entry _after_ready(self, long msgs, long nbytes)
    @cython.final
    @cython.locals(first=Entry)
    cdef Entry _after_held(self, Entry entry)
    @cython.locals(entry=Entry)
    cpdef Entry acquire(self)
    @cython.locals(entry=Entry)
    cpdef Entry acquire_for(self, object consumer)
    cpdef Entry acquire_next(self, Reader reader)
    cpdef Entry look(self, Reader reader)
    cpdef object open_reader(self, Reader reader)
    cpdef object close_reader(self, Reader reader)
    @cython.locals(entry=Entry)
    cpdef bint has_more(self, Reader reader)
    @cython.final
    @cython.locals(entry=Entry, found=Entry, ahead=long)
    cdef Entry _next(self, Reader reader)
    @cython.final
    @cython.locals(entry=Entry, following=Entry)
    cdef Entry _next_in_memory(self, Reader reader, long upto)
    @cython.final
    cdef bint _may_pass(self, Reader reader) except -1
    @cython.final
    @cython.locals(reader=Reader)
    cdef object _show(self, Entry entry)
    @cython.final
    @cython.locals(reader=Reader)
    cdef object _return(self, Entry entry)
    @cython.final
    @cython.locals(reader=Reader)
    cdef object _send_back(self, Entry entry)
    @cython.final
    @cython.locals(first=Entry)
    cdef object _rewind(self, Reader reader)
    @cython.final
    @cython.locals(following=Entry, before=Entry)
    cdef object _insert(self, Entry entry, Entry near)
    @cython.final
    cdef object _put_aside(self, Entry entry)
    @cython.final
    cdef object _leave_aside(self, Entry entry)
    cpdef object take(self, Entry entry)
    cpdef object release(self, Entry entry)
    cpdef object settle(self, Entry entry)
    @cython.locals(following=Entry)
    cpdef object drop(self, Entry entry)
    @cython.locals(entry=Entry)
    cpdef Entry oldest(self)
    cpdef Entry oldest_below(self, bytes data)
    cpdef Entry least_ready(self)
    cpdef object forbid(self, Entry entry, object consumer)
    cpdef object adorn(self, Entry entry, object extra)
    cpdef list heads(self)
    @cython.locals(before=Entry)
    cpdef object adopt(self, Entry entry)
    @cython.locals(entry=Entry, following=Entry, reader=Reader)
    cpdef object clear(self)
    @cython.final
    cdef object _hold_back(self, Entry entry, bint keep)
    @cython.final
    cdef object _take(self, Entry entry)
    @cython.final
    @cython.locals(following=Entry)
    cdef Entry _ready_after(self, Entry entry)
    @cython.final
    @cython.locals(before=Entry, after=Entry, reader=Reader)
    cdef object _unlink(self, Entry entry)

cdef bint _is_free(Entry entry) except -1
cdef bint _is_wanted(Reader reader, Entry entry) except -1
cdef object _illegal(Entry entry, str verb)
