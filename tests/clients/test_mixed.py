"""Fifty clients of every library at once, doing random legal things; afterwards nothing is left of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.cli.terminal.ask import entity, rows
from broker.client.request import Management
from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import PROGRAMS
from tests.wire.cells import pids_of
from tests.wire.cells import settle as settle_cells
from tests.wire.conftest import RunningBroker, StartBroker, wait_until

pytestmark = pytest.mark.clients

POLICIES = (
    (Path(__file__).parent / "policies.yaml").read_text()
    # What they reject is to be gone: dead letters would be memory that grows.
    + '  - {match: "#", dead_letter_address: ""}\n'
)
CLIENTS = 50
GONE_S = 30.0
# As many equal looks at memory, half a second apart, mean that it has settled.
SETTLED = 8
# What ends a client in its own library, whatever the broker does; it is told, and the others go on.
OWN_FAULTS = (
    ("protonj2", "Cannot set Sender settlement mode on already opened Link"),
    ("proton-blocking", "'NoneType' object has no attribute 'capacity'"),
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seconds", [60.0, pytest.param(600.0, marks=pytest.mark.soak)])
def test_nothing_is_left_of_fifty_mixed_clients(
    start_broker: StartBroker, clients: Clients, seconds: float
) -> None:
    for program in PROGRAMS:
        clients.built(program)
    broker = start_broker(policies=POLICIES)
    # The same work before as after: what a library loaded late or a table once grown takes is no leak.
    run(broker, "warm", seconds / 2)
    before, began = resident(broker), descriptors(broker)
    done = run(broker, "mixed", seconds / 2)
    after = resident(broker)
    print(f"\n{CLIENTS} clients, {done:,} actions; memory {before:,} then {after:,} bytes")
    wait_until(lambda: descriptors(broker) == began, GONE_S, f"{began} descriptors again")
    assert after < before * 1.1 + (8 << 20) * len(processes(broker))


def run(broker: RunningBroker, prefix: str, seconds: float) -> int:
    """All at once, each with its own seed; what they did, and that it left nothing."""
    env = programs.environment(broker.url, f"ws://127.0.0.1:{broker.http_port}/")
    if broker.cells > 1:
        env["PATTERNS"] = "refused"
    at_work = []
    for number in range(CLIENTS):
        # One of each library shares addresses; two of one would be the same subscribers.
        group, which = divmod(number, len(PROGRAMS))
        words = ("soak", f"{prefix}{group}", str(int(seconds)), str(number))
        containers = f"{prefix}{group}-{PROGRAMS[which].name}-soak-"
        at_work.append((PROGRAMS[which], containers, programs.start(PROGRAMS[which], env, *words)))
    done, cut_short = 0, []
    try:
        for program, containers, process in at_work:
            ended = programs.ran(process, seconds + 120)
            own = next(
                (text for name, text in OWN_FAULTS if name == program.name and text in ended.stderr), ""
            )
            if own:
                cut_short.append(containers)
                print(f"\n{program.name} ended early by a fault of its own: {own}")
            assert ended.status == 0 or own, (
                f"{program.name}: {ended.stderr[:1500]}\n…\n{ended.stderr[-1500:]}"
            )
            done += sum(int(str(line["done"])) for line in ended.lines if "done" in line)
    finally:
        for _, _, process in at_work:
            process.kill()
    deadline = time.monotonic() + GONE_S
    while still := left(broker, cut_short):
        assert time.monotonic() < deadline, f"still there: {still}"
        time.sleep(0.1)
    clean_up(broker, prefix)
    assert "Traceback" not in broker.log, broker.log
    return done


def left(broker: RunningBroker, cut_short: list[str]) -> dict[str, object]:
    """What is there besides what asks: a connection to each cell, its links and its own temporary node.

    Nothing empty, nor the durable subscriptions of containers whose program was cut short and couldn't
    end them.
    """
    with Management(broker.url) as asking:
        queues = rows(asking, "queue", ["name", "unsettled_msgs"])
        topics = rows(asking, "topic", ["name"])
        found = {
            "connections": len(rows(asking, "connection", ["identity"])) - broker.cells,
            "links": sum(not _is_own(row["node"]) for row in rows(asking, "link", ["node"])),
            "temporary nodes": sum(_is_own(row["name"]) for row in queues + topics) - broker.cells,
            "subscriptions": [
                row["name"]
                for row in rows(asking, "subscription", ["name"])
                if not any(f"/{container}" in str(row["name"]) for container in cut_short)
            ],
            "unsettled": sum(int(str(row["unsettled_msgs"])) for row in queues if not _is_own(row["name"])),
        }
    return {what: count for what, count in found.items() if count}


def _is_own(name: object) -> bool:
    """Whether it is a name of the broker's making: its own nodes, and temporary ones."""
    return str(name).startswith("$")


def clean_up(broker: RunningBroker, prefix: str) -> None:
    """Delete the nodes, and with them what lies in them, so that memory can be compared."""
    with Management(broker.url) as asking:
        for kind in ("queue", "topic"):
            for row in rows(asking, kind, ["name"]):
                if str(row["name"]).startswith(prefix):
                    entity(asking, "DELETE", kind, str(row["name"]))


def resident(broker: RunningBroker) -> int:
    """Once the broker has been idle for a while, and has given back what it freed."""
    broker.settle()
    if broker.cells > 1:
        settle_cells(broker)
    seen = [resident_now(broker)]
    deadline = time.monotonic() + GONE_S
    while len(seen) < SETTLED or max(seen[-SETTLED:]) > min(seen[-SETTLED:]):
        assert time.monotonic() < deadline, f"memory still changes: {seen}"
        time.sleep(0.5)
        seen.append(resident_now(broker))
    return seen[-1]


def resident_now(broker: RunningBroker) -> int:
    return sum(map(resident_of, processes(broker)))


def resident_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def descriptors(broker: RunningBroker) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in processes(broker))


def processes(broker: RunningBroker) -> list[int]:
    """The broker's, and those of its cells."""
    return [broker.pid, *pids_of(broker).values()]
