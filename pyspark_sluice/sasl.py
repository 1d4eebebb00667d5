"""Logging in, in front of the engine: SASL's frames (AMQP 1.0 §5.3), SCRAM (RFC 5802) and others.

Bytes in, bytes out; ``dial`` moves them. With SCRAM the broker has to prove that it knows us as well. No
text here shows a password or a token, and what a broker sends is bounded before it is believed.
"""

from __future__ import annotations

import stringprep
import unicodedata
from collections.abc import Collection

from . import unpack
from .encoding import LIST32, compound, section, symbol
from .errors import LoginError
from .scram import ScramClient, ScramError
from .unpack import MalformedError

HEADER = b"AMQP\x03\x01\x00\x00"
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
LONGEST_FRAME = 65536
_BEARER = "OAUTHBEARER"
# The best first.
_SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
# §5.3.3.6: what no second attempt helps, and what may pass.
_REASONS = {1: "user or password is wrong", 2: "the broker failed", 3: "the broker failed", 4: "try later"}
TRANSIENT = 4


class Login:
    """One connection's exchange, from the mechanisms offered to the outcome."""

    def __init__(self, user: str | None, password: str | None, token: str | None = None) -> None:
        self._user = user
        self._password = password
        self._token = token
        self._scram: ScramClient | None = None

    def choose(self, offered: Collection[str], allowed: Collection[str], *, certificate: bool) -> bytes:
        """The first frame: the best mechanism offered that is allowed and suits us, else LoginError."""
        for name in self._suiting():
            if name not in offered or name not in allowed or (name == "EXTERNAL" and not certificate):
                continue
            return init(name, self._first(name))
        raise LoginError(
            f"no way to log in: the broker offers {', '.join(sorted(offered)) or 'nothing'};"
            f" possible here is {', '.join(allowed)}"
            + (", with a token" if self._token is not None else "" if self._user else ", without a user")
        )

    def _suiting(self) -> tuple[str, ...]:
        if self._token is not None:
            return (_BEARER,)
        return (*_SCRAM, "PLAIN") if self._user is not None else ("EXTERNAL", "ANONYMOUS")

    def _first(self, name: str) -> bytes:
        if name in _SCRAM:
            self._scram = ScramClient(name, prepared(self._user or ""), prepared(self._password or ""))
            return self._scram.first()
        if name == "PLAIN":
            return f"\0{self._user}\0{self._password}".encode()
        if name == _BEARER:
            return bearer(self._user, self._token or "")
        return b"" if name == "EXTERNAL" else b"spark"

    def respond(self, challenge: bytes) -> bytes:
        """The frame that answers a challenge."""
        if self._token is not None:
            # Why, in JSON (RFC 7628 §3.2.3), which another attempt with the same token doesn't change.
            raise LoginError("the broker refused the token")
        if self._scram is None:
            raise LoginError("the broker asks for more than there is to say")
        try:
            return response(self._scram.answer(challenge))
        except ScramError as fault:
            raise LoginError(str(fault)) from fault

    def finish(self, code: int, additional: bytes) -> None:
        """The outcome. LoginError if it isn't ok, or if a broker that has to prove itself hasn't."""
        if code:
            why = _REASONS.get(code, f"code {code}")
            if code == 1 and self._token is not None:
                why = "the token is not taken, or it is another user's"
            raise LoginError(f"the broker refused the login: {why}")
        if self._scram is not None and not self._scram.proved:
            try:
                self._scram.check(additional)
            except ScramError as fault:
                raise LoginError(str(fault)) from fault


def bearer(user: str | None, token: str) -> bytes:
    """The one message of OAUTHBEARER (RFC 7628 §3.1); without a user the token alone says who it is."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise LoginError("the token is empty, or has characters that none may have")
    name = "" if user is None else "a=" + user.replace("=", "=3D").replace(",", "=2C")
    return f"n,{name},\x01auth=Bearer {token}\x01\x01".encode()


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
    return _frame(INIT, symbol(mechanism.encode()) + _binary(first), 2)


def response(answer: bytes) -> bytes:
    """sasl-response."""
    return _frame(RESPONSE, _binary(answer), 1)


def _binary(value: bytes) -> bytes:
    return b"\xb0" + len(value).to_bytes(4, "big") + value


def _frame(code: int, fields: bytes, count: int) -> bytes:
    body = section(code) + compound(LIST32, (fields,), count)
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def read(body: bytes) -> tuple[int, list[bytes]]:
    """Return a frame's code and its fields' payloads from its body, which stands behind its eight bytes.

    An array's items are joined by spaces. LoginError if it is none of SASL's.
    """
    try:
        if body[0] != 0:
            raise MalformedError("no descriptor")
        code, at = unpack.read(body, 1)
        fields, _ = unpack.read(body, at)
        if not isinstance(code, int) or type(fields) is not list:
            raise MalformedError("no list of SASL's")
        return code, [_payload(each) for each in fields]
    except (ValueError, IndexError):
        raise LoginError("what the broker says before the login is no SASL") from None


def _payload(field: object) -> bytes:
    """Return the bytes of a field; an outcome's code is one byte, null none."""
    if type(field) is list:
        return b" ".join(map(_payload, field))
    if isinstance(field, str):
        return field.encode()
    if isinstance(field, int):
        return bytes((field,))
    if field is not None and not isinstance(field, bytes):
        raise MalformedError("a type that has no place here")
    return field or b""
