"""The priorities that links state in the properties of their attach (AMQP 1.0 §2.7.3).

A sender states the lowest priority that it sends as ``sluice:priority``, for credit from the reserve
(`priority_reserve`). A receiver's own priority has the names that it has elsewhere: ``priority`` in Artemis,
``rabbitmq:priority`` in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proton import Link

from broker.amqp.control.decoding import UNREADABLE
from broker.errors import PeerError

SENDS = "sluice:priority"
RECEIVES = ("priority", "rabbitmq:priority", "sluice:priority")
# Priorities of messages are 0 to 9 (§3.2.1).
HIGHEST_SENT = 9
# What Artemis and RabbitMQ allow: 32 bits with a sign.
LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


def lowest_sent(link: Link) -> int:
    """Return the lowest priority that a sender says it sends; -1 where it doesn't say.

    PeerError if it is no whole number from 0 to 9.
    """
    value = _properties(link).get(SENDS)
    if value is None:
        return -1
    return _whole(SENDS, value, 0, HIGHEST_SENT)


def of_receiver(link: Link) -> int:
    """Return the priority of a receiver among those of its node, 0 where it states none.

    PeerError if it is no whole number of 32 bits.
    """
    properties = _properties(link)
    for name in RECEIVES:
        if properties.get(name) is not None:
            return _whole(name, properties[name], LOWEST, HIGHEST)
    return 0


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PeerError(
            "amqp:invalid-field", f"link property {name}: expected a whole number from {least} to {most}"
        )
    return int(value)


def _properties(link: Link) -> Mapping[str, Any]:
    """The link's properties by name; none where they can't be read."""
    try:
        properties: Any = link.remote_properties
    except UNREADABLE:
        return {}
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): value for name, value in properties.items()}
