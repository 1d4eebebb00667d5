"""What the parts of the engine need of it; each is given the engine itself (``engine.engine.Engine``).

The methods are described there. A part names here what it uses, so that it can be read, and tested, without
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.config.node import NodeSettings
    from broker.engine.large import LargeMessages
    from broker.engine.node import Node
    from broker.flow.connection_budget import ConnectionBudget
    from broker.flow.gate import Gate
    from broker.flow.producer_credit import Port, ProducerCredit
    from broker.queues.dispatch import Consumer
    from broker.queues.queue import Entry


class Host(Protocol):
    """The turn, and the arrival of a message."""

    now_ns: int
    emit: Callable[[str, Node | None, Mapping[str, object]], None]

    def mark_dirty(self, node: Node) -> None: ...

    def put(self, node: Node, data: bytes, bits: int) -> int: ...


class BridgeHost(Host, Protocol):
    """For ``bridges``: whose copy it is, and credit that a copy takes of other producers."""

    origin: object

    def overpromise(self, node: Node) -> None: ...

    def update_claims(self, node: Node) -> None: ...


class SettlementHost(Host, Protocol):
    """For ``deferred``: whether flow control is on, and the settings of the subscriptions that send."""

    flow_control: bool

    def change(self, node: Node, settings: NodeSettings) -> None: ...


class TransferHost(Host, Protocol):
    """For ``transfer``: the producer's side at the target, the consumer's at the source."""

    large: LargeMessages
    moves: list[Any]

    def open_producer(
        self, node: Node, port: Port, promised: bool, budget: ConnectionBudget | None = None
    ) -> ProducerCredit: ...

    def close_producer(self, node: Node, account: ProducerCredit) -> None: ...

    def arrive(self, node: Node, account: ProducerCredit, data: bytes, bits: int, settled: bool) -> int: ...

    def park(
        self, node: Node, account: ProducerCredit, message: object, size: int, settled: bool
    ) -> None: ...

    def passed_on(self, node: Node, entry: Entry, way: object) -> None: ...

    def put_back(self, node: Node, entry: Entry) -> None: ...

    def give_up(self, node: Node, entry: Entry) -> None: ...

    def mark_dirty_later(self, node: Node) -> None: ...

    def remove_consumer(self, node: Node, consumer: Consumer) -> None: ...


class PagingHost(Host, Protocol):
    """For ``paging``: the budgets, and what becomes of a message that is read again."""

    memory: Gate
    temp: Gate

    def budget_changed(self, gate: Gate) -> None: ...

    def gate_changed(self, node: Node) -> None: ...

    def overpromise(self, node: Node) -> None: ...

    def update_claims(self, node: Node) -> None: ...

    def count_kept(self, node: Node, msgs: int, nbytes: int) -> None: ...

    def dead_letter(self, node: Node, entry: Entry, reason: str) -> None: ...

    def every_node(self) -> Iterable[Node]: ...

    def is_without_body(self, node: Node, seq: int, flags: int, data: bytes) -> bool: ...

    def let_go(self, node: Node, seq: int) -> None: ...

    def watch_expiry(self, node: Node, entry: Entry) -> None: ...
