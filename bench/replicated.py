"""``make bench-replicated``: a durable queue on one broker, on a cell, and on others that replicate.

Rounds are interleaved; every figure is the median of the rounds, a ratio the median of each round's ratio.
All of it runs on this machine, the servers of the log and every replica as well, so that they share its
processors and its disk. What can't be had, or doesn't start, is listed with its reason.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.barelog import natural
from bench.contenders import BenchError
from bench.measuring import Figures, number
from bench.peers.__main__ import machine
from bench.peers.artemispair import ArtemisPair
from bench.peers.cell import OurCell, StartedCell, cell_started, lags_s
from bench.peers.ours import Ours
from bench.peers.peer import MissingError, Peer, Subject, started
from bench.peers.rabbitcluster import RabbitCluster
from bench.peers.scenarios import FULL, Pace, load, warmed
from broker.client.load.load import Usage
from broker.errors import SluiceError

ROUNDS = 3
# Of a paced sender, in messages a second.
RATE = 2000
SINGLE, REPLICATED = "sluice", "replicated"
SMALL, LARGE, PACED, SHARED = "durable.one", "durable.kib", "durable.rate", "durable.four"
WIDE = "durable.wide"
WIDE_MSGS = 4000
QUEUES = ("warm", SMALL, LARGE, PACED, SHARED, WIDE)
PEERS: dict[str, Peer] = {"rabbitmq": RabbitCluster(QUEUES), "artemis": ArtemisPair()}
OURS: dict[str, Peer] = {SINGLE: Ours(), REPLICATED: OurCell()}
KIB = 1024
# Counted over a run, told for each message of it.
A_MESSAGE = frozenset({"net", "among", "log_disk"})

ROWS = {
    "rate": "durable 100 B, msg/s",
    "kib": "durable 1 KiB, msg/s",
    "four": "durable 100 B, four producers and consumers, msg/s",
    "wide": f"durable 100 B, windows of {WIDE_MSGS:,}, msg/s",
    "wide_four": f"durable 100 B, windows of {WIDE_MSGS:,}, four producers and consumers, msg/s",
    "p50_us": f"accepted after, p50 at {RATE:,}/s, µs",
    "p99_us": f"accepted after, p99 at {RATE:,}/s, µs",
    "cpu_us": "100 B, CPU µs/msg, the broker clients talk to",
    "all_cpu_us": "100 B, CPU µs/msg, everything",
    "disk": "100 B, written to the broker's own journal, B/msg",
    "log_disk": "100 B, kept by each server of the log, B/msg",
    "kib_disk": "1 KiB, written to the broker's own journal, B/msg",
    "kib_log_disk": "1 KiB, kept by each server of the log, B/msg",
    "net": "100 B, the owner sends to the log, B/msg",
    "kib_net": "1 KiB, the owner sends to the log, B/msg",
    "among": "100 B, the log's servers send each other, B/msg",
    "records": "100 B, records of the log a second",
    "per_record": "100 B, messages a record",
    "lag_s": "100 B, the standby's lag at full rate, at most, s",
    "kib_lag_s": "1 KiB, the standby's lag at full rate, at most, s",
}


@dataclass(slots=True)
class Measured:
    """One contender: its rounds' figures, and why it has none."""

    peer: Peer
    version: str
    rounds: list[Figures] = field(default_factory=list)
    reason: str = ""

    def figure(self, name: str) -> float | None:
        """The median of the rounds that have it."""
        known = [figures[name] for figures in self.rounds if name in figures]
        return median(known) if known else None


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of one contender over that of another, or a figure alone, and its bound."""

    text: str
    figure: str
    of: str
    to: str = ""
    least: float = 0.0
    most: float = float("inf")

    def value(self, found: dict[str, Measured]) -> float | None:
        """The median over rounds, None where it can't be told."""
        ours = found.get(self.of)
        if ours is None:
            return None
        if not self.to:
            return ours.figure(self.figure)
        theirs = found.get(self.to)
        if theirs is None:
            return None
        ratios = [
            one[self.figure] / other[self.figure]
            for one, other in zip(ours.rounds, theirs.rounds, strict=False)
            if other.get(self.figure) and self.figure in one
        ]
        return median(ratios) if ratios else None

    def verdict(self, found: dict[str, Measured]) -> str:
        """The value and whether it is within the bound."""
        value = self.value(found)
        if value is None:
            return "not measured"
        is_met = self.least <= value <= self.most
        return f"{shown(value)} {'pass' if is_met else 'FAIL'}"


