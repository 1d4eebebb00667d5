"""Starting what is measured: the broker as a user starts it, and the bare loop."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 30.0
STOP_S = 15.0

# The backlog scenario fills a queue on purpose: no threshold may stop it. The flow scenario compares
# queues with and without one.
POLICIES = """policies:
  - match: "backlog"
    kind: queue
    flow_control: false
    overflow: reject
    max_size: 1 GB
  - match: "priority.strict"
    priority: strict
  - match: "priority.fair"
    priority: fair
  - match: "priority.reserve"
    priority: strict
    priority_reserve: 10%
  - match: "flow.thousand.*"
    flow_stop_count: 1000
  - match: "flow.hundred.*"
    flow_stop_count: 100
  - match: "durable.#"
    durable: true
  - match: durable.wide
    producer_window: 4000
  - match: "stream.#"
    kind: stream
    durable: true
    max_size: 4GB
  - match: "paged"
    overflow: page
    memory_limit: 256MB
  - match: "growth.topic"
    kind: topic
  - match: "growth.backlog"
    flow_control: false
    overflow: reject
    max_size: 0
  - match: "growth.#"
    flow_stop_count: 1000
  - match: "gates.count.#"
    flow_stop_count: 1000
  - match: "gates.wide.#"
    flow_stop_count: 1000
    flow_resume_count: 500
  - match: "gates.strict.#"
    flow_stop_size: 1 MB
    byte_reservation: strict
    max_message_size: 64 KB
  - match: "gates.expected.#"
    flow_stop_size: 1 MB
  - match: "window.*"
    flow_stop_count: 20000
    consumer_flow_limit: 5000
  - match: "window.10"
    consumer_flow_limit: 10
  - match: "window.50"
    consumer_flow_limit: 50
  - match: "window.100"
    consumer_flow_limit: 100
  - match: "window.500"
    consumer_flow_limit: 500
  - match: "window.1000"
    consumer_flow_limit: 1000
  - match: "window.adaptive"
    dispatch: adaptive
  - {match: "fan.*", kind: topic, flow_stop_count: 10000}
  - {match: "fan.paging/slow.#", kind: subscription, overflow: page, memory_limit: 16MB}
  - {match: "fan.shedding/slow.#", kind: subscription, pending_message_limit: 1000}
  - match: "fan.uncontrolled/slow.#"
    kind: subscription
    flow_control: false
    overflow: reject
    max_count: 20000
  - match: "flow.none.*"
    flow_control: false
    overflow: reject
    max_size: 1 GB
"""


class BenchError(Exception):
    """Something to be measured did not start or ended by itself."""


@dataclass(frozen=True, slots=True)
class Running:
    """A started contender; ``directory`` is its own, on the disk it writes to."""

    url: str
    pid: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """``command`` makes the command line from a free port and an empty directory."""

    name: str
    command: Callable[[int, Path], list[str]]

    @contextmanager
    def started(self) -> Iterator[Running]:
        """Runs it while the block does; raises BenchError with its last words if it doesn't start."""
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
            port = free_port()
            command = self.command(port, Path(directory))
            # Its log goes to a file: a pipe that nobody empties would stop it when full.
            log = Path(directory) / "log"
            with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
                try:
                    self._await_ready(process, log)
                    yield Running(f"amqp://127.0.0.1:{port}", process.pid, Path(directory))
                finally:
                    _stop(process)

    def _await_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + START_S
        while not any(line.endswith("ready") for line in log.read_text(errors="replace").splitlines()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{self.name} did not start: {log.read_text(errors='replace').strip()}")
            time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def free_port() -> int:
    """A port that was free a moment ago, and isn't one of those the system gives out by itself.

    Nobody is given it who binds port 0 or connects, before it is listened on or between two lives of who
    listens; and who tries it until somebody listens isn't connected to itself, as TCP may.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, max(lowest, 20_000))
        try:
            with socket.create_server(("127.0.0.1", port)) as probe:
                return int(probe.getsockname()[1])
        except OSError:
            continue


def _ours(port: int, directory: Path) -> list[str]:
    policies = directory / "policies"
    policies.mkdir()
    (policies / "bench.yaml").write_text(POLICIES)
    return [
        *(sys.executable, "-m", "broker.cli.main", "serve", "--listen", f"amqp://127.0.0.1:{port}"),
        *("--http", f"127.0.0.1:{free_port()}", "--policies", str(policies)),
        *("--data", str(directory / "data")),
    ]


def _silent(port: int, directory: Path) -> list[str]:
    config = directory / "broker.yaml"
    config.write_text("events: {enabled: false}\n")
    return [*_ours(port, directory), "--config", str(config)]


def _bare(port: int, directory: Path) -> list[str]:
    return [sys.executable, "-m", "bench.barebroker", str(port)]


OURS = Contender("sluice", _ours)
SILENT = Contender("sluice without events", _silent)
BARE = Contender("bare loop", _bare)
CONTENDERS = {"ours": OURS, "bare": BARE}
