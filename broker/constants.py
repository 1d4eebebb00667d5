"""The numbers of the message path, one list for Python and (``constants.pxd``) for what is compiled.

Both files say the same; a test holds them together.
"""

from __future__ import annotations

# "No limit" as a number larger than any credit or size, so that no caller needs a special case.
UNBOUNDED = 1099511627776

# What a message holds in memory beside its bytes: its entry, the bytes object's head, rounding.
HELD_BYTES = 128
# The most by which its offset makes a message of a stream longer (codec/offsets.py).
STAMP_BYTES = 62

# An entry's state (queues/queue.py).
READY = 0
ACQUIRED = 1
GONE = 2
PENDING = 3  # in its place, but not on disk yet: nobody may see it
BEHIND = (
    4  # in its place, but messages before it are on disk only: nobody who takes all may see it before them
)
ASIDE = 5  # the same among those on disk: a reader took it before its turn and gave it back

# What message.scan says of a message, as bits.
IS_DURABLE = 1
HAS_HEADER = 2
HAS_TTL = 4
HAS_EXPIRY = 8
HAS_DELIVERY_NOTES = 16
MAY_BE_DELAYED = 32

# Above these bits stands the number of the file that has the body of a large message, 0 for none.
LARGE_SHIFT = 32

# What ProducerCredit.use answers (flow/producer_credit.py).
TAKEN = 0
LATE = 1
VIOLATION = 2

# What Intake.arrive answers (engine/intake.py).
ACCEPTED = 1  # in the node: settle it as accepted
REFUSED = 2  # no room and no waiting: settle it as rejected, amqp:resource-limit-exceeded
PARK = 3  # no room yet: the link parks it and settles when it is admitted
OVERSENT = 4  # the peer sent what it had no credit for: detach it
STORING = 5  # in the node; settle it as accepted once its group is on disk
HOLD = 6  # in the node; the link hands it to the topic's Awaiting, which says when to settle it

# `overflow` and `when_full`.
OVERFLOW_REJECT = 0
OVERFLOW_RING = 1
OVERFLOW_DROP_NEWEST = 2
OVERFLOW_DEAD_LETTER = 3
OVERFLOW_PAGE = 4
FULL_BLOCK = 0
FULL_REJECT = 1
FULL_REJECT_AFTER = 2
