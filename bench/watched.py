"""``python -m bench.watched``: what messages lose while a console is open and `/metrics` is read each second.

One producer and one consumer of a queue at full speed, whose page a real Chromium shows; in every other round
nobody looks. Those who look have programs of their own, which would be on another machine: here they run
behind the others (`nice`), and how many of the seconds the page got its figures in is printed too, so that
one that can't follow is seen. Exit status 1 if too much is lost.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from bench.contenders import OURS, Running
from bench.measuring import Pace, load, number
from broker.client.request import Management
from tests.console.world import Watched, chromium

TARGET_PERCENT = 3.0
QUEUE = "probe"
SCRAPE = "while :; do curl -s -o /dev/null {url}/metrics; sleep 1; done"
# Counts what the page is told of the broker, once a second.
COUNTER = """
window.told = 0;
window.EventSource = class extends EventSource {
  constructor(...words) {
    super(...words);
    this.addEventListener("broker", () => { window.told += 1; });
  }
};
"""


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """A scrape a second, by processes of their own."""
    with subprocess.Popen(["nice", "-n", "19", "sh", "-c", SCRAPE.format(url=url)]) as shell:
        try:
            yield
        finally:
            shell.terminate()


def behind(path: str, folder: Path) -> str:
    """A program that runs another one behind all others."""
    wrapper = folder / "behind"
    wrapper.write_text(f'#!/bin/sh\nexec nice -n 19 {shlex.quote(path)} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


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
        self.told = 0
        self.seconds = 0.0

    def one(self, running: Running, pace: Pace, watched: bool) -> None:
        """Load the broker for a round."""
        result = load(running, pace, address=QUEUE)
        self.rates[watched].append(number(result["out_s"]))
        self.costs[watched].append(number(result["broker_cpu_us"]))

    def looked(self, running: Running, pace: Pace, page: Page) -> None:
        """The same while the page is open, and what it was told meanwhile."""
        before, began = page.evaluate("window.told"), time.monotonic()
        self.one(running, pace, watched=True)
        self.told += page.evaluate("window.told") - before
        self.seconds += time.monotonic() - began

    def report(self) -> bool:
        """Print the medians; whether the target is met."""
        alone, seen = (median(each) for each in self.rates)
        cost_alone, cost_seen = (median(each) for each in self.costs)
        lost = (1 - seen / alone) * 100
        print(f"nobody looks          {alone:10,.0f} msg/s  {cost_alone:.3f} us of the broker a message")
        print(f"console and scrapes   {seen:10,.0f} msg/s  {cost_seen:.3f} us of the broker a message")
        print(f"the page was told its figures {self.told} times in {self.seconds:.0f} s")
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
    args = parser.parse_args()
    path = shutil.which("chromium")
    if path is None:
        sys.stderr.write("needs chromium\n")
        return 1
    pace = Pace(args.seconds, 1.0, 0, 1, 0)
    rounds = Rounds()
    with OURS.started() as running, sync_playwright() as playwright:
        with Management(running.url) as management:
            for index in range(args.queues):
                management.call("CREATE", "org.sluice.queue", f"idle.{index}", {})
        url = console_of(running)
        with chromium(playwright, behind(path, running.directory)) as browser:
            watched = Watched(browser.new_context(), url)
            watched.page.add_init_script(COUNTER)
            for _ in range(args.rounds):
                watched.page.goto("about:blank")
                rounds.one(running, pace, watched=False)
                watched.node("queue", QUEUE).locator("#link.live").wait_for()
                with scraped(url):
                    rounds.looked(running, pace, watched.page)
    return 0 if rounds.report() else 1


if __name__ == "__main__":
    raise SystemExit(main())
