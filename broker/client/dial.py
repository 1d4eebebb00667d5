"""Getting a socket to a broker; whatever goes wrong names the broker."""

from __future__ import annotations

import socket

from broker.client.errors import ClientTimeoutError, ConnectionLostError
from broker.client.url import BrokerUrl


def dial(url: BrokerUrl, timeout_s: float) -> socket.socket:
    """A connected, non-blocking socket without Nagle's delay; the caller closes it."""
    try:
        connected = socket.create_connection((url.host, url.port), timeout_s)
    except TimeoutError as error:
        raise ClientTimeoutError(f"{url} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise ConnectionLostError(f"cannot connect to {url}: {error.strerror or error}") from error
    connected.setblocking(False)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected
