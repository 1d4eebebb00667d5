"""Moves of queues during which a cell or the supervisor is killed, at each step and at any time.

One cell has the queue afterwards, with all messages that were accepted and in their order; none comes twice
but flagged.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from proton import Message, ProtonException
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.errors import NotFoundError, SluiceError
from broker.server.cells.directory import CellDirectory
from broker.server.cells.table import read_table
from tests.wire.cells import kill_cell, names_in, pids_of, wait_for_cell
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.move_steps import GETTING, GIVING, waiting_at
from tests.wire.test_cells_moves import bodies, cells_with, send

CELLS = 2
ARGS = ("--cells", str(CELLS))
POLICIES = 'policies:\n  - {match: "orders.>", durable: true}\n'
BROKER = "org.sluice.broker"
COUNT = 3000


def begin(broker: RunningBroker, name: str, cell: int) -> None:
    with Management(broker.url) as management:
        management.call("move-node", BROKER, body={"name": name, "cell": cell, "wait": 0})


@pytest.mark.parametrize("killed", ["giving", "getting", "supervisor"])
@pytest.mark.parametrize("step", [*GIVING, *GETTING])
def test_whoever_is_killed_at_a_step_one_cell_has_all_of_it(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, killed: str
) -> None:
    with waiting_at(step, tmp_path / "steps", monkeypatch):
        broker = start_broker(policies=POLICIES, args=ARGS)
    [name] = names_in(0, CELLS, 1)
    send(broker, name, *range(COUNT))
    begin(broker, name, 1)
    broker.wait_for_log(f"waiting at {step}")
    if killed == "supervisor":
        pids = pids_of(broker).values()
        broker.signal(signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "all to be gone")
        data = str(broker.config_file.parent / "data")
        broker = start_broker(policies=POLICIES, args=(*ARGS, "--data", data))
    else:
        cell = 0 if killed == "giving" else 1
        wait_for_cell(broker, cell, kill_cell(broker, cell))
    wait_until(lambda: len(owners(broker, name)) == 1, 20, lambda: broker.log)
    if step == "decided":
        assert owners(broker, name) == [1]
    assert bodies(broker, name, COUNT) == list(range(COUNT))


def owners(broker: RunningBroker, name: str) -> list[int]:
    """Return the cells that have a queue; while it is moved those are two."""
    return cells_with(broker, name, CELLS)


STOP = 50
LOADED = (
    'policies:\n  - {match: "orders.>", durable: true, duplicate_window: 100000,'
    f" flow_stop_count: {STOP}}}\n"
)


class Load:
    """A producer and a consumer of one queue that come back whenever they are disconnected.

    The producer sends numbers with ids, each again until it has the broker's word for it; ``first`` are the
    numbers in the order in which the consumer got each first, ``unflagged`` those that came again and didn't
    say so.
    """

    def __init__(self, broker: RunningBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.sent = 0
        self.is_over = False
        self.first: list[int] = []
        self.unflagged: list[int] = []
        self._seen: set[int] = set()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)
        ]
        for each in self._threads:
            each.start()

    def finish(self) -> None:
        """Let the producer end, and the consumer once it has everything."""
        self.is_over = True
        for each in self._threads:
            each.join(60)
            assert not each.is_alive(), f"{len(self.first)} of {self.sent} received\n{self.broker.log}"

    def _produce(self) -> None:
        while not self.is_over:
            with suppress(ProtonException, OSError):
                connection = BlockingConnection(self.broker.url, timeout=5)
                try:
                    sender = connection.create_sender(self.name)
                    while not self.is_over:
                        # So that one that comes again reads otherwise: unset would read false as well.
                        message = Message(self.sent, id=f"m{self.sent}", durable=True, first_acquirer=True)
                        sender.send(message, timeout=5)
                        self.sent += 1
                finally:
                    with suppress(Exception):
                        connection.close()
            time.sleep(0.05)

    def _consume(self) -> None:
        while not (self.is_over and len(self.first) == self.sent):
            with suppress(ProtonException, OSError):
                connection = BlockingConnection(self.broker.url, timeout=5)
                try:
                    receiver = connection.create_receiver(self.name, credit=10)
                    while not (self.is_over and len(self.first) == self.sent):
                        message = receiver.receive(timeout=1)
                        flagged = message.delivery_count > 0 or not message.first_acquirer
                        assert isinstance(message.body, int)
                        self._take(message.body, flagged)
                        receiver.accept()
                finally:
                    with suppress(Exception):
                        connection.close()
            time.sleep(0.05)

    def _take(self, number: int, flagged: bool) -> None:
        if number not in self._seen:
            self._seen.add(number)
            self.first.append(number)
        elif not flagged:
            self.unflagged.append(number)


class Watch:
    """Looks at a queue in all cells that have it, again and again: ``most`` is the most that was in it and
    promised to its producers at once.

    Its cell counts the most that was in it itself, between two looks as well; ``breaches`` are the laws of
    counting that didn't hold.
    """

    def __init__(self, broker: RunningBroker, name: str) -> None:
        self.broker = broker
        self.most = self.looks = 0
        self.breaches: list[str] = []
        self._name = name
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._look, args=(cell,), daemon=True) for cell in range(CELLS)
        ]
        for each in self._threads:
            each.start()

    def finish(self) -> None:
        """End it."""
        self._is_over = True
        for each in self._threads:
            each.join(30)
            assert not each.is_alive()

    def _look(self, cell: int) -> None:
        while not self._is_over:
            with (
                suppress(SluiceError, ProtonException, OSError),
                Management(self.broker.url, cell=cell, timeout_s=2) as management,
            ):
                while not self._is_over:
                    self._look_once(management)
            time.sleep(0.02)

    def _look_once(self, management: Management) -> None:
        found: Any = management.call("audit", BROKER).body
        self.breaches += map(str, found["breaches"])
        with suppress(NotFoundError):
            row: Any = management.call("READ", "org.sluice.queue", self._name).body
            self.most = max(self.most, row["depth_msgs"] + row["promised_msgs"], row["peak_msgs"])
            self.looks += 1
        time.sleep(0.005)


def walk(start_broker: StartBroker, moves: int, seed: int) -> None:
    """Move a queue to and fro under load, and kill somebody during most of the moves."""
    chance = random.Random(seed)
    broker = start_broker(policies=LOADED, args=ARGS)
    data = str(broker.config_file.parent / "data")
    [name] = names_in(0, CELLS, 1)
    load = Load(broker, name)
    wait_until(lambda: load.sent > 20, 30, "the load to begin")
    watch = Watch(broker, name)
    done = 0
    for _ in range(moves):
        before = load.sent
        here = begun(broker, name)
        time.sleep(chance.random() * 0.5)
        killed = chance.choice(["nobody", "giving", "getting", "giving", "getting", "all"])
        if killed == "all":
            pids = [*pids_of(broker).values(), broker.pid]
            for pid in pids[::-1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            broker.process.wait(20)
            wait_until(lambda pids=pids: not any(_runs(pid) for pid in pids), 20, "all to be gone")  # type: ignore[misc]
            broker = load.broker = watch.broker = start_broker(policies=LOADED, args=(*ARGS, "--data", data))
        elif killed != "nobody":
            cell = here if killed == "giving" else 1 - here
            broker.lines.clear()
            wait_for_cell(broker, cell, kill_cell(broker, cell))
        wait_until(lambda b=broker: len(owners(b, name)) == 1, 30, lambda b=broker: b.log)  # type: ignore[misc]
        done += owners(broker, name) != [here]
        wait_until(lambda n=before: load.sent > n, 30, lambda b=broker: b.log)  # type: ignore[misc]
    load.finish()
    watch.finish()
    assert load.first == list(range(load.sent))
    assert load.unflagged == []
    assert 0 < watch.most <= STOP
    assert watch.looks > 10 * moves
    assert watch.breaches == []
    # Otherwise nothing of a move's end was tried.
    assert done > moves // 10
    table = read_table(Path(data), CELLS)
    assert owners(broker, name) == [CellDirectory(0, CELLS, table).cell_of(name)]


def begun(broker: RunningBroker, name: str) -> int:
    """Begin a move to the other of two cells, once an earlier one is over; return the cell that has it."""
    found: list[int] = []

    def begins() -> bool:
        here = owners(broker, name)
        with suppress(SluiceError):
            begin(broker, name, 1 - here[0])
            found.append(here[0])
        return bool(found)

    wait_until(begins, 30, lambda: broker.log, 0.1)
    return found[0]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("seed", [1, 2])
def test_under_load_and_kills_nothing_is_lost_twice_or_out_of_order(
    start_broker: StartBroker, seed: int
) -> None:
    walk(start_broker, 10, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_moves_under_load_and_kills(start_broker: StartBroker, seed: int) -> None:
    walk(start_broker, 20, 100 + seed)
