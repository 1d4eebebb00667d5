"""Policies, connections, links and wiring in a real Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.world import PATIENCE_S, Api, Clients, Open, confirm, consumed
from tests.wire.conftest import RunningBroker, wait_until

pytestmark = pytest.mark.wire


def test_policies_are_tried_then_applied(look: Open, api: Api) -> None:
    api("/queues", {"name": "fresh.one"})
    page = look(faults=("400",)).goto("policies")
    expect(page.get_by_role("region", name="Policies").get_by_role("row", name="full.*")).to_contain_text(
        "policies.yaml:"
    )
    text = page.get_by_label("Policies, as in a file")
    text.fill("policies:\n  - match: 'fresh.*'\n    flow_stop_cuont: 33\n")
    page.get_by_role("button", name="Try (dry run)").click()
    expect(page.locator(".outcome .problem")).to_contain_text("did you mean 'flow_stop_count'?")
    text.fill("policies:\n  - match: 'fresh.*'\n    flow_stop_count: 33\n")
    page.get_by_role("button", name="Try (dry run)").click()
    expect(page.locator(".outcome")).to_contain_text("It would change 1 node.")
    assert api.queue("fresh.one")["flow_stop_count"] == 0
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".outcome")).to_contain_text("Applied; 1 node changed.")
    assert api.queue("fresh.one")["flow_stop_count"] == 33
    page.get_by_label("Address, whether or not it exists yet").fill("fresh.two")
    page.get_by_role("button", name="Explain").click()
    expect(
        page.get_by_role("region", name="Effective settings").get_by_role("row", name="flow_stop_count 33")
    ).to_contain_text("console:")
    page.get_by_role("button", name="Read the files again…").click()
    confirm(page, "Read again")
    wait_until(lambda: bool(api.queue("fresh.one")["flow_stop_count"] == 0), 10, "the files to hold again")


def test_a_connection_is_closed(look: Open, api: Api, clients: Clients) -> None:
    client = clients.start("receive", "closing", "--no-output")
    consumed(api, "closing")
    [link] = api("/links?node=closing&role=consumer")["items"]
    page = look().goto("connections")
    row = page.locator(".vtable tbody tr", has_text=link["peer"])
    row.get_by_role("button", name="Close…").click()
    confirm(page, "Close connection")
    assert client.wait(PATIENCE_S) != 0
    expect(row).to_have_count(0)


def test_a_connection_is_traced(look: Open, live: RunningBroker, api: Api, clients: Clients) -> None:
    clients.start("receive", "traced", "--no-output")
    consumed(api, "traced")
    [link] = api("/links?node=traced&role=consumer")["items"]
    page = look().goto("connections")
    row = page.locator(".vtable tbody tr", has_text=link["peer"])
    row.get_by_role("button", name="Trace…").click()
    confirm(page, "Trace")
    clients.start("send", "traced", "--body", "x").wait(PATIENCE_S)
    live.wait_for_log("transfer")


def test_events_and_log_levels(look: Open, api: Api) -> None:
    api("/queues", {"name": "eventful"})
    api("/producers/stop", {"target": "eventful"})
    page = look().goto("log")
    page.get_by_role("searchbox").fill("eventful")
    stopped = page.locator(".events li", has_text="stopped").first
    expect(stopped).to_contain_text("reason=operator")
    expect(stopped.get_by_role("link", name="eventful")).to_be_visible()
    level = page.get_by_label("sluice.http", exact=True)
    level.select_option("debug")
    wait_until(lambda: bool(api("/log-levels")["levels"]["sluice.http"].lower() == "debug"), 10, "the level")
    level.select_option("info")
    wait_until(lambda: bool(api("/log-levels")["levels"]["sluice.http"].lower() == "info"), 10, "it again")


def test_a_link_is_detached(look: Open, api: Api, clients: Clients) -> None:
    client = clients.start("receive", "detaching", "--no-output")
    consumed(api, "detaching")
    page = look().goto("links?role=consumer")
    row = page.locator(".vtable tbody tr", has_text="detaching")
    row.get_by_role("button", name="Detach…").click()
    confirm(page, "Detach link")
    wait_until(lambda: not api.queue("detaching")["consumers"], 10, "the link to be gone")
    assert client.wait(PATIENCE_S) != 0


def bound(api: Api) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in api("/bindings")["items"]]


def test_a_queue_is_bound_and_bridged(look: Open, api: Api) -> None:
    api("/topics", {"name": "news.uk"})
    for name in ("inbox", "copy"):
        api("/queues", {"name": name})
    page = look().goto("wiring")
    page.get_by_role("button", name="Bind…", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic").fill("news.uk")
    dialog.get_by_label("Queue").fill("inbox")
    confirm(page, "Bind")
    bindings = page.get_by_role("region", name="Bindings")
    row = bindings.get_by_role("row", name="inbox")
    expect(row).to_be_visible()
    assert ("news.uk", "inbox") in bound(api)
    row.get_by_role("button", name="Unbind…").click()
    confirm(page, "Unbind")
    wait_until(lambda: ("news.uk", "inbox") not in bound(api), 10, "no binding")
    page.get_by_role("button", name="Bridge…").click()
    dialog.get_by_label("From").fill("inbox")
    dialog.get_by_label("To", exact=True).fill("copy")
    confirm(page, "Create bridge")
    bridges = page.get_by_role("region", name="Bridges")
    expect(bridges.get_by_role("row", name="copy")).to_be_visible()
    assert len(api("/bridges")["items"]) == 1
    bridges.get_by_role("button", name="Delete…").click()
    confirm(page, "Delete bridge")
    wait_until(lambda: api("/bridges")["items"] == [], 10, "no bridge")
