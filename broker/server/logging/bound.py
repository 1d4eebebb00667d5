"""How many lines one peer, and all of them, may cause: a flood of connections must not fill the disk.

Time goes in windows. Within one, each host has so many lines and all hosts together ten times as many;
what is left out is counted, and told once when the window is over. Knows no clock.
"""

from __future__ import annotations

WINDOW_S = 10.0
HOSTS = 10


class Bound:
    """Lines by host in the current window; ``lines`` 0 is no bound. The caller serialises access."""

    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.left_out_total = 0
        self._until_s = 0.0
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._in_all = 0
        self._others = 0

    def admits(self, host: str) -> bool:
        """Whether one more line about the host may be written."""
        if self.lines == 0:
            return True
        written = self._written.get(host, 0)
        if written < self.lines and self._in_all < self.lines * HOSTS:
            self._written[host] = written + 1
            self._in_all += 1
            return True
        self.left_out_total += 1
        if host in self._written:
            self._left_out[host] = self._left_out.get(host, 0) + 1
        else:
            self._others += 1
        return False

    def turn(self, now_s: float) -> list[str]:
        """Begin a new window if the old one is over: what is to be said about what was left out in it."""
        if now_s < self._until_s:
            return []
        told = [f"{count} more lines about {host} were left out" for host, count in self._left_out.items()]
        if self._others:
            told.append(f"{self._others} lines about other peers were left out")
        self._until_s = now_s + WINDOW_S
        self._written, self._left_out = {}, {}
        self._in_all = self._others = 0
        return told


def host_of(peer: str) -> str:
    """A peer's address without its port."""
    return peer.rpartition(":")[0] or peer
