"""A socket that pours the same bytes into a broker again and again, and reads whatever comes back."""

from __future__ import annotations

import select
import socket
import time

from tests.wire.frames import RawPeer

CHUNK = 1 << 16
LOOK_S = 0.02


class Hose:
    """Takes a peer's socket over. ``poured`` counts the times a whole blob went through."""

    def __init__(self, peer: RawPeer) -> None:
        assert isinstance(peer.socket, socket.socket)
        self.socket = peer.socket
        self.socket.setblocking(False)
        self.poured = 0
        self.heard = 0

    def pour(self, blob: bytes, until_s: float, *, read: bool = True) -> bool:
        """Until the time is over, then true; false once the broker has hung up."""
        at = 0
        while time.monotonic() < until_s:
            readable, writable, _ = select.select([self.socket], [self.socket], [], LOOK_S)
            try:
                if readable and read and not self._hear():
                    return False
                if writable:
                    at += self.socket.send(memoryview(blob)[at : at + CHUNK])
            except BlockingIOError:
                continue
            except OSError:
                return False
            if at >= len(blob):
                at = 0
                self.poured += 1
        return True

    def _hear(self) -> bool:
        data = self.socket.recv(CHUNK)
        self.heard += len(data)
        return bool(data)
