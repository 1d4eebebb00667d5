"""`failover-server-list` of our open: where else clients find the cell, as Qpid JMS reads it.

It casts `network-host` and `scheme` to strings and takes any number for `port`; the keys are symbols
(AmqpSupport and AmqpRedirect of Qpid JMS). Clients that don't know it pass over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from proton import symbol

NAME = "failover-server-list"
SCHEMES = {"amqp": 5672, "amqps": 5671}


class FailoverServers:
    """The list that is offered to every client that opens from now on; ``replace`` gives it others."""

    def __init__(self, urls: Sequence[str] = ()) -> None:
        self._servers: list[dict[str, object]] = []
        self.replace(urls)

    def replace(self, urls: Sequence[str]) -> None:
        """Offer these: `amqp[s]://host:port`. ValueError if one is no such address; then nothing changes."""
        self._servers = [_server(each) for each in urls]

    def properties(self) -> dict[str, object]:
        """Return what our open says of them; nothing where there are none."""
        return {NAME: self._servers} if self._servers else {}


def _server(url: str) -> dict[str, object]:
    found = urlsplit(url)
    if found.scheme not in SCHEMES or not found.hostname:
        raise ValueError(f"no address of a client's: {url}")
    port = found.port or SCHEMES[found.scheme]
    named = (("network-host", found.hostname), ("port", port), ("scheme", found.scheme))
    return {symbol(key): value for key, value in named}
