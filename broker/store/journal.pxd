from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_condattr_init(pthread_condattr_t *)
    int pthread_condattr_setclock(pthread_condattr_t *, int)
    int pthread_cond_init(pthread_cond_t *, pthread_condattr_t *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const timespec *)
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_cond_broadcast(pthread_cond_t *)
    int pthread_cond_destroy(pthread_cond_t *)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec *)
    int CLOCK_MONOTONIC

cdef packed struct GroupHead:
    char magic[8]
    uint64_t run
    uint64_t group
    uint64_t length
    uint32_t file
    uint32_t records
    uint32_t flags
    uint32_t checksum
    uint64_t synced
    uint64_t chain

cdef struct Group:
    char *data
    long size
    long number
    long records
    long file
    uint64_t chain
    Group *next

cdef enum:
    LANES = 8
    # Writes that may have ended before an earlier one has.
    TICKETS = 64

# One thread's write: what, where, and since when.
cdef struct Lane:
    char *scratch
    long scratch_bytes, size, file, offset, begun_ns, ticket
    int fd

# A write that was begun, by its number: what it holds, and whether it is on disk.
cdef struct Ticket:
    long file, offset, last_group, nbytes, groups
    bint done

cdef class Journal:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t changed
    cdef Group *first
    cdef Group *last
    # Files that may be written, by number: descriptors of those from `file_base` on.
    cdef int files[1024]
    cdef long file_base, file_count
    cdef Lane lanes[LANES]
    cdef Ticket tickets[TICKETS]
    cdef long next_ticket, done_ticket, begun_ns
    cdef int writing, idle, lacking
    cdef bint stopping, unmarked, staggering
    cdef readonly long file, offset
    cdef readonly int bell
    cdef readonly bint lazy
    cdef readonly long run, written, synced, full, fault, fault_at_sync
    cdef readonly long writes, groups, written_bytes, sync_ns, slowest_ns, last_ns, pending_bytes

    cdef object push(self, char *data, long size, long number, long records, long file, uint64_t chain)
    cdef void loop(self, Lane *lane) noexcept nogil
    cdef bint wait_for_room(self, int fault) noexcept nogil
    cdef bint take(self, Lane *lane) noexcept nogil
    cdef Ticket *begin(self, Lane *lane, long size) noexcept nogil
    cdef void finished(self, Lane *lane) noexcept nogil
    cdef bint pack(self, Lane *lane) noexcept nogil
    cdef void mark(self, Lane *lane) noexcept nogil
    cdef int put(self, Lane *lane) noexcept nogil
    cdef void ring(self) noexcept nogil
    cdef bint wait(self, long ns) noexcept nogil
