from collections.abc import Callable

from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.transport import TransportIO
from broker.engine.transaction import Transaction
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.window import Shared

class ConnectionIO(TransportIO):
    links: set[ProducerLink | ConsumerLink]
    paused: bool
    parting: bool
    shared: Shared | None
    turns: list[ConnectionIO]
    turning: bool
    budget: ConnectionBudget | None
    session_bytes: int
    session_output: int
    refusals: dict[int, int] | None
    transactions: dict[bytes, Transaction] | None
    received: int
    sent: int
    def __init__(
        self,
        fd: int,
        transport: int,
        collector: int,
        control: Callable[[int, int], None],
        to_flush: list[ConnectionIO],
        answers: list[ConsumerLink],
    ) -> None: ...
    def take_turns(self) -> None: ...
    def sample(self, now_ns: int, seconds: float) -> list[ConsumerLink]: ...
    def forget(self) -> None: ...
    def part(self, handle: int) -> None: ...
    def skip_event(self) -> None: ...
    def repair_flows(self, session: int, channel: int, low: int) -> None: ...
    def set_window(self, session: int, frames: int) -> None: ...
