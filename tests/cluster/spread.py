"""A cluster of several cells on this machine: members with their cells, and the servers of the log."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from broker.server.cells.directory import heaviest
from broker.server.cells.place import VARIABLE
from tests.cluster.world import MEMBERS, START_S, MemberProcess, wait_until
from tools.nats import NatsCluster, free_ports

CELLS = 4
OWNS = re.compile(r"ready: member (\w+) owns cell (\w+)-(\d+), epoch (\d+)")
SECRET = "the secret of the members of a test"


class CellsMember(MemberProcess):
    """One member with several cells: the process is its supervisor."""

    def cells(self) -> dict[int, int]:
        """Return the process ids of the cells that run, by number."""
        found: dict[int, int] = {}
        if not self.is_running or self.process is None:
            return found
        pid = self.process.pid
        for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(OSError):
                for text in Path(f"/proc/{each}/environ").read_bytes().split(b"\0"):
                    name, _, value = text.partition(b"=")
                    if name.decode() == VARIABLE:
                        found[json.loads(value)["number"]] = int(each)
        return found

    def signal_all(self, number: int) -> None:
        """Send all processes of the member a signal, the supervisor first."""
        cells = self.cells()
        self.signal(number)
        for pid in cells.values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End all its processes as a crash of the machine would."""
        if self.is_running:
            self.signal_all(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self.is_running:
            self.signal_all(signal.SIGCONT)
        super().stop()

    @property
    def url(self) -> str:
        """Where its clients connect."""
        return f"amqp://127.0.0.1:{self.amqp}"


class CellsCluster:
    """Members a, b, c … of as many cells as ``cells``, and the log that they share.

    ``extra`` are further lines of the section, ``settings`` of the whole file.
    """

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        cells: int = CELLS,
        servers: int = 3,
        *,
        extra: str = "",
        policies: str = "",
        settings: str = "",
    ) -> None:
        self.cells = cells
        self.log = NatsCluster(folder / "log", servers)
        clients = [each.ports.client for each in self.log.servers]
        secret = folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        self.members: list[CellsMember] = []
        ports = list(_ports(members, cells))
        for at in range(members):
            replicas = 3 if servers >= 3 else 1
            text = f"  cell: main\n  replicas: {replicas}\n  secret_file: {secret}\n{extra}"
            member = CellsMember(
                MEMBERS[at], folder, clients, list(ports[at]), 0, text, policies or "policies: []\n"
            )
            config = member.folder / "broker.yaml"
            config.write_text(f"cells: {cells}\n{settings}{config.read_text()}")
            self.members.append(member)

    def start(self) -> None:
        """Start everything, and wait until each cell has an owner."""
        self.log.start()
        for each in self.members:
            each.start()
        self.wait_for_owners()

    def close(self) -> None:
        """End everything."""
        for each in self.members:
            each.close()
        self.log.stop()

    def member(self, name: str) -> CellsMember:
        """Return a member by its name."""
        return next(each for each in self.members if each.name == name)

    def epochs(self) -> dict[int, tuple[int, str]]:
        """Return for each cell that had an owner its last epoch, and who that was, as members' logs say."""
        found: dict[int, tuple[int, str]] = {}
        for member in self.members:
            for match in OWNS.finditer(member.log):
                cell, epoch = int(match[3]), int(match[4])
                found[cell] = max(found.get(cell, (0, "")), (epoch, match[1]))
        return found

    def owners(self) -> dict[int, str]:
        """Return the members that own the cells now, as one of them sees it; only those that run."""
        running = {each.name for each in self.members if each.is_running and not each.is_stopped}
        return {cell: name for cell, (_, name) in sorted(self.epochs().items()) if name in running}

    def loads(self) -> list[int]:
        """Return how many cells each member that runs owns, in their order."""
        owners = list(self.owners().values())
        return [owners.count(each.name) for each in self.members if each.is_running]

    def is_even(self) -> bool:
        """Whether each cell has an owner, and no member that runs has two more than another."""
        loads = self.loads()
        return sum(loads) == self.cells and max(loads) - min(loads) < 2

    def wait_for_owners(self, seconds: float = START_S) -> dict[int, str]:
        """Return who owns each cell, once each has an owner that runs."""
        try:
            wait_until(lambda: len(self.owners()) == self.cells, "an owner of each cell", seconds)
        except AssertionError as fault:
            raise AssertionError(f"{fault}: {self.owners()}\n{self.logs()}") from None
        return self.owners()

    def wait_for_spread(self, seconds: float = START_S) -> dict[int, str]:
        """Return who owns each cell, once no member has two more than another."""

        try:
            wait_until(self.is_even, "an even spread", seconds)
        except AssertionError as fault:
            raise AssertionError(f"{fault}: {self.owners()}\n{self.logs()}") from None
        return self.owners()

    def wait_for_standbys(self, seconds: float = START_S) -> None:
        """Wait until every member follows each cell that it doesn't own, and is level."""

        def are_level() -> bool:
            for cell in range(self.cells):
                seen = self.status(cell)["members"]
                there = {each["name"] for each in seen if each["role"] in ("owner", "standby")}
                if there != {each.name for each in self.members} or any(each["lag_groups"] for each in seen):
                    return False
            return True

        def settled() -> bool:
            with suppress(OSError, ValueError, KeyError):
                return are_level()
            return False

        for each in self.members:
            if not each.is_running:
                each.start()
        try:
            wait_until(settled, "all standbys", seconds)
        except AssertionError as fault:
            told = "\n".join(self._told(cell) for cell in range(self.cells))
            raise AssertionError(f"{fault}\n{told}\n{self.logs()}") from None

    def status(self, cell: int) -> Any:
        """Return how a cell is, as its owner sees it."""
        owner = self.member(self.owners()[cell])
        return owner.api(f"/api/v1/cluster?cell={cell}")

    def _told(self, cell: int) -> str:
        try:
            return str(self.status(cell))
        except (OSError, ValueError, KeyError) as fault:
            return f"cell {cell}: {fault!r}"

    def logs(self) -> str:
        """What each member has said last."""
        return "\n".join(f"--- {each.name}\n{each.log[-3000:]}" for each in self.members)


def queue_in(cell: int, cells: int = CELLS, begin: str = "orders") -> str:
    """Return the name of a queue of a cell."""
    return next(
        name for name in (f"{begin}.{number}" for number in range(1000)) if heaviest(name, cells) == cell
    )


@contextmanager
def cells_cluster(folder: Path, **options: Any) -> Iterator[CellsCluster]:
    """A cluster for one test, which is started."""
    made = CellsCluster(folder, **options)
    try:
        made.start()
        yield made
    finally:
        made.close()


def _ports(members: int, cells: int) -> Iterator[tuple[int, int, int]]:
    """Yield a member's ports: for clients, for HTTP, and the first of one for each cell."""
    singles = free_ports(2 * members)
    for at in range(members):
        yield singles[2 * at], singles[2 * at + 1], _range(cells, singles)


def _range(count: int, taken: list[int]) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        first = free_ports(1)[0]
        wanted = range(first, first + count)
        if not set(wanted) & set(taken) and _are_free(wanted):
            taken += wanted
            return first
    raise AssertionError("no ports in a row are free")


def _are_free(ports: range) -> bool:
    for each in ports:
        try:
            socket.create_server(("127.0.0.1", each)).close()
        except OSError:
            return False
    return True
