"""Authentication before AMQP: a SASL layer of our own in front of Proton (AMQP 1.0 part 5).

Proton 0.40 lets AMQP frames through before SASL has finished, so not one byte of AMQP reaches it
until this state machine is done. It does no I/O: bytes in, bytes out. What it reads is bounded in
size and count; the deadline is the reactor's. What a mechanism says is ``security``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.codec import sasl
from broker.codec.sasl import AMQP_HEADER, AUTH, OK, SASL_HEADER, SYS_TEMP, binary, outcome
from broker.security.authentication import BY_TOKEN, Authentication
from broker.security.exchange import Accepted, Challenge, Exchange, ListenerTrust, Refused, Step, Work
from broker.security.identity import ANONYMOUS, BROKER, Identity

__all__ = ["AMQP_HEADER", "MAX_FRAME", "MAX_FRAMES", "SASL_HEADER", "Handshake"]

# A peer that has not authenticated gets frames of 512 bytes at most (§5.3.1), and few of them. Tokens
# don't fit into them: where they are taken, so are frames that hold one.
MAX_FRAME = 512
MAX_TOKEN_FRAME = 16_384
MAX_FRAMES = 4

OPEN_DOORS = Authentication()
LOCAL = ListenerTrust(loopback=True)

# (state, what came) -> state. A pair that is absent ends the connection.
TRANSITIONS = {
    ("header", "sasl header"): "init",
    ("header", "amqp header"): "done",
    ("init", "challenge"): "response",
    ("response", "challenge"): "response",
    ("init", "work"): "working",
    ("response", "work"): "working",
    ("init", "accepted"): "amqp header",
    ("response", "accepted"): "amqp header",
    ("working", "accepted"): "amqp header",
    ("amqp header", "amqp header"): "done",
}


class Handshake:
    """One connection's way to its first AMQP byte.

    ``feed`` takes what the peer sent and answers with what to send back. ``done`` is true once
    AMQP may begin; ``rest`` then holds the bytes for Proton, its protocol header first. ``failed``
    is the reason to close, after sending what ``feed`` answered.

    While ``work`` is set it waits: the caller runs that elsewhere and gives the result to ``resume``; what
    is fed meanwhile is kept. ``door`` may be replaced until the first byte is fed; ``blocked`` says for how
    many milliseconds no attempt of this address is looked at.
    """

    def __init__(
        self,
        allow_plain: bool,
        authentication: Authentication = OPEN_DOORS,
        door: ListenerTrust = LOCAL,
        blocked: Callable[[], int] = lambda: 0,
    ) -> None:
        self.state = "header"
        self.failed = ""
        self.identity: Identity | None = None
        self.mechanism = ""
        # A failed attempt that counts against the address; how long an accepted one holds, 0 for good.
        self.is_guess = False
        self.is_counted = False
        self.seconds = 0.0
        self.work: Work | None = None
        self.door = door
        self._authentication = authentication
        self._allow_plain = allow_plain
        self._blocked = blocked
        self._offered: tuple[str, ...] = ()
        self._exchange: Exchange | None = None
        self._largest = MAX_FRAME
        self._buffer = b""
        self._frames = 0

    @property
    def done(self) -> bool:
        """True once AMQP may begin."""
        return self.state == "done"

    @property
    def is_settled(self) -> bool:
        """True once there is an outcome, whatever comes then."""
        return bool(self.failed) or self.identity is not None

    @property
    def user(self) -> str:
        """The user, once that is settled."""
        return "" if self.identity is None else self.identity.user

    @property
    def rest(self) -> bytes:
        """Bytes that were read beyond the handshake, beginning with the AMQP protocol header."""
        return self._buffer

    def take_over(self, identity: Identity, seconds: float) -> None:
        """Be done, with this outcome that was reached elsewhere, and counted there."""
        self.state = "done"
        self.identity = identity
        self.mechanism = identity.mechanism
        self.seconds = seconds
        self.is_counted = True

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the peer; the answer is to be sent to it."""
        self._buffer += data
        return self._read()

    def resume(self, result: Accepted | Refused) -> bytes:
        """Take the result of the work; return the answer, which is to be sent."""
        self.work = None
        return self._take(result) + self._read()

    def _read(self) -> bytes:
        answer = b""
        while not self.done and not self.failed and self.work is None:
            step = self._read_header() if self.state in ("header", "amqp header") else self._read_frame()
            if step is None:
                break
            answer += step
        return answer

    def _read_header(self) -> bytes | None:
        expected = SASL_HEADER if self.state == "header" else AMQP_HEADER
        if len(self._buffer) < 8:
            if not (SASL_HEADER.startswith(self._buffer[:4]) or AMQP_HEADER.startswith(self._buffer[:4])):
                return self._fail("not an AMQP protocol header", expected)
            return None
        header = self._buffer[:8]
        if header == AMQP_HEADER and (self.state == "amqp header" or self._lets_in_without_sasl()):
            self.state = TRANSITIONS[self.state, "amqp header"]
            self.identity = self.identity or (BROKER if self.door.own else ANONYMOUS)
            return b""
        if header == SASL_HEADER and self.state == "header":
            return self._offer()
        return self._fail(f"protocol header {header!r} not supported here", expected)

    def _lets_in_without_sasl(self) -> bool:
        return self._allow_plain and self._authentication.lets_anonymous(self.door)

    def _offer(self) -> bytes:
        self._offered = self._authentication.offered(self.door)
        if not self._offered:
            return self._fail("nobody can authenticate here: no mechanism is configured for it", SASL_HEADER)
        if BY_TOKEN & set(self._offered):
            self._largest = MAX_TOKEN_FRAME
        self.state = TRANSITIONS[self.state, "sasl header"]
        self._buffer = self._buffer[8:]
        return SASL_HEADER + sasl.mechanisms(self._offered)

    def _read_frame(self) -> bytes | None:
        if len(self._buffer) < 8:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        offset = self._buffer[4] * 4
        if not (8 <= offset <= size <= self._largest) or self._buffer[5] != 1:
            return self._fail("malformed SASL frame", outcome(AUTH))
        if len(self._buffer) < size:
            return None
        body = self._buffer[offset:size]
        self._buffer = self._buffer[size:]
        self._frames += 1
        if self._frames > MAX_FRAMES:
            return self._fail("too many SASL frames", outcome(AUTH))
        found = sasl.performative(body)
        if self.state == "init":
            return self._init(body, found)
        return self._response(body, found)

    def _init(self, body: bytes, found: tuple[int, list[tuple[int, int]]] | None) -> bytes:
        if found is None or found[0] != sasl.INIT or not found[1]:
            return self._fail("expected sasl-init", outcome(AUTH))
        places = found[1]
        name = (binary(body, places[0]) or b"").decode("ascii", "replace")
        if name not in self._offered:
            return self._fail(f"SASL mechanism {name!r} is not offered", outcome(AUTH))
        self.mechanism = name
        self._exchange = self._authentication.begin(name, self.door)
        return self._ask(binary(body, places[1]) if len(places) > 1 else None)

    def _response(self, body: bytes, found: tuple[int, list[tuple[int, int]]] | None) -> bytes:
        if found is None or found[0] != sasl.RESPONSE or not found[1] or self._exchange is None:
            return self._fail("expected sasl-response", outcome(AUTH))
        return self._ask(binary(body, found[1][0]) or b"")

    def _ask(self, response: bytes | None) -> bytes:
        """Return the mechanism's answer; while the address has to wait nothing is even looked at."""
        assert self._exchange is not None
        pause_ms = 0 if self.mechanism in ("ANONYMOUS", "EXTERNAL") else self._blocked()
        if pause_ms:
            text = f"{self.mechanism}: too many failed attempts, none is looked at for another {pause_ms} ms"
            return self._take(Refused(text, is_guess=False, is_busy=True))
        return self._take(self._exchange.respond(response))

    def _take(self, step: Step) -> bytes:
        match step:
            case Challenge(data):
                self.state = TRANSITIONS[self.state, "challenge"]
                return sasl.challenge(data)
            case Work():
                self.state = TRANSITIONS[self.state, "work"]
                self.work = step
                return b""
            case Accepted(identity, data, seconds):
                self.state = TRANSITIONS[self.state, "accepted"]
                self.identity = replace(identity, mechanism=self.mechanism)
                self.seconds = seconds
                return outcome(OK, data)
            case Refused(reason, is_guess, is_busy):
                self.is_guess = is_guess
                return self._fail(reason, outcome(SYS_TEMP if is_busy else AUTH))

    def _fail(self, reason: str, answer: bytes) -> bytes:
        self.failed = reason
        return answer
