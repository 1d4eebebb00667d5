"""``python -m bench.watched``: what messages lose while a console is open and `/metrics` is read each second.

One producer and one consumer of a queue go on at full speed; a console that shows this queue's page comes and
goes beside them, and what they get is read off second by second, with it and without, so that a machine that
slows down slows both. A browser would be on another machine, and takes more of a processor to draw than the
broker to tell: so a real Chromium is looked at first, for what it asks and how often, and a small program
then asks the same of the broker and reads the same stream. That program is there all the time, and asks
nothing while nobody is to look. Exit status 1 if too much is lost.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from http.client import HTTPConnection
from statistics import median, quantiles
from urllib.parse import urlsplit

from playwright.sync_api import Request, sync_playwright

from bench.contenders import OURS, Running
from bench.growth import SETTLE_S, Point, window
from bench.measuring import Pace, load
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
    """Asks what a console asks, and for the metrics once a second, until it is to leave."""

    def __init__(self, port: int, habits: Habits) -> None:
        self.told = 0
        self.answers = 0
        self._port = port
        self._over = threading.Event()
        periods = {**habits, "/metrics": 1.0}
        self._threads = [
            threading.Thread(target=self._every, args=(ask, period_s))
            if period_s
            else threading.Thread(target=self._stream, args=(ask,))
            for ask, period_s in periods.items()
        ]
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """Until nothing is asked any more."""
        self._over.set()
        for thread in self._threads:
            thread.join()

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


def look_when_told(port: int, habits: Habits) -> None:
    """The program that looks: each line of its input begins or ends a look, and is answered with a line."""
    onlooker = None
    print(json.dumps([0, 0]), flush=True)
    for _ in sys.stdin:
        if onlooker is None:
            onlooker = Onlooker(port, habits)
            print(json.dumps([0, 0]), flush=True)
        else:
            onlooker.leave()
            print(json.dumps([onlooker.told, onlooker.answers]), flush=True)
            onlooker = None


class Eyes:
    """That program, while the block runs; how often it was ``told`` figures, and its ``answers``."""

    def __init__(self, port: int, habits: Habits) -> None:
        self.told = self.answers = 0
        command = [sys.executable, "-m", "bench.watched", "--look", json.dumps([port, habits])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Eyes:
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Look while the block runs."""
        self._turn()
        yield
        self._turn()

    def _turn(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._read()

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the onlooker ended by itself")
        told, answers = json.loads(line)
        self.told += told
        self.answers += answers


def console_of(running: Running) -> str:
    """Where the broker serves HTTP."""
    found = re.search(r"listening (http://127\.0\.0\.1:\d+)", (running.directory / "log").read_text())
    if found is None:
        raise SystemExit("the broker doesn't say where it serves HTTP")
    return found[1]


def paired(running: Running, eyes: Eyes, rounds: int, seconds: float) -> list[tuple[Point, Point]]:
    """What is moved alone and looked at, right behind each other; which of them is first is drawn by lot."""
    found = []
    for _ in range(rounds):
        points: dict[bool, Point] = {}
        for seen in random.sample((False, True), 2):
            with eyes.open() if seen else nullcontext():
                points[seen] = window(running, int(seen), seconds)
        found.append((points[False], points[True]))
    return found


def report(found: list[tuple[Point, Point]]) -> bool:
    """Print the medians; whether the target is met."""
    for title, each in zip(("nobody looks", "console and scrapes"), zip(*found, strict=True), strict=True):
        rate, cpu_us = median(point.rate for point in each), median(point.cpu_us for point in each)
        print(f"{title:20}  {rate:10,.0f} msg/s  {cpu_us:.3f} us of the broker a message")
    lost = [100 * (1 - seen.rate / alone.rate) for alone, seen in found]
    first, middle, last = quantiles(lost, n=4)
    verdict = "met" if middle <= TARGET_PERCENT else "missed"
    print(
        f"lost {middle:.1f} % (quartiles {first:.1f} and {last:.1f}), target {TARGET_PERCENT:g} %: {verdict}"
    )
    cost = median(seen.cpu_us / alone.cpu_us for alone, seen in found)
    print(f"processor time a message: {cost:.3f} of alone")
    return middle <= TARGET_PERCENT


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.watched", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="of each kind (30)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each round (3)")
    parser.add_argument("--queues", type=int, default=100, metavar="N", help="idle ones beside it (100)")
    parser.add_argument("--look", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look:
        look_when_told(*args.look)
        return 0
    path = shutil.which("chromium")
    if path is None:
        sys.stderr.write("needs chromium\n")
        return 1
    with OURS.started() as running:
        with Management(running.url) as management:
            for index in range(args.queues):
                management.call("CREATE", "org.sluice.queue", f"idle.{index}", {})
        url = console_of(running)
        port = urlsplit(url).port
        assert port is not None
        load(running, Pace(1.0, 0.5, 0, 1, 0), address=QUEUE)
        habits = habits_of(url, path)
        for ask, period_s in habits.items():
            print(
                f"a console asks {ask} " + (f"every {period_s:.1f} s" if period_s else "and keeps listening")
            )
        # Longer than all rounds together: what ends with them is the reading.
        pace = Pace(2 * args.rounds * (args.seconds + SETTLE_S + 1.0), 0.5, 0, 1, 0)
        with Eyes(port, habits) as eyes, ThreadPoolExecutor(1) as beside:
            loaded = beside.submit(load, running, pace, address=QUEUE)
            found = paired(running, eyes, args.rounds, args.seconds)
            print("waiting for the load to end", flush=True)
            loaded.result()
    print(f"who looked was told {eyes.told} times and got {eyes.answers} answers")
    return 0 if report(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
