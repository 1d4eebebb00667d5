from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.sending import SendingLink
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.adaptive import Adaptive
from broker.flow.slow import SlowWatch
from broker.flow.window import Window
from broker.queues.named_readers import NamedReader

class ConsumerLink(SendingLink):
    engine: Engine
    node: Node
    window: Window
    pace: Adaptive | None
    watch: SlowWatch | None
    rate: float
    id: str
    presettled: bool
    chunk_bytes: int
    browses: bool
    settled: int
    attached_ns: int
    served_ns: int
    settled_ns: int
    timeout_ns: int
    asked_timeout_ns: int
    timed_out: int
    named: NamedReader | None
    has_moved: bool
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
    def limit_hold(self, timeout_ns: int) -> None: ...
    def ready_msgs(self) -> int: ...
    def dealt_offset(self) -> int: ...
    def unsent_bytes(self) -> int: ...
    def is_choked(self) -> bool: ...
    def is_streaming(self) -> bool: ...
    def answer_drain(self) -> bool: ...
    def close(self) -> None: ...
    def shut(self) -> None: ...
    def credit(self) -> int: ...
    def handle(self) -> int: ...
