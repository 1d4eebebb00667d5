"""`sluice serve --cells N` for tests: its cells as processes, and names of queues by their cells."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from broker.server.cells.directory import heaviest
from broker.server.cells.place import VARIABLE
from tests.wire.conftest import RunningBroker, wait_until


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
