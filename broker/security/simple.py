"""Mechanisms of one message: ANONYMOUS (RFC 4505), EXTERNAL (RFC 4422 §A) and PLAIN (RFC 4616)."""

from __future__ import annotations

import time
from dataclasses import replace

from broker.security.exchange import Accepted, Challenge, Refused, Step, Work
from broker.security.identity import ANONYMOUS, BROKER, Identity
from broker.security.users import LONGEST_NAME, LONGEST_PASSWORD, Users, prepared


class Anonymous:
    """Nobody says who it is; what a client says of itself is not kept."""

    def __init__(self, own: bool) -> None:
        self._identity = BROKER if own else ANONYMOUS

    def respond(self, response: bytes | None) -> Step:
        """Always let in: that it is offered is the decision."""
        return Accepted(self._identity)


class External:
    """Who the certificate belongs to; TLS has checked it and said the name."""

    def __init__(self, users: Users, user: str, until_s: float = 0.0) -> None:
        self._users = users
        self._user = user
        self._until_s = until_s

    def respond(self, response: bytes | None) -> Step:
        """Empty, or the name of whom the client would act as."""
        identity = Identity(self._user, self._users.groups(self._user), "EXTERNAL")
        try:
            step = acting(self._users, identity, (response or b"").decode())
        except UnicodeDecodeError:
            return Refused("EXTERNAL: a name that is not UTF-8", is_guess=False)
        if not self._until_s or isinstance(step, Refused):
            return step
        left_s = self._until_s - time.time()
        if left_s <= 0:
            return Refused("EXTERNAL: the certificate has expired", is_guess=False)
        return replace(step, seconds=left_s)


class Plain:
    """A name and a password, checked against the name's verifier."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def respond(self, response: bytes | None) -> Step:
        """``authzid NUL authcid NUL password``."""
        if response is None:
            return Challenge(b"")
        try:
            other, user, password = response.decode().split("\0")
        except ValueError:
            return Refused("PLAIN: not two names and a password")
        if not user or not password or len(password) > LONGEST_PASSWORD:
            return Refused("PLAIN: no name or no password")
        if max(len(user), len(other)) > LONGEST_NAME:  # nobody's; preparing it takes time for each character
            return Refused("PLAIN: a name that is too long")
        return Work(lambda: self._check(other, user, password))

    def _check(self, other: str, user: str, password: str) -> Accepted | Refused:
        identity = self._users.verify(user, password)
        if identity is None:
            whom = shown(self._users, prepared(user))
            return Refused(f"PLAIN for {whom}: no such user, or the password is wrong")
        return acting(self._users, identity, other)


def shown(users: Users, user: str) -> str:
    """Return a name as the log may have it: one that nobody has may be a password in the wrong field."""
    return repr(user) if user in users else "somebody unknown"


def acting(users: Users, identity: Identity, other: str) -> Accepted | Refused:
    """Let somebody in, by another's name if it asks for that and may."""
    name = prepared(other) if other else identity.user
    if name == identity.user:
        return Accepted(identity)
    if not name or not users.may_act_as(identity.user, name):
        return Refused(f"{identity.user!r} may not act as {other!r}", is_guess=False)
    return Accepted(replace(identity, user=name, groups=users.groups(name), proved=identity.user))
