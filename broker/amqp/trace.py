"""Logs one connection's frames as they stand on the wire: performative and fields, never a body.

Nothing here runs unless an operator asked for it: a connection that isn't traced has no tap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from proton import Data, Described, ProtonException

from broker.loggers import TRACE

log = logging.getLogger(TRACE)

# Of a frame's beginning, where its fields are; of a value as it is shown.
MOST_KEPT = 4096
LONGEST = 80

PERFORMATIVES: dict[int, tuple[str, tuple[str, ...]]] = {
    0x10: (
        "open",
        (
            *("container-id", "hostname", "max-frame-size", "channel-max", "idle-time-out"),
            *("outgoing-locales", "incoming-locales", "offered-capabilities", "desired-capabilities"),
            "properties",
        ),
    ),
    0x11: (
        "begin",
        (
            *("remote-channel", "next-outgoing-id", "incoming-window", "outgoing-window", "handle-max"),
            *("offered-capabilities", "desired-capabilities", "properties"),
        ),
    ),
    0x12: (
        "attach",
        (
            *("name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target"),
            *("unsettled", "incomplete-unsettled", "initial-delivery-count", "max-message-size"),
            *("offered-capabilities", "desired-capabilities", "properties"),
        ),
    ),
    0x13: (
        "flow",
        (
            *("next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle"),
            *("delivery-count", "link-credit", "available", "drain", "echo", "properties"),
        ),
    ),
    0x14: (
        "transfer",
        (
            *("handle", "delivery-id", "delivery-tag", "message-format", "settled", "more"),
            *("rcv-settle-mode", "state", "resume", "aborted", "batchable"),
        ),
    ),
    0x15: ("disposition", ("role", "first", "last", "settled", "state", "batchable")),
    0x16: ("detach", ("handle", "closed", "error")),
    0x17: ("end", ("error",)),
    0x18: ("close", ("error",)),
}

# What Proton's decoder raises, beside its own exception, on bytes of any kind.
MALFORMED = (ProtonException, ValueError, TypeError, KeyError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Frame:
    """The beginning of a frame; ``size`` is the whole one's."""

    channel: int
    body: bytes
    size: int


class FrameReader:
    """One direction's bytes as frames; it begins within ``skip`` bytes of a frame, or behind ``begun``."""

    def __init__(self, skip: int, begun: bytes) -> None:
        self._skip = skip
        self._kept = bytearray(begun)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames whose beginning is there now; ValueError on what can be none."""
        at = min(self._skip, len(data))
        self._skip -= at
        self._kept += data[at:]
        while len(self._kept) >= 8:
            size, offset = int.from_bytes(self._kept[:4], "big"), self._kept[4] * 4
            if size < 8 or not 8 <= offset <= size:
                raise ValueError("what follows is no frame")
            wanted = min(size, MOST_KEPT)
            if len(self._kept) < wanted:
                return
            yield Frame(int.from_bytes(self._kept[6:8], "big"), bytes(self._kept[offset:wanted]), size)
            self._skip = max(size - len(self._kept), 0)
            del self._kept[:size]


class ByteTap(Protocol):
    """Sees the bytes of one connection, until it is finished."""

    def came(self, data: bytes) -> None:
        """See bytes that were read."""
        ...

    def went(self, data: bytes) -> None:
        """See bytes that were written."""
        ...

    def finish(self, why: str) -> None:
        """End, for that reason."""
        ...


class Tap:
    """Where a traced connection's bytes come by; ``end`` is called once, when it is over."""

    def __init__(
        self,
        connection: str,
        peer: str,
        frames: int,
        readers: tuple[FrameReader, FrameReader],
        end: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._peer = peer
        self._left = frames
        self._incoming, self._outgoing = readers
        self._end = end
        self._over = False

    def came(self, data: bytes) -> None:
        """Bytes that were read."""
        self._tell("<-", self._incoming, data)

    def went(self, data: bytes) -> None:
        """Bytes that were written."""
        self._tell("->", self._outgoing, data)

    def finish(self, why: str) -> None:
        """Say that it is over, and be no more in the way."""
        if not self._over:
            self._over = True
            self._end()
            log.info("%s: trace ended: %s", self._connection, why, extra=self._fields())

    def _tell(self, way: str, reader: FrameReader, data: bytes) -> None:
        if self._over:
            return
        try:
            for frame in reader.feed(data):
                self._tell_frame(way, frame)
                self._left -= 1
                if self._left <= 0:
                    self.finish("as many frames as were asked for")
                    return
        except ValueError as fault:
            self.finish(str(fault))

    def _tell_frame(self, way: str, frame: Frame) -> None:
        name, fields, payload = decoded(frame)
        told = " ".join(f"{key}={value}" for key, value in fields.items())
        behind = f" ({payload} bytes of message)" if payload else ""
        extra = self._fields()
        extra["fields"] |= {
            "direction": way,
            "channel": frame.channel,
            "performative": name,
            "size": frame.size,
        }
        text = "%s %s channel %d %s %s%s"
        log.info(text, self._connection, way, frame.channel, name, told, behind, extra=extra)

    def _fields(self) -> dict[str, dict[str, object]]:
        return {"fields": {"connection": self._connection, "peer": self._peer}}


def decoded(frame: Frame) -> tuple[str, dict[str, str], int]:
    """The performative, its fields that are not null, and how many bytes of a message follow."""
    if not frame.body:
        return "empty", {}, 0
    found = Data()
    try:
        taken = found.decode(frame.body)
        found.rewind()
        found.next()
        value = found.get_object()
    except MALFORMED:
        return "unreadable", {}, 0
    if not isinstance(value, Described) or not isinstance(value.value, list):
        return "unreadable", {}, 0
    code = value.descriptor
    if not isinstance(code, int) or code not in PERFORMATIVES:
        return _shown(code), {}, 0
    name, names = PERFORMATIVES[code]
    pairs = zip(names, value.value, strict=False)
    fields = {key: _shown(field, key) for key, field in pairs if field is not None}
    return name, fields, frame.size - 8 - taken if name == "transfer" else 0


ROLES = {False: "sender", True: "receiver"}


def _shown(value: object, key: str = "") -> str:
    if key == "role" and isinstance(value, bool):
        return ROLES[value]
    if isinstance(value, bool):
        return str(value).lower()
    text = _plain(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _plain(value: object) -> str:
    """A value in Python's own words, without the classes of AMQP's types; no deeper than a terminus is."""
    if isinstance(value, Described):
        return f"@{_plain(value.descriptor)}{_plain(value.value)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_plain(key)}: {_plain(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(each) for each in value) + "]"
    if isinstance(value, str):
        return repr(str(value))
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return repr(int(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value)
