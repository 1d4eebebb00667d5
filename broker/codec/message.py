"""An encoded message's sections: checked on the way in, and only the header rewritten on the way out.

The bare message is immutable (AMQP 1.0 §3.2): everything behind the header and the annotations
passes through byte for byte. Nothing here builds Python values from a message's body.
"""

from __future__ import annotations

import struct
from typing import Any

from broker.codec.encoding import compound, symbol, text

# What scan() answers: -1 for bytes that aren't a message, else these bits.
MALFORMED = -1
DURABLE = 1
HAS_HEADER = 2
HAS_TTL = 4
HAS_EXPIRY = 8
HAS_DELIVERY_NOTES = 16
MAY_BE_DELAYED = 32

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
AMQP_VALUE = 0x77
BODY_FIRST = 0x75
BODY_LAST = 0x77
FOOTER = 0x78
# The places of fields in their lists.
PRIORITY_FIELD = 1
TTL_FIELD = 2
EXPIRY_FIELD = 8
_SYMBOLS = {
    b"amqp:header:list": 0x70,
    b"amqp:delivery-annotations:map": 0x71,
    b"amqp:message-annotations:map": 0x72,
    b"amqp:properties:list": 0x73,
    b"amqp:application-properties:map": 0x74,
    b"amqp:data:binary": 0x75,
    b"amqp:amqp-sequence:list": 0x76,
    b"amqp:amqp-value:*": 0x77,
    b"amqp:footer:map": 0x78,
}
# What other brokers take for the wish that a message be delivered later: a span or a time in milliseconds.
DELIVERY_DELAY = b"x-opt-delivery-delay"
DELIVERY_TIME = b"x-opt-delivery-time"
ENQUEUE_TIME = b"x-opt-scheduled-enqueue-time"
# Annotations of more bytes are searched as bytes before they are walked key by key.
MOST_WALKED = 512
# By both of a symbol's encodings.
_DELAYS = {
    head + name: name
    for name in (DELIVERY_DELAY, DELIVERY_TIME, ENQUEUE_TIME)
    for head in (b"\xa3" + bytes((len(name),)), b"\xb3\0\0\0" + bytes((len(name),)))
}
# Where a value ends that isn't all there.
SHORT = -2
_NULL = b"\x40"
MAX_UINT = 0xFFFFFFFF
# Priorities of messages: that of one that says none, and the highest of the ten (§3.2.1).
DEFAULT_PRIORITY = 4
MAX_PRIORITY = 9
# Nanoseconds in 63 bits end in the year 2262.
FURTHEST_MS = (2**63 - 1) // 1_000_000
# How deep described values may nest in an amqp-value before a message is refused.
MAX_DEPTH = 32
# A header is rewritten field by field whenever its message is sent again: one of millions of fields would
# hold up whoever does that. The five there are take 20 bytes.
LONGEST_HEADER = 4096
# Names of this length or more are one length to Wanted.lengths, which has a bit for each.
LONG_NAME = 30


def scan(data: bytes) -> int:
    """Walk the sections (§3.2): they must be whole, known, of their type and in order.

    The body may be missing, though §3.2 asks for one: Proton's clients leave it out where it is None.
    Returns the bits above; costs a few comparisons a section, whatever the body's size.
    """
    end = len(data)
    at = 0
    last = 0
    bits = 0
    while at < end:
        code = section_code(data, at)
        if code < HEADER or code > FOOTER or not may_follow(last, code):
            return MALFORMED
        start = after_descriptor(data, at)
        at = skip_value(data, start, end)
        if at < 0 or not is_typed(code, data[start]):
            return MALFORMED
        if code == HEADER:
            if at - start > LONGEST_HEADER:
                return MALFORMED
            bits = HAS_HEADER | _header_bits(data, start, at)
        elif code == DELIVERY_ANNOTATIONS:
            bits |= HAS_DELIVERY_NOTES
        elif (
            code == PROPERTIES and _count(data, start) > EXPIRY_FIELD and absolute_expiry_at(data, start) > 0
        ):
            bits |= HAS_EXPIRY
        elif code == ANNOTATIONS and _names_a_delay(data, start, at):
            bits |= MAY_BE_DELAYED
        last = code
    return bits if last > 0 else MALFORMED


