"""The verbs that say what is wrong: why links wait, which deadlocks stand, whether the laws hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ElsewhereError, NotFoundError
from broker.manage.audit import Audit, audit
from broker.manage.cluster import ClusterOperations
from broker.manage.holds import ProducerHolds
from broker.manage.nodes import Nodes
from broker.manage.views import ConsumerView, Links
from broker.manage.why import advice
from broker.manage.why import why as reasons
from broker.manage.why.deadlocks import DeadlockView, DeadlockWatch
from broker.manage.why.forecasts import Forecasts
from broker.manage.why.producer import WhyContext
from broker.manage.why.why import Why
from broker.store.port import WRITING

# Links that one answer says why they wait, about: they are told in one turn of the broker's thread.
MOST_TOLD = 1000


class Diagnostics:
    """Explains the state of nodes and links. ``on_events`` gives the last events, on any thread."""

    def __init__(
        self, engine: Engine, nodes: Nodes, links: Links, holds: ProducerHolds, cluster: ClusterOperations
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._links = links
        self._holds = holds
        self._cluster = cluster
        self.on_events: Callable[[int, bool], list[bytes]] | None = None
        self.deadlock_watch = DeadlockWatch(engine, self._catch_up)
        self.forecasts = Forecasts(engine, self._catch_up)
        engine.changes.watch = self.deadlock_watch.stir

    def why(self, name: str = "", only: Callable[[object], bool] | None = None) -> list[Why]:
        """Return one answer for every producer without credit and every consumer held up: of a node, or a
        link by its name or id, or without a name of the whole broker.

        ``only`` sorts out the nodes whose links are looked at, unless a node is named.
        """
        self._catch_up()
        store = self.readiness()
        if not name:
            return self._why_all("", store, only)
        try:
            node = self._nodes.find(name)
        except NotFoundError as fault:
            found = self._why_all(name, store, only)
            if not found and isinstance(fault, ElsewhereError):
                raise
            if not found:
                raise NotFoundError(f"no queue, topic, subscription or link named '{name}'") from None
            return found
        waiting = self._why_node(node, store) or [reasons.of_node(node, self._context(node, store))]
        place = self._nodes.place_of(node)
        waiting = [replace(each, sentence=each.sentence + place) for each in waiting] if place else waiting
        return waiting + self._advice(node)

    def deadlocks(self) -> list[DeadlockView]:
        """Return the deadlocks that stand now."""
        return list(self.deadlock_watch.views())

    def audit(self) -> Audit:
        """Count whether the conservation laws hold now; what is under way in this turn is ended first."""
        self._engine.end_turn()
        return audit(self._engine)

    def events(self, count: int, samples: bool = True) -> list[bytes]:
        """Return the last events as JSON, oldest first; any thread may ask.

        NotFoundError where none are kept.
        """
        if self.on_events is None:
            raise NotFoundError("this broker keeps no events (events.enabled)")
        return self.on_events(count, samples)

    def readiness(self) -> str:
        """Return why the broker isn't ready for traffic; empty if it is."""
        storing = self._engine.durability.commit
        if storing is not None and storing.store.state != WRITING:
            return storing.store.reason
        return self._engine.paging.fault()

    def _catch_up(self) -> None:
        """Gates opened or closed, links came or went since the last time."""
        for node in self._engine.changes.take_nodes():
            self.deadlock_watch.changed(node)
            self.forecasts.changed(node)

    def _context(self, node: Node, store: str) -> WhyContext:
        """``store`` is what ``readiness`` says, asked once for all links."""
        engine = self._engine
        storing = engine.durability.commit
        return WhyContext(
            now_ns=engine.turn.now_ns,
            forecasts=self.forecasts,
            held_by=self._holds.holding(node.address),
            store=store,
            suspended=self._suspended() if store else "",
            winding_down=engine.delivery.winding_down,
            behind_bytes=storing.store.behind_bytes if storing is not None and storing.behind else 0,
            deadlock=self.deadlock_watch.of(node),
            uncommitted=engine.transactions.uncommitted(node),
        )

    def _suspended(self) -> str:
        status = self._cluster.known()
        return "" if status is None else status.suspended

    def _why_node(self, node: Node, store: str) -> list[Why]:
        """Of every link of the node that waits; of a subscription, its topics' if it holds them back."""
        owners = [node] if not node.is_subscription else node.topics if node.gate.closed else []
        found: list[Why] = []
        for owner in owners:
            links = [link for link in self._links.producers(owner.name) if link.lacks_credit]
            context = self._context(owner, store)
            found += [reasons.of_producer(link, owner, context) for link in links[:MOST_TOLD]]
        found += reasons.of_transactions(node, self._context(node, store))
        for each in (node, *node.subscriptions):
            found += self._why_consumers(each, self._links.consumers(each.name), store, idle=False)
        return found

    def _advice(self, node: Node) -> list[Why]:
        """Settings of the node, or of its subscriptions, that should be others as it is used now."""
        engine = self._engine
        return [
            answer
            for each in (node, *node.subscriptions)[:MOST_TOLD]
            for answer in advice.of_node(
                each, self._links.consumers(each.name), engine.depths.memory, engine.turn.now_ns
            )
        ]

    def _why_consumers(self, node: Node, links: list[ConsumerView], store: str, *, idle: bool) -> list[Why]:
        context = self._context(node, store)
        noted = self._engine.delivery.is_noted(node)
        takers = [link for link in links if not link.browses]
        found = [reasons.of_consumer(link, node, takers, context, noted, idle=idle) for link in links]
        return [answer for answer in found if answer is not None]

    def _why_all(self, wanted: str, store: str, only: Callable[[object], bool] | None) -> list[Why]:
        """Of every link that waits, or of those of a name or id, whether they wait or not."""
        senders = [
            link
            for link in self._links.producers(None, only)
            if wanted in (link.id, link.link) or (not wanted and link.lacks_credit)
        ]
        found: list[Why] = []
        for link in senders[:MOST_TOLD]:
            node = self._nodes.find(link.node)
            found.append(reasons.of_producer(link, node, self._context(node, store)))
        for name, links in _by_node(self._links.consumers(None, only)).items():
            if len(found) < MOST_TOLD and (
                not wanted or any(wanted in (link.id, link.link) for link in links)
            ):
                answers = self._why_consumers(self._nodes.find(name), links, store, idle=bool(wanted))
                found += [each for each in answers if not wanted or wanted in (each.link_id, each.link)]
        return reasons.merged(found)


def _by_node(links: list[ConsumerView]) -> dict[str, list[ConsumerView]]:
    found: dict[str, list[ConsumerView]] = {}
    for link in links:
        found.setdefault(link.node, []).append(link)
    return found
