from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.link import IncomingLink
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.producer_credit import ProducerCredit

class ProducerLink(IncomingLink):
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