def _names_a_delay(data: bytes, start: int, end: int) -> bool:
    """Whether a delay's name may stand there: every message with annotations pays for this, so it looks at no
    more than the keys' lengths, or for the bytes where there are many keys.
    """
    if end - start > MOST_WALKED:
        return data.find(b"x-opt-delivery-", start, end) >= 0 or data.find(ENQUEUE_TIME, start, end) >= 0
    at = _first_field(data, start)
    while 0 <= at < end:
        place = skip_value(data, at, end)
        if place < 0:
            break
        length = data[at + 1] if data[at] == 0xA3 else 0
        if length == 19 or length == 20 or length == 28 or data[at] == 0xB3:
            return True
        at = skip_value(data, place, end)
    return False


def delivery_time_ms(data: bytes, now_ms: int) -> int:
    """When a message is to be delivered, as its annotations ask for, in milliseconds since the epoch.

    So is ``now_ms``. 0 for at once, which a time that has passed means, too; MALFORMED for a value that is no
    number, or a time that no clock reaches. `x-opt-delivery-time` goes before Service Bus's
    `x-opt-scheduled-enqueue-time`, and both before `x-opt-delivery-delay`.
    """
    return delivery_time_in(annotations_of(data), now_ms)


def delivery_time_in(annotations: bytes, now_ms: int) -> int:
    """The same of an encoded map of message annotations; empty bytes are none."""
    found = {} if not annotations else _delays_of(annotations)
    time_ms = 0
    for name in (DELIVERY_TIME, ENQUEUE_TIME, DELIVERY_DELAY):
        if name in found:
            value = value_at(found[name], 0)
            if isinstance(value, bool) or not isinstance(value, int):
                return MALFORMED
            # The first counts, and all are checked.
            time_ms = time_ms or (max(value, 0) + now_ms if name == DELIVERY_DELAY else max(value, 1))
    if time_ms > FURTHEST_MS:
        return MALFORMED
    return time_ms if time_ms > now_ms else 0


def _delays_of(annotations: bytes) -> dict[bytes, bytes]:
    """The annotations that ask for a delay, by name, each with its encoded value; null asks for nothing."""
    items = list_fields(annotations, 0)
    pairs = zip(items[::2], items[1::2], strict=False)
    return {_DELAYS[key]: value for key, value in pairs if key in _DELAYS and value != _NULL}


def with_delivery_time(data: bytes, time_ms: int) -> bytes:
    """The message with `x-opt-delivery-time` in the place of a delay, which would begin anew wherever the
    message goes (as in Artemis).
    """
    return with_annotations(data, annotations_until(annotations_of(data), time_ms))


def annotations_until(annotations: bytes, time_ms: int) -> bytes:
    """Encoded message annotations with `x-opt-delivery-time` in the place of a delay."""
    pairs = _pairs(annotations)
    pairs.pop(symbol(DELIVERY_DELAY), None)
    pairs[symbol(DELIVERY_TIME)] = b"\x81" + time_ms.to_bytes(8, "big")
    return _encode_map(pairs)


def merged_outcome(present: bytes, added: bytes) -> bytes:
    """Two encoded maps in one, where ``added`` is what a receiver's outcome brings.

    A time or a delay of its own replaces all that the message has of them.
    """
    if _delays_of(added):
        kept = {key: value for key, value in _pairs(present).items() if key not in _DELAYS}
        return _encode_map({**kept, **_pairs(added)})
    return merged_maps(present, added)


def asks_for_delay(data: bytes) -> bool:
    """Whether the message annotations have a delay, rather than a time."""
    annotations = annotations_of(data)
    return bool(annotations) and DELIVERY_DELAY in _delays_of(annotations)


def is_typed(code: int, constructor: int) -> bool:
    """Whether a section's value is the list, map or binary that §3.2 says it is."""
    if code == AMQP_VALUE:
        return True
    if code == DATA:
        return constructor in (0xA0, 0xB0)
    if code in (HEADER, PROPERTIES, SEQUENCE):
        return constructor in (0x45, 0xC0, 0xD0)
    return constructor in (0xC1, 0xD1)


