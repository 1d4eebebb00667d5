"""The state that all connections of one broker share."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import TYPE_CHECKING, Protocol

from broker.amqp.control.attached import AttachedLinks
from broker.amqp.control.client import LinkKey
from broker.amqp.control.failover import FailoverServers
from broker.amqp.control.live import LiveConnection
from broker.amqp.control.placement import Handovers, NeighbourSockets, NodeDirectory
from broker.amqp.control.sole import SoleConnections
from broker.amqp.control.temporary import TemporaryNodes
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.consumer_settings import fit
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.slow_consumers import Sampler
from broker.amqp.loop.client_quotas import Quotas
from broker.amqp.loop.control_quota import ControlQuota
from broker.amqp.loop.inbox import Inbox
from broker.amqp.loop.timers import Timers
from broker.amqp.registry import ConnectionRegistry
from broker.amqp.requests import ManagementRequests
from broker.amqp.trace import FrameReader, Tap
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.units import SECOND_NS

if TYPE_CHECKING:
    from broker.config.broker import Settings
    from broker.manage.model import Model
    from broker.manage.tracing import TraceRequest


class ClosedConnection(Protocol):
    """A connection that is over, and some of whose links are still there (``ConnectionControl``)."""

    def shut_some(self) -> bool:
        """Shut as many of its links as a turn may; whether none is left."""
        ...

    def links_are_shut(self) -> None:
        """Let Proton's objects go, if the socket is closed."""
        ...


class Container:
    """The AMQP container that a broker is to its clients. ``peers`` is the registry's set of connections.

    ``to_flush``, ``answers`` and ``turns`` are the loop's: connections with output, consumers that wait
    for an answer to a drain, connections whose links take turns. ``timers`` are what it looks at, ``inbox``
    brings functions of other threads to it.
    """

    def __init__(self, engine: Engine, model: Model, roster: ConnectionRegistry, settings: Settings) -> None:
        self.engine = engine
        self.model = model
        self.peers = roster.peers
        self.settings = settings
        self.name = new_container_name()
        # None where there is one cell.
        self.cells: NodeDirectory | None = None
        self.handovers: Handovers | None = None
        self.neighbours: NeighbourSockets | None = None
        # The other members' addresses for clients, where there is a cluster; the server changes them.
        self.failover: FailoverServers | None = None
        self.quotas = Quotas(settings.limits, settings.connection_limits)
        self.to_flush: list[Wire] = []
        self.answers: list[ConsumerLink] = []
        self.turns: list[Wire] = []
        self.parting: dict[ClosedConnection, None] = {}
        self.inbox = Inbox()
        self.timers = Timers()
        # All that is no message has its time from here.
        self.lane = ControlQuota(settings.limits.control_share, time.monotonic_ns())
        self.requests = ManagementRequests(
            model,
            settings.limits,
            settings.virtual_hosts,
            self.quotas,
            self.lane,
            self.peers,
            self.inbox.post,
        )
        defaults = settings.flow.defaults.without_letters("temporary")
        self.temporary = TemporaryNodes(model, defaults, self.peers)
        self.sole = SoleConnections()
        # Links whose terminus lasts, by their names.
        self.lasting: dict[LinkKey, tuple[AttachedLinks, ProducerLink | ConsumerLink]] = {}
        self._sampler = Sampler(engine)
        self._numbers = itertools.count(1)
        model.nodes.on_delete = self.detach_all
        model.policies.on_change = self.rewindow
        model.tracing.begin = self.trace

    def join(self, name: str, cells: NodeDirectory) -> None:
        """Be one of several cells, all of which bear this container-id."""
        self.name = name
        self.cells = cells
        self.temporary.prefix = f"{cells.own}."
        self.requests.join(cells)

    def next_number(self) -> int:
        """Return a number that no other connection of this run has."""
        return next(self._numbers)

    def recheck(self) -> None:
        """Take from all clients, after a change of the rules, what they may not have any longer."""
        for peer in list(self.peers):
            peer.recheck()

    def detach_all(self, node: Node) -> None:
        """Detach the links of a node that was deleted with `amqp:resource-deleted`."""
        self.temporary.gone(node)
        for peer in list(self.peers):
            for link in list(peer.wire.links):
                if link.node is node:
                    peer.detach(link, "amqp:resource-deleted", f"'{node.name}' was deleted")

    def rewindow(self, node: Node) -> None:
        """Give the consumers of a node that has new settings their new windows."""
        for consumer in (*node.consumers, *node.browsers):
            if isinstance(consumer, ConsumerLink):
                fit(consumer, node.settings, self.engine.turn.now_ns)
        self.engine.turn.mark_dirty(node)

    def sample(self, now_ns: int) -> None:
        """Measure the rates of all consumers, once a second, and find those that are slow."""
        self._sampler.sample(self.peers, now_ns)

    def shut_more(self) -> None:
        """Shut more links of the connection that has been over for longest."""
        closed = next(iter(self.parting))
        if closed.shut_some():
            del self.parting[closed]
            closed.links_are_shut()

    def trace(self, order: TraceRequest) -> bool:
        """Log a connection's frames for a while; whether there is such a connection."""
        peer: LiveConnection | None = next((each for each in self.peers if each.id == order.connection), None)
        if peer is None:
            return False
        wire = peer.wire
        if wire.tap is not None:
            wire.tap.finish("another order came")
        if order.frames == 0:
            return True

        def end() -> None:
            wire.tap = None

        readers = FrameReader(*wire.incoming.position()), FrameReader(*wire.outgoing.position())
        tap = wire.tap = Tap(peer.id, peer.address, order.frames, readers, end)
        due_ns = self.engine.turn.now_ns + order.seconds * SECOND_NS
        self.timers.at(due_ns, lambda _: tap.finish("its time is over"))
        return True


def new_container_name() -> str:
    """Return a container-id for a broker that wasn't given one."""
    return f"sluice-{uuid.uuid4()}"
