"""What can go wrong for a client, in the broker's words where the broker gave any."""

from __future__ import annotations

from broker.errors import SluiceError
from broker.units import format_size


class ClientError(SluiceError):
    """The client could not do what it was asked to."""


class RefusedError(ClientError):
    """The broker refused a connection, a link or a message and said why."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}" if description else condition)
        self.condition = condition
        self.description = description


class ConnectionLostError(ClientError):
    """The connection could not be made, or broke off without a word from the broker."""


class ClientTimeoutError(ClientError):
    """The broker did not answer in time."""


class MessageTooLargeError(ClientError):
    """A message has more bytes than the broker takes at this address; it was not sent."""

    def __init__(self, size: int, limit: int, address: str | None) -> None:
        where = f" at '{address}'" if address else ""
        text = (
            f"a message of {format_size(size)} is larger than the {format_size(limit)} that the broker takes"
        )
        super().__init__(f"{text}{where}; it was not sent")