def may_follow(last: int, code: int) -> bool:
    """Sections come in order and once; data and amqp-sequence sections may repeat, kinds don't mix."""
    if code >= BODY_FIRST and code <= BODY_LAST and last >= BODY_FIRST:
        return last == code and code < BODY_LAST
    return last < code


def section_code(data: bytes, at: int) -> int:
    """The section's descriptor as a number; -1 if there is none at ``at``."""
    left = len(data) - at
    if left < 3 or data[at] != 0:
        return MALFORMED
    if data[at + 1] == 0x53:
        return data[at + 2]
    if data[at + 1] == 0x80 and left >= 10:
        return data[at + 9] if data[at + 2 : at + 9] == bytes(7) else MALFORMED
    if data[at + 1] == 0xA3 and left >= 3 + data[at + 2]:
        name = data[at + 3 : at + 3 + data[at + 2]]
        return _SYMBOLS.get(name, MALFORMED)
    return MALFORMED


def after_descriptor(data: bytes, at: int) -> int:
    """Return where the value of the section at ``at`` begins; :func:`section_code` knows the descriptor."""
    if data[at + 1] == 0x53:
        return at + 3
    if data[at + 1] == 0x80:
        return at + 10
    return at + 3 + data[at + 2]


def value_end(data: bytes, at: int, end: int, depth: int) -> int:
    """Return where the encoded value at ``at`` ends, which may be behind ``end`` (§1.6).

    SHORT if more bytes are needed to tell, MALFORMED for a type that there isn't. The one walk over values.
    """
    if at >= end:
        return SHORT
    constructor = data[at]
    kind = constructor >> 4
    at += 1
    if kind == 0x4:
        return at
    if kind >= 0x5 and kind <= 0x9:
        return at + (1 << (kind - 5))
    if kind == 0xA or kind == 0xC or kind == 0xE:
        return at + 1 + data[at] if at < end else SHORT
    if kind == 0xB or kind == 0xD or kind == 0xF:
        if at + 4 > end:
            return SHORT
        # The first byte in a variable of its own: compiled, shifting it as it stands would make an int
        # below zero of sizes from 2 GiB on, and the walk would go backwards, or on the spot for ever.
        size = data[at]
        return at + 4 + ((size << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3])
    if constructor != 0 or depth >= MAX_DEPTH:
        return MALFORMED
    at = value_end(data, at, end, depth + 1)
    return at if at < 0 else value_end(data, at, end, depth + 1)


def skip_value(data: bytes, at: int, end: int) -> int:
    """Return where the value at ``at`` ends; MALFORMED if that isn't before or at ``end``."""
    following = value_end(data, at, end, 0)
    return following if following >= 0 and following <= end else MALFORMED


def _header_bits(data: bytes, start: int, end: int) -> int:
    """Whether the header at ``start`` says durable, its first field, and has a ttl, its third."""
    at = _first_field(data, start)
    if at < 0 or at >= end:
        return 0
    bits = 0
    if data[at] == 0x41 or (data[at] == 0x56 and at + 1 < end and data[at + 1] == 1):
        bits = DURABLE
    if _count(data, start) > TTL_FIELD:
        at = _field_at(data, start, TTL_FIELD)
        if at >= 0 and data[at] != 0x40:
            bits |= HAS_TTL
    return bits


def _count(data: bytes, start: int) -> int:
    """How many elements the list or map at ``start`` says it has."""
    if data[start] in (0xC0, 0xC1) and start + 2 < len(data):
        return data[start + 2]
    if data[start] in (0xD0, 0xD1) and start + 8 < len(data):
        # More than 255 is as good as 255 to whoever asks.
        return data[start + 8] if data[start + 5 : start + 8] == bytes(3) else 255
    return 0


def _field_at(data: bytes, start: int, index: int) -> int:
    """Where an element of the list at ``start`` stands; -1 if it has no such element, or not all of it."""
    if _count(data, start) <= index:
        return MALFORMED
    end = skip_value(data, start, len(data))
    at = _first_field(data, start)
    while index > 0 and at >= 0:
        at = skip_value(data, at, end)
        index -= 1
    return at if at >= 0 and skip_value(data, at, end) >= 0 else MALFORMED


