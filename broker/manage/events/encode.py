"""An event as an AMQP 1.0 message (§3.2): properties, application properties and one data section."""

from __future__ import annotations

from collections.abc import Mapping

from broker.codec.encoding import LIST32, MAP32, NULL, binary, compound, long, section, symbol, text

_PROPERTIES, _APPLICATION_PROPERTIES, _DATA = section(0x73), section(0x74), section(0x75)


def encode(subject: str, content_type: str, properties: Mapping[str, str | int], body: bytes) -> bytes:
    """Return the message; ``properties`` are texts and whole numbers."""
    fields = (NULL * 3, text(subject), NULL * 2, symbol(content_type.encode()))
    items = (
        text(key) + (text(value) if isinstance(value, str) else long(value))
        for key, value in properties.items()
    )
    return b"".join(
        (
            *(_PROPERTIES, compound(LIST32, fields, 7)),
            *(_APPLICATION_PROPERTIES, compound(MAP32, items, 2 * len(properties))),
            *(_DATA, binary(body)),
        )
    )
