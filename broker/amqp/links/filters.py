"""Which of the filters a receiver asks for are applied here (AMQP 1.0 §3.5.8).

A filter is found by its descriptor, by name or number, or, where a client sends a bare string, by its key
in the map. What isn't known is left out of the answer, which so says that it is not applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proton import Data, Described

from broker.amqp.control.decoding import first_of
from broker.errors import PeerError

NO_LOCAL = "apache.org:no-local-filter:list"

# Registered in Apache's domain 0x468C.
_BY_CODE = {
    0x0000_468C_0000_0000: "apache.org:legacy-amqp-direct-binding:string",
    0x0000_468C_0000_0001: "apache.org:legacy-amqp-topic-binding:string",
    0x0000_468C_0000_0003: NO_LOCAL,
    0x0000_468C_0000_0004: "apache.org:selector-filter:string",
}
_BY_NAME = {
    **{name: name for name in _BY_CODE.values()},
    # As some clients write it.
    "apache.org:no-local-filter": NO_LOCAL,
    "apache.org:selector-filter": "apache.org:selector-filter:string",
}


@dataclass(slots=True)
class Filters:
    """``texts`` are descriptors and texts of filters on a message, ``applied`` what the answer says."""

    texts: tuple[tuple[str, str], ...] = ()
    no_local: bool = False
    applied: dict[Any, Any] = field(default_factory=dict)


def read(data: Data) -> Filters:
    """The filters of a source. PeerError where one that we know is not a string."""
    found = Filters()
    for key, value in _given(data).items():
        kind = _kind(key, value)
        if kind is None:
            continue
        if kind == NO_LOCAL:
            found.no_local = True
        else:
            text = value.value if isinstance(value, Described) else value
            if not isinstance(text, str):
                raise PeerError("amqp:invalid-field", f"filter '{key}' has to be a string")
            found.texts = (*found.texts, (kind, str(text)))
        found.applied[key] = value
    return found


def without_no_local(filters: Filters) -> Filters:
    """The same filters, no-local not applied."""
    applied = {key: value for key, value in filters.applied.items() if _kind(key, value) != NO_LOCAL}
    return Filters(filters.texts, False, applied)


def _given(data: Data) -> dict[Any, Any]:
    given = first_of(data)
    return given if isinstance(given, dict) else {}


def _kind(key: object, value: object) -> str | None:
    if not isinstance(value, Described):
        return _BY_NAME.get(str(key))
    if isinstance(value.descriptor, int):
        return _BY_CODE.get(int(value.descriptor))
    return _BY_NAME.get(str(value.descriptor))
