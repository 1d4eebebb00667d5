from collections.abc import Callable

from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.producer import ProducerLink
from broker.engine.engine import Engine

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
