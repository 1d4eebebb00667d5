"""``python -m bench.looplag``: how late a broker's loop is, without and with a scrape a second.

A broker in this process, with so many queues and nobody connected; a timer of its loop asks for its turn each
millisecond and notes how late that comes, which is what a message would have waited. The scraper is `curl`, a
process of its own. ``--realtime`` puts the broker before every other program of the machine (it needs the
right to), so that what is measured is the broker's own doing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from bench.barelog import natural
from bench.measuring import Figures
from broker.config.broker import Settings
from broker.config.listeners import ListenAddress, Listener
from broker.server.server import Server

TICK_NS = 1_000_000
EVERY_S = 1.0


class Lag:
    """How late the loop came to each tick, in milliseconds, while ``into`` is set."""

    def __init__(self, server: Server) -> None:
        self.into: list[float] | None = None
        self._reactor = server.reactor
        self._due_ns = time.monotonic_ns() + TICK_NS
        self._reactor.at(self._due_ns, self._tick)

    def _tick(self, _now_ns: int) -> None:
        now_ns = time.monotonic_ns()
        if self.into is not None:
            self.into.append((now_ns - self._due_ns) / 1e6)
        self._due_ns = now_ns + TICK_NS
        self._reactor.at(self._due_ns, self._tick)


def measured(queues: int, seconds: float) -> Figures:
    """Figures of both halves; each lasts so long."""
    with tempfile.TemporaryDirectory(prefix="sluice-lag-") as directory:
        settings = Settings(
            listeners=(Listener("127.0.0.1", 0, allow_plain=True),),
            http=ListenAddress("127.0.0.1", 0),
            data=Path(directory) / "data",
        )
        server = Server(settings)
        for index in range(queues):
            server.model.nodes.create("queue", f"scraped.{index}", {"max_count": 1000})
        # In seconds without messages memory goes back to the system, which takes longer than anything here.
        server.heap.trim = _nothing
        server.start()
        lag = Lag(server)
        figures: Figures = {"queues": queues}
        watcher = threading.Thread(target=_watch, args=(server, lag, seconds, figures))
        watcher.start()
        if os.sched_getscheduler(0) == os.SCHED_FIFO:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        server.run()
        watcher.join()
    return figures


def _watch(server: Server, lag: Lag, seconds: float, figures: Figures) -> None:
    assert server.http is not None
    scrape = [
        "curl",
        "-s",
        "-o",
        os.devnull,
        "-w",
        "%{time_total}",
        f"http://127.0.0.1:{server.http.port}/metrics",
    ]
    time.sleep(1)
    alone: list[float] = []
    lag.into = alone
    time.sleep(seconds)
    lag.into = None
    subprocess.run(scrape, capture_output=True, check=True)
    scraped: list[float] = []
    lag.into = scraped
    took = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        took.append(float(subprocess.run(scrape, capture_output=True, check=True, text=True).stdout))
        time.sleep(EVERY_S)
    lag.into = None
    figures["scrape_ms"] = statistics.median(took) * 1000
    for name, waits in (("alone", alone), ("scraped", scraped)):
        waits.sort()
        figures[f"{name}_p99_ms"] = waits[int(len(waits) * 0.99)]
        figures[f"{name}_max_ms"] = waits[-1]
    server.reactor.post(server.reactor.stop)


def _nothing() -> None:
    """Memory stays."""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.looplag", description=__doc__)
    parser.add_argument("--queues", type=natural, default=10_000, metavar="N", help="(10000)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each half (10)")
    parser.add_argument("--realtime", action="store_true", help="before every other program")
    parser.add_argument("--json", action="store_true", help="the figures as an object")
    args = parser.parse_args()
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    figures = measured(args.queues, args.seconds)
    lines = (f"{name:>16} {value:>10,.2f}" for name, value in figures.items())
    print(json.dumps(figures) if args.json else "\n".join(lines))


if __name__ == "__main__":
    main()
