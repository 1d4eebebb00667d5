"""What durability costs, and what a backlog that doesn't fit in memory does.

Every group is synced, so the disk sets the pace; beside each figure stands a bare loop on the same
disk in the same run, which appends and syncs the same bytes in the same groups and does nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.contenders import Running
from bench.measuring import BODY, Figures, Pace, load, number
from broker.client.link import Connection
from broker.client.load import Usage
from broker.client.request import Management

BARE_S = 2.0
ZEROS_BYTES = 64 << 20


def throughput(**job: object) -> Callable[[Running, Pace], Figures]:
    """Durable messages end to end."""

    def scenario(running: Running, pace: Pace) -> Figures:
        before = _store(running)
        result = load(running, pace, durable=True, **({"address": "durable"} | job))
        after = _store(running)
        syncs = max(after["syncs"] - before["syncs"], 1)
        messages = number(result["sent"]) / syncs
        # A message is a record of the journal when it comes and one when it goes.
        nbytes = int(messages * (number(job.get("body", BODY)) + 8 + 40 + 40))
        grown, given = (_bare(running.directory, nbytes, filled) for filled in (False, True))
        rate = number(result["out_s"])
        return {
            "rate": rate,
            "cpu_us": number(result["broker_cpu_us"]),
            "sync_ms": (after["sync_seconds"] - before["sync_seconds"]) / syncs * 1000,
            "group": messages,
            "bare_rate": messages / grown,
            "bare_part": rate * grown / messages,
            "bare_filled_part": rate * given / messages,
        }

    return scenario


def latency(running: Running, pace: Pace) -> Figures:
    """From send to outcome at 2,000 durable messages a second, beside what a sync takes then."""
    before = _store(running)
    ack = load(running, pace, durable=True, address="durable", rate=2000)["ack_us"]
    after = _store(running)
    assert isinstance(ack, dict)
    syncs = max(after["syncs"] - before["syncs"], 1)
    sync_us = (after["sync_seconds"] - before["sync_seconds"]) / syncs * 1e6
    return {"p50_us": ack["p50"], "p99_us": ack["p99"], "sync_us": sync_us, "over_us": ack["p50"] - sync_us}


def paged(running: Running, pace: Pace) -> Figures:
    """Fill a queue far beyond its memory_limit and drain it; the same with a backlog that fits."""
    in_memory = _fill_and_drain(running, pace, "backlog", min(pace.backlog, 1_000_000))
    on_disk = _fill_and_drain(running, pace, "paged", 10 * pace.backlog)
    peak = Usage.of(running.pid)
    assert peak is not None
    return {
        "fill": on_disk[0],
        "drain": on_disk[1],
        "fill_part": on_disk[0] / in_memory[0],
        "drain_part": on_disk[1] / in_memory[1],
        "peak_mb": _high_water(running.pid) / (1 << 20),
    }


def _fill_and_drain(running: Running, pace: Pace, address: str, count: int) -> tuple[float, float]:
    quick = replace(pace, warmup=0)
    begun = time.monotonic()
    load(running, quick, address=address, receivers=0, count=count, max_backlog=0)
    filled_s = time.monotonic() - begun
    begun = time.monotonic()
    with Connection(running.url) as connection:
        receiver = connection.receiver(address, credit=2000)
        left = count
        while left > 0:
            left -= len(receiver.take(1000, timeout_s=30.0))
    return count / filled_s, count / (time.monotonic() - begun)


def _high_water(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _store(running: Running) -> dict[str, float]:
    with Management(running.url) as management:
        found = management.call("READ", "org.sluice.broker", "sluice").body
    assert isinstance(found, dict)
    return {name: number(found[name]) for name in ("syncs", "sync_seconds", "groups")}


def _bare(directory: Path, nbytes: int, filled: bool) -> float:
    """Seconds that one append of so many bytes and its sync take, in a file that grows or one of zeros."""
    path = directory / "bare"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if filled:
            os.pwrite(fd, bytes(ZEROS_BYTES), 0)
            os.fsync(fd)
        data = os.urandom(max(nbytes, 1))
        at = count = 0
        begun = time.monotonic()
        while (spent := time.monotonic() - begun) < BARE_S:
            os.pwrite(fd, data, at)
            os.fdatasync(fd)
            count += 1
            at = (at + len(data)) % (ZEROS_BYTES - len(data)) if filled else at + len(data)
        return spent / count
    finally:
        os.close(fd)
        path.unlink()