TARGETS = (
    Target("replicated ÷ single, 100 B: at least 0.25", "rate", REPLICATED, SINGLE, least=0.25),
    Target("replicated, 100 B: at least 90,000 msg/s", "rate", REPLICATED, least=90_000),
    Target("replicated, 100 B, four producers: at least 90,000 msg/s", "four", REPLICATED, least=90_000),
    Target(
        f"replicated, 100 B, windows of {WIDE_MSGS:,}: at least 90,000 msg/s",
        "wide",
        REPLICATED,
        least=90_000,
    ),
    Target("replicated ÷ single, 1 KiB: at least 0.12", "kib", REPLICATED, SINGLE, least=0.12),
    Target("replicated ÷ RabbitMQ, 100 B: at least 3", "rate", REPLICATED, "rabbitmq", least=3),
    Target("replicated ÷ Artemis, 100 B: at least 1.5", "rate", REPLICATED, "artemis", least=1.5),
    Target("the standby's lag: at most 1 s", "lag_s", REPLICATED, most=1.0),
)


def spent_s(pids: Sequence[int]) -> float:
    """Processor seconds used so far by those that are there."""
    return sum(usage.cpu_s for pid in pids if (usage := Usage.of(pid)) is not None)


def written(pid: int) -> int:
    """Bytes that our broker wrote to files so far: its sockets are written by other calls (proc(5), wchar).

    The kernel's count of what went to the disk takes a large folio as a whole, whatever was changed of it.
    """
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def kept(folder: Path) -> int:
    """Bytes in the files beneath a folder."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            found += path.stat().st_size if path.is_file() else 0
    return found


def family(folder: Path, pid: int) -> list[int]:
    """The processes of a peer that was started in a folder: each has it as its home."""
    home = f"HOME={folder}".encode()
    found = {pid}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                words = (each / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if home in words:
                found.add(int(each.name))
    return sorted(found)


@dataclass(frozen=True, slots=True)
class Contender:
    """A started one: its processes, and the cell where it is ours."""

    subject: Subject
    pids: Callable[[], list[int]]
    cell: StartedCell | None = None


@contextmanager
def begun(peer: Peer) -> Iterator[Contender]:
    """Start one. Raises BenchError, MissingError."""
    if isinstance(peer, OurCell):
        with cell_started(peer) as cell:
            yield Contender(cell.subject, lambda: cell.pids, cell)
        return
    with started(peer) as subject:
        running = subject.running
        yield Contender(subject, lambda: family(running.directory, running.pid))


def measured(contender: Contender, pace: Pace) -> Figures:
    """One round."""
    warmed(contender.subject, pace)
    figures = full(contender, pace, SMALL, 100, "")
    figures |= full(contender, pace, LARGE, KIB, "kib_")
    four = load(contender.subject, pace, SHARED, durable=True, senders=4, receivers=4)
    figures["four"] = number(four["out_s"])
    wide: dict[str, object] = {"durable": True, "window": WIDE_MSGS, "credit": WIDE_MSGS}
    figures["wide"] = number(load(contender.subject, pace, WIDE, **wide)["out_s"])
    figures["wide_four"] = number(
        load(contender.subject, pace, WIDE, senders=4, receivers=4, **wide)["out_s"]
    )
    times = load(contender.subject, pace, PACED, durable=True, rate=RATE)["ack_us"]
    assert isinstance(times, dict)
    return figures | {"p50_us": times["p50"], "p99_us": times["p99"]}


def full(contender: Contender, pace: Pace, queue: str, body: int, prefix: str) -> Figures:
    """At full rate; what is spent is divided by all messages of the run, its warming up among them."""
    pids, owner = contender.pids(), contender.subject.running.pid
    is_ours = isinstance(contender.subject.peer, Ours)
    cpu_s, own_cpu_s = spent_s(pids), spent_s([owner])
    own_written = written(owner) if is_ours else 0
    with watched(contender.cell, prefix) as figures:
        result = load(contender.subject, pace, queue, durable=True, body=body)
    count = number(result["received"])
    found = {name: value / count for name, value in figures.items() if name.removeprefix(prefix) in A_MESSAGE}
    if figures.get(f"{prefix}record_count"):
        found[f"{prefix}per_record"] = count / figures[f"{prefix}record_count"]
    found |= {name: figures[name] for name in (f"{prefix}lag_s", f"{prefix}records") if name in figures}
    if is_ours:
        found[f"{prefix}disk"] = (written(owner) - own_written) / count
    return found | {
        prefix.rstrip("_") or "rate": number(result["out_s"]),
        f"{prefix}cpu_us": (spent_s([owner]) - own_cpu_s) / count * 1e6,
        f"{prefix}all_cpu_us": (spent_s(pids) - cpu_s) / count * 1e6,
    }


@contextmanager
def watched(cell: StartedCell | None, prefix: str) -> Iterator[Figures]:
    """What a cell's log and standby did while the block runs; nothing of other brokers."""
    figures: Figures = {}
    if cell is None:
        yield figures
        return
    folder, traffic, began = cell.log.servers[0].folder, cell.traffic(), time.monotonic()
    kept_bytes = kept(folder)
    with cell.reports() as heard:
        yield figures
    took_s = time.monotonic() - began
    sent, records, among = cell.traffic().since(traffic)
    figures |= {
        f"{prefix}net": sent,
        f"{prefix}among": among,
        f"{prefix}record_count": records,
        f"{prefix}records": records / took_s,
    }
    grown = kept(folder) - kept_bytes
    if grown > 0:
        # Else the log was trimmed meanwhile.
        figures[f"{prefix}log_disk"] = grown
    if lags := lags_s(heard):
        figures[f"{prefix}lag_s"] = max(lags)


