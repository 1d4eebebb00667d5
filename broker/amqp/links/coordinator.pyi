from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.producer import ProducerLink
from broker.config.limits import Limits
from broker.engine.engine import Engine

class CoordinatorLink(ProducerLink):
    def __init__(
        self,
        connection: ConnectionIO,
        link: int,
        engine: Engine,
        name: str,
        max_size: int,
        limits: Limits,
    ) -> None: ...
