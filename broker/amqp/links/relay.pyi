from collections.abc import Callable

from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.producer import ProducerLink
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.engine.transaction import Transaction
from broker.flow.producer_credit import ProducerCredit

# Told a delivery's state, and the condition and the text of a rejection.
Told = Callable[[int, bytes, bytes], None]

class RelayLink(ProducerLink):
    foreign: Callable[[int, bytes, Told, Transaction | None], None] | None
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
