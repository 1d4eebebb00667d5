from collections.abc import Callable

from broker.amqp.links.connection import Connection, ConsumerLink
from broker.security.tlsstream import TlsStream

class SecureConnection(Connection):
    tls: TlsStream
    def __init__(
        self,
        tls: TlsStream,
        fd: int,
        transport: int,
        connection: int,
        collector: int,
        control: Callable[[int, int], None],
        to_flush: list[Connection],
        answers: list[ConsumerLink],
    ) -> None: ...
