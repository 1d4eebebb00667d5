"""Fifty clients of every library at once, doing random legal things; afterwards nothing is left of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import PROGRAMS
from tests.wire.conftest import RunningBroker, StartBroker, wait_until

pytestmark = pytest.mark.clients

POLICIES = (Path(__file__).parent / "policies.yaml").read_text()
CLIENTS = 50
WARM_S = 10.0
# What ends a client in its own library, whatever the broker does; it is told, and the others go on.
OWN_FAULTS = (("protonj2", "Cannot set Sender settlement mode on already opened Link"),)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seconds", [60.0, pytest.param(600.0, marks=pytest.mark.soak)])
def test_nothing_is_left_of_fifty_mixed_clients(
    start_broker: StartBroker, clients: Clients, seconds: float
) -> None:
    for program in PROGRAMS:
        clients.built(program)
    broker = start_broker(policies=POLICIES)
    run(broker, "warm", WARM_S)
    before, began = resident(broker), descriptors(broker)
    done = run(broker, "mixed", seconds)
    after = resident(broker)
    print(f"\n{CLIENTS} clients, {done:,} actions in {seconds:.0f} s; memory {before:,} then {after:,} bytes")
    assert descriptors(broker) == began
    assert after < before * 1.1 + (8 << 20)


def run(broker: RunningBroker, prefix: str, seconds: float) -> int:
    """All at once, each with its own seed; what they did, and that it left nothing."""
    env = programs.environment(broker.url, f"ws://127.0.0.1:{broker.http_port}/")
    at_work = []
    for number in range(CLIENTS):
        # One of each library shares addresses; two of one would be the same subscribers.
        group, which = divmod(number, len(PROGRAMS))
        words = ("soak", f"{prefix}{group}", str(int(seconds)), str(number))
        at_work.append((PROGRAMS[which], programs.start(PROGRAMS[which], env, *words)))
    done = 0
    for program, process in at_work:
        ended = programs.ran(process, seconds + 120)
        own = next((text for name, text in OWN_FAULTS if name == program.name and text in ended.stderr), "")
        if own:
            print(f"\n{program.name} ended early by a fault of its own: {own}")
        assert ended.status == 0 or own, f"{program.name}: {ended.stderr[-3000:]}"
        done += sum(int(str(line["done"])) for line in ended.lines if "done" in line)
    wait_until(lambda: left(broker) == (1, 0, 0), 30, "every link to go")
    clean_up(broker, prefix)
    assert "Traceback" not in broker.log, broker.log
    return done


def stat(broker: RunningBroker, *words: str) -> dict[str, list[dict[str, object]]]:
    command = [sys.executable, "-m", "broker.cli.main", "stat", *words, "--json", "-b", broker.url]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found: dict[str, list[dict[str, object]]] = json.loads(answer)
    return found


def left(broker: RunningBroker) -> tuple[int, int, int]:
    """Connections (ours that asks is one), links of nodes, and unsettled messages."""
    rows = stat(broker, "-q", "-a")["queues"]
    links = sum(int(str(row["producers"])) + int(str(row["consumers"])) for row in rows if not _own(row))
    return len(stat(broker, "-c")["connections"]), links, 0


def _own(row: dict[str, object]) -> bool:
    return str(row["name"]).startswith("$")


def clean_up(broker: RunningBroker, prefix: str) -> None:
    """Delete the nodes, and with them what lies in them, so that memory can be compared."""
    for row in stat(broker, "-q")["queues"]:
        if str(row["kind"]) != "subscription" and str(row["name"]).startswith(prefix):
            words = ("config", "-b", broker.url, "del", str(row["kind"]), str(row["name"]))
            command = [sys.executable, "-m", "broker.cli.main", *words]
            subprocess.run(command, check=True, timeout=60, capture_output=True)


def resident(broker: RunningBroker) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def descriptors(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
