"""What the service manager is told (sd_notify(3)): ready, still alive, stopping.

Nothing happens where nobody asked for it, that is where NOTIFY_SOCKET isn't set.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send a state such as ``READY=1``; never waits, and a manager that is gone is no fault of ours."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), address)
