"""Which of the filters a receiver asks for are applied here (AMQP 1.0 §3.5.8).

A filter is found by its descriptor, by name or number, or, where a client sends a bare string, by its key
in the map. What isn't known is left out of the answer, which so says that it is not applied.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from proton import Data, Described, timestamp

from broker.amqp.control.decoding import first_of
from broker.codec.offsets import CHUNK_SPEC, OFFSET_SPEC
from broker.errors import PeerError

NO_LOCAL = "apache.org:no-local-filter:list"
# No offset and no time is beyond this; a receiver waits there for ever.
LARGEST = 2**62
# A chunk of a stream has at least, and at most, so many bytes whatever a receiver asks for.
SMALLEST_CHUNK, LARGEST_CHUNK = 1 << 12, 1 << 20
# A time that was so long ago; in seconds.
_AGO = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}

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
    OFFSET_SPEC: OFFSET_SPEC,
    CHUNK_SPEC: CHUNK_SPEC,
}


@dataclass(slots=True)
class Filters:
    """``texts`` are descriptors and texts of filters on a message, ``applied`` what the answer says.

    ``start`` is where a reader of a stream begins: `first`, `last`, `next`, or `offset` or `time` (ms since
    the epoch) with a number; None for nothing said. ``chunk`` is how many bytes of messages it asks for in
    one delivery, and the offset from which on it wants none; None for messages one by one.
    """

    texts: tuple[tuple[str, str], ...] = ()
    no_local: bool = False
    start: tuple[str, int] | None = None
    chunk: tuple[int, int] | None = None
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
        elif kind == OFFSET_SPEC:
            found.start = _start(value.value if isinstance(value, Described) else value)
        elif kind == CHUNK_SPEC:
            found.chunk = _chunk(value.value if isinstance(value, Described) else value)
        else:
            text = value.value if isinstance(value, Described) else value
            if not isinstance(text, str):
                raise PeerError("amqp:invalid-field", f"filter '{key}' has to be a string")
            found.texts = (*found.texts, (kind, str(text)))
        found.applied[key] = value
    return found


def without(filters: Filters, kind: str) -> Filters:
    """The same filters, NO_LOCAL, OFFSET_SPEC or CHUNK_SPEC not applied."""
    applied = {key: value for key, value in filters.applied.items() if _kind(key, value) != kind}
    start = None if kind == OFFSET_SPEC else filters.start
    chunk = None if kind == CHUNK_SPEC else filters.chunk
    return Filters(filters.texts, filters.no_local and kind != NO_LOCAL, start, chunk, applied)


def _start(value: object) -> tuple[str, int]:
    """Where a reader begins: `first`, `last`, `next`, an offset, a timestamp, or a span ago such as `10m`."""
    if isinstance(value, timestamp):
        return "time", min(max(int(value), 0), LARGEST)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return "offset", min(int(value), LARGEST)
    if isinstance(value, str):
        if value in ("first", "last", "next"):
            return str(value), 0
        span = re.fullmatch(r"([0-9]{1,9})([YMDhms])", value, re.ASCII)
        if span:
            return "time", max(int((time.time() - int(span[1]) * _AGO[span[2]]) * 1000), 0)
    text = "first, last, next, an offset, a timestamp or a span such as 10m"
    raise PeerError("amqp:invalid-field", f"filter '{OFFSET_SPEC}' has to be {text}")


def _chunk(value: object) -> tuple[int, int]:
    """How large a chunk may be, and before which offset the last one ends: a number, or a list of both."""
    numbers = value if isinstance(value, list) else [value]
    whole = [each for each in numbers if isinstance(each, int) and not isinstance(each, bool) and each > 0]
    if len(whole) != len(numbers) or not 1 <= len(whole) <= 2:
        text = "a number of bytes, or a list of that and an offset"
        raise PeerError("amqp:invalid-field", f"filter '{CHUNK_SPEC}' has to be {text}")
    nbytes = min(max(int(whole[0]), SMALLEST_CHUNK), LARGEST_CHUNK)
    return nbytes, min(int(whole[1]), LARGEST) if len(whole) == 2 else LARGEST


def _given(data: Data) -> dict[Any, Any]:
    given = first_of(data)
    return given if isinstance(given, dict) else {}


def _kind(key: object, value: object) -> str | None:
    if not isinstance(value, Described):
        return _BY_NAME.get(str(key))
    if isinstance(value.descriptor, int):
        return _BY_CODE.get(int(value.descriptor))
    return _BY_NAME.get(str(value.descriptor))
