"""Ours as a replicated cell: three servers of the log, the owner, and one standby, all on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.contenders import POLICIES, BenchError, Running, free_port
from bench.peers.ours import Ours
from bench.peers.peer import Subject
from broker.cluster.jetstream import LogServers
from broker.cluster.log import LogUnavailable
from broker.cluster.nats import NatsConnection
from broker.cluster.presence import OWNER, STANDBY, MemberReport
from tools.nats import NatsCluster

TITLE = "Sluice, replicated"
START_S = 60.0
STOP_S = 30.0
CELL = "main"
OWNS = re.compile(r"ready: member \w+ owns cell")
FOLLOWS = re.compile(r"member \w+ follows cell")


class OurCell(Ours):
    """Clients talk to the owner."""

    title = TITLE
    syncs = (
        "A durable message is accepted once a majority of three NATS servers (`sync_interval: always`) has "
        "synced the record of the log that holds it; the owner's own journal is lazy (decisions/cluster.md)."
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the log's servers have seen so far: by connection, bytes and messages in; bytes among servers."""

    by_connection: dict[str, tuple[int, int]]
    among_bytes: int

    def since(self, before: Traffic) -> tuple[int, int, int]:
        """Bytes and records of the connection that sent most since then, and bytes among the servers."""
        sent = [
            tuple(
                now - then for now, then in zip(numbers, before.by_connection.get(key, (0, 0)), strict=True)
            )
            for key, numbers in self.by_connection.items()
        ]
        nbytes, records = max(sent, default=(0, 0))
        return nbytes, records, self.among_bytes - before.among_bytes


@dataclass(frozen=True, slots=True)
class StartedCell:
    """A running cell: its processes, its log, and what its standby says."""

    subject: Subject
    log: NatsCluster
    owner_pid: int
    standby_pid: int

    @property
    def pids(self) -> list[int]:
        """Every process of it."""
        return [self.owner_pid, self.standby_pid, *(server.pid for server in self.log.servers)]

    def traffic(self) -> Traffic:
        """Ask each server's monitoring what came in so far."""
        by_connection: dict[str, tuple[int, int]] = {}
        among_bytes = 0
        for server in self.log.servers:
            for each in _asked(server.ports.monitor, "connz?limit=1024").get("connections", ()):
                by_connection[f"{server.name}/{each['cid']}"] = (each["in_bytes"], each["in_msgs"])
            for each in _asked(server.ports.monitor, "routez").get("routes", ()):
                among_bytes += each["out_bytes"]
        return Traffic(by_connection, among_bytes)

    @contextmanager
    def reports(self) -> Iterator[list[Heard]]:
        """Collect what the members say of themselves while the block runs."""
        found: list[Heard] = []
        ended = threading.Event()
        connection = LogServers(tuple(self.log.urls), 10.0).connect()
        connection.subscribe(f"sluice.{CELL}.member.*")
        listening = threading.Thread(target=_listen, args=(connection, found, ended), daemon=True)
        listening.start()
        try:
            yield found
        finally:
            ended.set()
            listening.join()
            connection.close()


class Heard(NamedTuple):
    """What a member said: when, in seconds, what it is, and its position in the log."""

    at_s: float
    role: str
    position: int


def lags_s(heard: Sequence[Heard]) -> list[float]:
    """How long before each report of the standby's the owner was where the standby is now, in seconds.

    The owner says where it is once a second; between two reports its pace is taken for even. A report that is
    from before the owner's first or after its last isn't judged.
    """
    owner = [each for each in heard if each.role == OWNER]
    found = []
    for each in heard:
        if each.role != STANDBY or not owner or not owner[0].at_s <= each.at_s <= owner[-1].at_s:
            continue
        for one, other in pairwise(owner):
            if one.position <= each.position < other.position:
                share = (each.position - one.position) / (other.position - one.position)
                found.append(max(each.at_s - one.at_s - share * (other.at_s - one.at_s), 0.0))
                break
        else:
            if each.position >= owner[-1].position:
                found.append(0.0)
            else:
                found.append(each.at_s - owner[0].at_s)
    return found


def _listen(connection: NatsConnection, found: list[Heard], ended: threading.Event) -> None:
    with suppress(LogUnavailable):
        while not ended.is_set():
            for message in connection.messages(0.1):
                with suppress(ValueError):
                    report = MemberReport.decode(message.data)
                    found.append(Heard(time.monotonic(), report.role, report.position))


def _asked(port: int, what: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def member_settings(folder: Path, name: str, rank: int, port: int, urls: list[str]) -> str:
    """One member's file."""
    return (
        f"listeners: [amqp://127.0.0.1:{port}]\nhttp: 127.0.0.1:{free_port()}\n"
        f"data: {folder / name / 'data'}\n"
        f"policies: [{folder / 'policies.yaml'}]\n"
        f"cluster:\n  engine: [{', '.join(urls)}]\n  cell: {CELL}\n  member: {name}\n  rank: {rank}\n"
        f"  listen: 127.0.0.1:{free_port()}\n"
    )


@contextmanager
def cell_started(peer: OurCell) -> Iterator[StartedCell]:
    """Run a cell while the block does; raises BenchError with a member's last words if it doesn't start."""
    with tempfile.TemporaryDirectory(prefix="sluice-cell-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "policies.yaml").write_text(POLICIES)
        log = NatsCluster(folder / "log", ports=[free_port() for _ in range(9)])
        stack.callback(log.stop)
        log.start()
        port = free_port()
        owner = _member(stack, folder, member_settings(folder, "a", 0, port, log.urls), "a", OWNS)
        standby_port = free_port()
        settings = member_settings(folder, "b", 1, standby_port, log.urls)
        standby = _member(stack, folder, settings, "b", FOLLOWS)
        running = Running(peer.url(port), owner, folder)
        yield StartedCell(Subject(peer, running), log, owner, standby)


def _member(stack: ExitStack, folder: Path, settings: str, name: str, ready: re.Pattern[str]) -> int:
    """Start a member, wait until it says that it is ready, return its process."""
    home = folder / name
    home.mkdir()
    (home / "broker.yaml").write_text(settings)
    command = [sys.executable, "-m", "broker.cli.main", "serve", "--config", str(home / "broker.yaml")]
    log = home / "log"
    file = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(command, stdout=file, stderr=file)
    stack.callback(_end, process)
    deadline = time.monotonic() + START_S
    while not ready.search(log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"member {name} did not start: {log.read_text(errors='replace').strip()[-600:]}")
        time.sleep(0.05)
    return process.pid


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