# --- telling


def shown(value: float) -> str:
    """A figure for a reader."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def cells(found: dict[str, Measured]) -> list[list[str]]:
    """The table, its head first."""
    lines = [["measured", *(each.peer.title for each in found.values())]]
    for name, title in ROWS.items():
        values = [each.figure(name) for each in found.values()]
        if any(value is not None for value in values):
            lines.append([title, *("–" if value is None else shown(value) for value in values)])
    return lines


def table(lines: list[list[str]], *, markdown: bool) -> str:
    """Lines of cells, for a page or for a terminal."""
    if markdown:
        head = f"| {' | '.join(lines[0])} |\n| --- |{' ---: |' * (len(lines[0]) - 1)}"
        return "\n".join([head, *(f"| {' | '.join(line)} |" for line in lines[1:])])
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            word.ljust(width) if not at else word.rjust(width)
            for at, (word, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def page(found: dict[str, Measured], missing: dict[str, str], loads: list[float], *, markdown: bool) -> str:
    """Everything that is printed."""
    rounds = max((len(each.rounds) for each in found.values()), default=0)
    busy = f"load average {min(loads):.0f} to {max(loads):.0f}" if loads else "load unknown"
    goals = [["target", "found"], *([each.text, each.verdict(found)] for each in TARGETS)]
    parts = [
        f"{machine()}; medians of {rounds}, rounds interleaved; {busy} (this benchmark's own is part of it).",
        table(cells(found), markdown=markdown),
        table(goals, markdown=markdown),
        "\n".join(f"- {each.peer.title}: {each.version}. {each.peer.syncs}" for each in found.values()),
    ]
    reasons = missing | {each.peer.title: each.reason for each in found.values() if each.reason}
    if reasons:
        parts.append("Not measured:\n\n" + "\n".join(f"- {name}: {text}" for name, text in reasons.items()))
    return "\n\n".join(parts)


def tell(text: str) -> None:
    """Say on standard error how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if ours, replicated, could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.replicated", description=__doc__)
    parser.add_argument(
        "--rounds", type=natural, default=ROUNDS, metavar="N", help=f"medians of N ({ROUNDS})"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=FULL.seconds,
        metavar="S",
        help=f"of each measurement ({FULL.seconds:g})",
    )
    parser.add_argument(
        "--peer", nargs="*", choices=PEERS, metavar="NAME", help=f"others beside ours ({', '.join(PEERS)})"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables for a page")
    args = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pace = replace(FULL, seconds=args.seconds)
    names = list(PEERS) if args.peer is None else args.peer
    found: dict[str, Measured] = {}
    missing: dict[str, str] = {}
    for name, peer in (OURS | {name: PEERS[name] for name in names}).items():
        try:
            found[name] = Measured(peer, peer.find())
        except (MissingError, OSError) as error:
            missing[peer.title] = str(error)
            tell(f"{peer.title} can't be had: {error}")
    loads = []
    for _ in range(args.rounds):
        for each in found.values():
            if each.reason:
                continue
            loads.append(os.getloadavg()[0])
            try:
                with begun(each.peer) as contender:
                    figures = measured(contender, pace)
            except (BenchError, MissingError, SluiceError, OSError) as error:
                each.reason = " ".join(str(error).split())[-300:]
                tell(f"{each.peer.title}: {each.reason}")
                continue
            each.rounds.append(figures)
            tell(
                f"{each.peer.title}: " + ", ".join(f"{key} {shown(value)}" for key, value in figures.items())
            )
    print(page(found, missing, loads, markdown=args.markdown))
    return 0 if found.get(REPLICATED) and found[REPLICATED].rounds else 1


if __name__ == "__main__":
    sys.exit(main())