def _section_at(data: bytes, wanted: int) -> int:
    """Where a section's value stands, behind its descriptor; -1 if the message has no such section."""
    at = 0
    end = len(data)
    while at < end:
        code = section_code(data, at)
        start = after_descriptor(data, at)
        if code == wanted:
            return start
        if code > wanted:
            return MALFORMED
        at = skip_value(data, start, end)
        if at < 0:
            return MALFORMED
    return MALFORMED


def ttl_ms(data: bytes) -> int:
    """The header's ttl in milliseconds (§3.2.1); 0 for none, and for the 0 that some clients send for it."""
    start = _section_at(data, HEADER)
    at = _field_at(data, start, TTL_FIELD) if start >= 0 else MALFORMED
    return _uint(data[at : at + 5]) if at >= 0 else 0


def priority(data: bytes) -> int:
    """Return the header's priority, 0 to 9: 4 where none is given, 9 for anything above (§3.2.1)."""
    start = _section_at(data, HEADER)
    at = _field_at(data, start, PRIORITY_FIELD) if start >= 0 else MALFORMED
    if at < 0 or data[at] != 0x50 or at + 1 >= len(data):
        return DEFAULT_PRIORITY
    return min(data[at + 1], MAX_PRIORITY)


def absolute_expiry_at(data: bytes, start: int) -> int:
    """The absolute-expiry-time of the properties at ``start``, milliseconds since the epoch; 0 for none, and
    for one that clocks don't reach: some clients write the largest number for "never".
    """
    at = _field_at(data, start, EXPIRY_FIELD)
    if at < 0 or data[at] != 0x83 or at + 9 > len(data):
        return 0
    expiry_ms = int.from_bytes(data[at + 1 : at + 9], "big", signed=True)
    return expiry_ms if 0 < expiry_ms <= FURTHEST_MS else 0


def absolute_expiry_ms(data: bytes) -> int:
    """The absolute-expiry-time in milliseconds since the epoch (§3.2.4); 0 for none."""
    start = _section_at(data, PROPERTIES)
    return absolute_expiry_at(data, start) if start >= 0 else 0


def message_id(data: bytes) -> bytes:
    """The message-id, encoded so that equal ids are equal bytes (§3.2.11 to §3.2.14); empty for none."""
    start = _section_at(data, PROPERTIES)
    at = _field_at(data, start, 0) if start >= 0 else MALFORMED
    if at < 0 or data[at] == 0x40:
        return b""
    value = data[at : skip_value(data, at, len(data))]
    if value[0] == 0x44:
        return b"\x80" + bytes(8)
    if value[0] == 0x53:
        return b"\x80" + bytes(7) + value[1:]
    if value[0] in (0xA0, 0xA1):
        return bytes((value[0] + 0x10,)) + len(value[2:]).to_bytes(4, "big") + value[2:]
    return value


def _first_field(data: bytes, start: int) -> int:
    """Where a list's or map's first element stands; -1 for an empty one or another type."""
    if data[start] in (0xC0, 0xC1) and start + 3 < len(data) and data[start + 2] > 0:
        return start + 3
    if data[start] in (0xD0, 0xD1):
        return start + 9
    return MALFORMED


def header_end(data: bytes) -> int:
    """Where the header section ends: 0 if the message has none."""
    if section_code(data, 0) != HEADER:
        return 0
    return skip_value(data, after_descriptor(data, 0), len(data))


def header_fields(data: bytes) -> list[bytes]:
    """The header's fields, each as it was encoded: durable, priority, ttl, first-acquirer, delivery-count."""
    return list_fields(data, after_descriptor(data, 0)) if section_code(data, 0) == HEADER else []


def list_fields(data: bytes, start: int) -> list[bytes]:
    """The elements of the encoded list or map at ``start``, as they were encoded; none if it isn't whole."""
    end = skip_value(data, start, len(data))
    if end < 0:
        return []
    at = _first_field(data, start)
    fields: list[bytes] = []
    while 0 <= at < end:
        following = skip_value(data, at, end)
        if following < 0:
            break
        fields.append(data[at:following])
        at = following
    return fields


_FALSE = b"\x42"


