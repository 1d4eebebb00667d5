from libc.stdint cimport uint64_t

cdef enum:
    AHEAD = 8         # transactions that are declared before they are needed
    NAME = 64         # bytes of a transaction-id at most

# The transactions of one link: those declared, oldest first, in a ring; messages go to the first of them.
cdef struct Batches:
    void *coordinator
    uint64_t most     # messages in one; 0: no transactions
    uint64_t posted   # in the first transaction: messages sent, or settled
    uint64_t noted    # as many were posted when the loop was last looked at
    uint64_t committing
    uint64_t requests
    int first, ready, declaring
    int sizes[AHEAD]
    char names[AHEAD][NAME]

cdef void begin(Batches *batches, void *session, const char *name) noexcept nogil
cdef void declare_ahead(Batches *batches) noexcept nogil
cdef void post(Batches *batches, void *delivery) noexcept nogil
cdef void retire_some(Batches *batches, void *receiver) noexcept nogil
cdef void discharge(Batches *batches) noexcept nogil
cdef bint answered(Batches *batches, void *delivery, uint64_t *committed) noexcept nogil
