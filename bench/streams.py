"""Streams beside a durable queue: ``python -m bench.streams [--rounds 5] [--seconds 2]``.

One broker. In each round the same durable messages of 100 bytes go through a queue and into streams, without
a reader, with one at the end and with ten; then one reader reads the longest stream from disk. Medians.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.barelog import natural
from bench.measuring import BODY, number
from bench.versions import started
from broker.cli.verbs.bench import measure
from broker.client.link import Connection
from broker.client.request import Management

POLICIES = """policies:
  - match: "queue"
    durable: true
  - match: "stream.#"
    kind: stream
    durable: true
    max_size: 4GB
"""
# By name: address, receivers, and which rate is told: what comes in, or what all receivers get.
RUNS = {
    "durable queue, one consumer": ("queue", 1, "in_s"),
    "append, no reader": ("stream.none", 0, "in_s"),
    "append, a tail reader": ("stream.one", 1, "in_s"),
    "one tail reader": ("stream.one", 1, "out_s"),
    "append, ten tail readers": ("stream.ten", 10, "in_s"),
    "ten tail readers together": ("stream.ten", 10, "out_s"),
}
COLD = "stream.none"


def load(url: str, pid: int, seconds: float, address: str, receivers: int) -> Mapping[str, object]:
    """The result of one run."""
    job = {"url": url, "pid": pid, "address": address, "seconds": seconds, "warmup": 0.5, "body": BODY}
    return measure(job | {"receivers": receivers, "durable": True, "stall": 5.0})


def read_cold(url: str, most: int) -> float:
    """Messages a second that one reader gets from the first on, by a process of its own."""
    command = [sys.executable, "-m", "bench.streams", "--read", url, "--messages", str(most)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def read(url: str, messages: int) -> None:
    """Read so many messages and print how many a second that was."""
    with Connection(url) as connection:
        begin = time.perf_counter()
        receiver = connection.receiver(COLD, credit=5000, start="first")
        taken = 0
        while taken < messages:
            taken += len(receiver.take(1000, 10.0)) or sys.exit("nothing comes")
        print(taken / (time.perf_counter() - begin))


def main() -> int:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--rounds", type=natural, default=5, metavar="N", help="medians of N (5)")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="of each slice (2)")
    parser.add_argument("--read", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--messages", type=natural, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read(given.read, given.messages)
        return 0
    rates: dict[str, list[float]] = {name: [] for name in (*RUNS, "cold read")}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        process, url = started(Path(__file__).parent.parent, Path(folder), {}, POLICIES)
        try:
            for round_ in range(given.rounds):
                results = {}
                links = {run[:2] for run in RUNS.values()}
                for address, receivers in sorted(links, reverse=bool(round_ % 2)):
                    results[address] = load(url, process.pid, given.seconds, address, receivers)
                for name, (address, _, rate) in RUNS.items():
                    rates[name].append(number(results[address][rate]))
                with Management(url) as management:
                    row = management.call("READ", "org.sluice.queue", COLD).body
                assert isinstance(row, dict)
                most = min(int(number(row["stream_msgs"])) - 20_000, 400_000)
                rates["cold read"].append(read_cold(url, most))
        finally:
            process.terminate()
            process.communicate()
    queue = rates["durable queue, one consumer"]
    for name, found in rates.items():
        part = median(rate / other for rate, other in zip(found, queue, strict=True))
        print(f"{name:28} {median(found):>10,.0f} msg/s  {part:.2f} of the queue's", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
