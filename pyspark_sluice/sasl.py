"""Logging in, in front of the engine: SASL's frames (AMQP 1.0 §5.3), and SCRAM (RFC 5802) among others.

Bytes in, bytes out; ``dial`` moves them. With SCRAM the broker has to prove that it knows us as well. No
text here shows a password, and what a broker sends is bounded before it is believed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import stringprep
import unicodedata
from collections.abc import Collection

from .errors import LoginError

HEADER = b"AMQP\x03\x01\x00\x00"
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
LONGEST_FRAME = 65536
_MOST_ITERATIONS = 2_000_000
_HASHES = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
# §5.3.3.6: what no second attempt helps, and what may pass.
_REASONS = {1: "user or password is wrong", 2: "the broker failed", 3: "the broker failed", 4: "try later"}
TRANSIENT = 4


class Login:
    """One connection's exchange, from the mechanisms offered to the outcome."""

    def __init__(self, user: str | None, password: str | None) -> None:
        self._user = user
        self._password = password
        self._scram: Scram | None = None

    def choose(self, offered: Collection[str], allowed: Collection[str], *, certificate: bool) -> bytes:
        """The first frame: the best mechanism offered that is allowed and suits us, else LoginError."""
        for name in (*_HASHES, "PLAIN") if self._user is not None else ("EXTERNAL", "ANONYMOUS"):
            if name not in offered or name not in allowed or (name == "EXTERNAL" and not certificate):
                continue
            return init(name, self._first(name))
        raise LoginError(
            f"no way to log in: the broker offers {', '.join(sorted(offered)) or 'nothing'};"
            f" possible here is {', '.join(allowed)}" + ("" if self._user else ", without a user")
        )

    def _first(self, name: str) -> bytes:
        if name in _HASHES:
            self._scram = Scram(_HASHES[name], self._user or "", self._password or "")
            return self._scram.first()
        if name == "PLAIN":
            return f"\0{self._user}\0{self._password}".encode()
        return b"" if name == "EXTERNAL" else b"spark"

    def respond(self, challenge: bytes) -> bytes:
        """The frame that answers a challenge."""
        if self._scram is None:
            raise LoginError("the broker asks for more than there is to say")
        return response(self._scram.answer(challenge))

    def finish(self, code: int, additional: bytes) -> None:
        """The outcome. LoginError if it isn't ok, or if a broker that has to prove itself hasn't."""
        if code:
            raise LoginError(f"the broker refused the login: {_REASONS.get(code, f'code {code}')}")
        if self._scram is not None and not self._scram.proved:
            self._scram.check(additional)


class Scram:
    """A client's side of SCRAM, without channel binding."""

    def __init__(self, digest: str, user: str, password: str) -> None:
        self._digest = digest
        self._password = prepared(password).encode()
        name = prepared(user).replace("=", "=3D").replace(",", "=2C")
        self._nonce = base64.b64encode(os.urandom(18)).decode()
        self._bare = f"n={name},r={self._nonce}"
        self._expected = b""
        self.proved = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """The proof that we know the password, then nothing when the broker has given its own."""
        if self._expected:
            self.check(challenge)
            return b""
        asked = _attributes(challenge)
        try:
            salt, rounds = base64.b64decode(asked["s"], validate=True), int(asked["i"])
            nonce = asked["r"]
        except (KeyError, ValueError) as fault:
            raise LoginError("the broker's side of SCRAM is wrong") from fault
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not salt:
            raise LoginError("the broker's side of SCRAM is wrong")
        if not 1 <= rounds <= _MOST_ITERATIONS:
            raise LoginError("the broker asks for more work than it may")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, rounds)
        final = f"c=biws,r={nonce}"
        told = f"{self._bare},{challenge.decode()},{final}".encode()
        key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._digest, key).digest(), told)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._expected = self._mac(self._mac(salted, b"Server Key"), told)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def check(self, final: bytes) -> None:
        """LoginError unless these are the words of one who knows the password."""
        try:
            said = base64.b64decode(_attributes(final).get("v", ""), validate=True)
        except ValueError:
            said = b""
        if not self._expected or not hmac.compare_digest(said, self._expected):
            raise LoginError("the broker didn't prove that it knows the password")
        self.proved = True

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._digest)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        return dict(item.split("=", 1) for item in message.decode().split(",") if item)
    except ValueError as fault:
        raise LoginError("the broker's side of SCRAM is wrong") from fault


def prepared(text: str) -> str:
    """A user or password as SASLprep has it (RFC 4013), but for the rule on mixed directions."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    found = unicodedata.normalize("NFKC", mapped)
    if any(stringprep.in_table_c21_c22(each) or stringprep.in_table_c3(each) for each in found):
        raise LoginError("a user or password with characters that none may have")
    return found


# --- frames


def init(mechanism: str, first: bytes) -> bytes:
    """sasl-init, without a hostname."""
    name = mechanism.encode()
    return _frame(INIT, b"\xa3" + bytes((len(name),)) + name + _binary(first), 2)


def response(answer: bytes) -> bytes:
    """sasl-response."""
    return _frame(RESPONSE, _binary(answer), 1)


def _binary(value: bytes) -> bytes:
    return b"\xb0" + len(value).to_bytes(4, "big") + value


def _frame(code: int, fields: bytes, count: int) -> bytes:
    listed = b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + fields
    body = bytes((0, 0x53, code)) + listed
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def read(body: bytes) -> tuple[int, list[bytes]]:
    """A frame's body (behind its eight bytes): its code, and its fields' payloads, an array's items joined by
    spaces. LoginError if it is none of SASL's."""
    try:
        if body[0] != 0:
            raise ValueError("no descriptor")
        code, at = _value(body, 1)
        kind = body[at]
        if kind == 0x45:
            return code[-1], []
        wide = {0xC0: 1, 0xD0: 4}[kind]
        count = int.from_bytes(body[at + 1 + wide : at + 1 + 2 * wide], "big")
        at += 1 + 2 * wide
        fields = []
        for _ in range(min(count, 8)):
            value, at = _value(body, at)
            fields.append(value)
    except (ValueError, IndexError, KeyError):
        raise LoginError("what the broker says before the login is no SASL") from None
    return code[-1], fields


def _value(body: bytes, at: int) -> tuple[bytes, int]:
    kind = body[at]
    at += 1
    fixed = {0x40: 0, 0x43: 0, 0x44: 0, 0x50: 1, 0x53: 1, 0x80: 8}.get(kind)
    if fixed is not None:
        return body[at : at + fixed] or b"\x00" * (kind != 0x40), at + fixed
    if kind not in (0xA0, 0xA3, 0xB0, 0xB3, 0xE0, 0xF0):
        raise ValueError("a type that has no place here")
    wide = 1 if kind in (0xA0, 0xA3, 0xE0) else 4
    end = at + wide + int.from_bytes(body[at : at + wide], "big")
    if end > len(body):
        raise ValueError("cut off")
    payload = body[at + wide : end]
    return (_symbols(payload, wide) if kind in (0xE0, 0xF0) else payload), end


def _symbols(array: bytes, wide: int) -> bytes:
    """The items of an array of symbols."""
    count, at = int.from_bytes(array[:wide], "big"), wide + 1
    each = 1 if array[wide] == 0xA3 else 4
    found = []
    for _ in range(min(count, 64)):
        end = at + each + int.from_bytes(array[at : at + each], "big")
        found.append(array[at + each : end])
        at = end
    return b" ".join(found)
