"""The console in a real Chromium against a live broker: the overview and the list of nodes.

In these files every verb is clicked, and its effect is looked up in the broker.
"""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from tests.console.world import PATIENCE_S, Api, Clients, Open, blocked, confirm, filled
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.test_deadlock_wire import RawWorker

pytestmark = pytest.mark.wire


def test_the_overview_says_what_is_stopped_and_why(look: Open, api: Api, clients: Clients) -> None:
    blocked(api, clients, "full.one")
    page = look().goto("")
    expect(page.locator("#link")).to_have_text("live")
    row = page.get_by_role("region", name="Stopped nodes").get_by_role("row", name="full.one")
    expect(row).to_contain_text("flow_stop_count")
    expect(row).to_contain_text("has no credit")
    for bar in ("Memory", "Store", "Temporary"):
        expect(page.get_by_role("meter", name=bar)).to_have_attribute("aria-valuetext", re.compile(r" of "))
    expect(page.locator(".figures div", has_text="Connections").locator("dd")).to_have_text(
        str(api("/broker")["connections"])
    )
    row.get_by_role("link", name="full.one").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("full.one")


def test_rates_follow_the_messages(look: Open, clients: Clients) -> None:
    page = look().goto("")
    clients.start("send", "rates", "--count", "1000000", "--rate", "500", "--body", "x")
    clients.start("receive", "rates", "--no-output")
    for key in (".key.in .num", ".key.out .num"):
        # In one of the seconds in which the machine lets both of them have their way.
        expect(page.locator(key)).to_have_text(re.compile(r"^(4\d\d|5\d\d) /s$"), timeout=60_000)
    expect(page.locator(".rates .curve.in")).to_have_count(1)


def test_all_producers_are_stopped_and_started(look: Open, api: Api) -> None:
    page = look().goto("")
    page.get_by_role("button", name="Stop all producers…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert api("/holds")["holds"] == []
    page.get_by_role("button", name="Stop all producers…").click()
    confirm(page, "Stop all producers")
    assert api("/holds")["holds"] == [">"]
    banner = page.locator("#holds")
    expect(banner).to_contain_text("Stopped by an operator: all producers")
    page.get_by_role("link", name="Queues & topics", exact=True).click()
    expect(banner).to_be_visible()
    banner.get_by_role("button", name="Start all producers…").click()
    confirm(page, "Start all producers")
    assert api("/holds")["holds"] == []
    expect(banner).to_have_count(0)


def test_a_deadlock_is_drawn(look: Open, live: RunningBroker) -> None:
    ways = [("ring.a", "ring.b"), ("ring.b", "ring.c"), ("ring.c", "ring.a")]
    with ExitStack() as stack:
        for peer in [stack.enter_context(RawWorker(live, *way)) for way in ways]:
            peer.produce()
        page = look().goto("")
        picture = page.locator("figure.circle")
        expect(picture.locator("g.node")).to_have_count(3)
        expect(picture.locator("g.connection")).to_have_count(3)
        expect(picture.locator("line.wait")).to_have_count(6)
        expect(picture.locator("figcaption")).to_contain_text("which waits for 'ring.")
    expect(picture).to_have_count(0)


# --- nodes


def test_nodes_are_sorted_and_filtered(look: Open, api: Api, clients: Clients) -> None:
    for name, count in (("sort.a", 3), ("sort.b", 9), ("sort.c", 1)):
        filled(api, clients, name, count)
    page = look().goto("nodes")
    rows = page.locator(".vtable tbody tr:not(.spacer)")
    expect(page.locator("main input[type=search]")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("main input[type=search]")).to_be_focused()
    page.keyboard.type("sort.")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Depth", exact=True).click()
    expect(rows.locator("a")).to_have_text(["sort.b", "sort.a", "sort.c"])
    expect(page.get_by_role("columnheader", name="Depth", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("button", name="Depth", exact=True).click()
    expect(rows.locator("a")).to_have_text(["sort.c", "sort.a", "sort.b"])
    rows.locator("a").first.focus()
    page.keyboard.press("ArrowDown")
    expect(rows.locator("a").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("sort.a")
    page.go_back()
    page.get_by_text("topics", exact=True).click()
    expect(page.locator(".overlay")).to_contain_text("No topic has")


def test_a_row_lives(look: Open, api: Api, clients: Clients) -> None:
    filled(api, clients, "lively", 5)
    page = look().goto("nodes?filter=lively")
    row = page.locator(".vtable tbody tr", has_text="lively")
    expect(row.locator("td").nth(2)).to_have_text("5")
    clients.start("send", "lively", "--count", "7", "--body", "x").wait(PATIENCE_S)
    expect(row.locator("td").nth(2)).to_have_text("12")
    drawn = "c => c.toDataURL() !== c.cloneNode().toDataURL()"
    wait_until(lambda: bool(row.locator("canvas").evaluate(drawn)), PATIENCE_S, "a sparkline")


def test_a_queue_and_a_topic_are_created(look: Open, api: Api) -> None:
    page = look(faults=("400",)).goto("nodes")
    page.get_by_role("button", name="Create…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("$wrong")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the broker's own")
    dialog.get_by_label("Name", exact=True).fill("made/here")
    dialog.get_by_label("flow_stop_count", exact=True).fill("40")
    dialog.get_by_label("Other arguments").fill("dispatch = adaptive")
    dialog.get_by_label("Durable").check()
    confirm(page, "Create")
    expect(page.get_by_role("heading", level=1)).to_have_text("made/here")
    made = api.queue("made/here")
    assert (made["flow_stop_count"], made["dispatch"], made["durable"]) == (40, "adaptive", True)
    page.get_by_role("link", name="Queues & topics", exact=True).click()
    page.get_by_role("button", name="Create…").click()
    dialog.get_by_label("Kind").select_option("topic")
    dialog.get_by_label("Name", exact=True).fill("made.topic")
    confirm(page, "Create")
    expect(page.get_by_role("heading", level=1)).to_have_text("made.topic")
    assert api.queue("made.topic", "topic")["kind"] == "topic"


def test_producers_are_stopped_by_pattern(look: Open, api: Api) -> None:
    page = look().goto("nodes")
    page.get_by_role("button", name="Stop by pattern…").click()
    page.get_by_role("dialog").get_by_label("Name or pattern").fill("orders.>")
    confirm(page, "Apply")
    assert api("/holds")["holds"] == ["orders.>"]
    page.locator("#holds").get_by_role("button", name="Start orders.>").click()
    confirm(page, "Start producers")
    assert api("/holds")["holds"] == []
