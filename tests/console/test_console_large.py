"""The console at 10,000 queues: a page at a time, sorted by the broker, and few elements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.world import PATIENCE_S, Api, Clients, Open, crowd
from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire

QUEUES = 10_000


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path, "events:\n  enabled: false\n", "", ())
    crowd(broker, QUEUES)
    yield broker
    broker.stop()


# So many queues take half a minute where others work as well.
@pytest.mark.timeout(360)
def test_ten_thousand_queues(crowded: RunningBroker, look: Open) -> None:
    clients = Clients(crowded)
    try:
        clients.start("send", "queue.07777", "--count", "5", "--body", "x").wait(PATIENCE_S)
    finally:
        clients.close()
    page = look(crowded).goto("nodes")
    expect(page.locator(".status")).to_have_text("10,000 nodes")
    rows = page.locator(".vtable tbody tr:not(.spacer)")
    scroller = page.locator(".vtable")
    for part, name in ((1.0, "queue.09999"), (0.5, "queue.05000"), (0.0, "queue.00000")):
        scroller.evaluate("(e, part) => { e.scrollTop = part * e.scrollHeight }", part)
        expect(page.get_by_role("link", name=name)).to_be_visible()
        assert rows.count() < 120
    expect(page.locator("table[aria-rowcount='10001']")).to_have_count(1)
    page.get_by_role("button", name="Depth", exact=True).click()
    expect(rows.first).to_contain_text("queue.07777")
    page.get_by_role("searchbox").fill("*.0123*")
    expect(page.locator(".status")).to_have_text("10 nodes")
    expect(rows).to_have_count(10)
    assert len(Api(crowded)("/queues?limit=1000&fields=name")["items"]) == 1000
