cimport cython

cdef class QueueLog:
    cpdef object append(self, long seq, long flags, long delivery_count, long expires_ms, bytes data)
    cpdef object update(self, long seq, long delivery_count, bint spared=*)
    cpdef object forget(self, long seq, long nbytes)

cdef class StreamLog(QueueLog):
    pass

cdef class Store:
    cdef public long group, synced, open_records, behind_bytes, stored_bytes, syncs, sync_ns
    cdef public long groups_written, written_bytes
    cdef public int bell
    cdef public bint syncs_when_full
    cdef public str state, reason
    cpdef object seal(self)
    cpdef long attend(self) except -1
