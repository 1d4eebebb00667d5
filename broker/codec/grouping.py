"""The fields of a message that say of which group it is (AMQP 1.0 §3.2.4): group-id and group-sequence."""

from __future__ import annotations

from broker.codec.encoding import compound, text
from broker.codec.message import (
    WantedFields,
    after_descriptor,
    list_fields,
    section_code,
    skip_value,
    value_at,
    value_places,
)

# As C numbers where it is compiled: two sections, and the group-id's place in the list of properties.
_PROPERTIES = 0x73
_APPLICATION_PROPERTIES = 0x74
_GROUP_ID = 10
# Before an id that is no string stands this byte, which a string's id doesn't begin with as a rule.
OTHER_TYPE = b"\x00"


def group_at(data: bytes) -> int:
    """Return where the group-id stands; -1 if there is none. The caller knows that ``data`` is a message."""
    end = len(data)
    at = 0
    while at < end:
        code = section_code(data, at)
        start = after_descriptor(data, at)
        if code == _PROPERTIES:
            return _element_at(data, start, end)
        if code < 0 or code > _PROPERTIES:
            return -1
        at = skip_value(data, start, end)
        if at < 0:
            return -1
    return -1


def _element_at(data: bytes, start: int, end: int) -> int:
    """Return where the tenth element of the list at ``start`` stands, counted from 0; -1 if there is none."""
    if data[start] == 0xC0:
        if data[start + 2] <= _GROUP_ID:
            return -1
        at = start + 3
    elif data[start] == 0xD0:
        if data[start + 8] <= _GROUP_ID and not (data[start + 7] or data[start + 6] or data[start + 5]):
            return -1
        at = start + 9
    else:
        return -1
    left = _GROUP_ID
    while left > 0 and at >= 0 and at < end:
        # A field that is null, as most are, is one byte.
        at = at + 1 if data[at] == 0x40 else skip_value(data, at, end)
        left -= 1
    return at if at >= 0 and at < end and skip_value(data, at, end) >= 0 else -1


def group_id(data: bytes) -> bytes:
    """Return a message's group-id in UTF-8; empty for none, and for the empty string."""
    at = group_at(data)
    if at < 0:
        return b""
    if data[at] == 0xA1:
        return data[at + 2 : at + 2 + data[at + 1]]
    if data[at] == 0xB1:
        return data[at + 5 : skip_value(data, at, len(data))]
    return b""


def closes_group(data: bytes) -> bool:
    """Return whether a message is its group's last: its group-sequence is -1, that is 2**32 - 1."""
    at = group_at(data)
    if at < 0:
        return False
    at = skip_value(data, at, len(data))
    return (
        at >= 0
        and at + 5 <= len(data)
        and data[at] == 0x70
        and data[at + 1] == 0xFF
        and data[at + 2] == 0xFF
        and data[at + 3] == 0xFF
        and data[at + 4] == 0xFF
    )


class PropertyKey:
    """Reads groups' names from an application property instead of the group-id (qpidd's group_header_key)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._wanted = WantedFields()
        self._wanted.name(name.encode())

    def of(self, data: bytes) -> bytes:
        """Return the property's value in UTF-8, one of another type as it is encoded; empty for none."""
        places = value_places(data, self._wanted)
        if not places or places[0] < 0:
            return b""
        at = places[0]
        if data[at] == 0x40:
            return b""
        if data[at] in (0xA1, 0xB1):
            return data[at + (2 if data[at] == 0xA1 else 5) : skip_value(data, at, len(data))]
        return OTHER_TYPE + data[at : skip_value(data, at, len(data))]


def shown(key: bytes) -> str:
    """Return a group's name as people read it."""
    if key[:1] == OTHER_TYPE:
        return str(value_at(key, 1))
    return key.decode("utf-8", "replace")


def with_property(data: bytes, name: str) -> bytes:
    """Return the message with an application property of this name that is true.

    The only change of a bare message (§3.2) that there is: JMS clients read marks nowhere else.
    """
    at = 0
    end = len(data)
    pair = [text(name), b"\x41"]
    kept: list[bytes] = []
    following = 0
    while at < end:
        code = section_code(data, at)
        if code < 0 or code > _APPLICATION_PROPERTIES:
            following = at
            break
        start = after_descriptor(data, at)
        following = skip_value(data, start, end)
        if code == _APPLICATION_PROPERTIES:
            fields = list_fields(data, start)
            for key, value in zip(fields[::2], fields[1::2], strict=False):
                if key != pair[0]:
                    kept += (key, value)
            break
        at = following
    section = compound(0xD1, kept + pair, len(kept) + 2)
    return data[:at] + b"\x00\x53\x74" + section + data[following:]
