"""Delivery tags of messages the broker sends: the number of a slot, in four characters.

Some clients read a tag as text, so each of the four bytes is one from '0' to 'o' and carries six bits.
"""

from libc.stdint cimport uint32_t

cdef enum:
    MOST_TAGS = (1 << 24) - 1


cdef inline uint32_t tag_of(uint32_t slot) noexcept:
    """Encode a slot, less than ``MOST_TAGS``."""
    return 0x30303030 + ((slot & 0x3F) | (slot & 0xFC0) << 2 | (slot & 0x3F000) << 4 | (slot & 0xFC0000) << 6)


cdef inline uint32_t slot_of(uint32_t tag) noexcept:
    """Decode a tag; more than there are slots where it is no tag of the broker's."""
    tag -= 0x30303030
    return (tag & 0x3F) | (tag >> 2 & 0xFC0) | (tag >> 4 & 0x3F000) | (tag >> 6 & 0xFC0000)
