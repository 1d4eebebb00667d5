"""Unix sockets by which cells of one machine reach each other: owner only, at any length of path."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.errors import OperatorError

BACKLOG = 1024


def neighbour_socket(path: Path) -> socket.socket:
    """Return a socket at which the other cells of this machine, and nobody else, reach a cell.

    For a process with one thread. OperatorError where it can't be made.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        with _short(path) as short:
            sock.bind(short)
        sock.listen(BACKLOG)
    except OSError as fault:
        sock.close()
        raise OperatorError(f"{path}: cells can't hear each other there: {fault.strerror}") from fault
    finally:
        os.umask(before)
    return sock


def connected(path: Path, timeout_s: float) -> socket.socket:
    """Return a socket that is connected to a cell's, none of whose calls waits longer. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_s)
        with _short(path) as short:
            sock.connect(short)
    except OSError:
        sock.close()
        raise
    return sock


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a path that fits an address, which has 108 bytes (unix(7))."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
