from collections.abc import Callable
from typing import Any

from broker.amqp.guard.flow_reply import SessionFlowState
from broker.amqp.guard.frame_guard import FrameGuard
from broker.amqp.guard.outgoing_frames import OutgoingFrames
from broker.amqp.trace import Tap
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.adaptive import Adaptive
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.producer_credit import Port, ProducerCredit
from broker.flow.slow import SlowWatch
from broker.flow.window import Shared, Window
from broker.queues.dispatch import Consumer

class ConnectionIO:
    fd: int
    owner: Any
    links: set[ProducerLink | ConsumerLink]
    blocked: bool
    incoming: FrameGuard
    outgoing: OutgoingFrames
    tap: Tap | None
    paused: bool
    held: bool
    input_stopped: bool
    unusual: bool
    parting: bool
    output_cost: int
    shared: Shared | None
    turns: list[ConnectionIO]
    turning: bool
    budget: ConnectionBudget | None
    book: SessionFlowState
    session_bytes: int
    session_output: int
    refusals: dict[int, int] | None
    received: int
    sent: int
    def __init__(
        self,
        fd: int,
        transport: int,
        connection: int,
        collector: int,
        control: Callable[[int, int], None],
        to_flush: list[ConnectionIO],
        answers: list[ConsumerLink],
    ) -> None: ...
    def mark(self) -> None: ...
    def take_turns(self) -> None: ...
    def sample(self, now_ns: int, seconds: float) -> list[ConsumerLink]: ...
    def feed(self, data: bytes) -> None: ...
    def pump_in(self) -> bool: ...
    def pump_out(self) -> bool: ...
    def events(self) -> None: ...
    def tick(self, now_ms: int) -> int: ...
    def closed(self) -> bool: ...
    def forget(self) -> None: ...
    def part(self, handle: int) -> None: ...
    def skip_event(self) -> None: ...
    def repair_flows(self, session: int, channel: int, low: int) -> None: ...
    def set_window(self, session: int, frames: int) -> None: ...
    def has_output(self) -> bool: ...
    def abort(self) -> None: ...

class ProducerLink(Port):
    refusal: int
    connection: ConnectionIO
    engine: Engine
    node: Node | None
    account: ProducerCredit | None
    id: str
    name: str
    presettled: bool
    second: bool
    dead: bool
    open_credit: int
    kept: int
    max_size: int
    received: int
    channel: int
    unconfirmed: int
    most_unconfirmed: int
    def __init__(
        self, connection: ConnectionIO, link: int, engine: Engine, name: str, max_size: int
    ) -> None: ...
    def start_open(self, credit: int) -> None: ...
    def fail(self, condition: str, text: str) -> None: ...
    def shut(self) -> None: ...
    def credit(self) -> int: ...
    def handle(self) -> int: ...

class RelayLink(ProducerLink):
    def __init__(
        self,
        connection: ConnectionIO,
        link: int,
        engine: Engine,
        name: str,
        max_size: int,
        resolve: Callable[[str], Node],
    ) -> None: ...
    def open_accounts(self) -> list[tuple[Node, ProducerCredit]]: ...

class SinkLink(ProducerLink):
    def __init__(
        self,
        connection: ConnectionIO,
        link: int,
        engine: Engine,
        name: str,
        max_size: int,
        sink: Callable[[bytes, Callable[[], None] | None], bool],
    ) -> None: ...

class ConsumerLink(Consumer):
    connection: ConnectionIO
    engine: Engine
    node: Node
    window: Window
    pace: Adaptive | None
    watch: SlowWatch | None
    rate: float
    id: str
    name: str
    presettled: bool
    dead: bool
    draining: bool
    browses: bool
    delivered: int
    settled: int
    attached_ns: int
    served_ns: int
    settled_ns: int
    channel: int
    def __init__(
        self,
        connection: ConnectionIO,
        link: int,
        engine: Engine,
        node: Node,
        window: Window,
        name: str,
        presettled: bool,
        channel: int,
    ) -> None: ...
    def wanted(self) -> int: ...
    def delivery_count(self) -> int: ...
    def link_credit(self) -> int: ...
    def drains(self) -> bool: ...
    def unsent_bytes(self) -> int: ...
    def is_choked(self) -> bool: ...
    def is_streaming(self) -> bool: ...
    def answer_drain(self) -> bool: ...
    def close(self) -> None: ...
    def shut(self) -> None: ...
    def credit(self) -> int: ...
    def handle(self) -> int: ...
