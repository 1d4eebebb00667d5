"""SCRAM from the server's side (RFC 5802, RFC 7677): who somebody is, without the password on the wire.

The messages are ``scramp``'s. Channel binding is not offered: docs/decisions/security.md says why.
"""

from __future__ import annotations

from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped]

from broker.security.exchange import Accepted, Challenge, Refused, Step
from broker.security.identity import Identity
from broker.security.simple import shown
from broker.security.users import HASHES, Users

# Nothing of SCRAM is longer, and preparing a name takes time for each of its characters.
LONGEST_MESSAGE = 512


class Scram:
    """One attempt. A client that asks to be somebody else than it proves to be is refused."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._mechanism = mechanism
        self._users = users
        self._user = ""
        self._step = 0
        self._server = ScramMechanism(mechanism).make_server(self._verifier)

    def respond(self, response: bytes | None) -> Step:
        """The client's first message, then its final one."""
        if response is None and self._step == 0:
            return Challenge(b"")
        self._step += 1
        try:
            text = (response or b"").decode()
            if len(text) > LONGEST_MESSAGE:
                raise ValueError
            return self._first(text) if self._step == 1 else self._final(text)
        except (ScramException, ValueError):
            whom = shown(self._users, self._user)
            return Refused(f"{self._mechanism} for {whom}: no such user, or the proof is wrong")

    def _first(self, text: str) -> Step:
        if text[:2] in ("n,", "y,") and text[2:3] != ",":
            return Refused(f"{self._mechanism}: the client asks to act as somebody else", is_guess=False)
        self._server.set_client_first(text)
        return Challenge(self._server.get_server_first().encode())

    def _final(self, text: str) -> Step:
        self._server.set_client_final(text)
        if self._user not in self._users:
            raise ScramException("no such user")
        identity = Identity(self._user, self._users.groups(self._user), self._mechanism)
        return Accepted(identity, self._server.get_server_final().encode())

    def _verifier(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        assert self._mechanism in HASHES
        self._user = user
        kept = self._users.verifier(user, self._mechanism)
        return kept.salt, kept.stored_key, kept.server_key, kept.iterations
