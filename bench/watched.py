"""``python -m bench.watched``: what messages lose while a console is open and `/metrics` is read each second.

One producer and one consumer of a queue at full speed, and a console that shows this queue's page; in every
other round nobody looks. A browser would be on another machine, and takes more of a processor to draw than
the broker to tell: so a real Chromium is looked at first, for what it asks and how often, and a small program
then asks the same of the broker and reads the same stream. Exit status 1 if too much is lost.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import median
from urllib.parse import urlsplit

from playwright.sync_api import Request, sync_playwright

from bench.contenders import OURS, Running
from bench.measuring import Pace, load, number
from broker.client.request import Management
from tests.console.world import Watched, chromium

TARGET_PERCENT = 3.0
QUEUE = "probe"
STREAM = "/api/v1/live"
LOOK_S = 20.0

# What is asked, and how often, in seconds; 0 is the stream, which is asked for once.
Habits = Mapping[str, float]


def habits_of(url: str, path: str) -> Habits:
    """What a real console asks while it shows the queue's page, besides its own files."""
    times: dict[str, list[float]] = defaultdict(list)

    def noted(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.path.startswith("/api/"):
            times[f"{parts.path}?{parts.query}"].append(time.monotonic())

    with sync_playwright() as playwright, chromium(playwright, path) as browser:
        watched = Watched(browser.new_context(), url)
        watched.page.on("request", noted)
        watched.node("queue", QUEUE).locator("#link.live").wait_for()
        watched.page.wait_for_timeout(LOOK_S * 1000)
    found = {ask: (when[-1] - when[0]) / (len(when) - 1) for ask, when in times.items() if len(when) > 2}
    # It listens to one stream at a time: the last is that of the page.
    streams = [ask for ask in times if ask.startswith(STREAM)]
    return found | {max(streams, key=lambda ask: times[ask][-1]): 0.0}


class Onlooker:
    """Asks what a console asks, and for the metrics once a second, until ``over``; a program of its own."""

    def __init__(self, port: int, habits: Habits) -> None:
        self.told = 0
        self.answers = 0
        self._port = port
        self._habits = {**habits, "/metrics": 1.0}
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Ask for so long."""
        threads = [threading.Thread(target=self._stream, args=(ask,)) for ask in self._of(0.0)]
        threads += [
            threading.Thread(target=self._every, args=(ask, self._habits[ask]))
            for ask in self._habits
            if self._habits[ask]
        ]
        for thread in threads:
            thread.start()
        self._over.wait(seconds)
        self._over.set()
        for thread in threads:
            thread.join()

    def _of(self, period_s: float) -> list[str]:
        return [ask for ask, each in self._habits.items() if each == period_s]

    def _every(self, ask: str, period_s: float) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self._over.wait(period_s):
            connection.request("GET", ask)
            self.answers += bool(connection.getresponse().read())
        connection.close()

    def _stream(self, ask: str) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", ask)
        answer = connection.getresponse()
        while not self._over.is_set() and (line := answer.readline()):
            self.told += line == b"event: broker\n"
        connection.close()


@contextmanager
def looked_at(port: int, habits: Habits, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """An onlooker while the block runs, for so long at most."""
    words = ["--look", json.dumps([port, habits, seconds])]
    command = [sys.executable, "-m", "bench.watched", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "looking\n":
            raise SystemExit("the onlooker did not start")
        yield process


def console_of(running: Running) -> str:
    """Where the broker serves HTTP."""
    found = re.search(r"listening (http://127\.0\.0\.1:\d+)", (running.directory / "log").read_text())
    if found is None:
        raise SystemExit("the broker doesn't say where it serves HTTP")
    return found[1]


class Rounds:
    """Rates and the broker's processor time a message, of rounds without and with somebody who looks."""

    def __init__(self) -> None:
        self.rates: tuple[list[float], list[float]] = ([], [])
        self.costs: tuple[list[float], list[float]] = ([], [])
        self.told = self.answers = 0
        self.seconds = 0.0

    def one(self, running: Running, pace: Pace, watched: bool) -> None:
        """Load the broker for a round."""
        result = load(running, pace, address=QUEUE)
        self.rates[watched].append(number(result["out_s"]))
        self.costs[watched].append(number(result["broker_cpu_us"]))

    def looked(self, running: Running, pace: Pace, port: int, habits: Habits) -> None:
        """The same while somebody looks, and how often that one was told the broker's figures."""
        seconds = pace.seconds + pace.warmup
        with looked_at(port, habits, seconds) as onlooker:
            self.one(running, pace, watched=True)
            assert onlooker.stdout is not None
            told, answers = json.loads(onlooker.stdout.read())
        self.told += told
        self.answers += answers
        self.seconds += seconds

    def report(self) -> bool:
        """Print the medians; whether the target is met."""
        alone, seen = (median(each) for each in self.rates)
        cost_alone, cost_seen = (median(each) for each in self.costs)
        lost = (1 - seen / alone) * 100
        print(f"nobody looks          {alone:10,.0f} msg/s  {cost_alone:.3f} us of the broker a message")
        print(f"console and scrapes   {seen:10,.0f} msg/s  {cost_seen:.3f} us of the broker a message")
        print(f"who looked was told {self.told} times in {self.seconds:.0f} s and got {self.answers} answers")
        met = lost <= TARGET_PERCENT
        verdict = "met" if met else "missed"
        print(f"lost {lost:.1f} %, target {TARGET_PERCENT:g} %: {verdict}")
        print(f"processor time a message: {cost_seen / cost_alone:.3f} of alone")
        return met


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.watched", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of each kind (10)")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="of each round (6)")
    parser.add_argument("--queues", type=int, default=100, metavar="N", help="idle ones beside it (100)")
    parser.add_argument("--look", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look:
        port, habits, seconds = args.look
        onlooker = Onlooker(port, habits)
        print("looking", flush=True)
        onlooker.run(seconds)
        print(json.dumps([onlooker.told, onlooker.answers]))
        return 0
    path = shutil.which("chromium")
    if path is None:
        sys.stderr.write("needs chromium\n")
        return 1
    pace = Pace(args.seconds, 1.0, 0, 1, 0)
    rounds = Rounds()
    with OURS.started() as running:
        with Management(running.url) as management:
            for index in range(args.queues):
                management.call("CREATE", "org.sluice.queue", f"idle.{index}", {})
        url = console_of(running)
        port = urlsplit(url).port
        assert port is not None
        load(running, pace, address=QUEUE)
        habits = habits_of(url, path)
        for ask, period_s in habits.items():
            print(
                f"a console asks {ask} " + (f"every {period_s:.1f} s" if period_s else "and keeps listening")
            )
        for _ in range(args.rounds):
            rounds.one(running, pace, watched=False)
            rounds.looked(running, pace, port, habits)
    return 0 if rounds.report() else 1


if __name__ == "__main__":
    raise SystemExit(main())
