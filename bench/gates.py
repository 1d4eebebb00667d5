"""How exactly credit keeps many producers to one gate: ``python -m bench.gates``.

Overshoot, the deepest a node ever was beyond its stop threshold, for so many producers, in messages, in
bytes with ``byte_reservation: strict``, and in bytes with ``expected`` and sizes with a heavy tail,
unsettled and pre-settled. Then how evenly fifty equal producers share a gate (Jain's index), and how many
flow frames the broker says for a message and for a gate that opens again. Exit status 1 if a target is
missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.clients import beside
from bench.contenders import OURS, Running
from bench.framecount import FLOW, TRANSFER, counted
from bench.producers import Produced, produce
from broker.client.request import Management

PRODUCERS = (1, 10, 100, 500)
CONNECTIONS = 100  # at most; the links are dealt out over them
STOP_MSGS = 1000
STOP_BYTES = 1 << 20
# What the reactor reads of one connection before what it holds is looked at again: the bytes that may
# come in between a message that was misjudged and the credit that is taken back for it.
TURN_BYTES = 16 * (1 << 16)
CONSUMER_RATE = 20_000.0
EQUALS = 50
JAIN = 0.95


@dataclass(frozen=True, slots=True)
class Overshoot:
    """One cell: depth at its deepest against the threshold, in messages or bytes."""

    producers: int
    kind: str
    presettled: bool
    stop: int
    deepest: int
    overshoot: int
    bound: int
    sent: int
    stops: int


def overshoot(running: Running, producers: int, kind: str, seconds: float, *, presettled: bool) -> Overshoot:
    """Producers flat out against one node with a consumer that is slower than they are."""
    address = f"gates.{kind}.{producers}.{'pre' if presettled else 'un'}settled"
    sizes = "100" if kind == "count" else "heavy"
    connections = min(producers, CONNECTIONS)
    with beside("taker", running.url, address, str(CONSUMER_RATE)):
        done = produce(running.url, address, producers, connections, sizes, seconds, presettled=presettled)
    found = _read(running.url, address)
    stop = STOP_MSGS if kind == "count" else STOP_BYTES
    deepest = found["peak_msgs" if kind == "count" else "peak_bytes"]
    bound = connections * TURN_BYTES + done.largest if kind == "expected" else 0
    return Overshoot(
        producers, kind, presettled, stop, deepest, max(deepest - stop, 0), bound, sum(done.counts),
        found["flowStoppedCount"],
    )  # fmt: skip


def jain(counts: Sequence[int]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1/n where one has everything."""
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts))


def shared(running: Running, seconds: float) -> tuple[float, Produced]:
    """Fifty producers, a connection each, behind one gate."""
    address = "gates.count.equals"
    with beside("taker", running.url, address, str(CONSUMER_RATE)):
        done = produce(running.url, address, EQUALS, EQUALS, "100", seconds, presettled=False)
    return jain(done.counts), done


def spoken(running: Running, address: str, seconds: float) -> dict[str, float]:
    """Flow frames of the broker, to ten producers, for each message and each time the gate opens."""
    with beside("taker", running.url, address, str(CONSUMER_RATE)), counted(running.url) as (url, frames):
        produce(url, address, 10, 10, "100", seconds, presettled=False)
    flows, transfers = frames.by_broker[FLOW], frames.by_clients[TRANSFER]
    opened = _read(running.url, address)["flowStoppedCount"]
    return {
        "flows": flows,
        "transfers": transfers,
        "opened": opened,
        "flows_per_message": flows / max(transfers, 1),
        "flows_per_resume": flows / max(opened, 1),
    }


def _read(url: str, address: str) -> dict[str, int]:
    with Management(url) as management:
        found = management.call("READ", "org.sluice.queue", address).body
    assert isinstance(found, dict)
    return {name: int(found[name]) for name in ("peak_msgs", "peak_bytes", "flowStoppedCount")}


def main() -> int:
    """Measures, prints markdown or JSON; 1 if anything overshot or was unfair."""
    parser = argparse.ArgumentParser(prog="python -m bench.gates", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell (3)")
    parser.add_argument("--producers", type=int, nargs="+", default=list(PRODUCERS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cells = []
    with OURS.started() as running:
        for producers in args.producers:
            for kind in ("count", "strict", "expected"):
                for presettled in (False, True):
                    cell = overshoot(running, producers, kind, args.seconds, presettled=presettled)
                    print(cell, file=sys.stderr)
                    cells.append(cell)
        index, _ = shared(running, args.seconds)
        frames = {
            "held full": spoken(running, "gates.count.frames", args.seconds),
            "resume at half": spoken(running, "gates.wide.frames", args.seconds),
        }
    if args.json:
        print(
            json.dumps({"overshoot": [asdict(c) for c in cells], "jain": index, "frames": frames}, indent=1)
        )
    else:
        print(_markdown(cells, index, frames))
    exact = all(cell.overshoot <= cell.bound for cell in cells)
    return 0 if exact and index >= JAIN else 1


def _markdown(cells: Sequence[Overshoot], index: float, frames: dict[str, dict[str, float]]) -> str:
    lines = [
        "| producers | threshold | settled | deepest | overshoot | bound | messages | stops |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for cell in cells:
        unit = f"{cell.stop:,} " + ("messages" if cell.kind == "count" else f"bytes, {cell.kind}")
        settled = "before" if cell.presettled else "by outcome"
        lines.append(
            f"| {cell.producers} | {unit} | {settled} | {cell.deepest:,} | {cell.overshoot:,} |"
            f" {cell.bound:,} | {cell.sent:,} | {cell.stops:,} |"
        )
    lines += ["", f"Jain's index of {EQUALS} equal producers behind one gate: {index:.4f} (at least {JAIN})."]
    lines += ["", "| ten producers, 1,000 messages | flow frames a message | a resume | messages | resumes |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for kind, found in frames.items():
        lines.append(
            f"| {kind} | {found['flows_per_message']:.4f} | {found['flows_per_resume']:.1f} |"
            f" {int(found['transfers']):,} | {int(found['opened']):,} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
