from broker.store.logs cimport Shelves
from broker.store.port cimport StreamLog

cdef class StreamBatch:
    cdef readonly long group, first, time_ms, nbytes
    cdef readonly list messages

cdef class DiskStreamLog(StreamLog):
    cdef readonly long id
    cdef readonly str name
    cdef public bytes definition
    cdef readonly Shelves store
    cdef public long last_seq
    cdef public bint changed
    cdef public object segments, arrived, ready, kept, held_from
    cdef list arriving
    cdef public long arrived_bytes, appended_bytes
    cdef StreamBatch latest

    cdef object arrive(self, long seq, long expires_ms, bytes data)
