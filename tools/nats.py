"""Servers of the log on this machine, for `make cluster`, tests and benchmarks.

``nats-server`` is taken from the path, else from a cache that ``go install`` fills.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = "v2.15.2"
MODULE = f"github.com/nats-io/nats-server/v2@{VERSION}"
START_S = 30.0


def cache() -> Path:
    """Return the folder in which a server that was built here is kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sluice" / f"nats-{VERSION}"


def server() -> Path | None:
    """Return the path of the server, built first where there is Go; None where it can't be had."""
    found = shutil.which("nats-server")
    if found:
        return Path(found)
    built = cache() / "nats-server"
    if not built.exists():
        go = shutil.which("go")
        if go is None:
            return None
        subprocess.run([go, "install", MODULE], check=True, env=os.environ | {"GOBIN": str(cache())})
    return built


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one server listens: for clients, for the other servers, for monitoring."""

    client: int
    route: int
    monitor: int


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now.

    They are below those that the system gives connections that go out (32,768 and more), which would take one
    of them before its server does.
    """
    held: list[socket.socket] = []
    while len(held) < count:
        each = socket.socket()
        try:
            each.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
        except OSError:
            each.close()
            continue
        held.append(each)
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class NatsServer:
    """One server; ``start`` and ``kill`` it as often as needed, its disk stays."""

    def __init__(
        self, binary: Path, folder: Path, name: str, ports: Ports, routes: list[int], sync: str
    ) -> None:
        self.name = name
        self.ports = ports
        self.folder = folder / name
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._config = self.folder / "nats.conf"
        others = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
        cluster = (
            f'cluster {{ name: sluice, listen: "127.0.0.1:{ports.route}", routes: [{others}] }}\n'
            if routes
            else ""
        )
        self._config.write_text(
            f'server_name: "{name}"\nlisten: "127.0.0.1:{ports.client}"\nhttp: "127.0.0.1:{ports.monitor}"\n'
            f'jetstream {{ store_dir: "{self.folder / "data"}", sync_interval: {sync}\n'
            # Else a server takes three quarters of what is free at its start, which is less each time.
            "  max_file_store: 100GB }\n"
            f"{cluster}"
        )

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.ports.client}"

    @property
    def pid(self) -> int:
        """The process, 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it; ``is_ready`` tells when it serves."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._binary, "-c", self._config], stdout=log, stderr=log)

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def is_ready(self) -> bool:
        """Return whether it serves, with a leader of JetStream where there are several."""
        url = f"http://127.0.0.1:{self.ports.monitor}/healthz"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def jetstream(self) -> dict[str, Any]:
        """Return what its monitoring says of JetStream and its settings."""
        url = f"http://127.0.0.1:{self.ports.monitor}/jsz?config=1"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


class NatsCluster:
    """Servers that replicate streams among each other, on loopback."""

    def __init__(
        self, folder: Path, count: int = 3, ports: list[int] | None = None, sync: str = "always"
    ) -> None:
        binary = server()
        if binary is None:
            raise FileNotFoundError("nats-server is neither on the path nor can Go build it")
        numbers = ports or free_ports(3 * count)
        each = [Ports(*numbers[3 * at : 3 * at + 3]) for at in range(count)]
        routes = [one.route for one in each] if count > 1 else []
        self.servers = [
            NatsServer(binary, folder, f"log-{at + 1}", each[at], routes, sync) for at in range(count)
        ]

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [each.url for each in self.servers]

    def start(self) -> None:
        """Start all of them and wait until they serve. Raises TimeoutError."""
        for each in self.servers:
            each.start()
        deadline = time.monotonic() + START_S
        while not all(each.is_ready() for each in self.servers):
            if time.monotonic() > deadline:
                raise TimeoutError("the servers of the log don't serve")
            time.sleep(0.05)

    def stop(self) -> None:
        """End all of them."""
        for each in self.servers:
            each.stop()
