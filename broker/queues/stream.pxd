cimport cython

from broker cimport constants
from broker.codec.offsets cimport chunk, with_offset
from broker.queues.named_readers cimport NamedReaders
from broker.queues.queue cimport Entry, Queue, Reader

@cython.final
cdef class StreamCursor:
    cdef public str start
    cdef public long value, chunk_bytes, until, in_chunk
    cdef public object loaded, disk
    cdef public list returned, owed
    cdef public bint loading, closed, seeks

cdef class StreamQueue(Queue):
    cdef public object source, ask
    cdef public NamedReaders named
    cdef public long total_bytes, counted_offset, counted_sum
    cdef public long id, next_offset, visible, tail_first, tail_bytes, loaded_bytes, latest_ms
    cdef long _counted, _start, _held_from, _most_bytes, _most_count, _age_ms
    cdef list _tail, _times, _sums

    cpdef object hold(self, long offset)
    cpdef long bytes_from(self, long offset) except? -1
    @cython.locals(offset=long, entry=Entry)
    cpdef Entry arrive(self, bytes data, long time_ms, bint stored)
    cpdef object stored(self, long upto)
    @cython.locals(appended=long)
    cpdef object trim(self, long most_bytes)
    @cython.locals(count=long)
    cpdef long mean_bytes(self) except -1
    @cython.locals(held_from=long)
    cpdef object give_way(self, long most_bytes)
    @cython.locals(held=long, grown=long)
    cpdef long take_memory(self) except? -1
    @cython.locals(cursor=StreamCursor)
    cpdef object open_reader(self, Reader reader)
    cpdef object close_reader(self, Reader reader)
    @cython.locals(entry=Entry)
    cpdef Entry look(self, Reader reader)
    @cython.locals(cursor=StreamCursor, at=long)
    cpdef object found(self, Reader reader, long offset, long upto)
    @cython.locals(cursor=StreamCursor)
    cpdef bint has_more(self, Reader reader) except -1
    cpdef object clear(self)
    @cython.locals(cursor=StreamCursor, offset=long)
    cdef Entry _at(self, Reader reader)
    @cython.locals(cursor=StreamCursor, found=long, data=bytes)
    cdef Entry _loaded(self, Reader reader, long offset)
    @cython.locals(cursor=StreamCursor, count=long, offset=long, again=Entry, at=long, place=long)
    cpdef object give_back(self, Reader reader, Entry entry, bint failed, long most)
    @cython.locals(owed=list, at=long)
    cpdef object deal_with(self, Reader reader, long offset)
    cpdef long first_owed(self, Reader reader) except? -1
    @cython.locals(first=Entry, entry=Entry, messages=list, data=bytes, size=long, begin=long, following=long, end=long)
    cdef Entry _chunk(self, Reader reader, StreamCursor cursor)
    @cython.locals(cursor=StreamCursor)
    cdef object _ask_in_time(self, Reader reader)
    cdef Entry _returned(self, StreamCursor cursor)
    @cython.locals(data=bytes)
    cpdef object load(self, Reader reader, list messages)
    @cython.locals(data=bytes)
    cdef object _drop_loaded(self, StreamCursor cursor)
    cdef object _leave_disk(self, StreamCursor cursor)
    cpdef long wanted_offset(self, Reader reader) except -1
    cdef object _ask(self, Reader reader)
    @cython.locals(at=long)
    cdef long _begin(self, StreamCursor cursor) except -1
    @cython.locals(held_from=long)
    cdef object _retain(self, long now_ms)
    @cython.locals(count=long)
    cdef bint _has_too_much(self) except -1
    @cython.locals(entry=Entry)
    cdef object _drop_first(self)
    cdef object _tidy(self)
