from collections.abc import Callable

from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.consumer import ConsumerLink
from broker.security.tlsstream import TlsStream

class SecureConnection(ConnectionIO):
    tls: TlsStream
    def __init__(
        self,
        tls: TlsStream,
        fd: int,
        transport: int,
        collector: int,
        control: Callable[[int, int], None],
        to_flush: list[ConnectionIO],
        answers: list[ConsumerLink],
    ) -> None: ...
