"""Listening sockets: of a member for clients as a standby and for other members, and of all cells."""

from __future__ import annotations

import socket

from broker.config.networks import written
from broker.errors import OperatorError

BACKLOG = 1024
# How long nobody is accepted where there is no descriptor or no memory for one.
PAUSE_NS = 100_000_000


def listening_socket(host: str, port: int, backlog: int = BACKLOG) -> socket.socket:
    """Return a socket that listens and doesn't block. Raises OperatorError where the port can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as fault:
        sock.close()
        raise OperatorError(f"cannot listen on {written(host, port)}: {fault.strerror}") from fault
    return sock
