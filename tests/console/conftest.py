"""One browser and one broker for all of the console's tests; each test has nodes and a page of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.console.world import PATIENCE_MS, Api, Clients, Open, Watched, chromium
from tests.wire.conftest import RunningBroker

POLICIES = """policies:
  - match: "full.*"
    flow_stop_count: 50
    flow_resume_count: 20
  - match: "ring.*"
    flow_stop_count: 10
    flow_resume_count: 5
  - match: "news.>"
    kind: topic
"""

# For a machine that does other work as well; what comes at once is not waited for.
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """It ends with this folder's tests: while Playwright is there, its loop runs in the main thread."""
    path = shutil.which("chromium")
    if path is None:
        assert not os.environ.get("CI"), "chromium is missing"
        pytest.skip("needs chromium")
    with sync_playwright() as playwright, chromium(playwright, path) as found:
        yield found


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("console"), "", POLICIES, ())
    # Without a browser no page has waited for it yet.
    broker.settle()
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def api(live: RunningBroker) -> Iterator[Api]:
    """Nobody's producers are stopped afterwards."""
    yield Api(live)
    Api(live)("/producers/start", {"target": None})


@pytest.fixture
def clients(live: RunningBroker) -> Iterator[Clients]:
    started = Clients(live)
    yield started
    started.close()


@pytest.fixture
def look(browser: Browser, live: RunningBroker) -> Iterator[Open]:
    """Open a page, with a browser's settings by name; a complaint but of these statuses fails the test."""
    opened: list[Watched] = []

    def start(broker: RunningBroker = live, faults: Sequence[str] = (), **settings: Any) -> Watched:
        wanted = {"viewport": {"width": 1280, "height": 900}, **settings}
        context = browser.new_context(**wanted)
        opened.append(Watched(context, f"http://127.0.0.1:{broker.http_port}", faults))
        return opened[-1]

    yield start
    for each in opened:
        each.page.context.close()
    for each in opened:
        each.check()
