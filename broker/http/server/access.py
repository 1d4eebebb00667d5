"""What the HTTP port asks about those who come: who they are, by the same rules as AMQP's clients.

The server fills it in. Users and keys are asked for anew with each request, since they are read again while
the broker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

from broker.config.security import Security
from broker.security.authentication import Authentication
from broker.security.exchange import ListenerTrust
from broker.security.throttle import Attempts
from broker.security.users import Users

_OPEN = Authentication(anonymous=True)


@dataclass(frozen=True, slots=True)
class Rates:
    """How often one address may ask, a second; 0 is as often as it likes."""

    requests: int = 100
    writes: int = 100
    logins: int = 2


@dataclass(frozen=True, slots=True)
class Access:
    """``authentication`` and ``security`` hold now. ``attempts`` are counted on the reactor's thread,
    with those of AMQP.

    ``refusal`` is why whoever didn't say who it is may change nothing, empty where it may. ``near``: only
    this machine reaches the port.
    """

    authentication: Callable[[], Authentication] = lambda: _OPEN
    attempts: Attempts = field(default_factory=Attempts)
    security: Callable[[], Security] = Security
    refusal: str = ""
    near: bool = True
    rates: Rates = Rates()

    def is_open_to_metrics(self) -> bool:
        """Whether nobody needs to say who they are to read the metrics."""
        return self.security().metrics_are_open(self.near)

    def users(self) -> Users | None:
        """Those who have a password; None where there are none."""
        return self.authentication().users

    def lets_anonymous(self, own_address: str, secure: bool) -> bool:
        """Whether somebody who came in on that address need not say who it is."""
        return self.authentication().lets_anonymous(ListenerTrust(is_loopback(own_address), secure))

    def may_be_read(self, own_address: str, secure: bool) -> bool:
        """Whether a password or a token may come that way: nobody can read it, or the operator says so."""
        return secure or is_loopback(own_address) or self.authentication().plain_without_tls


def is_loopback(host: str) -> bool:
    """Whether it is an address of this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
