"""One SASL exchange, seen from the server: bytes in, one of four answers out (RFC 4422 §3).

An exchange does no I/O and never blocks: what takes milliseconds it hands out as ``Work``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.security.identity import Identity


@dataclass(frozen=True, slots=True)
class Challenge:
    """Send this to the client and wait for its response."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """It is who it says; ``data`` goes with the outcome. It holds for ``seconds``; 0: for good."""

    identity: Identity
    data: bytes = b""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """It isn't, or can't be told. ``reason`` is for the log alone: the client only hears that it failed.

    ``is_guess``: it counts against the address. ``is_busy``: it may try again later.
    """

    reason: str
    is_guess: bool = True
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Milliseconds of work, on any thread but the reactor's; its result goes on from here."""

    run: Callable[[], Accepted | Refused]


class TokenError(Exception):
    """A token doesn't hold; the text says why and shows nothing of it."""


Step = Challenge | Accepted | Refused | Work


class Exchange(Protocol):
    """One attempt by one mechanism; what comes after ``Accepted`` or ``Refused`` isn't asked for."""

    def respond(self, response: bytes | None) -> Step:
        """Take the client's response; None is an init without one (§5.3.3.2)."""
        ...


@dataclass(frozen=True, slots=True)
class ListenerTrust:
    """How a client came: what the listener and TLS know of it before it says a word.

    ``external_user`` is whom its certificate belongs to, until ``external_until_s`` (since the epoch; 0 for
    good). ``own``: it is the broker itself, for a route.
    ``listener`` is the port's URL, as its setting has it.
    """

    loopback: bool = False
    secure: bool = False
    external_user: str = ""
    external_until_s: float = 0.0
    own: bool = False
    listener: str = ""
