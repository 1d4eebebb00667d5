"""A cell on this machine: servers of the log, members as processes, and a way to cut each member off."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.disks import SIZE, Disk
from tools.nats import NatsCluster, free_ports

START_S = 60.0
MEMBERS = "abcdefgh"
OWNS = re.compile(r"ready: member (\w+) owns cell \w+, epoch (\d+)")
FOLLOWS = re.compile(r"member \w+ follows cell")


def wait_until(ready: Callable[[], object], what: str, seconds: float = START_S) -> None:
    """Wait for something. Raises AssertionError where it doesn't come in time."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)


class Proxy:
    """Passes bytes of one member to one server of the log; ``freeze`` it, and nothing passes either way."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._frozen = threading.Event()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def freeze(self, frozen: bool) -> None:
        """Let nothing pass, or let it again; connections stay open."""
        if frozen:
            self._frozen.set()
        else:
            self._frozen.clear()

    def stop(self) -> None:
        """Close everything."""
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            if self._frozen.is_set():
                time.sleep(0.01)
                continue
            ready, _, _ = select.select([self._listening, *self._pairs], [], [], 0.02)
            for sock in ready:
                if self._frozen.is_set():
                    break
                if sock is self._listening:
                    self._accept()
                elif sock in self._pairs:
                    self._pass(sock)
        for sock in (self._listening, *self._pairs):
            sock.close()

    def _accept(self) -> None:
        near, _ = self._listening.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), 1)
        except OSError:
            near.close()
            return
        self._pairs[near], self._pairs[far] = far, near

    def _pass(self, sock: socket.socket) -> None:
        other = self._pairs[sock]
        try:
            data = sock.recv(1 << 18)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for each in (sock, other):
            self._pairs.pop(each, None)
            each.close()


class MemberProcess:
    """One member; its directory stays when it is ended."""

    def __init__(
        self,
        name: str,
        folder: Path,
        servers: list[int],
        ports: list[int],
        rank: int,
        extra: str,
        policies: str,
        module: str = "broker.cli.main",
    ) -> None:
        self.name = name
        self._module = module
        self.folder = folder / name
        (self.folder / "disk").mkdir(parents=True, exist_ok=True)
        self.proxies = [Proxy(port) for port in servers]
        self.amqp, self.http, self.member_port = ports
        self.data = self.folder / "disk" / "data"
        self.log_path = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        # How much the lives before this one have written.
        self._begun = 0
        (self.folder / "policies.yaml").write_text(policies)
        urls = ", ".join(f"nats://127.0.0.1:{proxy.port}" for proxy in self.proxies)
        (self.folder / "broker.yaml").write_text(
            f"listeners: [amqp://127.0.0.1:{self.amqp}]\nhttp: 127.0.0.1:{self.http}\ndata: {self.data}\n"
            f"policies: [{self.folder / 'policies.yaml'}]\nstore: {{journal_file_size: 1MB}}\n"
            f"cluster:\n  engine: [{urls}]\n  member: {name}\n  rank: {rank}\n"
            f"  listen: 127.0.0.1:{self.member_port}\n{extra}"
        )

    def start(self, config: str = "broker.yaml") -> None:
        """Start the process, by one of the files in its folder."""
        with self.log_path.open("ab") as log:
            self._begun = log.tell()
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", self._module, "serve"),
                    *("--config", str(self.folder / config)),
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether it is held by SIGSTOP."""
        if self.process is None or self.process.poll() is not None:
            return False
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self.is_running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            assert self.process is not None
            self.process.wait(30)

    def close(self) -> None:
        """End it and let go of what belongs to it."""
        with suppress(subprocess.TimeoutExpired):
            self.stop()
        self.kill()
        for proxy in self.proxies:
            proxy.stop()

    def freeze(self, frozen: bool) -> None:
        """Cut it off from the log, or let it be heard again."""
        for proxy in self.proxies:
            proxy.freeze(frozen)

    @property
    def log(self) -> str:
        """All that it has written."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    @property
    def said(self) -> str:
        """All that it has written since it was started last."""
        return self.log_path.read_bytes()[self._begun :].decode(errors="replace")

    @property
    def epoch_owned(self) -> int:
        """The epoch in which it serves, 0 while it is a standby or not there."""
        if not self.is_running:
            return 0
        text = self.said
        owned = list(OWNS.finditer(text))
        follows = list(FOLLOWS.finditer(text))
        if not owned or (follows and follows[-1].start() > owned[-1].start()):
            return 0
        return int(owned[-1][2])

    @property
    def is_standby(self) -> bool:
        """Whether it follows the log."""
        return self.is_running and self.epoch_owned == 0 and bool(FOLLOWS.search(self.said))

    def api(self, path: str) -> Any:
        """The answer of its HTTP API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
            return json.loads(answer.read())


