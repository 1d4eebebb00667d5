"""`sluice serve --cells N` for tests: its cells as processes, and names of queues by their cells."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.server.cells.directory import heaviest
from broker.server.cells.place import VARIABLE
from tests.wire.apiclient import Api
from tests.wire.conftest import START_SECONDS, RunningBroker, wait_until

CELLS = 3
ARGS = ("--cells", str(CELLS))
PAIRS = [(here, there) for here in range(CELLS) for there in range(CELLS) if here != there]
POLICIES = """policies:
  - match: "bounded.>"
    flow_stop_count: 40
    flow_resume_count: 20
  - match: "kept.>"
    durable: true
  - match: "refusing.>"
    auto_create: false
  - match: "rows.>"
    queue_type: stream
    durable: true
"""


def pids_of(broker: RunningBroker) -> dict[int, int]:
    """Return the process ids of the cells that run, by number."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    found = {}
    for pid in map(int, children):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for each in environment:
            name, _, value = each.partition(b"=")
            if name.decode() == VARIABLE:
                found[json.loads(value)["number"]] = pid
    return found


def kill_cell(broker: RunningBroker, cell: int) -> int:
    """Kill one cell and return the process id it had."""
    pid = pids_of(broker)[cell]
    os.kill(pid, signal.SIGKILL)
    return pid


def let_stand_still(patch: pytest.MonkeyPatch) -> None:
    """Have supervisors that are started from now on wait for a silent cell as long as a test may take.

    They take that time from the service manager's watchdog (WATCHDOG_USEC, sd_notify(3)).
    """
    patch.setenv("WATCHDOG_USEC", "180000000")


@contextmanager
def stopped(broker: RunningBroker, cell: int) -> Iterator[None]:
    """Let a cell stand still while the block runs: it accepts nobody and answers nothing."""
    pid = pids_of(broker)[cell]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: stands_still(pid), 10, f"cell {cell} to stand still", 0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stands_still(pid: int) -> bool:
    """Return whether no thread of a process runs any more.

    The signal stops the thread that is given it, and the others once that one has had the processor: until
    then they serve, and a request that one of them accepts has no answer while the process stands still.
    """
    states = []
    for each in Path(f"/proc/{pid}/task").iterdir():
        states.append((each / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def wait_for_cell(broker: RunningBroker, cell: int, old_pid: int) -> None:
    """Wait until a cell that was killed serves again, as another process."""
    broker.wait_for_log(f"cell {cell} is there again")
    wait_until(
        lambda: pids_of(broker).get(cell, old_pid) != old_pid, 10, f"cell {cell} to be another process"
    )


def names_in(cell: int, cells: int, count: int, begin: str = "orders") -> list[str]:
    """Return names of queues that belong to a cell."""
    numbered = (f"{begin}.{number}" for number in range(count * cells * 20))
    return [name for name in numbered if heaviest(name, cells) == cell][:count]


def one_in_each(begin: str) -> list[str]:
    """Return the name of a queue for each cell."""
    return [names_in(cell, CELLS, 1, begin)[0] for cell in range(CELLS)]


def settle(broker: RunningBroker) -> None:
    """Have all cells loaded what they answer over HTTP with."""
    api = Api(broker)
    wait_until(
        lambda: api.call("GET", "/broker").body.get("absent", {"": ""}) == {},
        START_SECONDS,
        "all cells to answer",
        0.1,
    )


def page(broker: RunningBroker, path: str) -> tuple[int, str]:
    """Return the status and text of any page but the API's."""
    with closing(HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells that the tests of this module share."""
    broker = RunningBroker(tmp_path_factory.mktemp("cells"), "", POLICIES, ARGS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def depths(broker: RunningBroker, cell: int) -> dict[str, int]:
    """Return how many messages are in each queue of a cell."""
    with Management(broker.url, cell=cell) as management:
        body: Any = management.call(
            "QUERY", "org.sluice.queue", body={"attributeNames": ["name", "depth_msgs"]}
        ).body
    return {str(name): int(depth) for name, depth in body["results"] if not str(name).startswith("$")}


@contextmanager
def settled_in(broker: RunningBroker, cell: int) -> Iterator[BlockingConnection]:
    """A connection that has gone to a cell for its first link, and stays there."""
    connection = BlockingConnection(broker.url, timeout=10)
    connection.create_sender(names_in(cell, CELLS, 1, "first")[0])
    try:
        yield connection
    finally:
        connection.close()


class Flood(MessagingHandler):
    """Connections that send to one queue whatever they may, after a first link to ``first``, if any."""

    def __init__(self, url: str, name: str, connections: int, first: str = "") -> None:
        super().__init__()
        self.url, self.name, self.connections, self.first = url, name, connections, first
        self.sent = self.accepted = self.closed = 0
        self.opened: list[Any] = []

    def on_start(self, event: Any) -> None:
        for _ in range(self.connections):
            connection = event.container.connect(self.url, reconnect=False)
            self.opened.append(connection)
            if self.first:
                event.container.create_sender(connection, self.first, name="first")
            event.container.create_sender(connection, self.name, name="flood")

    def on_sendable(self, event: Any) -> None:
        while event.sender.name == "flood" and event.sender.credit > 0:
            event.sender.send(Message(self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1

    def on_connection_closed(self, event: Any) -> None:
        self.closed += 1

    def end(self, container: Container) -> None:
        """Close all of them, and see them closed."""
        for connection in self.opened:
            connection.close()
        deadline = time.monotonic() + 10
        while self.closed < len(self.opened) and time.monotonic() < deadline:
            container.process()
        # Their sockets go with the turn after that.
        container.process()
        container.stop()
