"""Authentication before AMQP: a SASL layer of our own in front of Proton (AMQP 1.0 part 5).

Proton 0.40 lets AMQP frames through before SASL has finished, so not one byte of AMQP reaches it
until this state machine is done. It does no I/O: bytes in, bytes out. What it reads is bounded in
size and count; the deadline is the reactor's.
"""

from __future__ import annotations

from broker.message import skip_value

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
# A peer that has not authenticated gets frames of 512 bytes at most (§5.3.1), and few of them.
MAX_FRAME = 512
MAX_FRAMES = 4

_MECHANISMS = 0x40
_INIT = 0x41
_RESPONSE = 0x43
_OUTCOME = 0x44

OK = 0
AUTH = 1

# (state, what came) -> state. A pair that is absent ends the connection.
TRANSITIONS = {
    ("header", "sasl header"): "init",
    ("header", "amqp header"): "done",
    ("init", "init accepted"): "amqp header",
    ("amqp header", "amqp header"): "done",
}


class Handshake:
    """One connection's way to its first AMQP byte.

    ``feed`` takes what the peer sent and answers with what to send back. ``done`` is true once
    AMQP may begin; ``rest`` then holds the bytes for Proton, its protocol header first. ``failed``
    is the reason to close, after sending what ``feed`` answered.
    """

    def __init__(self, allow_plain: bool) -> None:
        self.state = "header"
        self.failed = ""
        self.user = ""
        self._allow_plain = allow_plain
        self._buffer = b""
        self._frames = 0

    @property
    def done(self) -> bool:
        """True once AMQP may begin."""
        return self.state == "done"

    @property
    def rest(self) -> bytes:
        """What was read beyond the handshake, beginning with the AMQP protocol header."""
        return self._buffer

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the peer; the answer is to be sent to it."""
        self._buffer += data
        answer = b""
        while not self.done and not self.failed:
            step = self._read_frame() if self.state == "init" else self._read_header()
            if step is None:
                break
            answer += step
        return answer

    def _read_header(self) -> bytes | None:
        if len(self._buffer) < 8:
            if not (SASL_HEADER.startswith(self._buffer[:4]) or AMQP_HEADER.startswith(self._buffer[:4])):
                return self._fail("not an AMQP protocol header", SASL_HEADER)
            return None
        header = self._buffer[:8]
        if header == AMQP_HEADER and (self.state == "amqp header" or self._allow_plain):
            self.state = TRANSITIONS[self.state, "amqp header"]
            self.user = self.user or "anonymous"
            return b""
        if header == SASL_HEADER and self.state == "header":
            self.state = TRANSITIONS[self.state, "sasl header"]
            self._buffer = self._buffer[8:]
            return SASL_HEADER + _mechanisms(b"ANONYMOUS")
        expected = SASL_HEADER if self.state == "header" else AMQP_HEADER
        return self._fail(f"protocol header {header!r} not supported here", expected)

    def _read_frame(self) -> bytes | None:
        if len(self._buffer) < 8:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        offset = self._buffer[4] * 4
        if not (8 <= offset <= size <= MAX_FRAME) or self._buffer[5] != 1:
            return self._fail("malformed SASL frame", _outcome(AUTH))
        if len(self._buffer) < size:
            return None
        body = self._buffer[offset:size]
        self._buffer = self._buffer[size:]
        self._frames += 1
        if self._frames > MAX_FRAMES:
            return self._fail("too many SASL frames", _outcome(AUTH))
        return self._init(body)

    def _init(self, body: bytes) -> bytes:
        mechanism = _mechanism_of(body)
        if mechanism is None:
            return self._fail("expected sasl-init", _outcome(AUTH))
        if mechanism != b"ANONYMOUS":
            shown = mechanism.decode("ascii", "replace")
            return self._fail(f"SASL mechanism {shown!r} is not offered", _outcome(AUTH))
        self.state = TRANSITIONS[self.state, "init accepted"]
        self.user = "anonymous"
        return _outcome(OK)

    def _fail(self, reason: str, answer: bytes) -> bytes:
        self.failed = reason
        return answer


def _frame(code: int, fields: bytes, count: int) -> bytes:
    body = b"\x00\x53" + bytes((code, 0xC0, len(fields) + 1, count)) + fields
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def _mechanisms(*names: bytes) -> bytes:
    symbols = b"".join(bytes((len(name),)) + name for name in names)
    array = bytes((0xE0, len(symbols) + 2, len(names), 0xA3)) + symbols
    return _frame(_MECHANISMS, array, 1)


def _outcome(code: int) -> bytes:
    return _frame(_OUTCOME, bytes((0x50, code)), 1)


def _mechanism_of(body: bytes) -> bytes | None:
    """The mechanism of a sasl-init performative; None for anything else (§5.3.3.2)."""
    if body[:2] == b"\x00\x53" and len(body) > 2 and body[2] == _INIT:
        at = 3
    elif body[:2] == b"\x00\x80" and body[2:10] == _INIT.to_bytes(8, "big"):
        at = 10
    else:
        return None
    if skip_value(body, at, len(body), 0) != len(body):
        return None
    if body[at] == 0xC0 and len(body) > at + 2 and body[at + 2] > 0:
        at += 3
    elif body[at] == 0xD0 and len(body) > at + 8 and body[at + 5 : at + 9] != bytes(4):
        at += 9
    else:
        return None
    return _symbol(body, at)


def _symbol(body: bytes, at: int) -> bytes | None:
    if at + 1 < len(body) and body[at] == 0xA3:
        return body[at + 2 : at + 2 + body[at + 1]]
    if at + 4 < len(body) and body[at] == 0xB3:
        size = int.from_bytes(body[at + 1 : at + 5], "big")
        return body[at + 5 : at + 5 + size]
    return None
