"""The verbs that show the broker: entities, lists of them, surveys, and the last minutes of a node."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ElsewhereError, NotFoundError, OperatorError
from broker.manage.attributes import PREFIX
from broker.manage.cluster import ClusterOperations
from broker.manage.diagnostics import Diagnostics
from broker.manage.entities import NODE_KINDS, Entities, Page
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.holds import ProducerHolds
from broker.manage.listing import Listing
from broker.manage.nodes import Nodes
from broker.manage.policies import Policies
from broker.manage.policy_view import policy_views
from broker.manage.process import Process
from broker.manage.samples import Flow, Sample, Samples
from broker.manage.survey import Survey, SurveyResult, SurveyScope
from broker.manage.totals import Totals
from broker.manage.views import BrokerView, Links, QueueView, Snapshot, StoreView, queue_view
from broker.units import SECOND_NS

BROKER = PREFIX + "broker"


class Queries:
    """Reads the broker and changes nothing. ``routes`` and ``channels`` show those there are."""

    def __init__(
        self,
        engine: Engine,
        policies: Policies,
        nodes: Nodes,
        links: Links,
        holds: ProducerHolds,
        process: Process,
        diagnostics: Diagnostics,
        totals: Totals,
        cluster: ClusterOperations,
    ) -> None:
        self._engine = engine
        self._policies = policies
        self._nodes = nodes
        self._links = links
        self._holds = holds
        self._process = process
        self._diagnostics = diagnostics
        self._totals = totals
        self._cluster = cluster
        self.samples = Samples()
        self.routes: Callable[[], Sequence[RouteView]] = tuple
        self.channels: Callable[[], Sequence[ChannelView]] = tuple
        others: Mapping[str, Callable[[], Iterable[object]]] = {
            "bridge": nodes.bridges.views,
            "route": lambda: self.routes(),
            "channel": lambda: self.channels(),
            "policy": lambda: policy_views(policies.in_force),
        }
        self.entities = Entities(engine, links, holds, process.epoch_ns, self.broker, others)
        self.listing = Listing(engine, links, self.entities)

    # --- entities

    def query(
        self,
        type_: str | None,
        attribute_names: Sequence[str] = (),
        offset: int = 0,
        count: int = 1000,
        sort: str = "",
        pattern: str = "",
        only: Callable[[object], bool] | None = None,
    ) -> Page:
        """Return a page of the entities of a type, or of every type; no attribute names means all.

        Queues, topics and subscriptions can be sorted and filtered by name (see ``Listing.page``); then the
        broker's own are left out. ``only`` sorts out those that are to be there at all, by node or view.
        """
        if sort or pattern:
            kind = (type_ or "").removeprefix(PREFIX)
            if kind not in NODE_KINDS:
                raise OperatorError("only queues, topics and subscriptions can be sorted and filtered")
            return self.listing.page(kind, attribute_names, offset, count, sort, pattern, only)
        return self.entities.query(type_, attribute_names, offset, count, only)

    def read(self, type_: str, name: str, only: Callable[[object], bool] | None = None) -> dict[str, object]:
        """Return one entity's attributes, found by name or identity; the broker answers to any name.

        NotFoundError if there is none, ElsewhereError for a queue or topic that belongs to another cell.
        """
        try:
            return self.entities.read(type_, name, only)
        except NotFoundError:
            if type_.removeprefix(PREFIX) in ("queue", "topic"):
                error = self._nodes.elsewhere(name)
                if isinstance(error, ElsewhereError):
                    raise error from None
            raise

    # --- the last minutes

    def history(self, name: str, seconds: int) -> tuple[Node, list[Sample]]:
        """Return a node, and a row a second of its last minutes, as far back as is known."""
        node = self._nodes.find(name)
        return node, self.samples.of(node, self._engine.turn.now_ns, seconds)

    def broker_history(self, seconds: int) -> list[Flow]:
        """Return a row a second of the whole broker's last minutes."""
        return self.samples.flow(seconds)

    # --- the whole broker

    def snapshot(self) -> Snapshot:
        """Return the broker and its nodes, for metrics."""
        return Snapshot(
            self.broker(), tuple(self._queue_view(node) for node in self._engine.topology.every_node())
        )

    def survey(self, wanted: SurveyScope) -> Generator[None, None, SurveyResult]:
        """Read everything that is counted, in parts: a node after each ``next``, and all when it returns."""
        reading = self._survey()
        try:
            yield from reading.steps(lambda: self._engine.turn.now_ns, wanted.subscriptions)
            return SurveyResult(
                broker=self._broker(reading),
                nodes=reading.nodes,
                rows=reading.rows,
                subscriptions=reading.subscriptions,
                subscription_rows=reading.subscription_rows,
                readers=tuple(reading.readers),
                readers_left_out=reading.readers_left_out,
                bridges=tuple(self._nodes.bridges.views()),
                routes=tuple(self.routes()),
                channels=tuple(self.channels()),
                producers=tuple(self._links.producers(None)) if wanted.links else (),
                consumers=tuple(self._links.consumers(None)) if wanted.links else (),
            )
        finally:
            self._totals.abandon(reading.look)

    def broker(self) -> BrokerView:
        """Return the broker as a whole."""
        reading = self._survey()
        reading.add_up()
        return self._broker(reading)

    def broker_in_parts(self) -> Generator[None, None, dict[str, object]]:
        """Read the broker's attributes in parts: with many nodes ``broker`` would hold up every message."""
        reading = self._survey()
        try:
            yield from reading.sums_in_parts()
            return self.entities.row(BROKER, self._broker(reading))
        finally:
            self._totals.abandon(reading.look)

    def _survey(self) -> Survey:
        nodes = list(self._engine.topology.every_node())
        return Survey(nodes, self._totals.begin(), bool(self._holds.patterns), self._held_by)

    def _broker(self, reading: Survey) -> BrokerView:
        process, policies = self._process, self._policies.in_force.policies
        transactions = self._engine.transactions
        return BrokerView(
            name=process.name,
            version=process.version,
            pid=process.pid,
            uptime_s=(self._engine.turn.now_ns - process.started_ns) / SECOND_NS,
            flow_control=self._engine.topology.flow_control,
            holds=self._holds.patterns,
            policy_files=tuple(dict.fromkeys(policy.place.file for policy in policies)),
            connections=len(self._links.connections()),
            memory_bytes=process.memory(),
            memory_limit_bytes=process.memory_limit_bytes,
            totals=self._totals.end(reading.look),
            store=StoreView.of(self._engine),
            deadlocks=self._diagnostics.deadlock_watch.views(),
            deadlocks_found=self._diagnostics.deadlock_watch.found_total,
            set_aside=self._nodes.aside.views(),
            open_transactions=len(transactions.open),
            committed_transactions=transactions.committed,
            rolled_back_transactions=transactions.rolled_back,
            timed_out_transactions=transactions.timed_out,
            **asdict(reading.sums),
            **self._of_cluster(),
        )

    def _of_cluster(self) -> dict[str, Any]:
        status = self._cluster.known()
        if status is None:
            return {}
        return {
            "cluster_role": status.role,
            "cluster_owner": status.owner,
            "cluster_epoch": status.epoch,
            "cluster_suspended": status.suspended,
        }

    def _queue_view(self, node: Node) -> QueueView:
        return queue_view(node, self._held_by(node), self._engine.turn.now_ns)

    def _held_by(self, node: Node) -> str:
        return self._holds.holding(node.address)
