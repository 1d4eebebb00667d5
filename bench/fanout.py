"""A durable topic with queues bound to it, this version beside another: ``python -m bench.fanout TREE``.

One producer, a consumer on each of ``--queues``; deliveries of all are counted. With ``--idle`` nobody
consumes, and a message that was accepted counts once for each queue. Both run at once and take turns, as in
``bench.versions``; ``--size`` is the body's, in bytes.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.barelog import natural
from bench.replicated import written
from bench.versions import HERE, end, started
from broker.client.load.load import Usage
from broker.client.load.loop import LoadLoop
from broker.client.request import Management
from broker.codec import sections

POLICIES = """policies:
  - {match: news, kind: topic}
  - {match: "copy.#", durable: true, max_count: 1000000, max_size: 100GB}
"""
ATTACH_S = 20.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one turn: deliveries a second, processor time and bytes written for each."""

    rate: float
    cpu_us: float
    nbytes: float


@contextmanager
def broker(tree: Path, folder: Path, queues: list[str]) -> Iterator[tuple[str, int]]:
    """A broker of a version with the topic and its queues: its URL and process."""
    process, url = started(tree, folder, {}, POLICIES)
    try:
        with Management(url) as management:
            management.call("CREATE", "org.sluice.topic", "news", {})
            for queue in queues:
                management.call("CREATE", "org.sluice.queue", queue, {})
                management.call(
                    "CREATE", "org.sluice.binding", attributes={"source": "news", "target": queue}
                )
        yield url, process.pid
    finally:
        end(process, 15)


def turn(url: str, pid: int, queues: list[str], idle: bool, size: int, seconds: float) -> Figures:
    """Load it for so long."""
    frame = sections.header(durable=True) + sections.binary_body(bytes(97 + at % 26 for at in range(size)))
    loop = LoadLoop(secrets.randbits(63), frame, size, 1)
    try:
        for index, queue in enumerate([] if idle else queues):
            loop.connect(url, queue, is_sender=False, index=index)
        loop.connect(url, "news", is_sender=True, index=0)
        deadline = time.monotonic() + ATTACH_S
        while not loop.attached:
            if time.monotonic() > deadline:
                raise SystemExit("not every link was attached in time")
            loop.spin(0.05)
        loop.begin()
        loop.spin(seconds / 2)
        count, cpu_s, nbytes, begun = done(loop, idle, queues), spent_s(pid), written(pid), time.monotonic()
        loop.spin(seconds)
        took_s, count = time.monotonic() - begun, done(loop, idle, queues) - count
        if not count:
            raise SystemExit(f"nothing came through: {reason(url)}")
        found = Figures(count / took_s, (spent_s(pid) - cpu_s) / count * 1e6, (written(pid) - nbytes) / count)
        loop.sending = False
        loop.spin(0.5)
        return found
    finally:
        loop.close()


def done(loop: LoadLoop, idle: bool, queues: list[str]) -> int:
    """Deliveries; the loop takes the copies that its other receivers get for repeats."""
    return loop.done * len(queues) if idle else loop.received + loop.repeated


def reason(url: str) -> str:
    """Return what the broker says of the producer that waits.

    Idle queues keep all that they get, with a place for each in memory: soon that is all of ``memory_limit``.
    """
    words = [sys.executable, "-m", "broker.cli.main", "why", "-b", url, "news"]
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()


def spent_s(pid: int) -> float:
    """Processor seconds of a broker so far."""
    usage = Usage.of(pid)
    if usage is None:
        raise SystemExit("the broker ended by itself")
    return usage.cpu_s


def main() -> None:
    """Print both versions' medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="a compiled checkout of the other version")
    parser.add_argument("--size", type=natural, default=100)
    parser.add_argument("--rounds", type=natural, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--queues", type=natural, default=10)
    parser.add_argument("--idle", action="store_true", help="without consumers")
    args = parser.parse_args()
    queues = [f"copy.{number}" for number in range(args.queues)]
    found: dict[str, list[Figures]] = {"other": [], "here": []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as brokers:
        trees = {"other": args.tree.resolve(), "here": HERE}
        running = {
            name: brokers.enter_context(broker(tree, Path(folder, name), queues))
            for name, tree in trees.items()
        }
        for number in range(args.rounds):
            for name in sorted(running, reverse=number % 2 == 0):
                found[name].append(turn(*running[name], queues, args.idle, args.size, args.seconds))
    names = ("rate", "cpu_us", "nbytes")
    figures = {
        who: [median(getattr(each, name) for each in turns) for name in names] for who, turns in found.items()
    }
    for who, (rate, cpu_us, nbytes) in figures.items():
        print(f"{who}: {rate:,.0f} deliveries/s, {cpu_us:.3f} us and {nbytes:,.1f} bytes written for each")
    ratios = [here / other for here, other in zip(figures["here"], figures["other"], strict=True)]
    print("here of other: rate {:.3f}, processor time {:.3f}, bytes {:.3f}".format(*ratios))


if __name__ == "__main__":
    main()
