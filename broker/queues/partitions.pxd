cimport cython
from broker.codec.grouping cimport group_id

@cython.final
cdef class Partitioning:
    cdef readonly long partitions
    cdef bytes _data
    cdef long _chosen

    cpdef long chosen(self, bytes data) except -1

@cython.final
cdef class PartitionFilter:
    cdef Partitioning _partitioning
    cdef long _partition

    cpdef bint matches(self, bytes data) except -1
