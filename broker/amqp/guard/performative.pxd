"""The fields of a performative (AMQP 1.0 §2.7), read where they stand in a frame.

Only what is there is read: a field beyond it counts as missing, and ``bad`` is set where one is cut short.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

cdef enum:
    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    FLOW = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18
    # Of a delivery-tag (§2.8.7), in bytes.
    LONGEST_TAG = 32

cdef struct Fields:
    const uint8_t *at
    const uint8_t *end
    long count
    bint bad


cdef inline long frame_size(const uint8_t *at) noexcept:
    """Read four bytes as a number, a frame's size or that of a value in it."""
    return (<long>at[0] << 24) | (at[1] << 16) | (at[2] << 8) | at[3]


cdef inline int performative_code(const uint8_t *at, long offset, long whole) noexcept:
    """Return the performative's code; -1 for one that Proton is to judge."""
    if whole < offset + 4 or at[offset] != 0:
        return -1
    if at[offset + 1] == 0x53:
        return at[offset + 2]
    if at[offset + 1] == 0x80 and whole > offset + 10 and frame_size(at + offset + 2) == 0 and \
            at[offset + 6] == 0 and at[offset + 7] == 0 and at[offset + 8] == 0:
        return at[offset + 9]
    return -1


cdef inline void begin_fields(Fields *fields, const uint8_t *frame, long offset, long left) noexcept:
    """Go to the first field of the performative at ``offset``; ``left`` bytes of its frame are there."""
    cdef const uint8_t *at = frame + offset
    at += 3 if at[1] == 0x53 else 10
    fields.end = frame + left
    fields.bad = False
    fields.count = 0
    fields.at = at
    # Bytes behind the list's own size are none of its fields, however many it says it has: Proton takes
    # nothing from there.
    if at + 3 <= fields.end and at[0] == 0xC0:
        fields.count = at[2]
        if at[1] + 2 < fields.end - at:
            fields.end = at + 2 + at[1]
        fields.at = at + 3
    elif at + 9 <= fields.end and at[0] == 0xD0:
        fields.count = frame_size(at + 5)
        if frame_size(at + 1) + 5 < fields.end - at:
            fields.end = at + 5 + frame_size(at + 1)
        fields.at = at + 9


cdef inline long value_size(const uint8_t *at, const uint8_t *end) noexcept:
    """Return how many bytes the value at ``at`` takes, its constructor included; -1 where that can't be seen."""
    cdef int kind = at[0] >> 4
    if kind == 4:
        return 1
    if kind >= 5 and kind <= 9:
        return 1 + (1 << (kind - 5))
    if kind == 0xA or kind == 0xC or kind == 0xE:
        return 2 + at[1] if at + 2 <= end else -1
    if kind == 0xB or kind == 0xD or kind == 0xF:
        return 5 + frame_size(at + 1) if at + 5 <= end else -1
    return described_size(at, end)


cdef inline long described_size(const uint8_t *at, const uint8_t *end) noexcept:
    """Return the same of a described value."""
    cdef long descriptor, value
    if at[0] != 0 or at + 1 >= end or at[1] == 0:
        return -1
    descriptor = value_size(at + 1, end)
    if descriptor < 0 or at + 1 + descriptor >= end or at[1 + descriptor] == 0:
        return -1
    value = value_size(at + 1 + descriptor, end)
    return -1 if value < 0 else 1 + descriptor + value


cdef inline void skip_field(Fields *fields) noexcept:
    """Go to the next field."""
    cdef long size
    if fields.count <= 0 or fields.bad or fields.at >= fields.end:
        fields.bad = fields.bad or fields.count > 0
        fields.count = 0
        return
    fields.count -= 1
    size = value_size(fields.at, fields.end)
    if size < 0 or size > fields.end - fields.at:
        # It reaches beyond what is there: what follows can't be seen.
        fields.bad = True
        return
    fields.at += size


cdef inline bint next_uint(Fields *fields, uint32_t *value) noexcept:
    """Read a number, and say whether the next field is one."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    if fields.at == at or fields.bad:
        return False
    if at[0] == 0x43:
        value[0] = 0
    elif at[0] == 0x52:
        value[0] = at[1]
    elif at[0] == 0x70:
        value[0] = <uint32_t>frame_size(at + 1)
    else:
        return False
    return True


cdef inline bint are_uints(Fields *fields, int count) noexcept:
    """Read fields, and say whether all are there and numbers."""
    cdef uint32_t value
    while count > 0:
        if not next_uint(fields, &value):
            return False
        count -= 1
    return True


cdef inline bint settles_second(Fields *fields) noexcept:
    """Read a rcv-settle-mode, and say whether it is there and `second`."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    return fields.at != at and not fields.bad and at[0] == 0x50 and at[1] == 1


cdef inline int next_bool(Fields *fields) noexcept:
    """Read a boolean: 1, 0, or -1 for a field that is not there."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    if fields.at == at or fields.bad:
        return -1
    if at[0] == 0x41 or (at[0] == 0x56 and at[1] == 1):
        return 1
    if at[0] == 0x42 or at[0] == 0x56:
        return 0
    return -1


cdef inline bint has_entry(const uint8_t *at, const uint8_t *end, const char *key, long size) noexcept:
    """Return whether the map at ``at`` has a value that isn't null under a symbol or string of ``size`` bytes."""
    cdef const uint8_t *text
    cdef long found, whole
    if at >= end or (at[0] != 0xC1 and at[0] != 0xD1):
        return False
    whole = value_size(at, end)
    if whole < 0 or whole > end - at:
        return False
    end = at + whole
    at += 3 if at[0] == 0xC1 else 9
    while at < end:
        text = NULL
        if (at[0] == 0xA3 or at[0] == 0xA1) and at + 2 <= end:
            text = at + 2
            found = at[1]
        elif (at[0] == 0xB3 or at[0] == 0xB1) and at + 5 <= end:
            text = at + 5
            found = frame_size(at + 1)
        whole = value_size(at, end)
        if whole < 0 or whole >= end - at:
            return False
        at += whole
        if text != NULL and found == size and memcmp(text, key, size) == 0:
            return at[0] != 0x40
        whole = value_size(at, end)
        if whole < 0:
            return False
        at += whole
    return False


cdef inline object next_text(Fields *fields):
    """Read a string, as bytes; None if there is none, or not all of it."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    if fields.at == at or fields.bad:
        return None
    if at[0] == 0xA1:
        return at[2:fields.at - at]
    if at[0] == 0xB1:
        return at[5:fields.at - at]
    return None


cdef inline long tag_size(const uint8_t *tag, Fields *fields) noexcept:
    """Return the size of a delivery-tag, also of one that reaches beyond what is there; 0 for none."""
    if fields.count <= 0 or tag + 2 > fields.end:
        return 0
    if tag[0] == 0xA0:
        return tag[1]
    if tag[0] == 0xB0 and tag + 5 <= fields.end:
        return frame_size(tag + 1)
    return 0


cdef inline int terminus_code(const uint8_t *at, const uint8_t *end) noexcept:
    """Return a source's or target's descriptor; -1 for a null, or one that isn't a number."""
    if at + 3 > end or at[0] != 0:
        return -1
    if at[1] == 0x53:
        return at[2]
    if at[1] == 0x80 and at + 10 <= end:
        return at[9] if frame_size(at + 2) == 0 and (at[6] | at[7] | at[8]) == 0 else 0
    return -1
