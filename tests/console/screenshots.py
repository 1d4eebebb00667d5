"""``python -m tests.console.screenshots``: writes docs/images/console-*.png from a broker at work."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests.console.world import PHONE, Api, Clients, Watched, blocked, chromium
from tests.wire.conftest import RunningBroker
from tests.wire.test_deadlock_wire import RawWorker

IMAGES = Path(__file__).parents[2] / "docs" / "images"
POLICIES = """policies:
  - match: "orders.>"
    max_count: 1000
    flow_stop_count: 900
    flow_resume_count: 500
  - match: "billing.*"
    flow_stop_count: 10
    flow_resume_count: 5
  - match: "news.>"
    kind: topic
"""
QUIET = ("audit", "invoices.eu", "invoices.us", "mail.out", "orders.returns", "payments", "reports.daily")
# The chart is worth looking at once it has seen the gate open and close.
SECONDS = 75.0
SMALL: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}, "device_scale_factor": 1.5}


def main() -> int:
    """Starts a broker with clients that keep it busy, and looks at it."""
    parser = argparse.ArgumentParser(prog="python -m tests.console.screenshots", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="to look before the first picture")
    args = parser.parse_args()
    path = shutil.which("chromium")
    if path is None:
        sys.stderr.write("needs chromium\n")
        return 1
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        broker = RunningBroker(Path(folder), "", POLICIES, ())
        stack.callback(broker.stop)
        clients = Clients(broker)
        stack.callback(clients.close)
        api = Api(broker)
        busy(broker, api, clients)
        playwright = stack.enter_context(sync_playwright())
        browser = stack.enter_context(chromium(playwright, path))
        pictures(browser, broker, api, stack, args.seconds)
    return 0


def busy(broker: RunningBroker, api: Api, clients: Clients) -> None:
    """Some queues with a producer that is faster than the consumer, some that are quiet."""
    for name in QUIET:
        api("/queues", {"name": name})
    api("/topics", {"name": "news.uk"})
    blocked(api, clients, "orders.eu")
    clients.start("receive", "orders.eu", "--rate", "60", "--credit", "50", "--no-output")
    clients.start("send", "orders.us", "--rate", "150", "--count", "1000000", "--body", "order")
    clients.start("receive", "orders.us", "--rate", "150", "--no-output")
    clients.start(
        "send",
        "payments",
        "--count",
        "140",
        "--body",
        '{"amount": 12.50, "currency": "EUR"}',
        "--property",
        "shop=Dublin",
    )


def pictures(browser: Browser, broker: RunningBroker, api: Api, stack: ExitStack, seconds: float) -> None:
    """Each page that the documentation shows."""
    base = f"http://127.0.0.1:{broker.http_port}"
    first = Watched(browser.new_context(**SMALL), base)
    first.goto("")
    time.sleep(seconds)
    node = Watched(browser.new_context(**SMALL), base)
    node.node("queue", "orders.eu")
    shoot(node, "node")
    nodes = Watched(browser.new_context(**SMALL), base)
    nodes.goto("nodes")
    shoot(nodes, "nodes")
    first.page.set_viewport_size({"width": 1280, "height": 860})
    shoot(first, "overview")
    dark = Watched(browser.new_context(**SMALL, color_scheme="dark"), base)
    dark.node("queue", "orders.eu")
    shoot(dark, "dark")
    phone = Watched(browser.new_context(**PHONE), base)
    phone.node("queue", "orders.eu")
    shoot(phone, "phone")
    for source, target in (("billing.a", "billing.b"), ("billing.b", "billing.a")):
        stack.enter_context(RawWorker(broker, source, target)).produce()
    api("/producers/stop", {"target": "mail.>"})
    deadlock = Watched(browser.new_context(**SMALL), base)
    deadlock.goto("")
    deadlock.page.locator("figure.circle").wait_for()
    shoot(deadlock, "deadlock")
    for each in (first, node, nodes, dark, phone, deadlock):
        each.check()


def shoot(watched: Watched, name: str) -> None:
    """What is in sight, once figures have come."""
    watched.page.locator("#link.live").wait_for()
    watched.page.locator("[aria-busy]").first.wait_for(state="detached")
    time.sleep(3.0)
    IMAGES.mkdir(exist_ok=True)
    watched.page.screenshot(path=IMAGES / f"console-{name}.png")


if __name__ == "__main__":
    raise SystemExit(main())
