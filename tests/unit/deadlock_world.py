"""Applications on a real engine, whose threads consume, produce and settle when a test says so."""

from __future__ import annotations

from collections.abc import Mapping

from broker import constants
from broker.engine.node import Node
from broker.flow.producer_credit import Port, ProducerCredit
from broker.flow.window import Window
from broker.manage.why.deadlocks import DeadlockView
from broker.queues.queue import Entry, Reader
from tests.unit.manage_world import BEGIN, SECOND, FakeConsumer, World

STEP_S = 0.05
# A message of one string.
BODY = b"\x00\x53\x77\xa1\x02hi"


class Sender(Port):
    """A link that knows its credit; ``said`` is what it claims to have to send."""

    def __init__(self) -> None:
        self.credit = 0
        self.said = 0

    def grant(self, msgs: int) -> None:
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs

    def admit(self, parked: object, size: int) -> None:
        """Nobody waits for the outcome."""

    def refuse(self, parked: object) -> None:
        """Nobody waits for the outcome."""

    def offered(self) -> int:
        return self.said


class Taker(FakeConsumer):
    """A consumer; a pre-settled one has what it is sent at once."""

    def __init__(self, app: App, node: Node, credit: int, presettled: bool) -> None:
        super().__init__(Window(0, 50, None), credit)
        self.app = app
        self.node = node
        self.presettled = presettled
        self.origin = app

    def send(self, entry: Entry) -> None:
        if not self.presettled:
            super().send(entry)
            return
        self.credit -= 1
        self.app.settled += 1
        self.app.engine.settlement.acknowledge(self.node, entry)


class App:
    """A connection."""

    def __init__(self, world: DeadlockWorld, name: str) -> None:
        self.world = world
        self.engine = world.engine
        self.id = name
        self.name = name
        self.address = f"host:{name}"
        self.settled = 0
        self.takers: list[Taker] = []
        self.links: list[tuple[Node, ProducerCredit, Sender]] = []

    def settled_msgs(self) -> int:
        return self.settled

    def consume(self, node: Node, credit: int = 1000, presettled: bool = False) -> Taker:
        taker = Taker(self, node, credit, presettled)
        self.takers.append(taker)
        self.engine.delivery.add_consumer(node, taker)
        self.engine.end_turn()
        return taker

    def browse(self, node: Node) -> None:
        taker = Taker(self, node, 0, False)
        taker.reader = Reader(taker, None, True)
        self.engine.delivery.add_browser(node, taker)

    def attach(self, node: Node, promised: bool = True) -> Sender:
        port = Sender()
        account = self.engine.producers.open(node, port, promised)
        account.origin = self
        self.links.append((node, account, port))
        self.engine.end_turn()
        return port

    def produce(self, node: Node, promised: bool = True) -> None:
        """Send for as long as that is allowed, and once more where credit promises nothing."""
        self.attach(node, promised)
        self.send(node)

    def send(self, node: Node, count: int = 1_000_000) -> None:
        for at, account, port in self.links:
            if at is not node:
                continue
            if account.window_max == 0:
                self._relay(node, account)
                continue
            while port.credit > 0 and count > 0:
                port.credit -= 1
                count -= 1
                assert self.engine.intake.arrive(node, account, BODY, 0, False) != constants.PARK
                self.engine.end_turn()

    def _relay(self, node: Node, account: ProducerCredit) -> None:
        while True:
            code = self.engine.intake.arrive(node, account, BODY, 0, False)
            if code == constants.PARK:
                self.engine.parking.park(node, account, object(), len(BODY), False)
            self.engine.end_turn()
            if code != constants.ACCEPTED:
                return

    def settle(self, count: int = 1) -> None:
        for taker in self.takers:
            while taker.held and count > 0:
                count -= 1
                taker.window.settled()
                taker.in_flight -= 1
                self.settled += 1
                self.engine.settlement.acknowledge(taker.node, taker.held.pop(0))
        self.engine.end_turn()

    def close(self) -> None:
        for taker in self.takers:
            for entry in taker.held:
                self.engine.settlement.requeue(taker.node, entry, True)
            self.engine.delivery.remove_consumer(taker.node, taker)
        for node, account, _ in self.links:
            self.engine.producers.close(node, account)
        self.takers, self.links = [], []
        self.engine.end_turn()


class DeadlockWorld(World):
    """Time passes by ``run``; ``told`` is what was said, with when."""

    def __init__(self, policies: str = "") -> None:
        super().__init__(policies)
        self.now_s = 0.0
        self.told: list[tuple[float, str, Mapping[str, object]]] = []
        self.due_ns = 0
        self.model.diagnostics.deadlock_watch.wake = self._wake
        self.engine.changes.emit = self._tell

    def _wake(self, due_ns: int) -> None:
        self.due_ns = due_ns

    def _tell(self, event: str, node: Node | None, details: Mapping[str, object]) -> None:
        if event.startswith("deadlock"):
            assert node is None
            self.told.append((self.now_s, event, details))

    def full(self, name: str, **arguments: object) -> Node:
        """A queue that stops at 10 messages."""
        return self.queue(name, **({"flow_stop_count": 10, "flow_resume_count": 5} | arguments))

    def app(self, name: str) -> App:
        return App(self, name)

    def run(self, seconds: float) -> None:
        """The graph is looked at whenever it asked to be, like the server's timer does."""
        until = self.now_s + seconds
        while self.now_s < until - STEP_S / 2:
            self.now_s += STEP_S
            self.at(self.now_s)
            self.engine.end_turn()
            now_ns = BEGIN + int(self.now_s * SECOND)
            if self.due_ns and now_ns >= self.due_ns:
                self.due_ns = 0
                self.model.diagnostics.deadlock_watch.look(now_ns)

    def ring(self, count: int) -> list[App]:
        """Each consumes one queue, and produces to the next until that is full."""
        nodes = [self.full(f"q{i}") for i in range(count)]
        apps = [self.app(f"c{i}") for i in range(count)]
        for app, node in zip(apps, nodes, strict=True):
            app.consume(node)
        for i, app in enumerate(apps):
            app.produce(nodes[(i + 1) % count])
        return apps

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.told]

    @property
    def standing(self) -> list[DeadlockView]:
        return list(self.model.diagnostics.deadlock_watch.views())

    def put(self, node: Node, count: int, size: int = 0) -> None:
        for _ in range(count):
            self.engine.intake.put(node, BODY, 0)
        self.engine.end_turn()
