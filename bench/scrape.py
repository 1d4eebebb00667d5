"""What a scrape of many queues takes, and what messages notice of it.

``python -m bench.scrape``: a broker with so many queues; a paced load on one of them, first alone, then
while `/metrics` is read once a second; and a load at full speed, likewise. Scraper and load are processes
and threads of their own, on the same machine.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from http.client import HTTPConnection

from bench.barelog import natural
from bench.contenders import OURS, BenchError, Running
from bench.measuring import Figures, Pace, load, number
from broker.amqp.registry import ConnectionRegistry
from broker.client.request import Management
from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.engine.engine import Engine
from broker.manage import calls
from broker.manage.model import Model
from broker.manage.survey import SurveyScope

EVERY_S = 1.0


class Scraper:
    """Reads `/metrics` once a second from ``begin`` to ``end``."""

    def __init__(self, port: int) -> None:
        self.seconds: list[float] = []
        self.nbytes = 0
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            self.once()

    def once(self) -> float:
        """How long one takes."""
        begun = time.perf_counter()
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        found = 0
        while part := response.read(1 << 20):
            found += len(part)
        connection.close()
        if response.status != 200:
            raise BenchError(f"/metrics answered {response.status}")
        self.nbytes = found
        self.seconds.append(time.perf_counter() - begun)
        return self.seconds[-1]


def longest_turn(queues: int) -> Figures:
    """What of a scrape the broker's thread does in one turn, at most, and in all; without sockets.

    In processor time, so that a busy machine changes little; the median of five scrapes' longest.
    """
    engine = Engine()
    engine.begin_turn(time.monotonic_ns())
    model = Model(engine, PolicySet(), BrokerDefaults(), ConnectionRegistry())
    for index in range(queues):
        model.nodes.create("queue", f"scraped.{index}", {"max_count": 1000})
    longest, totals = [], []
    for _ in range(6):
        turns: deque[Callable[[], None]] = deque()
        question = calls.IncrementalCall(turns.append, lambda: model.queries.survey(SurveyScope()))
        took = []
        while turns:
            begun = time.thread_time()
            turns.popleft()()
            took.append(time.thread_time() - begun)
        question.wait(0)
        longest.append(max(took))
        totals.append(sum(took))
    return {
        "longest_turn_ms": statistics.median(longest[1:]) * 1000,
        "all_turns_ms": statistics.median(totals[1:]) * 1000,
    }


def measured(queues: int, seconds: float) -> Figures:
    """Figures of a broker of its own."""
    with OURS.started() as running:
        port = http_port(running)
        with Management(running.url) as management:
            for index in range(queues):
                management.call("CREATE", "org.sluice.queue", f"scraped.{index}", {"max_count": 1000})
        idle = Scraper(port)
        for _ in range(7):
            idle.once()
        figures: Figures = {
            "queues": queues,
            "page_mb": idle.nbytes / 1e6,
            "idle_ms": statistics.median(idle.seconds) * 1000,
            "idle_worst_ms": max(idle.seconds[1:]) * 1000,
        }
        pace = Pace(seconds, 1.0, 0, 1, 0)
        for name, scraped in (("alone", False), ("scraped", True)):
            figures |= _paced(running, pace, name, Scraper(port) if scraped else None)
        for name, scraped in (("alone", False), ("scraped", True)):
            figures |= _full(running, pace, name, Scraper(port) if scraped else None)
        figures["full_loss_pct"] = 100 * (1 - figures["full_scraped_per_s"] / figures["full_alone_per_s"])
        return figures


def _paced(running: Running, pace: Pace, name: str, scraper: Scraper | None) -> Figures:
    if scraper is None:
        result = load(running, pace, address="probe", rate=1000)
    else:
        with scraper:
            result = load(running, pace, address="probe", rate=1000)
    latency = result["latency_us"]
    assert isinstance(latency, dict)
    found = {
        f"latency_{name}_{key}_ms": number(value) / 1000 for key, value in latency.items() if key != "count"
    }
    if scraper is not None and scraper.seconds:
        found["paced_scrape_ms"] = statistics.median(scraper.seconds) * 1000
    return found


def _full(running: Running, pace: Pace, name: str, scraper: Scraper | None) -> Figures:
    if scraper is None:
        return {f"full_{name}_per_s": number(load(running, pace, address="probe")["out_s"])}
    with scraper:
        found = {f"full_{name}_per_s": number(load(running, pace, address="probe")["out_s"])}
    if scraper.seconds:
        found["full_scrape_ms"] = statistics.median(scraper.seconds) * 1000
    return found


def http_port(running: Running) -> int:
    """Where a broker that was started for a benchmark serves HTTP."""
    found = re.search(r"listening http://127\.0\.0\.1:(\d+)", (running.directory / "log").read_text())
    if found is None:
        raise BenchError("the broker doesn't say where it serves HTTP")
    return int(found[1])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--queues", type=natural, default=10_000, metavar="N", help="(10000)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each load (10)")
    parser.add_argument("--json", action="store_true", help="the figures as an object")
    args = parser.parse_args()
    figures = longest_turn(args.queues) | measured(args.queues, args.seconds)
    lines = (f"{name:>30} {value:>12,.2f}" for name, value in figures.items())
    print(json.dumps(figures) if args.json else "\n".join(lines))


if __name__ == "__main__":
    main()
