"""How deep encoded values nest, and how many they are, seen before anybody makes objects of them.

Proton's decoder goes by the counts that stand in the bytes: an array of thirteen bytes may claim four thousand
million elements that take no room, and lists may nest as deep as there are bytes. Whoever hands bytes of a peer
to a decoder asks here first. What is walked is what the decoder would walk: counts and sizes have to agree.
"""

from libc.stdint cimport uint8_t


def is_bounded(bytes data, int depth, long elements):
    """Whether all of it is values, well-formed, nested so deep and so many at most."""
    cdef const uint8_t *at = data
    cdef const uint8_t *end = at + len(data)
    while at < end:
        at = walk(at, end, depth, &elements)
        if at == NULL:
            return False
    return True


cdef const uint8_t *walk(const uint8_t *at, const uint8_t *end, int depth, long *elements) noexcept nogil:
    """The position behind the value at ``at``; NULL where it is none, or too much. ``elements`` counts down."""
    cdef uint8_t code
    if at >= end or depth < 0:
        return NULL
    code = at[0]
    if code != 0:
        return content(code, at + 1, end, depth, elements)
    # A descriptor is a value of its own, and never described or compound where Proton reads it.
    if at + 1 >= end or at[1] == 0 or at[1] >> 4 >= 0xC:
        return NULL
    at = walk(at + 1, end, depth - 1, elements)
    return NULL if at == NULL else walk(at, end, depth - 1, elements)


cdef const uint8_t *content(uint8_t code, const uint8_t *at, const uint8_t *end, int depth, long *elements) noexcept nogil:
    cdef int kind = code >> 4
    cdef long size, count
    cdef const uint8_t *behind
    elements[0] -= 1
    if elements[0] < 0:
        return NULL
    if kind == 4:
        return at
    if kind >= 5 and kind <= 9:
        size = 1 << (kind - 5)
        return at + size if size <= end - at else NULL
    if kind < 0xA:
        return NULL
    if kind & 1 == 0:
        if end - at < 1:
            return NULL
        size = at[0]
        at += 1
    else:
        if end - at < 4:
            return NULL
        size = four(at)
        at += 4
    if size > end - at:
        return NULL
    behind = at + size
    if kind < 0xC:
        return behind
    if kind & 1 == 0:
        if size < 1:
            return NULL
        count = at[0]
        at += 1
    else:
        if size < 4:
            return NULL
        count = four(at)
        at += 4
    if kind < 0xE:
        if count > behind - at:
            return NULL
        while count > 0:
            at = walk(at, behind, depth - 1, elements)
            if at == NULL:
                return NULL
            count -= 1
        return behind if at == behind else NULL
    return array(at, behind, count, depth - 1, elements)


cdef const uint8_t *array(const uint8_t *at, const uint8_t *behind, long count, int depth, long *elements) noexcept nogil:
    """Its elements have one constructor, which may be described; elements of no size are counted all the same."""
    cdef uint8_t code
    cdef int kind
    if depth < 0 or count > elements[0] or at >= behind:
        return NULL
    while at[0] == 0:
        if at + 1 >= behind or at[1] == 0 or at[1] >> 4 >= 0xC or depth <= 0:
            return NULL
        depth -= 1
        at = walk(at + 1, behind, depth, elements)
        if at == NULL or at >= behind:
            return NULL
    code = at[0]
    at += 1
    kind = code >> 4
    if kind >= 4 and kind <= 9:
        # All of one size: nobody has to look at each, of which a few bytes may claim thousands of millions.
        elements[0] -= count
        return behind if count * (0 if kind == 4 else 1 << (kind - 5)) == behind - at else NULL
    while count > 0:
        at = content(code, at, behind, depth, elements)
        if at == NULL:
            return NULL
        count -= 1
    return behind if at == behind else NULL


cdef inline long four(const uint8_t *at) noexcept nogil:
    return (<long>at[0] << 24) | (at[1] << 16) | (at[2] << 8) | at[3]
