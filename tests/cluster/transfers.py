"""Client programs of ``tests/clients`` that transfer messages over a cell, and how each finds its members.

A count of 0 has a program go on until its standard input ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.clients import programs
from tests.clients.programs import BY_NAME
from tests.clients.running import Running
from tests.cluster.world import Cell

COUNT = 2000


def qpid_jms(made: Cell, address: str, count: int, *, members: int = 3) -> Running:
    """Start Qpid JMS with ``failover:``; it learns of members that aren't named from the broker's open."""
    urls = ",".join(f"amqp://127.0.0.1:{each.amqp}" for each in made.members[:members])
    url = f"failover:({urls})?failover.reconnectDelay=50&failover.maxReconnectDelay=500"
    program = BY_NAME["qpid-jms"]
    words = ["env", f"URL={url}", *program.run, "transfer", address, str(count)]
    return Running(program.path, *words)


def proton(made: Cell, address: str, count: int) -> Running:
    """Start Proton's Container with several URLs and ``reconnect``."""
    urls = ",".join(f"amqp://127.0.0.1:{each.amqp}" for each in made.members)
    root = programs.HERE.parent.parent
    words = [sys.executable, "-m", "tests.clients.proton.transfer", urls, address, str(count)]
    return Running(Path(root), *words)


def rhea(made: Cell, address: str, count: int) -> Running:
    """Start rhea with ``connection_details``, which returns one member after the other."""
    ports = ",".join(str(each.amqp) for each in made.members)
    return Running(BY_NAME["rhea"].path, "node", "transfer.js", ports, address, str(count))


def go_amqp(made: Cell, address: str, count: int) -> Running:
    """Start go-amqp, whose application dials one member after the other."""
    urls = ",".join(f"amqp://127.0.0.1:{each.amqp}" for each in made.members)
    program = BY_NAME["go-amqp"]
    return Running(program.path, *program.run, "transfer", urls, address, str(count))


CLIENTS: dict[str, Callable[[Cell, str, int], Running]] = {
    "qpid-jms": qpid_jms,
    "proton": proton,
    "rhea": rhea,
    "go-amqp": go_amqp,
}


@dataclass(frozen=True)
class Progress:
    """How far a program is: messages accepted, received, received again, and again although confirmed.

    Qpid JMS confirms nothing that its application could see.
    """

    accepted: int = 0
    received: int = 0
    again: int = 0
    confirmed_again: int = 0


def progress(running: Running) -> Progress:
    """Return what a program has printed last, zeros before it."""
    for line in reversed(running.lines):
        if line.startswith("{"):
            return Progress(**json.loads(line))
    return Progress()


class Transfer:
    """A program that goes on sending and receiving until it is told to end, and its longest outage."""

    def __init__(self, made: Cell, client: str) -> None:
        self.client = client
        self.address = f"transfer-{client}"
        self._running = CLIENTS[client](made, self.address, 0)
        self.accepted = 0
        self.longest_s = 0.0
        self._accepted_at = time.monotonic()

    def watch_anew(self) -> None:
        """Forget the outages so far."""
        self._accepted_at, self.longest_s = time.monotonic(), 0.0

    def look(self) -> None:
        """Notice how far it is. Raises AssertionError where it has ended."""
        assert self._running.process.poll() is None, f"{self.client}:\n{self._running.tail}"
        found = progress(self._running).accepted
        now = time.monotonic()
        # A silence counts while it lasts, too.
        self.longest_s = max(self.longest_s, now - self._accepted_at)
        if found != self.accepted:
            self.accepted, self._accepted_at = found, now

    def end(self, seconds: float) -> Progress:
        """Let it send what it has begun and receive all. Raises AssertionError where that takes longer."""
        self._running.end_input()
        try:
            status = self._running.process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        self.stop()
        assert status == 0, f"{self.client} ended with {status}:\n{self._running.tail}"
        return progress(self._running)

    def stop(self) -> None:
        """Kill it."""
        self._running.stop()


def killed_once(made: Cell, running: Running, count: int = COUNT, seconds: float = 120) -> float:
    """Kill the owner in the middle of a transfer; return the longest time without an acceptance."""
    owner = made.settle()
    deadline = time.monotonic() + seconds
    while progress(running).accepted < count // 4:
        assert running.process.poll() is None, running.tail
        assert time.monotonic() < deadline, running.tail
        time.sleep(0.005)
    owner.kill()
    began = time.monotonic()
    before = progress(running).accepted
    outage_s = 0.0
    while running.process.poll() is None:
        assert time.monotonic() < deadline, running.tail
        if not outage_s and progress(running).accepted > before + 200:
            outage_s = time.monotonic() - began
        time.sleep(0.005)
    return outage_s
