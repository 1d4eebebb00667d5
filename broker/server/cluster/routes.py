"""The owner's listeners as relayed clients find them: by the URL of the listener they came in by."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from broker.amqp.loop.reactor import Reactor
from broker.config.listeners import ListenAddress, Listener, is_loopback
from broker.config.networks import written
from broker.security.exchange import ListenerTrust
from broker.security.tls import ServerTls
from broker.server.cluster.header import NEIGHBOURS, RelayedClient
from broker.server.cluster.member_port import Handover

# Takes what another member's cell says, and the digest of its first message.
AdoptNeighbour = Callable[[socket.socket, str], None]


class OwnerRoutes:
    """Finds what takes a relayed client: the reactor with a listener's rules, or the HTTP server; or another
    cell's connection: the port for neighbours, where this is one of several cells.
    """

    def __init__(
        self,
        reactor: Reactor,
        listeners: Sequence[Listener],
        tls: ServerTls | None,
        http: ListenAddress | None,
        adopt_http: Callable[[socket.socket], None],
        adopt_neighbour: AdoptNeighbour | None = None,
    ) -> None:
        self._reactor = reactor
        self._listeners = listeners
        self._tls = tls
        self._http = http
        self._adopt_http = adopt_http
        self._adopt_neighbour = adopt_neighbour

    def route(self, client: RelayedClient) -> Handover | str:
        """Find the listener with the same URL, else one of the same scheme that is as open to other machines.

        Of several of those, one with the same port, then one at which a client must say who it is.
        """
        if client.listener == NEIGHBOURS:
            adopt = self._adopt_neighbour
            if adopt is None:
                return "the owner is no one of several cells"
            return lambda sock: adopt(sock, client.digest)
        if client.listener.startswith("http"):
            if self._http is None or not _alike(client.listener, self._http.url, self._http.host):
                return f"the owner has no {client.listener}"
            return self._adopt_http
        same = [each for each in self._listeners if str(each) == client.listener]
        alike = [each for each in self._listeners if _alike(client.listener, str(each), each.host)]
        port = urlsplit(client.listener).port
        same += sorted(alike, key=lambda each: (each.port != port, each.allow_plain))
        if not same:
            return f"the owner has no {client.listener}"
        return lambda sock: self._adopt(sock, client, same[0])

    def _adopt(self, sock: socket.socket, client: RelayedClient, listener: Listener) -> None:
        door = ListenerTrust(is_loopback(listener.host), listener.secure, listener=str(listener))
        tls = self._tls if listener.secure else None
        address = written(client.host, client.port)
        plain = listener.allow_plain
        self._reactor.post(lambda: _ignore(self._reactor.adopt(sock, address, plain, door, None, tls)))


def _ignore(_: bool) -> None:
    pass


def _alike(url: str, own: str, own_host: str) -> bool:
    """Whether a listener of another member is what ours is, on another host of the same openness."""
    try:
        theirs, ours = urlsplit(url), urlsplit(own)
        same = theirs.scheme == ours.scheme and theirs.port is not None
    except ValueError:
        return False
    return same and is_loopback(theirs.hostname or "") == is_loopback(own_host)
