"""Client programs of ``tests/clients`` that transfer messages over a cell, and how each finds its members."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
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


def progress(running: Running) -> dict[str, int]:
    """Return the last line of a program, zeros before it."""
    lines = [line for line in running.lines if line.startswith("{")]
    found: dict[str, int] = json.loads(lines[-1]) if lines else {"accepted": 0, "received": 0, "again": 0}
    return found


def killed_once(made: Cell, running: Running, count: int = COUNT, seconds: float = 120) -> float:
    """Kill the owner in the middle of a transfer; return the longest time without an acceptance."""
    owner = made.settle()
    deadline = time.monotonic() + seconds
    while progress(running)["accepted"] < count // 4:
        assert running.process.poll() is None, running.tail
        assert time.monotonic() < deadline, running.tail
        time.sleep(0.005)
    owner.kill()
    began = time.monotonic()
    before = progress(running)["accepted"]
    outage_s = 0.0
    while running.process.poll() is None:
        assert time.monotonic() < deadline, running.tail
        if not outage_s and progress(running)["accepted"] > before + 200:
            outage_s = time.monotonic() - began
        time.sleep(0.005)
    return outage_s
