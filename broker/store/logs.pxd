from libc.stdint cimport uint64_t

from broker.store.records cimport Buffer, Head, Ranges
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
    cdef object take_message(self, long seq, long nbytes)
    cdef Extent known(self, long seq)
    cdef object take_update(self, const Head *head)
    cdef object take_forgotten(self, long seq, long nbytes)

cdef class PlaceLists:
    cdef list lists
    cdef long next

    cdef Ranges add(self, Buffer into, Ranges copies, long flags, long delivery_count, long expires_ms,
                    long kept_at)
    cdef object clear(self)

cdef class OpenPage:
    cdef Buffer buffer
    cdef PlaceLists lists
    cdef readonly dict extents
    # Which message of the file stands at ``kept_at``, if it is the last one.
    cdef long of, kept_at

    cdef object note(self, long node, long seq, long nbytes)

cdef class Shelves(Store):
    cdef Buffer buffer
    cdef public Journal journal
    cdef public long file, file_used, file_bytes
    cdef public set touched
    cdef public bint idle_dirty
    cdef public object tap
    cdef bytes kept_data
    cdef long kept_at
    # Other places of the last message, with what is the same in all of them; lists that later ones may refer to.
    cdef Ranges copies
    cdef long copies_flags, copies_deliveries, copies_expire_ms, unwritten
    cdef PlaceLists lists
    # Messages that are done with in the open group.
    cdef Ranges forgotten

    cdef object keep(self, long node, long seq, long flags, long delivery_count, long expires_ms, bytes data)
    cdef object close_copies(self)
    cdef object write_open(self)
    cdef object end_group(self)
    cdef object seal_for_tap(self, long unwritten)
    cdef object group_closed(self, long size)