def with_delivery(
    data: bytes,
    delivery_count: int,
    redelivered: bool,
    incoming_count: int = 0,
    left_ms: int = -1,
    brings_none: bool = False,
) -> bytes:
    """The message with delivery-count and first-acquirer as they must read on this delivery (§3.2.1).

    Durable and priority keep their encoding; fields behind the fifth are kept as well.
    ``incoming_count`` is added: the count the message arrived with. ``left_ms`` is what remains of a
    ttl, where the message has one; -1 leaves it as it is. With ``brings_none`` a message that has neither a
    ttl nor an absolute-expiry-time gets it as its ttl: the node gave it one.
    """
    fields = header_fields(data)
    while len(fields) < 5:
        fields.append(_NULL)
    # A sender may have put any number there; the field can't say more than its last one.
    count = min(delivery_count + (incoming_count or _uint(fields[4])), MAX_UINT)
    ttl_ms = _uint(fields[TTL_FIELD])
    if left_ms >= 0 and ttl_ms > 0:
        # An absolute-expiry-time may leave more than any ttl can say, and clocks are set back.
        fields[TTL_FIELD] = _encode_uint(min(left_ms, ttl_ms))
    elif brings_none and left_ms >= 0 and absolute_expiry_ms(data) == 0:
        fields[TTL_FIELD] = _encode_uint(min(left_ms, MAX_UINT))
    if redelivered:
        fields[3] = _FALSE
    fields[4] = _encode_uint(count)
    return _encode_header(fields) + data[header_end(data) :]


def _encode_header(fields: list[bytes]) -> bytes:
    body = b"".join(fields)
    if len(body) < 255:
        return b"\x00\x53\x70\xc0" + bytes((len(body) + 1, len(fields))) + body
    size = (len(body) + 4).to_bytes(4, "big")
    return b"\x00\x53\x70\xd0" + size + len(fields).to_bytes(4, "big") + body


def _encode_uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    if value < 256:
        return b"\x52" + bytes((value,))
    return b"\x70" + value.to_bytes(4, "big")


def _uint(field: bytes) -> int:
    if field[0] == 0x52:
        return field[1]
    if field[0] == 0x70:
        return int.from_bytes(field[1:5], "big")
    return 0


# What a dead letter tells of itself, in its message annotations.
LETTER_REASON = b"x-opt-sluice-dead-letter-reason"
LETTER_ADDRESS = b"x-opt-sluice-original-address"
LETTER_TIME = b"x-opt-sluice-dead-letter-time"
LETTER_COUNT = b"x-opt-sluice-dead-letter-count"
# The times that were taken from it, so that no client throws it away unread.
LETTER_EXPIRY = b"x-opt-sluice-original-expiry-time"
LETTER_TTL = b"x-opt-sluice-original-ttl"
# The same for clients that read application properties alone; these are legal names in JMS.
PROPERTY_REASON = b"sluice_dead_letter_reason"
PROPERTY_ORIGIN = b"sluice_dead_letter_origin"
PROPERTY_COUNT = b"sluice_dead_letter_count"
MAX_INT = 0x7FFFFFFF
_STRINGS = (b"\xa1", b"\xb1")


def dead_lettered(data: bytes, reason: str, address: str, time_ms: int) -> bytes:
    """The message as it reads in a dead-letter node: annotated with why, whence and when, and how often.

    The address is the first one's, so that it tells where to move the message back to. Its ttl and its
    absolute-expiry-time become annotations, for clients such as Qpid JMS throw away what has expired, and its
    delivery-count starts anew (as in Artemis: its consumers have not tried it yet). Reason, origin and count
    are application properties too; those it came with stay.
    """
    before = _pairs(annotations_of(data))
    count = min(_letter_count(before) + 1, MAX_UINT)
    first = before.get(symbol(LETTER_ADDRESS), b"") if count > 1 else b""
    pairs = {
        symbol(LETTER_REASON): text(reason),
        symbol(LETTER_ADDRESS): first if first[:1] in _STRINGS else text(address),
        symbol(LETTER_TIME): b"\x83" + time_ms.to_bytes(8, "big"),
        symbol(LETTER_COUNT): _encode_uint(count),
    }
    fields = header_fields(data)
    if len(fields) > TTL_FIELD and _uint(fields[TTL_FIELD]) > 0:
        pairs[symbol(LETTER_TTL)] = fields[TTL_FIELD]
    properties = _section_fields(data, PROPERTIES)
    if len(properties) > EXPIRY_FIELD and properties[EXPIRY_FIELD][0] == 0x83:
        pairs[symbol(LETTER_EXPIRY)] = properties[EXPIRY_FIELD]
        properties[EXPIRY_FIELD] = _NULL
        data = _with_section(data, PROPERTIES, compound(0xD0, properties, len(properties)))
    told = [
        text(PROPERTY_REASON.decode()),
        pairs[symbol(LETTER_REASON)],
        text(PROPERTY_ORIGIN.decode()),
        pairs[symbol(LETTER_ADDRESS)],
        text(PROPERTY_COUNT.decode()),
        b"\x71" + min(count, MAX_INT).to_bytes(4, "big"),
    ]
    own = _section_fields(data, APPLICATION_PROPERTIES)
    kept: list[bytes] = []
    for key, value in zip(own[::2], own[1::2], strict=False):
        if _text_of(key) not in (PROPERTY_REASON, PROPERTY_ORIGIN, PROPERTY_COUNT):
            kept += (key, value)
    data = _with_section(data, APPLICATION_PROPERTIES, compound(0xD1, kept + told, len(kept) + len(told)))
    return with_annotations(_as_if_new(data), _encode_map({**before, **pairs}))


