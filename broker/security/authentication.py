"""Which mechanisms a client is offered, by the door it came through, and how each begins.

An ``Authentication`` never changes: new settings or users make another, for those who come from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.config.security import MECHANISMS, USUAL
from broker.security.bearer import Bearer
from broker.security.exchange import Exchange, ListenerTrust
from broker.security.scram import Scram
from broker.security.simple import Anonymous, External, Plain
from broker.security.users import Users

if TYPE_CHECKING:
    from broker.security.tokens import Tokens

BY_PASSWORD = frozenset({"SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"})
BY_TOKEN = frozenset({"OAUTHBEARER", "XOAUTH2"})


@dataclass(frozen=True, slots=True)
class Authentication:
    """``users`` and ``tokens`` None: there are none. ``anonymous`` None: on loopback while there are none."""

    users: Users | None = None
    tokens: Tokens | None = None
    anonymous: bool | None = None
    mechanisms: tuple[str, ...] = USUAL
    plain_without_tls: bool = False
    _nobody: Users = field(default_factory=Users, repr=False)

    @property
    def is_configured(self) -> bool:
        """Whether anybody can say who it is."""
        return self.users is not None or self.tokens is not None

    def offered(self, door: ListenerTrust) -> tuple[str, ...]:
        """What a client that came through that door may choose from; empty: it can't come in."""
        return tuple(name for name in MECHANISMS if self._suits(name, door))

    def lets_anonymous(self, door: ListenerTrust) -> bool:
        """Whether somebody may come in there without saying who it is."""
        if door.own:
            return True
        if self.anonymous is None:
            return door.loopback and not self.is_configured
        return self.anonymous

    def begin(self, mechanism: str, door: ListenerTrust) -> Exchange:
        """A new attempt by a mechanism that is offered there."""
        return _BEGIN[mechanism](self, mechanism, door)

    def _suits(self, mechanism: str, door: ListenerTrust) -> bool:
        if door.own or mechanism not in self.mechanisms:
            return door.own and mechanism == "ANONYMOUS"
        if mechanism == "ANONYMOUS":
            return self.lets_anonymous(door)
        if mechanism == "EXTERNAL":
            return bool(door.external_user)
        if mechanism in BY_TOKEN:
            return self.tokens is not None and self._may_be_read(door)
        if mechanism == "PLAIN":
            return self.users is not None and self._may_be_read(door)
        return self.users is not None

    def _may_be_read(self, door: ListenerTrust) -> bool:
        """Whether a secret may be sent as it is: nobody on the way can read it, or the operator says so."""
        return door.secure or self.plain_without_tls

    def known(self) -> Users:
        """The users; nobody where there are none."""
        return self._nobody if self.users is None else self.users


Begin = Callable[[Authentication, str, ListenerTrust], Exchange]


def _scram(authentication: Authentication, mechanism: str, _door: ListenerTrust) -> Exchange:
    return Scram(mechanism, authentication.known())


def _bearer(authentication: Authentication, mechanism: str, _door: ListenerTrust) -> Exchange:
    assert authentication.tokens is not None
    return Bearer(mechanism, authentication.tokens)


_BEGIN: dict[str, Begin] = {
    "EXTERNAL": lambda mine, _, door: External(mine.known(), door.external_user, door.external_until_s),
    "SCRAM-SHA-512": _scram,
    "SCRAM-SHA-256": _scram,
    "OAUTHBEARER": _bearer,
    "XOAUTH2": _bearer,
    "SCRAM-SHA-1": _scram,
    "PLAIN": lambda mine, _, __: Plain(mine.known()),
    "ANONYMOUS": lambda _, __, door: Anonymous(door.own),
}
