"""The console at thousands of queues: a page at a time, sorted by the broker, and few elements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.world import PATIENCE_S, Api, Clients, Open, crowd
from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire


@pytest.fixture
def crowded(tmp_path: Path, queues: int) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path, "events:\n  enabled: false\n", "", ())
    crowd(broker, queues)
    yield broker
    broker.stop()


# So many queues take half a minute where others work as well.
@pytest.mark.timeout(360)
@pytest.mark.parametrize("queues", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_queues(crowded: RunningBroker, look: Open, queues: int) -> None:
    clients = Clients(crowded)
    try:
        clients.start("send", "queue.01777", "--count", "5", "--body", "x").wait(PATIENCE_S)
    finally:
        clients.close()
    page = look(crowded).goto("nodes")
    expect(page.locator(".status")).to_have_text(f"{queues:,} nodes")
    rows = page.locator(".vtable tbody tr:not(.spacer)")
    scroller = page.locator(".vtable")
    for part, name in (
        (1.0, f"queue.{queues - 1:05}"),
        (0.5, f"queue.{queues // 2:05}"),
        (0.0, "queue.00000"),
    ):
        scroller.evaluate("(e, part) => { e.scrollTop = part * e.scrollHeight }", part)
        expect(page.get_by_role("link", name=name)).to_be_visible()
        assert rows.count() < 120
    expect(page.locator(f"table[aria-rowcount='{queues + 1}']")).to_have_count(1)
    page.get_by_role("button", name="Depth", exact=True).click()
    expect(rows.first).to_contain_text("queue.01777")
    page.get_by_role("searchbox").fill("*.0123*")
    expect(page.locator(".status")).to_have_text("10 nodes")
    expect(rows).to_have_count(10)
    assert len(Api(crowded)("/queues?limit=1000&fields=name")["items"]) == 1000
