"""The header that stands before a relayed client's bytes, and the owner's answer to it. No I/O, no clock.

A header names the client and the listener it came in by. It is signed with the members' secret and holds
once, and for some seconds. Layout, big-endian: magic, version, length of the body, time in milliseconds,
nonce, body (JSON), HMAC-SHA256 over all of it. The answer: status, length of a reason, reason.

The time is that of the one who checks: a header that is signed with the secret and has another one is
answered ``CLOCK``, with the checker's time and a signature of it that holds for the nonce of this header
alone. A relay of an earlier version takes that for a refusal which may pass.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

MAGIC = b"SLUICERL"
VERSION = 1
_HEAD = struct.Struct(">8sBxHQ16s")
HEAD_BYTES = _HEAD.size
MAC_BYTES = hashlib.sha256().digest_size
LARGEST_BODY = 1024
NONCE_BYTES = 16
# In place of the URL of a listener, which this can't be.
NEIGHBOURS = "cells:"
# How old a header may be, or ahead of the checker's time.
VALID_MS = 10_000
# Nonces remembered; more headers than these within their time are refused.
MOST_NONCES = 100_000

ADMITTED, REFUSED, NOT_OWNER, CLOCK = 0, 1, 2, 3
# What is signed of a time: not what a header begins with.
_CLOCK = struct.Struct(">8s16sQ")
CLOCK_MAGIC = b"SLUICECK"
_ANSWER = struct.Struct(">BB")
ANSWER_BYTES = _ANSWER.size


class RelayHeaderError(Exception):
    """What came before the bytes is no header that holds; the text says why."""


class StaleHeaderError(RelayHeaderError):
    """A header that is signed, and whose time isn't the checker's."""

    def __init__(self, seconds: float, nonce: bytes) -> None:
        super().__init__(f"a header that is {seconds:.1f} s old")
        self.nonce = nonce


@dataclass(frozen=True, slots=True)
class RelayedClient:
    """A client that another member relays: its address, the one it connected to, and the listener's URL.

    ``listener`` is ``NEIGHBOURS`` where it is another cell of that member's machine. ``digest`` is then of
    its first message, which says on whose behalf it speaks: that is signed together with all else.
    """

    cell: str
    member: str
    listener: str
    host: str
    port: int
    own_host: str
    own_port: int
    digest: str = ""


def signed(client: RelayedClient, secret: bytes, now_ms: int, nonce: bytes) -> bytes:
    """Make the header of a client; ``now_ms`` is the checker's time, or the wall clock's as long as that
    isn't known, ``nonce`` 16 random bytes.
    """
    body = json.dumps(asdict(client), separators=(",", ":")).encode()
    if len(body) > LARGEST_BODY:
        raise ValueError(f"a header's body of {len(body)} bytes")
    covered = _HEAD.pack(MAGIC, VERSION, len(body), now_ms, nonce) + body
    return covered + _mac(secret, covered)


def missing_bytes(data: bytes) -> int:
    """Count the bytes until the header is whole, or until more can be said; 0 if it is.

    RelayHeaderError as soon as it can't become one.
    """
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise RelayHeaderError("no header of a member")
    if len(data) < HEAD_BYTES:
        return HEAD_BYTES - len(data)
    _, version, length, _, _ = _HEAD.unpack_from(data)
    if version != VERSION:
        raise RelayHeaderError(f"a header of version {version}, and this member speaks {VERSION}")
    if length > LARGEST_BODY:
        raise RelayHeaderError(f"a header of {length} bytes")
    return max(HEAD_BYTES + int(length) + MAC_BYTES - len(data), 0)


class HeaderChecker:
    """Checks headers against the members' secret, each of which is believed once."""

    def __init__(self, cell: str, secret: bytes) -> None:
        self._cell = cell
        self._secret = secret
        # When each one ends to hold, the oldest first.
        self._seen: dict[bytes, int] = {}

    def check(self, data: bytes, now_ms: int) -> RelayedClient:
        """Read a whole header. RelayHeaderError if it isn't signed, is known or another cell's,
        StaleHeaderError if it is of another time.

        ``now_ms`` never goes back: a nonce is forgotten once its header is old.
        """
        covered, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
        if not hmac.compare_digest(_mac(self._secret, covered), mac):
            raise RelayHeaderError("a header that isn't signed with the members' secret")
        _, _, _, sent_ms, nonce = _HEAD.unpack_from(data)
        if abs(now_ms - sent_ms) > VALID_MS:
            raise StaleHeaderError((now_ms - sent_ms) / 1000, nonce)
        self._once(nonce, sent_ms, now_ms)
        client = _client(covered[HEAD_BYTES:])
        if client.cell != self._cell:
            raise RelayHeaderError(f"a client of cell '{client.cell}', and this is '{self._cell}'")
        return client

    def _once(self, nonce: bytes, sent_ms: int, now_ms: int) -> None:
        if nonce in self._seen:
            raise RelayHeaderError("a header that was there before")
        for old, until_ms in list(self._seen.items()):
            if until_ms >= now_ms:
                break
            del self._seen[old]
        if len(self._seen) >= MOST_NONCES:
            raise RelayHeaderError("too many clients at once")
        # A header from a clock that is ahead holds for longer.
        self._seen[nonce] = max(sent_ms, now_ms) + VALID_MS


