"""Last-value queues beside the plain queue: ``python -m bench.last_value [--rounds 5] [--seconds 1]``.

One broker, the same messages with a key to a plain queue and to last-value queues, one after the other in
each round; each is judged by the plain slice of its round. Medians; exit status 1 if one of ``JUDGED`` is
below ``LEAST``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.barelog import natural
from bench.measuring import BODY, number
from bench.versions import started
from broker.cli.verbs.bench import measure

POLICIES = """policies:
  - match: "renewed"
    last_value_key: key
  - match: "kept"
    last_value_key: key
    last_value_position: kept
  - match: "board"
    last_value_key: key
"""
# The part of the plain queue's rate that a last-value queue has at least.
LEAST = 0.6
# By name: address, receivers, keys. With a million keys nothing is replaced, with 1,000 most that waits is;
# without a receiver each message replaces one.
RUNS = {
    "plain": ("plain", 1, 1_000_000),
    "renewed, no key twice": ("renewed", 1, 1_000_000),
    "renewed, 1,000 keys": ("renewed", 1, 1000),
    "kept, 1,000 keys": ("kept", 1, 1000),
    "only replacing, 1,000 keys": ("board", 0, 1000),
}
JUDGED = ("renewed, no key twice", "renewed, 1,000 keys", "kept, 1,000 keys", "only replacing, 1,000 keys")


def load(url: str, pid: int, seconds: float, run: tuple[str, int, int]) -> Mapping[str, object]:
    """The result of one run; it counts only if nothing was refused, and nothing lost that wasn't replaced."""
    address, receivers, keys = run
    job = {"url": url, "pid": pid, "address": address, "seconds": seconds, "warmup": 0.5, "body": BODY}
    result = measure(job | {"receivers": receivers, "keys": keys, "stall": 1.0})
    lost = 0 if keys <= 1000 else number(result["lost"])
    if lost or result["duplicated"] or result["refused"]:
        raise SystemExit(f"the run is void: {result}")
    return result


def main() -> int:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(prog="python -m bench.last_value", description=__doc__)
    parser.add_argument("--rounds", type=natural, default=5, metavar="N", help="medians of N (5)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of each slice (1)")
    given = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in RUNS}
    costs: dict[str, list[float]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        process, url = started(Path(__file__).parent.parent, Path(folder), {}, POLICIES)
        try:
            for round_ in range(given.rounds):
                # The first run of a round changes.
                for name in RUNS if round_ % 2 else reversed(RUNS):
                    result = load(url, process.pid, given.seconds, RUNS[name])
                    rates[name].append(number(result["in_s"]))
                    costs[name].append(number(result["broker_cpu_us"]))
        finally:
            process.terminate()
            process.communicate()
    parts = {
        name: median(rate / plain for rate, plain in zip(rates[name], rates["plain"], strict=True))
        for name in RUNS
    }
    for name in RUNS:
        print(
            f"{name:28} {median(rates[name]):>10,.0f} msg/s  {parts[name]:.2f} of plain"
            f"  {median(costs[name]):.2f} us",
            flush=True,
        )
    return 0 if all(parts[name] >= LEAST for name in JUDGED) else 1


if __name__ == "__main__":
    sys.exit(main())
