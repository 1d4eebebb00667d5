"""What priorities cost: the same load on a plain queue and on priority queues, by turns on one broker.

``python -m bench.priority``: slices of the plain load, one producer and one consumer, go to a plain queue and
to queues with `priority: strict`, `fair`, and `strict` with a `priority_reserve`, in turns; each is judged by
the plain slice of its round. Medians; exit status 1 if the strict queue is below ``LEAST``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from statistics import median

from bench.barelog import natural
from bench.contenders import OURS
from bench.measuring import load, number
from bench.scenarios import FULL

# The part of the plain queue's rate that a strict priority queue has at least.
LEAST = 0.7
ADDRESSES = ("plain", "priority.strict", "priority.fair", "priority.reserve")


def measured(rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """By queue: messages a second, the part of the plain queue's, and the broker's microseconds a message."""
    pace = replace(FULL, seconds=seconds, warmup=0.5)
    rates: dict[str, list[float]] = {address: [] for address in ADDRESSES}
    parts: dict[str, list[float]] = {address: [] for address in ADDRESSES}
    costs: dict[str, list[float]] = {address: [] for address in ADDRESSES}
    with OURS.started() as running:
        for number_ in range(rounds):
            # Who is first changes from round to round.
            order = ADDRESSES if number_ % 2 else tuple(reversed(ADDRESSES))
            found = {address: load(running, pace, address=address) for address in order}
            for address, result in found.items():
                rate = number(result["out_s"])
                rates[address].append(rate)
                parts[address].append(rate / number(found["plain"]["out_s"]))
                costs[address].append(number(result["broker_cpu_us"]))
    return {
        address: {
            "msgs_per_s": median(rates[address]),
            "part": median(parts[address]),
            "broker_us": median(costs[address]),
        }
        for address in ADDRESSES
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.priority", description=__doc__)
    parser.add_argument("--rounds", type=natural, default=5, metavar="N", help="medians of N (5)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of each slice (1)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    args = parser.parse_args()
    found = measured(args.rounds, args.seconds)
    if args.json:
        print(json.dumps(found))
    else:
        for address, figures in found.items():
            print(
                f"{address:18} {figures['msgs_per_s']:>10,.0f} msg/s  {figures['part']:.2f} of plain"
                f"  {figures['broker_us']:.2f} us"
            )
    return 0 if found["priority.strict"]["part"] >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
