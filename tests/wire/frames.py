"""AMQP 1.0 frames made by hand, and a peer that says whatever it is told to, well-formed or not.

Field lists are the specification's (part 2, §2.7); fields left out at the end are absent on the wire.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from proton import Data

from broker.codec.owned import owned

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_RESPONSE, SASL_OUTCOME = 0x40, 0x41, 0x43, 0x44
ERROR, RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x1D, 0x23, 0x24, 0x25, 0x26, 0x27
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
SENDER, RECEIVER = False, True
# How long a broker that reads may stand still.
SEND_S = 30.0
# What a message of one string looks like.
BODY = b"\x00\x53\x77\xa1\x02hi"


class Symbol(str):
    """A string that is encoded as a symbol."""


class Symbols(tuple[str, ...]):
    """Several symbols in a field that takes more than one: an array."""


class UByte(int):
    """A number that is encoded as a ubyte, such as a settle mode."""


class ULong(int):
    """A number that is encoded as a ulong, such as max-message-size."""


@dataclass
class Described:
    """A composite value: its descriptor, a number or a symbol, and its fields."""

    code: int | Symbol
    fields: Sequence[object] = ()


def encode(value: object) -> bytes:
    """One value; plain numbers become uints."""
    match value:
        case None:
            return b"\x40"
        case bool():
            return b"\x41" if value else b"\x42"
        case UByte():
            return b"\x50" + bytes((value,))
        case ULong():
            return b"\x80" + value.to_bytes(8, "big")
        case int():
            return b"\x70" + value.to_bytes(4, "big")
        case Symbol():
            return b"\xb3" + len(value).to_bytes(4, "big") + value.encode()
        case str():
            return b"\xb1" + len(value.encode()).to_bytes(4, "big") + value.encode()
        case bytes():
            return b"\xb0" + len(value).to_bytes(4, "big") + value
        case Symbols():
            items = b"".join(len(item).to_bytes(4, "big") + item.encode() for item in value)
            return b"\xf0" + struct.pack(">II", len(items) + 5, len(value)) + b"\xb3" + items
        case list() | tuple():
            items = b"".join(encode(item) for item in value)
            return b"\xd0" + struct.pack(">II", len(items) + 4, len(value)) + items
        case dict():
            items = b"".join(encode(item) for pair in value.items() for item in pair)
            return b"\xd1" + struct.pack(">II", len(items) + 4, 2 * len(value)) + items
        case Described():
            code = value.code
            descriptor = encode(code) if isinstance(code, Symbol) else b"\x53" + bytes((code,))
            return b"\x00" + descriptor + encode(list(value.fields))
    raise TypeError(f"cannot encode {value!r}")


def frame(body: bytes, *, channel: int = 0, kind: int = 0, doff: int = 2, size: int | None = None) -> bytes:
    """A frame; ``doff`` and ``size`` may lie."""
    return struct.pack(">IBBH", len(body) + 8 if size is None else size, doff, kind, channel) + body


def performative(code: int, *fields: object, payload: bytes = b"", channel: int = 0, kind: int = 0) -> bytes:
    """A frame with a performative and what follows it."""
    return frame(encode(Described(code, fields)) + payload, channel=channel, kind=kind)


def transfer(
    number: int,
    payload: bytes = BODY,
    *,
    handle: int = 0,
    settled: bool | None = False,
    more: bool = False,
    aborted: bool = False,
    tag: bytes | None = None,
    message_format: int = 0,
    channel: int = 0,
) -> bytes:
    """One transfer frame of delivery ``number``; the number is its tag as well unless one is given."""
    tag = number.to_bytes(4, "big") if tag is None else tag
    fields = (handle, number, tag, message_format, settled, more, None, None, None, aborted)
    return performative(TRANSFER, *fields, payload=payload, channel=channel)


@dataclass
class Frame:
    """A frame that was read: its performative's code and fields, None where absent."""

    code: int
    fields: list[object]
    payload: bytes
    channel: int = 0
    size: int = 0

    def field(self, index: int) -> object:
        """A field; None if it is absent."""
        return self.fields[index] if index < len(self.fields) else None

    @property
    def condition(self) -> str | None:
        """The condition of the error that a detach, end or close carries."""
        error = self.error
        return str(error[0]) if error else None

    @property
    def error(self) -> list[object]:
        """The fields of that error; none if there is none."""
        error: Any = self.field(2 if self.code == DETACH else 0)
        return list(error.value) if error is not None else []


