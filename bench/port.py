"""The store alone, through the port the engine uses: what the reactor's thread pays a message.

``python -m bench.port``: append so many, seal, wait until they are on disk; forget them, seal, wait. The
calls come from Python; the engine's are compiled and save about 0.05 µs each.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.barelog import natural
from broker.store.disk import DiskStore
from broker.store.port import DURABLE, QueueLog, Store

SYNC_S = 30.0


@dataclass(slots=True)
class Spent:
    """Seconds by what they were spent on, for so many messages."""

    messages: int = 0
    append_s: float = 0.0
    forget_s: float = 0.0
    seal_s: float = 0.0
    wait_s: float = 0.0

    def told(self) -> dict[str, float]:
        """Messages a second that came, were synced, went and were synced; microseconds a message."""
        total_s = self.append_s + self.forget_s + self.seal_s + self.wait_s
        each_us = 1e6 / self.messages
        return {
            "msgs_per_s": self.messages / total_s,
            "append_us": self.append_s * each_us,
            "forget_us": self.forget_s * each_us,
            "seal_us": self.seal_s * each_us,
            "wait_us": self.wait_s * each_us,
        }


class Bench:
    """One shelf of one store, and the time spent on it."""

    def __init__(self, store: Store, body_bytes: int, group: int) -> None:
        self.store, self.group = store, group
        self.shelf: QueueLog = store.open_log("bench", b"")
        self.message = os.urandom(body_bytes)
        self.seq = 0
        self.spent = Spent()
        self.await_synced()

    def turn(self) -> None:
        """A group that comes and goes."""
        numbers = range(self.seq + 1, self.seq + self.group + 1)
        spent, message, nbytes = self.spent, self.message, len(self.message)
        append, forget = self.shelf.append, self.shelf.forget
        begun = time.perf_counter()
        for seq in numbers:
            append(seq, DURABLE, 0, 0, message)
        spent.append_s += time.perf_counter() - begun
        self.await_synced()
        begun = time.perf_counter()
        for seq in numbers:
            forget(seq, nbytes)
        spent.forget_s += time.perf_counter() - begun
        self.await_synced()
        self.seq += self.group
        spent.messages += self.group

    def await_synced(self) -> None:
        """Seal and wait as the reactor does, on the bell."""
        begun = time.perf_counter()
        group = self.store.group
        self.store.seal()
        sealed = time.perf_counter()
        while self.store.attend() < group:
            if not select.select([self.store.bell], [], [], SYNC_S)[0]:
                raise TimeoutError(f"nothing was synced for {SYNC_S:g} s: {self.store.reason}")
        self.spent.seal_s += sealed - begun
        self.spent.wait_s += time.perf_counter() - sealed


def measured(directory: Path, body_bytes: int, group: int, seconds: float) -> dict[str, float]:
    """Figures of a store of its own below ``directory``."""
    store = DiskStore.open(directory / "data")
    try:
        bench = Bench(store, body_bytes, group)
        bench.turn()
        bench.spent = Spent()
        syncs, sync_ns, deadline = store.syncs, store.sync_ns, time.monotonic() + seconds
        while bench.spent.messages == 0 or time.monotonic() < deadline:
            bench.turn()
        return bench.spent.told() | {"sync_ms": (store.sync_ns - sync_ns) / (store.syncs - syncs) / 1e6}
    finally:
        store.close()


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.port", description=__doc__)
    parser.add_argument("--body", type=natural, default=100, metavar="N", help="bytes of a message (100)")
    parser.add_argument("--group", type=natural, default=1000, metavar="N", help="messages a group (1000)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="measure so long (5)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="on the disk to be measured")
    parser.add_argument("--json", action="store_true", help="the figures as an object")
    return parser.parse_args(words)


def main() -> None:
    """Measures and prints."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="sluice-port-", dir=args.directory) as directory:
        figures = measured(Path(directory), args.body, args.group, args.seconds)
    lines = (f"{name:>10} {value:>12,.3f}" for name, value in figures.items())
    print(json.dumps(figures) if args.json else "\n".join(lines))


if __name__ == "__main__":
    main()
