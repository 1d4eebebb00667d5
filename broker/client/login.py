"""Saying who we are to a broker, by the best way it offers: SCRAM, then PLAIN (RFC 5802, RFC 4616).

Bytes in, bytes out; ``plugin`` gives it to Proton. With SCRAM the broker has to prove that it knows us as
well: one that merely lets us in is refused. No text here shows a password.
"""

from __future__ import annotations

from collections.abc import Collection

from scramp import ScramClient, ScramException  # type: ignore[import-untyped]

# Our favourite first.
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1")
PLAIN = "PLAIN"
# What a broker may have a password tried with: more would only keep us busy.
MOST_ITERATIONS = 2_000_000


class LoginError(Exception):
    """The exchange makes no sense, or the broker isn't who it should be."""


class LoginExchange:
    """One connection's exchange."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self._scram: ScramClient | None = None
        self._asked = 0
        self._proved = False

    def choose(self, offered: Collection[str]) -> tuple[str, bytes] | None:
        """The mechanism to take and the first message; None if the broker offers none that suits."""
        name = next((each for each in SCRAM if each in offered), None)
        if name is not None:
            try:
                self._scram = ScramClient([name], self._user, self._password)
                return name, self._scram.get_client_first().encode()
            except ScramException as fault:
                raise LoginError("a user or password with characters that none may have") from fault
        if PLAIN in offered:
            return PLAIN, f"\0{self._user}\0{self._password}".encode()
        return None

    def respond(self, challenge: bytes) -> bytes:
        """The answer to a challenge."""
        self._asked += 1
        if self._scram is None or self._asked > 2:
            raise LoginError("the broker asks for more than there is to say")
        try:
            if self._asked == 2:
                return self._check(challenge)
            self._scram.set_server_first(challenge.decode())
            if int(self._scram.iterations) > MOST_ITERATIONS:
                raise LoginError("the broker asks for more work than it may")
            return str(self._scram.get_client_final()).encode()
        except (ScramException, ValueError) as fault:
            raise LoginError("the broker's side of SCRAM is wrong") from fault

    def finish(self, additional: bytes) -> None:
        """The broker lets us in; LoginError if it hasn't proved who it is where it has to."""
        if self._scram is None or self._proved:
            return
        try:
            self._check(additional)
        except (ScramException, ValueError) as fault:
            raise LoginError("the broker didn't prove that it knows the password") from fault

    def _check(self, final: bytes) -> bytes:
        assert self._scram is not None
        self._scram.set_server_final(final.decode())
        self._proved = True
        return b""