def answer(status: int, reason: str = "") -> bytes:
    """Make the owner's answer; a reason has at most 255 bytes."""
    said = reason.encode()[:255]
    return _ANSWER.pack(status, len(said)) + said


def clock_answer(secret: bytes, nonce: bytes, now_ms: int) -> bytes:
    """Make the answer to a header of another time: the checker's time, signed for this header."""
    signature = _mac(secret, _CLOCK.pack(CLOCK_MAGIC, nonce, now_ms)).hex()
    return answer(CLOCK, f"the header is not of its time: {now_ms} {signature}")


def read_clock(reason: str, secret: bytes, nonce: bytes) -> int | None:
    """Read the checker's time out of the reason of an answer ``CLOCK`` to the header with this nonce.

    None where it isn't signed with the secret for that header.
    """
    *_, text, signature = ["", "", *reason.split(" ")]
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and signature.isascii()):
        return None
    now_ms = int(text)
    if now_ms >> 64:
        return None
    wanted = _mac(secret, _CLOCK.pack(CLOCK_MAGIC, nonce, now_ms)).hex()
    return now_ms if hmac.compare_digest(wanted, signature) else None


def read_answer(data: bytes) -> tuple[int, str] | None:
    """Read an answer, its status and reason; None until all of it is there."""
    if len(data) < ANSWER_BYTES:
        return None
    status, length = _ANSWER.unpack_from(data)
    if len(data) < ANSWER_BYTES + length:
        return None
    return status, data[ANSWER_BYTES : ANSWER_BYTES + length].decode("utf-8", "replace")


def digest_of(message: bytes) -> str:
    """Return what a header has of a message that follows it."""
    return hashlib.sha256(message).hexdigest()


def _mac(secret: bytes, covered: bytes) -> bytes:
    return hmac.digest(secret, covered, "sha256")


_TEXTS = ("cell", "member", "listener", "host", "own_host")
_DIGEST = "digest"
_PORTS = ("port", "own_port")


def _client(body: bytes) -> RelayedClient:
    try:
        found: Any = json.loads(body)
        texts = {name: found[name] for name in _TEXTS}
        # Members of an earlier version don't say it.
        texts[_DIGEST] = found.get(_DIGEST, "")
        ports = {name: found[name] for name in _PORTS}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RelayHeaderError("a header that can't be read") from None
    if not all(isinstance(each, str) and each.isprintable() for each in texts.values()):
        raise RelayHeaderError("a header that can't be read")
    if not all(type(each) is int and 0 <= each <= 65_535 for each in ports.values()):
        raise RelayHeaderError("a header that can't be read")
    return RelayedClient(**texts, **ports)
