"""A connection that has authenticated, as those see it that handle none of its frames."""

from __future__ import annotations

from typing import Any, Protocol

from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.producer import ProducerLink
from broker.engine.node import Node
from broker.loggers import About
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity


class LiveConnection(Protocol):
    """A connection, as far as registry, management and container need it (``ConnectionControl`` is one).

    ``replies`` are the nodes of its receivers on ``$management``, by its own names for them, which many
    clients share.
    """

    id: str
    number: int
    address: str
    user: str
    tls: str
    door: ListenerTrust
    opened_ns: int
    wire: ConnectionIO
    identity: Identity
    replies: dict[str, Node]
    # Whether another cell passes links of its client on by it.
    relays: bool

    @property
    def name(self) -> str:
        """Its container-id."""
        ...

    @property
    def host(self) -> str:
        """Its virtual host, empty for the common one."""
        ...

    @property
    def maker(self) -> str:
        """The user whose nodes those are that it makes; empty for the broker's own connections."""
        ...

    def channels(self) -> list[int]:
        """Return the channels of its sessions."""
        ...

    def about(self, **fields: object) -> About:
        """Return the fields of a log line about it."""
        ...

    def detach(self, link: ProducerLink | ConsumerLink, condition: str, text: str, info: Any = None) -> None:
        """Detach one of its links with an error."""
        ...

    def close(self, condition: str, text: str, info: Any = None) -> None:
        """Close it with an error."""
        ...

    def send_back(self, condition: str, text: str) -> None:
        """Close it with an error after which its client connects again; not amid its own events."""
        ...

    def pass_reply(self, cell: int, reply: bytes) -> bool:
        """Send a management answer to another cell, in its client's name; whether that may be."""
        ...

    def recheck(self) -> None:
        """Take from it what its user may not have any longer."""
        ...
