"""The numbers of constants.py, for what is compiled."""

cdef extern from *:
    """
    #define SLUICE_UNBOUNDED 1099511627776L
    """
    const long UNBOUNDED "SLUICE_UNBOUNDED"

cdef enum:
    HELD_BYTES = 128
    STAMP_BYTES = 62
    READY = 0
    ACQUIRED = 1
    GONE = 2
    PENDING = 3
    BEHIND = 4
    ASIDE = 5
    IS_DURABLE = 1
    HAS_HEADER = 2
    HAS_TTL = 4
    HAS_EXPIRY = 8
    HAS_DELIVERY_NOTES = 16
    MAY_BE_DELAYED = 32
    LARGE_SHIFT = 32
    TAKEN = 0
    LATE = 1
    VIOLATION = 2
    ACCEPTED = 1
    REFUSED = 2
    PARK = 3
    OVERSENT = 4
    STORING = 5
    HOLD = 6
    OVERFLOW_REJECT = 0
    OVERFLOW_RING = 1
    OVERFLOW_DROP_NEWEST = 2
    OVERFLOW_DEAD_LETTER = 3
    OVERFLOW_PAGE = 4
    FULL_BLOCK = 0
    FULL_REJECT = 1
    FULL_REJECT_AFTER = 2