class Cell:
    """Members a, b, c … of one cell, and the log they share.

    ``extra`` are further lines of the section; ``log`` are servers that are there already, and that this cell
    neither starts nor ends. With ``own_disks`` the member and the server of the same place share a file
    system of their own (``tests/cluster/disks.py``), of ``disk_bytes``.
    """

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        servers: int = 3,
        extra: str = "",
        policies: str = "",
        *,
        log: NatsCluster | None = None,
        name: str = "main",
        module: str = "broker.cli.main",
        own_disks: bool = False,
        disk_bytes: int = SIZE,
    ) -> None:
        self.name = name
        self._owns_log = log is None
        self.disks: list[Disk] = []
        if own_disks:
            places = [
                [folder / "log" / f"log-{at + 1}", folder / MEMBERS[at] / "disk"] for at in range(servers)
            ]
            images = [folder / f"machine-{at + 1}.img" for at in range(servers)]
            self.disks = [Disk(image, each, disk_bytes) for image, each in zip(images, places, strict=True)]
        self.log = log or NatsCluster(folder / "log", servers)
        clients = [each.ports.client for each in self.log.servers]
        ports = free_ports(3 * members)
        replicas = 3 if len(clients) >= 3 else 1
        text = f"  cell: {name}\n  replicas: {replicas}\n{extra}"
        self.members = [
            MemberProcess(
                *(MEMBERS[at], folder, clients, ports[3 * at : 3 * at + 3], at, text),
                *(policies or "policies: []\n", module),
            )
            for at in range(members)
        ]

    @property
    def owner(self) -> MemberProcess | None:
        """The member that serves in the highest epoch."""
        epoch, member = max(((each.epoch_owned, each) for each in self.members), key=lambda pair: pair[0])
        return member if epoch else None

    def start(self) -> MemberProcess:
        """Start everything; return the first owner."""
        # Configuration files were written long ago.
        for disk in self.disks:
            disk.sync()
        if self._owns_log:
            self.log.start()
        for each in self.members:
            each.start()
        return self.wait_for_owner()

    def settle(self) -> MemberProcess:
        """Start the members that aren't there, and wait until all are level; return the owner."""
        for each in self.members:
            if not each.is_running:
                each.start()
        try:
            wait_until(self._is_level, "all members")
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.logs()}") from None
        return self.wait_for_owner()

    def logs(self) -> str:
        """What each member has said last."""
        return "\n".join(f"--- {each.name}\n{each.said[-2000:]}" for each in self.members)

    def _is_level(self) -> bool:
        gone = [each for each in self.members if not each.is_running]
        assert not gone, f"{gone[0].name} has ended"
        owner = self.owner
        if owner is None or not all(each is owner or each.is_standby for each in self.members):
            return False
        try:
            shown = [each.api("/api/v1/cluster") for each in self.standbys]
        except OSError:
            return False
        names = {each.name for each in self.members}
        return all(
            {each["name"] for each in one["members"] if each["role"] in ("owner", "standby")} >= names
            and not any(each["lag_groups"] for each in one["members"] if each["role"] != "gone")
            for one in shown
        )

    @property
    def standbys(self) -> list[MemberProcess]:
        """The members that follow."""
        return [each for each in self.members if each.is_standby]

    def wait_for_owner(
        self, *, other_than: MemberProcess | None = None, seconds: float = START_S
    ) -> MemberProcess:
        """Return the owner, once there is one."""

        def found() -> bool:
            owner = self.owner
            return owner is not None and owner is not other_than

        try:
            wait_until(found, "an owner", seconds)
        except AssertionError:
            raise AssertionError(f"no owner:\n{self.logs()}") from None
        owner = self.owner
        assert owner is not None
        return owner

    def close(self) -> None:
        """End everything."""
        for each in self.members:
            each.close()
        if self._owns_log:
            self.log.stop()
        for disk in self.disks:
            disk.unmount()

    def stream(self, suffix: str = "") -> dict[str, Any]:
        """Return the state of the stream, or of the bodies' one (``_BODIES``); empty where none says it."""
        for server in self.log.servers:
            url = f"http://127.0.0.1:{server.ports.monitor}/jsz?streams=1"
            with suppress(OSError, ValueError, KeyError), urllib.request.urlopen(url, timeout=2) as answer:
                for account in json.loads(answer.read()).get("account_details", ()):
                    for stream in account.get("stream_detail", ()):
                        if stream["name"] == f"SLUICE_{self.name}{suffix}":
                            found: dict[str, Any] = stream["state"]
                            return found
        return {}

    def leader(self) -> int:
        """Which server leads the stream."""
        names = [each.name for each in self.log.servers]
        for at in range(len(names)):
            leader = self._clusters(at).get(f"SLUICE_{self.name}", {}).get("leader")
            if leader in names:
                return names.index(leader)
        return 0

    def has_whole_log(self) -> bool:
        """Whether every server has all of the log and of the bodies, as their leaders see it."""
        return self.lagging() == set()

    def lagging(self) -> set[int] | None:
        """Which servers don't have all of it; None while a stream has no leader that says so."""
        names = [each.name for each in self.log.servers]
        found: set[int] = set()
        for stream in (f"SLUICE_{self.name}", f"SLUICE_{self.name}_BODIES"):
            seen = [self._clusters(at).get(stream, {}) for at in range(len(names))]
            led = [each for at, each in enumerate(seen) if each.get("leader") == names[at]]
            if len(led) != 1:
                return None
            sound = {
                each["name"]
                for each in led[0].get("replicas", ())
                if each["current"] and not each.get("offline")
            }
            found |= {at for at, name in enumerate(names) if name not in sound | {led[0]["leader"]}}
        return found

    def _clusters(self, at: int) -> dict[str, dict[str, Any]]:
        """What a server says of each stream's replicas; empty where it says nothing."""
        server = self.log.servers[at]
        url = f"http://127.0.0.1:{server.ports.monitor}/jsz?streams=1&config=1"
        if not server.pid:
            return {}
        with suppress(OSError, ValueError, KeyError):
            with urllib.request.urlopen(url, timeout=2) as answer:
                accounts = json.loads(answer.read()).get("account_details", ())
            return {
                each["name"]: each["cluster"] for one in accounts for each in one.get("stream_detail", ())
            }
        return {}


@contextmanager
def cell(folder: Path, **options: Any) -> Iterator[Cell]:
    """A cell for one test."""
    made = Cell(folder, **options)
    try:
        yield made
    finally:
        made.close()


def port_of(url: str) -> int:
    """Return a URL's port."""
    return urlsplit(url).port or 0
