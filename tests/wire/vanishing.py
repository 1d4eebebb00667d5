"""Consumers whose process is gone before they have said what became of their messages."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from broker.client.link import Connection, Receiver
from broker.errors import OperatorError


@contextmanager
def crashing(port: int, address: str, window: int) -> Iterator[tuple[Connection, Receiver]]:
    """A consumer with that window, which says nothing any more at the end of the block."""
    sock = socket.create_connection(("127.0.0.1", port))
    connection = Connection(f"amqp://127.0.0.1:{port}", socket=sock)
    try:
        receiver = connection.receiver(address, credit=window, manual=True)
        receiver.grant(window)
        yield connection, receiver
    finally:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        with suppress(OSError, OperatorError):
            connection.close()
        sock.close()


def handed_over(connection: Connection, receiver: Receiver, count: int) -> list[tuple[int, bytes]]:
    """So many messages, each with the number to settle it by."""
    found: list[tuple[int, bytes]] = []

    def comes() -> bool:
        found.extend(receiver.hand_over())
        return len(found) >= count

    connection.wait(comes, 60, f"{count} messages")
    return found
