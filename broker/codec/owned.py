"""Messages and values that Proton decoded, as values that own their bytes.

Proton's binding gives a binary as a view of its decoder's memory. That memory is freed with the message and
written over by the next decoding or encoding, and a view that outlives it reads whatever is there then.
"""

from __future__ import annotations

from typing import Any

from proton import Array, Described, Message


def owned(value: Any) -> Any:
    """The same value with ``bytes`` wherever it has views, however deep."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {owned(key): owned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [owned(item) for item in value]
    if isinstance(value, Described):
        return Described(owned(value.descriptor), owned(value.value))
    if isinstance(value, Array):
        return Array(owned(value.descriptor), value.type, *map(owned, value.elements))
    return value


def decode_message(encoded: bytes) -> Message:
    """The message, its sections owned; its ids are read anew at each access and may be views.

    Raises whatever Proton's decoder raises.
    """
    message = Message()
    message.decode(encoded)
    message.instructions = owned(message.instructions)
    message.annotations = owned(message.annotations)
    message.properties = owned(message.properties)
    message.body = owned(message.body)
    return message
