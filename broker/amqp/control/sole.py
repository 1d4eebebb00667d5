"""Container-ids that one connection has to itself (AMQP Enforcing Connection Uniqueness 1.0).

Two connections may share a container-id, as replicas of a service do. One that desires the capability
`sole-connection-for-container` doesn't: as long as it is there, another connection of the same user with the
same container-id is refused, or closes the first if it asks for that. Qpid JMS asks so for each client id.
"""

from __future__ import annotations

import select
from typing import Any

from proton import Condition, Connection, symbol

from broker.amqp.control.decoding import UNREADABLE
from broker.amqp.control.live import LiveConnection

CAPABILITY = "sole-connection-for-container"
POLICY = "sole-connection-enforcement-policy"
CLOSE_EXISTING = 1
FAILED = "amqp:connection-establishment-failed"
# A socket whose other end has hung up, whatever was left unread before that.
HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class SoleConnections:
    """Which connection has which container-id to itself, by user and container-id."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], LiveConnection] = {}

    def holder(self, peer: LiveConnection) -> LiveConnection | None:
        """Return the other connection that has this one's container-id to itself, if its client is there."""
        holder = self._holders.get((peer.user, peer.name))
        return None if holder is None or holder is peer or _has_hung_up(holder) else holder

    def claim(self, peer: LiveConnection) -> None:
        """Give this connection its container-id to itself from now on; '' names nobody."""
        if peer.name:
            self._holders[peer.user, peer.name] = peer

    def leave(self, peer: LiveConnection) -> None:
        """Let go of what a connection that is over had to itself."""
        if self._holders.get((peer.user, peer.name)) is peer:
            del self._holders[peer.user, peer.name]


def desires(connection: Connection) -> bool:
    """Whether the peer wants to be the only connection of its container-id."""
    try:
        return CAPABILITY in [str(each) for each in connection.remote_desired_capabilities or ()]
    except UNREADABLE:
        return False


def closes_existing(connection: Connection) -> bool:
    """Whether the peer asks for the connection before it to be closed; else it is refused itself."""
    try:
        properties: Any = connection.remote_properties
        return isinstance(properties, dict) and properties.get(symbol(POLICY)) == CLOSE_EXISTING
    except UNREADABLE:
        return False


def refusal(container: str) -> Condition:
    """Return the error of a connection whose container-id another has to itself."""
    text = f"container-id '{container}' is in use by a connection that is to be its only one"
    return Condition("amqp:invalid-field", text, {symbol("invalid-field"): symbol("container-id")})


def closing(container: str) -> Condition:
    """Return the error of a connection that another of its container-id has closed."""
    text = f"another connection of container-id '{container}' asked to be the only one"
    return Condition("amqp:resource-locked", text, {symbol("sole-connection-enforcement"): True})


def _has_hung_up(peer: LiveConnection) -> bool:
    poll = select.poll()
    poll.register(peer.wire.fd, select.POLLRDHUP)
    return any(state & (HUNG_UP | select.POLLNVAL) for _, state in poll.poll(0))
