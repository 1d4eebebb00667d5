"""Message groups beside the plain queue: ``python -m bench.groups [--rounds 5] [--seconds 2]``.

One broker, two queues, the same messages with group-ids to both, one after the other in each round; medians
of the rate and of the broker's processor time a message.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.measuring import BODY, number
from bench.versions import started
from broker.cli.verbs.bench import measure

POLICIES = "policies:\n  - {match: grouped, message_groups: sticky}\n"
# Senders, receivers, groups.
SHAPES = ((1, 1, 1000), (1, 4, 1000), (4, 4, 1000), (1, 4, 1_000_000))


def load(
    url: str, pid: int, address: str, seconds: float, shape: tuple[int, int, int]
) -> Mapping[str, object]:
    """The result of one run; it counts only if nothing was lost, doubled or refused."""
    senders, receivers, groups = shape
    job = {"url": url, "pid": pid, "address": address, "seconds": seconds, "warmup": 0.5, "body": BODY}
    result = measure(job | {"senders": senders, "receivers": receivers, "groups": groups})
    wrong = {name: result[name] for name in ("lost", "duplicated", "refused") if result[name]}
    if wrong or result["stalled"]:
        raise SystemExit(f"the run is void: {wrong or 'nothing moved'}")
    return result


def main() -> int:
    """The command line of the docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        process, url = started(Path(__file__).parent.parent, Path(folder), {}, POLICIES)
        try:
            for shape in SHAPES:
                compare(url, process.pid, shape, given.rounds, given.seconds)
        finally:
            process.terminate()
            process.communicate()
    return 0


def compare(url: str, pid: int, shape: tuple[int, int, int], rounds: int, seconds: float) -> None:
    """Print one line: both queues' medians, and the shares."""
    rates: dict[str, list[float]] = {"plain": [], "grouped": []}
    costs: dict[str, list[float]] = {"plain": [], "grouped": []}
    for _ in range(rounds):
        for address in rates:
            result = load(url, pid, address, seconds, shape)
            rates[address].append(number(result["out_s"]))
            costs[address].append(number(result["broker_cpu_us"]))
    rate = {address: median(each) for address, each in rates.items()}
    cost = {address: median(each) for address, each in costs.items()}
    senders, receivers, groups = shape
    print(
        f"{senders}+{receivers}, {groups:,} groups: plain {rate['plain']:,.0f} msg/s, {cost['plain']:.3f} us;"
        f" grouped {rate['grouped']:,.0f} msg/s, {cost['grouped']:.3f} us;"
        f" {rate['grouped'] / rate['plain']:.0%} of the rate, {cost['plain'] / cost['grouped']:.0%} by CPU",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
