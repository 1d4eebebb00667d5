"""A real engine and model with fake links, for the tests of manage, http and the management node."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.config.policy_files import parse_policies
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.producer_credit import Port, ProducerCredit
from broker.flow.window import Window
from broker.manage.model import Model
from broker.manage.process import Process
from broker.manage.survey import SurveyResult, SurveyScope
from broker.manage.views import ConnectionView, ConsumerView, ProducerView, SessionView
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

Answer = TypeVar("Answer")
SECOND = 1_000_000_000
# Monotonic time doesn't start at 0, and 0 means never.
BEGIN = 100 * SECOND


class FakePort(Port):
    """A producer link that takes whatever credit it is given."""

    def grant(self, msgs: int) -> None:
        pass

    def revoke(self, msgs: int) -> None:
        pass

    def admit(self, parked: object, size: int) -> None:
        pass


class FakeConsumer(Consumer):
    """A consumer with credit without end and a window; it keeps what it was sent."""

    def __init__(self, window: Window, credit: int = 1_000_000) -> None:
        super().__init__()
        self.window = window
        self.credit = credit
        self.held: list[Entry] = []

    def capacity(self) -> int:
        return min(self.window.room(), self.credit)

    def send(self, entry: Entry) -> None:
        self.window.sent()
        self.credit -= 1
        self.in_flight += 1
        self.held.append(entry)


class FakeLinks:
    """Connections and links as the room that knows the wire would show them."""

    def __init__(self) -> None:
        self.open: list[ConnectionView] = []
        self.senders: list[tuple[str, str, ProducerCredit]] = []
        self.receivers: list[tuple[str, str, FakeConsumer]] = []
        self.ended: list[str] = []

    def connections(self) -> list[ConnectionView]:
        return self.open

    def every(self, kind: str) -> Iterator[object]:
        if kind == "connection":
            yield from self.open
        elif kind == "session":
            yield from self.sessions()
        else:
            yield from (*self.producers(None), *self.consumers(None))

    def sessions(self) -> list[SessionView]:
        if not self.senders and not self.receivers:
            return []
        return [SessionView("c1/0", "c1", "app", "127.0.0.1:4000", 0, len(self.senders), 0, 0)]

    def close(self, connection_id: str) -> bool:
        self.ended.append(connection_id)
        return connection_id in [each.id for each in self.open]

    def detach(self, link_id: str) -> bool:
        self.ended.append(link_id)
        return link_id in [f"c1/{name}" for _, name, _ in (*self.senders, *self.receivers)]

    def nodes_of(self, link_id: str) -> list[str]:
        return [node for node, name, _ in (*self.senders, *self.receivers) if link_id == f"c1/{name}"]

    def producers(
        self, node_name: str | None, only: Callable[[object], bool] | None = None
    ) -> list[ProducerView]:
        found = [
            ProducerView.of(
                account,
                id=f"c1/{link}",
                connection="c1",
                container="app",
                peer="127.0.0.1:4000",
                node=node,
                link=link,
                presettled=False,
            )
            for node, link, account in self.senders
            if node_name in (None, node)
        ]
        return [view for view in found if only is None or only(view)]

    def consumers(
        self, node_name: str | None, only: Callable[[object], bool] | None = None
    ) -> list[ConsumerView]:
        found = [
            ConsumerView.of(
                consumer.window,
                id=f"c1/{link}",
                connection="c1",
                container="app",
                peer="127.0.0.1:4000",
                node=node,
                link=link,
                credit=consumer.credit,
                delivered=0,
                settled=0,
            )
            for node, link, consumer in self.receivers
            if node_name in (None, node)
        ]
        return [view for view in found if only is None or only(view)]


def finished(steps: Generator[None, None, Answer]) -> Answer:
    """What the last of the steps returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Answer = end.value
            return found


class World:
    """An engine at ``BEGIN`` whose model knows these policies."""

    def __init__(self, policies: str = "", defaults: BrokerDefaults | None = None) -> None:
        self.engine = Engine()
        self.engine.begin_turn(BEGIN)
        self.links = FakeLinks()
        known = parse_policies(policies, "policies.yaml") if policies else PolicySet()
        process = Process(pid=42, started_ns=BEGIN - 5 * SECOND, memory=lambda: 1 << 20)
        self.model = Model(self.engine, known, defaults or BrokerDefaults(), self.links, process)

    def queue(self, name: str = "orders", **arguments: object) -> Node:
        return self.model.nodes.create("queue", name, arguments)

    def subscribe(self, topic: Node, name: str) -> Node:
        """A subscription of that name to one topic."""
        assert topic.settings is not None
        subscription = self.engine.lifecycle.subscribe(name, topic.name, topic.settings)
        self.engine.topology.bind(topic, subscription)
        return subscription

    def producer(self, node: Node, link: str = "s1") -> ProducerCredit:
        """A producer link that got its first grant, if there was room."""
        account = self.engine.producers.open(node, FakePort(), True)
        self.links.senders.append((node.name, link, account))
        self.engine.end_turn()
        return account

    def consumer(self, node: Node, limit: int = 0, credit: int = 1_000_000, link: str = "r1") -> FakeConsumer:
        consumer = FakeConsumer(Window(limit, 50, None), credit)
        self.engine.delivery.add_consumer(node, consumer)
        self.links.receivers.append((node.name, link, consumer))
        self.engine.end_turn()
        return consumer

    def fill(self, node: Node, account: ProducerCredit, count: int, size: int = 10) -> None:
        """``count`` messages sent on the link's credit, which is renewed as they go."""
        for _ in range(count):
            assert account.outstanding > 0
            self.engine.intake.arrive(node, account, bytes(size), False, False)
            self.engine.end_turn()

    def put(self, node: Node, count: int, size: int = 10) -> None:
        """``count`` messages from nobody in particular."""
        for _ in range(count):
            self.engine.intake.put(node, bytes(size), False)
        self.engine.end_turn()

    def survey(self, wanted: SurveyScope | None = None) -> SurveyResult:
        """Everything that is counted."""
        return finished(self.model.queries.survey(wanted or SurveyScope()))

    def at(self, seconds: float) -> None:
        """Another turn, so long after the beginning."""
        self.engine.begin_turn(BEGIN + int(seconds * SECOND))