class Stream(Protocol):
    """What a peer needs of a socket."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class RawPeer:
    """A socket that speaks frames. ``log`` holds every frame it has read so far."""

    def __init__(self, port: int, stream: Stream | None = None) -> None:
        self.socket: Stream = stream or socket.create_connection(("127.0.0.1", port), timeout=10)
        self.log: list[Frame] = []
        self.empty_frames = 0
        # The broker numbers links on its side as it likes.
        self._handles: dict[int, object] = {}
        self._limits: dict[object, int] = {}
        # How many transfers the session's window allows in all (§2.5.6).
        self.window_end = 0
        self._buffer = b""
        self._ended = False
        self._unheard = False

    def send(self, *pieces: bytes) -> None:
        """Write bytes; a broker that has hung up is no error here, and what it said before is still read."""
        try:
            # What is left of the last wait is no measure for this one.
            self.socket.settimeout(SEND_S)
            for piece in pieces:
                self.socket.sendall(piece)
        except OSError:
            self._unheard = True

    # --- the ordinary beginnings

    def authenticate(self) -> Self:
        """SASL ANONYMOUS, and the AMQP headers on both sides."""
        self.send(SASL_HEADER, performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1), AMQP_HEADER)
        assert self.read_bytes(8) == SASL_HEADER
        assert self.expect(SASL_OUTCOME)
        return self

    def open(
        self,
        idle_ms: int | None = None,
        max_frame: int = 65_536,
        container: str = "raw",
        properties: dict[Symbol, object] | None = None,
    ) -> Self:
        """Open a connection."""
        self.authenticate()
        more = [None, None, None, None, properties] if properties else []
        self.send(performative(OPEN, container, None, max_frame, 100, idle_ms, *more))
        assert self.read_bytes(8) == AMQP_HEADER
        self.expect(OPEN)
        return self

    def begin(self, window: int = 10_000, channel: int = 0) -> Self:
        """Begin a session."""
        self.send(performative(BEGIN, None, 0, window, window, 1000, channel=channel))
        self.expect(BEGIN)
        return self

    def attach_sender(
        self,
        address: str | None,
        name: str = "out",
        handle: int = 0,
        mode: int = 2,
        *,
        second: bool = False,
        channel: int = 0,
    ) -> Frame:
        """Attach a link to send on; what the broker answered. ``mode`` 1 is pre-settled, 2 mixed."""
        modes = (UByte(mode), UByte(second))
        termini = (Described(SOURCE), Described(TARGET, [address]))
        self.send(
            performative(ATTACH, name, handle, SENDER, *modes, *termini, None, None, 0, channel=channel)
        )
        return self._attached(handle)

    def attach_receiver(
        self,
        address: str | None,
        name: str = "in",
        handle: int = 1,
        mode: int = 2,
        *,
        second: bool = False,
        channel: int = 0,
    ) -> Frame:
        """Attach a link to receive on; what the broker answered."""
        modes = (UByte(mode), UByte(second))
        termini = (Described(SOURCE, [address]), Described(TARGET))
        self.send(performative(ATTACH, name, handle, RECEIVER, *modes, *termini, channel=channel))
        return self._attached(handle)

    def attach_coordinator(self, name: str = "tx", handle: int = 0) -> Frame:
        """Attach a link to the transaction coordinator; what the broker answered."""
        modes = (UByte(0), UByte(0))
        termini = (Described(SOURCE), Described(COORDINATOR))
        self.send(performative(ATTACH, name, handle, SENDER, *modes, *termini, None, None, 0))
        return self._attached(handle)

    def give_credit(self, credit: int, handle: int = 1, *, drain: bool = False, echo: bool = False) -> None:
        """A flow frame for a link to receive on that has received nothing yet."""
        self.send(performative(FLOW, 0, 10_000, 0, 10_000, handle, 0, credit, None, drain, echo))

    def await_credit(self, handle: int = 0) -> int:
        """The link-credit of the next flow frame for a handle that gives any."""
        while True:
            found = self.expect(FLOW)
            credit = found.field(6)
            if found.field(4) == self._handles[handle] and isinstance(credit, int) and credit > 0:
                return int(credit)

    def _attached(self, handle: int) -> Frame:
        answer = self.expect(ATTACH)
        self._handles[handle] = answer.field(1)
        return answer

    def may_send(self, handle: int = 0) -> int:
        """How many deliveries a link may have sent in all, as far as its peer has heard."""
        return self._limits.get(self._handles[handle], 0)

    # --- reading

    def expect(self, code: int, seconds: float = 10) -> Frame:
        """The next frame of that kind; the ones before it are only logged."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self._read_frame(deadline)
            if found is None:
                break
            if found.code == code:
                return found
        raise AssertionError(f"no {code:#x} came; the last ones were {self.log[-5:]}")

    def read_bytes(self, count: int, seconds: float = 10) -> bytes:
        """So many bytes, or fewer if the broker hangs up before."""
        self._fill(count, time.monotonic() + seconds)
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def await_end(self, seconds: float = 10) -> None:
        """Until the broker has hung up; frames that come before are logged."""
        deadline = time.monotonic() + seconds
        while self._read_frame(deadline) is not None:
            pass
        assert self._ended, f"the connection was still open after {seconds} s"

    @property
    def is_ended(self) -> bool:
        """True once the broker was seen to hang up."""
        return self._ended or self._unheard

    def _read_frame(self, deadline: float) -> Frame | None:
        while True:
            if not self._fill(4, deadline):
                return None
            size = int.from_bytes(self._buffer[:4], "big")
            if not self._fill(size, deadline):
                return None
            whole, self._buffer = self._buffer[:size], self._buffer[size:]
            if len(whole) > whole[4] * 4:
                break
            self.empty_frames += 1
        found = _decode(whole[whole[4] * 4 :])
        found.channel = int.from_bytes(whole[6:8], "big")
        found.size = size
        self.log.append(found)
        self._follow_window(found)
        return found

    def _follow_window(self, found: Frame) -> None:
        if found.code == BEGIN:
            self.window_end = _number(found.field(2))
        elif found.code == FLOW:
            self.window_end = _number(found.field(0)) + _number(found.field(1))
            if found.field(6) is not None:
                self._limits[found.field(4)] = _number(found.field(5)) + _number(found.field(6))

    def _fill(self, count: int, deadline: float) -> bool:
        while len(self._buffer) < count and not self._ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65_536)
            except TimeoutError:
                return False
            except OSError:
                data = b""
            self._ended = not data
            self._buffer += data
        return len(self._buffer) >= count

    def close(self) -> None:
        """Close the socket without a word."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _decode(body: bytes) -> Frame:
    data = Data()
    used = data.decode(body)
    data.rewind()
    data.next()
    described: Any = owned(data.get_object())
    return Frame(int(described.descriptor), list(described.value), body[used:])
