"""Where a message's time goes as numbers grow: ``python -m bench.growthprofile``, for docs/performance.md.

The broker of ``bench.growth`` under ``perf``: microseconds of its processor time for a message in each part
of it, and messages for each read, write and turn of its loop. Needs ``perf`` and the right to use it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.contenders import OURS, BenchError, Running
from bench.growth import BODY, CONNECTIONS, START_S, accepted, crowd, used, window

CREDIT = 200
SECONDS = 4.0
CALLS = {"recvfrom": "read", "sendto": "write", "epoll_wait": "turn"}
PARTS = ("Proton", "broker", "interpreter", "kernel", "allocator")
LINE = re.compile(r"\s*([\d.]+)%\s+(\S+)\s+\[(.)\]")
COUNT = re.compile(r"\s*([\d,]+)\s+syscalls:sys_enter_(\w+)")


@dataclass
class Profile:
    """One row: microseconds a message in all and by part, messages for each system call of a kind."""

    name: str
    cpu_us: float = 0.0
    parts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    per_call: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        shares = " | ".join(f"{self.parts[part] * self.cpu_us:.2f}" for part in PARTS)
        calls = " | ".join(f"{self.per_call.get(call, 0):,.0f}" for call in CALLS.values())
        return f"| {self.name} | {self.cpu_us:.2f} | {shares} | {calls} |"


def part_of(library: str, kind: str) -> str:
    """Whose code a sample is."""
    if kind == "k":
        return "kernel"
    for mark, part in (("cproton", "Proton"), ("cpython-311", "broker"), ("python", "interpreter")):
        if mark in library:
            return part
    return "allocator" if "libc" in library else library


def perf(*words: object) -> str:
    """What perf says, on either side; BenchError if it can't."""
    done = subprocess.run(["perf", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"perf {words[0]}: {done.stderr.strip()}")
    return done.stdout + done.stderr


def look(running: Running, profile: Profile, seconds: float) -> None:
    """Count the calls, then sample, while messages flow; the rate is the sampled time's."""
    window(running, 0, 0.5)
    events = ",".join(f"syscalls:sys_enter_{call}" for call in CALLS)
    before = accepted(running)
    said = perf("stat", "-e", events, "-p", running.pid, "sleep", seconds)
    moved = accepted(running) - before
    for count, call in COUNT.findall(said):
        profile.per_call[CALLS[call]] = moved / max(int(count.replace(",", "")), 1)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "samples"
        before, usage = accepted(running), used(running)
        perf("record", "-q", "-F", 1499, "-p", running.pid, "-o", data, "--", "sleep", seconds)
        profile.cpu_us = (used(running).cpu_s - usage.cpu_s) / (accepted(running) - before) * 1e6
        lines = perf("report", "-i", data, "--stdio", "-q", "--sort", "dso,sym").splitlines()
    for share, library, kind in (match.groups() for line in lines if (match := LINE.match(line))):
        profile.parts[part_of(Path(library).name, kind)] += float(share) / 100


@contextmanager
def queues(running: Running, count: int, credit: int) -> Iterator[None]:
    """A producer and a consumer at each."""
    address, over = "growth.queue.%d", min(count, CONNECTIONS)
    with (
        crowd("consumers", running.url, address, count, over, credit),
        crowd("producers", running.url, address, count, over, BODY, START_S),
    ):
        yield


@contextmanager
def producers(running: Running, count: int, _: int) -> Iterator[None]:
    """Behind one gate, with one consumer."""
    with (
        crowd("consumers", running.url, "growth.gate", 1, 1, 1000),
        crowd("producers", running.url, "growth.gate", count, min(count, CONNECTIONS), BODY, START_S),
    ):
        yield


ROWS = (
    ("1 queue", queues, 1, CREDIT),
    *((f"100 queues, credit {credit}", queues, 100, credit) for credit in (2, 10, 50, CREDIT)),
    ("1 producer", producers, 1, CREDIT),
    ("100 producers", producers, 100, CREDIT),
)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.growthprofile", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of each of the two looks at a row (4)"
    )
    args = parser.parse_args()
    print(f"| of | CPU µs/msg | {' | '.join(PARTS)} | messages a read | a write | a turn |")
    print("| --- |" + " ---: |" * (len(PARTS) + 4))
    for name, kind, count, credit in ROWS:
        profile = Profile(name)
        with OURS.started() as running, kind(running, count, credit):
            look(running, profile, args.seconds)
        print(profile, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as fault:
        sys.exit(f"bench.growthprofile: {fault}")
