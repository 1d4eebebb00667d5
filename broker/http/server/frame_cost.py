"""What a tunnel's frames cost beyond what they carry: pings, dust, frames of AMQP that move nothing.

Each frame of WebSocket takes some microseconds of the interpreter's time, whatever is in it. Those of
messages are paid for by the bytes that pass, either way; the rest is the HTTP port's share. Pure.
"""

from __future__ import annotations

from broker.http.server.cpu_share import ROUND_NS, CpuShare

# At least; it is what they took where that is more.
FRAME_NS = 10_000
# What one that carried next to nothing has cost beyond its frames: its sockets, its place with the reactor.
VAIN_NS = 200_000
# What pays for a frame: a disposition for each small message that went out is nobody's business.
PAYING_BYTES = 64
MOST_PAID = 1000


class FrameCost:
    """One tunnel's account with the share."""

    def __init__(self, share: CpuShare) -> None:
        self._share = share
        self._paid = 0
        self._bytes = 0
        self._owes = False

    def carried(self, nbytes: int) -> None:
        """So many bytes have passed, either way."""
        self._bytes += nbytes
        self._paid = min(self._paid + self._bytes // PAYING_BYTES, MOST_PAID)
        self._bytes %= PAYING_BYTES

    def ended_in_vain(self, now_ns: int) -> None:
        """The tunnel has closed, and carried next to nothing."""
        self._share.charge(VAIN_NS, now_ns)

    def wait_ns(self, frames: int, taken_ns: int, now_ns: int) -> int:
        """How long the client is not to be read, after so many frames more, or none, that took so much of the
        processor; 0 if it may go on.
        """
        owed = frames - self._paid
        self._paid = max(-owed, 0)
        if owed <= 0:
            wait_ns = self._share.wait_ns(now_ns) if self._owes else 0
        else:
            self._share.charge(max(owed * FRAME_NS, taken_ns * owed // frames), now_ns)
            wait_ns = max(self._share.wait_ns(now_ns), ROUND_NS) if self._share.is_bounded(now_ns) else 0
        self._owes = wait_ns > 0
        return wait_ns
