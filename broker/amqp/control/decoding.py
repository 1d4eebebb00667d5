"""Values a peer has encoded as it likes: read where they can be, and never passed on as they came.

Proton keeps some of a terminus as the bytes that came and decodes them when they are asked for; until then it
would write them to the peer again, whole or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proton import UNDESCRIBED, Array, Data, Delivery, ProtonException, Terminus, symbol

from broker.codec.owned import owned
from broker.errors import PeerError

# Exceptions of Proton's binding on values that Python can't have: text that is no UTF-8, a key that can't
# be one, nesting without end.
UNREADABLE = (ProtonException, ValueError, TypeError, KeyError, OverflowError, RecursionError)

# Outcomes that say that a message wasn't taken, the one that says most first.
_REFUSALS = {
    Delivery.REJECTED: "amqp:rejected:list",
    Delivery.RELEASED: "amqp:released:list",
    Delivery.MODIFIED: "amqp:modified:list",
}


def value_of(data: Data) -> object:
    """The value where ``data`` stands, its bytes its own. PeerError if there is no such value."""
    try:
        return owned(data.get_object())
    except UNREADABLE as fault:
        raise PeerError("amqp:decode-error", "a value that can't be read") from fault


def first_of(data: Data) -> object:
    """The first value of all that is in ``data``; None for none. PeerError as above."""
    data.rewind()
    return None if data.next() is None else value_of(data)


def capabilities_of(terminus: Terminus) -> list[str]:
    """Return the capabilities that a terminus asks for, in its order. PeerError if one can't be read."""
    capabilities = terminus.capabilities
    capabilities.rewind()
    wanted: list[Any] = []
    while capabilities.next() is not None:
        value = value_of(capabilities)
        wanted.extend(value if isinstance(value, list) else getattr(value, "elements", [value]))
    return [str(each) for each in wanted]


def copy_terminus(ours: Terminus, theirs: Terminus) -> None:
    """Make our terminus as the peer's, its fields well-formed; what can't be read is left out.

    Properties are those of a dynamic node, which whoever makes one says itself.
    """
    ours.copy(theirs)
    ours.properties.clear()
    for field in (ours.capabilities, ours.outcomes, ours.filter):
        _rewrite(field)


def offer(ours: Terminus, capabilities: Iterable[str]) -> None:
    """Say what our terminus can do (AMQP 1.0 §3.5.3)."""
    ours.capabilities.clear()
    names: list[Any] = [UNDESCRIBED, Data.SYMBOL, *map(symbol, capabilities)]
    ours.capabilities.put_object(Array(*names))


def refusal_of(source: Terminus) -> int:
    """The outcome of a message that isn't taken: `rejected`, or another that is offered; 0 where none fits.

    A source that names no outcomes offers all (AMQP 1.0 §3.5.3).
    """
    value = first_of(source.outcomes)
    offered = {str(each) for each in getattr(value, "elements", [value] if isinstance(value, str) else [])}
    if not offered:
        return int(Delivery.REJECTED)
    return next((int(code) for code, name in _REFUSALS.items() if name in offered), 0)


def _rewrite(field: Data) -> None:
    try:
        value = first_of(field)
        field.clear()
        if value is not None:
            field.put_object(value)
    except (PeerError, *UNREADABLE):
        field.clear()
