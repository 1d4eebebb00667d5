"""What transfers and deferred settlements need of the engine; each is given the engine itself.

The methods are described at the parts that have them. These Protocols are here so that the parts, which
make transfers, don't import each other in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.config.node import NodeSettings
    from broker.engine.changes import Changes
    from broker.engine.large import LargeMessages
    from broker.engine.node import Node
    from broker.engine.parking import Parking
    from broker.engine.producers import Producers
    from broker.engine.turn import Turn
    from broker.flow.producer_credit import ProducerCredit
    from broker.queues.dispatch import Consumer
    from broker.queues.queue import Entry


class Arrivals(Protocol):
    """Messages arrive (``intake.Intake``)."""

    def put(self, node: Node, data: bytes, bits: int) -> int: ...

    def arrive(self, node: Node, account: ProducerCredit, data: bytes, bits: int, settled: bool) -> int: ...


class MovedArrivals(Arrivals, Protocol):
    """Messages arrive from another node, some of which wait for their time."""

    keeps_repeats: bool

    def put_waiting(self, node: Node, data: bytes, bits: int, size: int, time_ms: int) -> int: ...

    def too_small_for(self, node: Node, data: bytes, origin: object) -> Node | None: ...


class Outcomes(Protocol):
    """Messages that were on their way to another node (``settlement.Settlement``)."""

    overdue: list[tuple[Node, Entry, str]]

    def passed_on(self, node: Node, entry: Entry, way: object) -> None: ...

    def put_back(self, node: Node, entry: Entry) -> None: ...

    def give_up(self, node: Node, entry: Entry) -> None: ...


class Consumers(Protocol):
    """Consumers go (``delivery.Delivery``)."""

    def remove_consumer(self, node: Node, consumer: Consumer) -> None: ...


class FlowSwitch(Protocol):
    """Whether flow control is on (``topology.Topology``)."""

    flow_control: bool


class Changing(Protocol):
    """Nodes get new settings (``configuring.Configurator``)."""

    def change(self, node: Node, settings: NodeSettings) -> None: ...


class SettlementHost(Protocol):
    """For ``deferred``: the settings of the subscriptions that send, and whether they hold."""

    @property
    def turn(self) -> Turn: ...

    @property
    def intake(self) -> Arrivals: ...

    @property
    def topology(self) -> FlowSwitch: ...

    @property
    def configurator(self) -> Changing: ...


class TransferHost(Protocol):
    """For ``transfer``: the producer's side at the target, the consumer's at the source."""

    moves: list[Any]

    @property
    def turn(self) -> Turn: ...

    @property
    def changes(self) -> Changes: ...

    @property
    def large(self) -> LargeMessages: ...

    @property
    def intake(self) -> MovedArrivals: ...

    @property
    def producers(self) -> Producers: ...

    @property
    def parking(self) -> Parking: ...

    @property
    def settlement(self) -> Outcomes: ...

    @property
    def delivery(self) -> Consumers: ...
