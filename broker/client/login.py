"""Saying who we are to a broker, by the best way it offers: SCRAM, then PLAIN (RFC 5802, RFC 4616).

Bytes in, bytes out; ``plugin`` gives it to Proton. With SCRAM the broker has to prove that it knows us as
well: one that merely lets us in is refused. No text here shows a password.
"""

from __future__ import annotations

from collections.abc import Collection

from scramp import ScramException  # type: ignore[import-untyped]
from scramp.utils import saslprep  # type: ignore[import-untyped]

from broker.codec.scram import HASHES, ScramClient, ScramError

PLAIN = "PLAIN"
# The least that a broker has to ask for (RFC 7677 §4), and the shortest salt.
FEWEST_ITERATIONS, SHORTEST_SALT = 4096, 12


class LoginError(Exception):
    """The exchange makes no sense, or the broker isn't who it should be."""


class LoginExchange:
    """One connection's exchange."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self._scram: ScramClient | None = None
        self._asked = 0

    def choose(self, offered: Collection[str]) -> tuple[str, bytes] | None:
        """Return the mechanism to take and the first message; None if the broker offers none that suits."""
        name = next((each for each in HASHES if each in offered), None)
        if name is not None:
            user, password = _prepared(self._user), _prepared(self._password)
            if not user:
                raise LoginError("a user or password with characters that none may have")
            self._scram = ScramClient(name, user, password, fewest=FEWEST_ITERATIONS, shortest=SHORTEST_SALT)
            return name, self._scram.first()
        if PLAIN in offered:
            return PLAIN, f"\0{self._user}\0{self._password}".encode()
        return None

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge."""
        self._asked += 1
        if self._scram is None or self._asked > 2:
            raise LoginError("the broker asks for more than there is to say")
        try:
            return self._scram.answer(challenge)
        except ScramError as fault:
            raise LoginError(str(fault)) from fault

    def finish(self, additional: bytes) -> None:
        """Take the outcome that lets us in; LoginError if the broker had to prove who it is and hasn't."""
        if self._scram is None or self._scram.proved:
            return
        try:
            self._scram.check(additional)
        except ScramError as fault:
            raise LoginError(str(fault)) from fault


def _prepared(text: str) -> str:
    try:
        return str(saslprep(text))
    except ScramException as fault:
        raise LoginError("a user or password with characters that none may have") from fault
