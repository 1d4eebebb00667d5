"""An engine with a store in memory, one producer link and one consumer as small as they can be."""

from __future__ import annotations

from proton import Message

from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.producer_credit import Port
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry
from broker.store.memory import MemoryStore

MS = 1_000_000
EPOCH_MS = 1_700_000_000_000


class Link(Port):
    """A producer's link: its credit, and what became of what it parked."""

    def __init__(self) -> None:
        self.credit = 0
        self.admitted: list[object] = []
        self.refused: list[object] = []
        self.confirmed: list[object] = []

    def grant(self, msgs: int) -> None:
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs

    def admit(self, parked: object, size: int) -> None:
        self.admitted.append(parked)

    def refuse(self, parked: object) -> None:
        self.refused.append(parked)

    def confirm(self, held: object) -> None:
        self.confirmed.append(held)


class Window(Consumer):
    """A consumer that holds up to ``most`` messages."""

    def __init__(self, most: int = 100) -> None:
        Consumer.__init__(self)
        self.most = most
        self.got: list[Entry] = []

    def capacity(self) -> int:
        return max(0, self.most - len(self.got))

    def send(self, entry: Entry) -> None:
        self.got.append(entry)
        self.in_flight += 1


class PartsWorld:
    """An engine whose store syncs in ``settle``; events are in ``told``, gates that changed in ``gates``."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.engine = Engine(True, self.store)
        self.engine.turn.epoch_ns = EPOCH_MS * MS
        self.told: list[tuple[str, str]] = []
        self.gates: list[tuple[str, bool]] = []
        self.engine.changes.emit = lambda kind, node, fields: self.told.append(
            (kind, "" if node is None else node.name)
        )
        self.engine.changes.on_gate = lambda node, now_ns: self.gates.append((node.name, node.gate.closed))
        self.engine.begin_turn(1000 * MS)

    def create(self, name: str = "orders", **given: object) -> Node:
        return self.engine.lifecycle.create(name, resolve(given, BrokerDefaults()), b"{}")

    def subscribe(self, topic: Node, name: str, **given: object) -> Node:
        settings = resolve(given, BrokerDefaults())
        subscription = self.engine.lifecycle.subscribe(f"{topic.name}/{name}", topic.name, settings)
        self.engine.topology.bind(topic, subscription)
        return subscription

    def put(self, node: Node, body: str = "x", durable: bool = False, **fields: object) -> int:
        data = bytes(Message(body=body, durable=durable, **fields).encode())
        return int(self.engine.intake.put(node, data, message.scan(data)))

    def turn(self, ms: int = 0) -> None:
        self.engine.end_turn()
        self.engine.seal()
        self.engine.begin_turn(self.engine.turn.now_ns + ms * MS)

    def settle(self) -> None:
        """Let all that was handed over be on disk."""
        self.turn()
        self.engine.attend_store()
        self.turn()

    def consumer(self, node: Node, most: int = 100) -> Window:
        window = Window(most)
        self.engine.delivery.add_consumer(node, window)
        self.settle()
        return window