def _text_of(key: bytes) -> bytes:
    """The text of an encoded string; empty for another type."""
    if key[:1] not in _STRINGS:
        return b""
    return key[2:] if key[0] == 0xA1 else key[5:]


def _section_fields(data: bytes, section: int) -> list[bytes]:
    """The elements of a list or map section, as they were encoded; none if there is no such section."""
    start = _section_at(data, section)
    return list_fields(data, start) if start >= 0 else []


def _with_section(data: bytes, section: int, value: bytes) -> bytes:
    """The message with that section replaced, or put in its place; sections behind it are not looked at."""
    at = 0
    end = len(data)
    whole = b"\x00\x53" + bytes((section,)) + value
    while at < end:
        code = section_code(data, at)
        if code > section:
            break
        following = skip_value(data, after_descriptor(data, at), end)
        if code == section:
            return data[:at] + whole + data[following:]
        at = following
    return data[:at] + whole + data[at:]


def _as_if_new(data: bytes) -> bytes:
    """The message without ttl, first-acquirer and delivery-count."""
    fields = header_fields(data)
    if len(fields) <= TTL_FIELD:
        return data
    fields[TTL_FIELD:5] = [_NULL] * (min(len(fields), 5) - TTL_FIELD)
    return _encode_header(fields) + data[header_end(data) :]


def letter_count(data: bytes) -> int:
    """How often the message became a dead letter; 0 for never."""
    return _letter_count(_pairs(annotations_of(data)))


def _letter_count(annotations: dict[bytes, bytes]) -> int:
    return _uint(annotations.get(symbol(LETTER_COUNT), _NULL))


def is_dead_lettered(data: bytes) -> bool:
    """Whether the message became a dead letter once."""
    return LETTER_COUNT in data and letter_count(data) > 0


def address_of(data: bytes) -> str:
    """The ``to`` of the properties section, for the anonymous relay; empty if there is none."""
    at = 0
    end = len(data)
    while at < end:
        code = section_code(data, at)
        start = after_descriptor(data, at)
        if code == 0x73:
            return _third_string(data, start, end)
        if code > 0x73:
            break
        at = skip_value(data, start, end)
        if at < 0:
            break
    return ""


def _third_string(data: bytes, start: int, end: int) -> str:
    at = _first_field(data, start)
    for _ in range(2):
        if at < 0:
            return ""
        at = skip_value(data, at, end)
    if at < 0 or at >= end:
        return ""
    if data[at] == 0xA1:
        return data[at + 2 : at + 2 + data[at + 1]].decode("utf-8", "replace")
    if data[at] == 0xB1:
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        return data[at + 5 : at + 5 + size].decode("utf-8", "replace")
    return ""


def without_delivery_annotations(data: bytes) -> bytes:
    """The message without its delivery-annotations, which were meant for us alone (§3.2.2).

    One that has no other section stays as it is, for no bytes are no message.
    """
    at = header_end(data)
    if section_code(data, at) != DELIVERY_ANNOTATIONS:
        return data
    end = skip_value(data, after_descriptor(data, at), len(data))
    return data[:at] + data[end:] if end - at < len(data) else data


