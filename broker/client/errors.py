"""What can go wrong for a client, in the broker's words where the broker gave any."""

from __future__ import annotations

from broker.errors import SluiceError


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
