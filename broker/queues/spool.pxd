cimport cython

from broker.queues.queue cimport Entry, Queue
from broker.records cimport Buffer

@cython.final
cdef class Run:
    cdef public long first, last, count, nbytes, disk_bytes, expires_ns
    cdef public bytes blob
    cdef public object place, decode
    cdef public bint reading, wanted, gone, kept

# A broker has few, and messages one by one only pass through what is typed here.
cdef class Spool:
    cdef public Queue queue
    cdef public object pager, on_loaded, on_memory, on_disk, on_answer
    cdef public long ahead_bytes, enough, count, nbytes, husks, paged_out, paged_in
    cdef public object runs
    cdef public list unwritten
    cdef public object write_fault, read_fault

    @cython.locals(queue=Queue, moved=long, run=Run)
    cpdef long page_out(self, long nbytes) except -1
    cpdef bint is_over(self, long now_ns) except -1
    @cython.locals(buffer=Buffer, nbytes=long, first=long, last=long, expires_ns=long, forever=bint, entry=Entry, run=Run)
    cdef Run _run(self)

@cython.locals(data=bytes, expires_ns=long, flags=int)
cdef long _encode(Buffer buffer, Entry entry) except -1

@cython.locals(entry=Entry)
cpdef Entry put_back(Queue queue, long seq, long flags, long delivery_count, long expires_ns, bytes data)
