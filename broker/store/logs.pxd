from libc.stdint cimport uint64_t

from broker.store.records cimport Buffer, Head
from broker.store.port cimport QueueLog, Store
from broker.store.journal cimport Journal

cdef class Extent:
    cdef readonly long first, last, file
    cdef public long live, nbytes
    cdef public object place
    cdef public bint changed
    cdef unsigned char *bits
    cdef long room_bytes

    cdef object grow(self, long seq)
    cdef bint holds(self, long seq) noexcept
    cdef bint drop(self, long seq) noexcept

cdef class DiskQueueLog(QueueLog):
    cdef readonly long id
    cdef readonly str name
    cdef public bytes definition
    cdef readonly Shelves store
    cdef public list extents
    cdef public dict updates
    cdef public long last_seq
    cdef public bint removed, changed
    cdef Extent latest, hint

    cdef Extent extent_of(self, long seq)
    cdef object take_in(self, const Head *head, long nbytes)

cdef class Shelves(Store):
    cdef Buffer buffer
    cdef public Journal journal
    cdef public long file, file_used, file_bytes
    cdef public set touched
    cdef public bint idle_dirty
    cdef public object tap
    cdef bytes kept_data
    cdef long kept_at

    cdef object keep(self, long node, long seq, long flags, long delivery_count, long expires_ms, bytes data)
    cdef object seal_for_tap(self)
    cdef object group_closed(self, long size)
