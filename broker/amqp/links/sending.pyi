from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.link import OutgoingLink

class SendingLink(OutgoingLink):
    connection: ConnectionIO
    name: str
    dead: bool
    draining: bool
    delivered: int
    drained: int
    channel: int
    def answer_echo(self) -> None: ...
    def delivery_count(self) -> int: ...
    def link_credit(self) -> int: ...
    def drains(self) -> bool: ...
