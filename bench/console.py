"""``python -m bench.console``: what an open console costs a broker that has nothing else to do.

The overview, the list and one node are looked at in turn. What the broker takes of the processor
meanwhile is compared with what it takes when nobody looks. Exit status 1 if a page costs too much.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.console.world import Watched, chromium, crowd
from tests.wire.conftest import RunningBroker

TARGET_PERCENT = 2.0
SETTLE_S = 6.0
PAGES = ("", "nodes", "queue/queue.00000")


def processor_s(pid: int) -> float:
    """What the process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def percent(pid: int, seconds: float) -> float:
    """Of one core, over so long."""
    began, used = time.monotonic(), processor_s(pid)
    time.sleep(seconds)
    return (processor_s(pid) - used) / (time.monotonic() - began) * 100


def main() -> int:
    """Prints a line for each page."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--queues", type=int, default=1000, metavar="N")
    parser.add_argument("--seconds", type=float, default=30, metavar="S", help="of each measurement")
    args = parser.parse_args()
    path = shutil.which("chromium")
    if path is None:
        sys.stderr.write("needs chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        broker = RunningBroker(Path(folder), "", "", ())
        try:
            return measured(broker, path, args.queues, args.seconds)
        finally:
            broker.stop()


def measured(broker: RunningBroker, path: str, queues: int, seconds: float) -> int:
    """The exit status."""
    crowd(broker, queues)
    time.sleep(SETTLE_S)
    alone = percent(broker.pid, seconds)
    print(f"{queues:,} idle queues, no console          {alone:5.2f} % of a core")
    worst = 0.0
    with sync_playwright() as playwright, chromium(playwright, path) as browser:
        watched = Watched(browser.new_context(), f"http://127.0.0.1:{broker.http_port}")
        for place in PAGES:
            watched.goto(place)
            watched.page.locator("#link.live").wait_for()
            time.sleep(SETTLE_S)
            shown = percent(broker.pid, seconds)
            worst = max(worst, shown - alone)
            title = place or "overview"
            print(f"console on {title:24} {shown:5.2f} %, of which the console {shown - alone:5.2f} %")
    met = worst <= TARGET_PERCENT
    print(f"target: {TARGET_PERCENT:g} %, {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