def with_annotations(data: bytes, merged: bytes) -> bytes:
    """The message with its message-annotations section replaced by the encoded map ``merged``.

    The caller merges; the section goes to its place behind header and delivery-annotations.
    """
    at = 0
    end = len(data)
    while at < end:
        code = section_code(data, at)
        following = skip_value(data, after_descriptor(data, at), end)
        if code == ANNOTATIONS:
            return data[:at] + b"\x00\x53\x72" + merged + data[following:]
        if code > ANNOTATIONS:
            break
        at = following
    return data[:at] + b"\x00\x53\x72" + merged + data[at:]


def merged_maps(present: bytes, added: bytes) -> bytes:
    """Two encoded maps in one; a key of both has ``added``'s value. Values pass through as they are."""
    return _encode_map({**_pairs(present), **_pairs(added)})


def _pairs(encoded: bytes) -> dict[bytes, bytes]:
    """The keys and values of an encoded map, as they were encoded; none for no bytes."""
    items = list_fields(encoded, 0) if encoded else []
    return {_short_symbol(key): value for key, value in zip(items[::2], items[1::2], strict=False)}


def _encode_map(pairs: dict[bytes, bytes]) -> bytes:
    return compound(0xD1, [key + value for key, value in pairs.items()], 2 * len(pairs))


def _short_symbol(key: bytes) -> bytes:
    """One encoding for a symbol that could have two, so that equal keys are equal bytes."""
    if key[0] == 0xB3 and len(key) - 5 < 256:
        return b"\xa3" + bytes((len(key) - 5,)) + key[5:]
    return key


def annotations_of(data: bytes) -> bytes:
    """The encoded message-annotations map; empty if there is none, or before it what is no section."""
    at = 0
    end = len(data)
    while at < end:
        code = section_code(data, at)
        if code < 0 or code > ANNOTATIONS:
            break
        start = after_descriptor(data, at)
        following = skip_value(data, start, end)
        if following < 0:
            break
        if code == ANNOTATIONS:
            return data[start:following]
        at = following
    return b""


class WantedFields:
    """What somebody asks of every message: fields and application properties, each in a slot of its own."""

    def __init__(self) -> None:
        self.header: dict[int, int] = {}
        self.properties: dict[int, int] = {}
        self.names: dict[bytes, int] = {}
        self.lengths = 0
        self.last = 0
        self.slots = 0

    def field(self, section: int, index: int) -> int:
        """The slot of a field of the header or the properties, by its index in the list."""
        self.last = max(self.last, section)
        return self._slot(self.header if section == HEADER else self.properties, index)

    def name(self, name: bytes) -> int:
        """The slot of an application property, by its name in UTF-8."""
        self.last = APPLICATION_PROPERTIES
        self.lengths |= 1 << min(len(name), LONG_NAME)
        return self._slot(self.names, name)

    def _slot(self, slots: dict[Any, int], key: int | bytes) -> int:
        if key not in slots:
            slots[key] = self.slots
            self.slots += 1
        return slots[key]


def value_places(data: bytes, wanted: WantedFields) -> list[int] | None:
    """Where the wanted values stand, by slot: -1 for one that the message doesn't have.

    The first of two application properties of one name counts. Sections and values that nobody asked for
    are skipped by their size, and nothing behind the last wanted section is looked at. None if what was
    walked isn't whole, in order and of its type (§3.2).
    """
    places = [MALFORMED] * wanted.slots
    last = wanted.last
    end = len(data)
    at = 0
    before = 0
    while at < end:
        code = section_code(data, at)
        if code < HEADER or code > FOOTER or not may_follow(before, code):
            return None
        if code > last:
            break
        start = after_descriptor(data, at)
        at = skip_value(data, start, end)
        if at < 0 or not is_typed(code, data[start]):
            return None
        if code == HEADER and not _find_fields(data, start, at, wanted.header, places):
            return None
        if code == PROPERTIES and not _find_fields(data, start, at, wanted.properties, places):
            return None
        if code == APPLICATION_PROPERTIES and not _find_names(data, start, at, wanted, places):
            return None
        if code == last:
            break
        before = code
    return places


