"""The client's side of SCRAM (RFC 5802, RFC 7677), without channel binding: bytes in, bytes out.

No I/O and no import of this package: ``pyspark_sluice`` has a link to this very file. Preparing the user and
the password (RFC 4013) is the caller's. No text here shows a password, and the server's numbers are bounded
before anything is computed with them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

# Our favourite first; the functions of ``hashlib`` that they use.
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512", "SCRAM-SHA-1": "sha1"}
# A server may have a password tried with so many rounds: more would only keep the client busy.
MOST_ITERATIONS = 2_000_000


class ScramError(Exception):
    """The server's messages make no sense, ask for too much, or prove nothing."""


class ScramClient:
    """One exchange. ``fewest`` iterations and a salt of at least ``shortest`` bytes are asked of the server.

    ``nonce`` is for tests; without it the nonce is random.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, *, fewest: int = 1, shortest: int = 1, nonce: str = ""
    ) -> None:
        self._digest = HASHES[mechanism]
        self._password = password.encode()
        self._fewest = fewest
        self._shortest = shortest
        self._nonce = nonce or base64.b64encode(os.urandom(18)).decode()
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._expected = b""
        self.proved = False

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """Return the proof for the server's first message; nothing for its final one, which is checked.

        Raises ScramError.
        """
        if self._expected:
            self.check(challenge)
            return b""
        nonce, salt, rounds = self._read(challenge)
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, rounds)
        final = f"c=biws,r={nonce}"
        told = f"{self._bare},{challenge.decode()},{final}".encode()
        key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._digest, key).digest(), told)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        self._expected = self._mac(self._mac(salted, b"Server Key"), told)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def check(self, final: bytes) -> None:
        """Raise ScramError unless the server's final message proves that it knows the password."""
        try:
            said = base64.b64decode(_attributes(final).get("v", ""), validate=True)
        except ValueError:
            said = b""
        if not self._expected or not hmac.compare_digest(said, self._expected):
            raise ScramError("the broker didn't prove that it knows the password")
        self.proved = True

    def _read(self, challenge: bytes) -> tuple[str, bytes, int]:
        """Return nonce, salt and rounds of the server's first message."""
        try:
            asked = _attributes(challenge)
            nonce, salt = asked["r"], base64.b64decode(asked["s"], validate=True)
            if not (asked["i"].isascii() and asked["i"].isdigit()):
                raise ValueError("no number")
            rounds = int(asked["i"])
        except (KeyError, ValueError) as fault:
            raise ScramError("the broker's side of SCRAM is wrong") from fault
        known = nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)
        # An extension that has to be understood (RFC 5802 §5.1, m), and there is none that is.
        if not known or len(salt) < self._shortest or "m" in asked:
            raise ScramError("the broker's side of SCRAM is wrong")
        if rounds > MOST_ITERATIONS:
            raise ScramError("the broker asks for more work than it may")
        if rounds < self._fewest:
            raise ScramError("the broker's side of SCRAM is wrong")
        return nonce, salt, rounds

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._digest)


def _attributes(message: bytes) -> dict[str, str]:
    """Return a message's attributes; ValueError where it has none, or one twice."""
    pairs = [item.split("=", 1) for item in message.decode().split(",") if item]
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an attribute twice")
    return found
