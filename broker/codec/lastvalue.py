"""The key of a message in a last-value queue: an application property, or else a message annotation."""

from __future__ import annotations

from broker.codec.encoding import symbol
from broker.codec.grouping import OTHER_TYPE
from broker.codec.message import WantedFields, annotations_of, list_fields, skip_value, value_places


class ValueKey:
    """Reads the key that a setting names from messages.

    The application property counts (AMQP 1.0 §3.2.5); where a message has none of that name, the message
    annotation does (§3.2.3).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._wanted = WantedFields()
        self._wanted.name(name.encode())
        self._symbol = symbol(name.encode())

    def of(self, data: bytes) -> bytes:
        """Return the value in UTF-8, one of another type as it is encoded; empty for none, and for an empty
        one.
        """
        places = value_places(data, self._wanted)
        if places is None:
            # No message: nothing else in it can be read either.
            return b""
        at = places[0] if places else -1
        if at >= 0:
            code = data[at]
            if code == 0xA1 and data[at + 1]:
                return data[at + 2 : at + 2 + data[at + 1]]
            key = _plain(data[at : skip_value(data, at, len(data))])
            if key:
                return key
        return self._annotated(data)

    def _annotated(self, data: bytes) -> bytes:
        encoded = annotations_of(data)
        if not encoded:
            return b""
        fields = list_fields(encoded, 0)
        at = 0
        while at + 1 < len(fields):
            if fields[at] == self._symbol:
                return _plain(fields[at + 1])
            at += 2
        return b""


def _plain(value: bytes) -> bytes:
    """Return text, a symbol's too, in UTF-8 and other values as they are encoded; empty for null."""
    code = value[0]
    if code == 0x40:
        return b""
    if code in (0xA1, 0xA3):
        return value[2:]
    if code in (0xB1, 0xB3):
        return value[5 : skip_value(value, 0, len(value))]
    return OTHER_TYPE + value
