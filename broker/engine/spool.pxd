cimport cython

from broker.queues.queue cimport Entry, Queue, Reader
from broker.store.records cimport Buffer

@cython.final
cdef class Run:
    cdef public long first, last, count, nbytes, disk_bytes, expires_ns
    cdef public bytes blob
    cdef public object place, decode, fault, _taken
    cdef public bint reading, wanted, gone, kept, measured
    cdef public Run following
    cdef public list scanned

    cpdef bint is_empty(self) except -1
    cpdef bint has(self, long seq) except -1

# A broker has few, and messages one by one only pass through what is typed here.
cdef class Spool:
    cdef public Queue queue
    cdef public object pager, on_loaded, on_memory, on_disk, on_answer
    cdef public long ahead_bytes, enough, count, nbytes, husks, grown, paged_out, paged_in
    cdef public object runs
    cdef public list unwritten
    cdef public object write_fault, read_fault, look_fault
    cdef public object scans, on_scanned, on_met, is_late

    @cython.locals(queue=Queue, moved=long, run=Run)
    cpdef long page_out(self, long nbytes) except -1
    cpdef bint is_over(self, long now_ns) except -1
    @cython.locals(buffer=Buffer, nbytes=long, first=long, last=long, encoded=long, expires_ns=long, forever=bint, entry=Entry, run=Run)
    cdef Run _run(self)
    @cython.locals(run=Run)
    cpdef Run run_of(self, Reader reader)
    @cython.locals(run=Run)
    cpdef long ahead(self, Reader reader) except -1
    @cython.locals(run=Run, messages=list, position=Entry, upto=long, at=long, end=long, found=tuple, seq=long)
    cpdef Entry look(self, Reader reader)
    cdef Entry _copy(self, tuple found)
    @cython.locals(seq=long, flags=long, delivery_count=long, expires_ns=long, data=bytes, entry=Entry)
    cdef Entry _extract(self, Run run, tuple found, Entry near)

@cython.locals(data=bytes, expires_ns=long, flags=int)
cdef long _encode(Buffer buffer, Entry entry) except -1

@cython.locals(entry=Entry)
cpdef Entry put_back(Queue queue, long seq, long flags, long delivery_count, long expires_ns, bytes data, Entry near=*)
cdef object _set(Entry entry, long flags, long delivery_count, long expires_ns)