def _find_fields(data: bytes, start: int, end: int, wanted: dict[int, int], places: list[int]) -> bool:
    """Note where the wanted elements of the list at ``start`` stand; False if it has fewer than it says."""
    count = _count(data, start)
    at = _first_field(data, start)
    left = len(wanted)
    index = 0
    while index < count and left > 0:
        following = skip_value(data, at, end) if at >= 0 else MALFORMED
        if following < 0:
            return False
        slot = wanted.get(index, -1)
        if slot >= 0:
            places[slot] = at
            left -= 1
        at = following
        index += 1
    return True


def _find_names(data: bytes, start: int, end: int, wanted: WantedFields, places: list[int]) -> bool:
    """Note where the values of the wanted keys of the map at ``start`` stand; False if it isn't whole."""
    at = _first_field(data, start)
    left = len(wanted.names)
    while at >= 0 and at < end and left > 0:
        value = skip_value(data, at, end)
        following = skip_value(data, value, end) if value >= 0 else MALFORMED
        if following < 0:
            return False
        slot = _slot_of_key(data, at, value, wanted)
        if slot >= 0 and places[slot] < 0:
            places[slot] = value
            left -= 1
        at = following
    return True


def _slot_of_key(data: bytes, at: int, end: int, wanted: WantedFields) -> int:
    """The slot of the key between ``at`` and ``end``; -1 for one that nobody asked for."""
    if data[at] == 0xA1 or data[at] == 0xA3:
        at += 2
    elif data[at] == 0xB1 or data[at] == 0xB3:
        at += 5
    else:
        return -1
    length = min(end - at, LONG_NAME)
    # Most keys can be told by their length alone, before anything is copied.
    return wanted.names.get(data[at:end], -1) if (wanted.lengths >> length) & 1 else -1


def value_at(data: bytes, at: int) -> bool | int | float | str | None:
    """The simple value at ``at`` (§1.6): strings and symbols as text, timestamps as their milliseconds.

    None for null, for text that isn't UTF-8 and for every other type: char, decimal, uuid, binary, lists,
    maps, arrays and described values. The caller knows that the value is whole (:func:`skip_value`).
    """
    constructor = data[at]
    if constructor == 0xA1 or constructor == 0xA3:
        return _text(data[at + 2 : at + 2 + data[at + 1]])
    if constructor == 0x55 or constructor == 0x54 or constructor == 0x51:
        return data[at + 1] if data[at + 1] < 0x80 else data[at + 1] - 0x100
    if constructor == 0x53 or constructor == 0x52 or constructor == 0x50:
        return data[at + 1]
    if constructor == 0x41 or constructor == 0x42:
        return constructor == 0x41
    if constructor == 0x81 or constructor == 0x83:
        return int.from_bytes(data[at + 1 : at + 9], "big", signed=True)
    if constructor == 0x71:
        return int.from_bytes(data[at + 1 : at + 5], "big", signed=True)
    if constructor == 0x61:
        return int.from_bytes(data[at + 1 : at + 3], "big", signed=True)
    return _seldom_value_at(data, at)


def _seldom_value_at(data: bytes, at: int) -> bool | int | float | str | None:
    constructor = data[at]
    if constructor == 0x82:
        return float(struct.unpack_from(">d", data, at + 1)[0])
    if constructor == 0x72:
        return float(struct.unpack_from(">f", data, at + 1)[0])
    if constructor == 0x43 or constructor == 0x44:
        return 0
    if constructor == 0x56:
        return None if data[at + 1] > 1 else data[at + 1] == 1
    if constructor == 0x80:
        return int.from_bytes(data[at + 1 : at + 9], "big")
    if constructor == 0x70:
        return int.from_bytes(data[at + 1 : at + 5], "big")
    if constructor == 0x60:
        return int.from_bytes(data[at + 1 : at + 3], "big")
    if constructor == 0xB1 or constructor == 0xB3:
        return _text(data[at + 5 : at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")])
    return None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def binary_at(data: bytes, at: int) -> bytes | None:
    """The binary at ``at``, which is whole; None for a value of another type."""
    if data[at] == 0xA0:
        return data[at + 2 : at + 2 + data[at + 1]]
    if data[at] == 0xB0:
        return data[at + 5 : at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")]
    return None
