"""The console in a real Chromium against a live broker: every verb is clicked and its effect is checked there."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from tests.console.world import Api, Clients, Open, blocked, confirm, filled
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.test_deadlock_wire import RawWorker

pytestmark = pytest.mark.wire

HTML = '<img src=x onerror="window.hurt=1"><b>bold</b>'


# --- the overview


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
        expect(page.locator(key)).to_have_text(re.compile(r"^(4\d\d|5\d\d) /s$"), timeout=15_000)
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
    page.get_by_role("link", name="Nodes", exact=True).click()
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
    page.keyboard.press("/")
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
    expect(row.locator("td").nth(3)).to_have_text("5")
    clients.start("send", "lively", "--count", "7", "--body", "x").wait(20)
    expect(row.locator("td").nth(3)).to_have_text("12")
    drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    wait_until(lambda: bool(row.locator("canvas").evaluate(drawn)), 10, "a sparkline")


def test_a_queue_and_a_topic_are_created(look: Open, api: Api) -> None:
    page = look().goto("nodes")
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
    page.get_by_role("link", name="Nodes", exact=True).click()
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


# --- one node


def test_depth_is_drawn_against_its_lines(look: Open, api: Api, clients: Clients) -> None:
    blocked(api, clients, "full.two")
    consumer = clients.start("receive", "full.two", "--rate", "20", "--credit", "10", "--no-output")
    page = look().node("queue", "full.two")
    chart = page.locator("svg.chart")
    expect(chart.locator(".limit.stop text")).to_have_text("stop 50")
    expect(chart.locator(".limit.resume text")).to_have_text("resume 20")
    expect(chart.locator(".curve")).to_have_count(1)
    wait_until(lambda: chart.locator(".shade").count() > 0, 10, "a shaded period")
    expect(chart).to_have_accessible_name(
        re.compile("Depth of full.two .*stop at 50, resume below 20; stopped")
    )
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("cell", name="stopped").first).to_be_visible()
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".reading")).to_contain_text("messages")
    page.get_by_text("Bytes", exact=True).first.click()
    page.get_by_text("10 min", exact=True).click()
    producers = page.get_by_role("region", name="Producers")
    expect(producers.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("region", name="Consumers").locator("tbody td").nth(3)).to_have_text(
        re.compile(r"\d+")
    )
    consumer.terminate()
    expect(producers.locator("tbody td").nth(4)).to_have_text(re.compile(r"\d s$"), timeout=15_000)
    expect(page.locator(".whys")).to_contain_text("has no credit")


def test_thresholds_are_previewed_then_changed(look: Open, api: Api, clients: Clients) -> None:
    filled(api, clients, "edited", 30)
    page = look().node("queue", "edited")
    field, apply = page.get_by_label("flow_stop_count", exact=True), page.get_by_role("button", name="Apply")
    expect(apply).to_be_disabled()
    field.fill("20")
    outcome = page.locator(".thresholds .outcome")
    expect(outcome).to_contain_text("stopped")
    expect(outcome).to_contain_text("flow_stop_count 0 → 20")
    assert api.queue("edited")["flow_stop_count"] == 0
    apply.click()
    wait_until(lambda: bool(api.queue("edited")["flow_stop_count"] == 20), 10, "the change")
    expect(page.locator(".node-state")).to_contain_text("Stopped by flow_stop_count")
    page.get_by_role("button", name="Take back flow_stop_count").click()
    expect(outcome).to_contain_text("flow_stop_count 20 → 0")
    apply.click()
    wait_until(lambda: bool(api.queue("edited")["flow_stop_count"] == 0), 10, "the change back")


def test_a_change_of_somebody_elses_is_not_undone(look: Open, api: Api) -> None:
    api("/queues", {"name": "shared"})
    page = look(faults=("412",)).node("queue", "shared")
    page.get_by_label("max_count", exact=True).fill("100")
    expect(page.get_by_role("button", name="Apply")).to_be_enabled()
    api("/queues/shared", {"max_count": 77}, "PATCH")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".thresholds .problem")).to_contain_text("changed meanwhile")
    assert api.queue("shared")["max_count"] == 77
    page.get_by_role("button", name="Load the present values").click()
    expect(page.get_by_label("max_count", exact=True)).to_have_value("77")


def test_a_wrong_threshold_is_refused_before_it_is_applied(look: Open, api: Api) -> None:
    api("/queues", {"name": "contradicts", "arguments": {"flow_stop_count": 10}})
    page = look(faults=("400",)).node("queue", "contradicts")
    page.get_by_label("flow_resume_count", exact=True).fill("50")
    expect(page.locator(".thresholds .problem")).to_contain_text("flow_resume_count 50 is more than")
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()


def test_producers_of_one_node_are_stopped_and_started(look: Open, api: Api) -> None:
    api("/queues", {"name": "single"})
    page = look().node("queue", "single")
    page.get_by_role("button", name="Stop producers…").click()
    confirm(page, "Stop producers")
    assert api.queue("single")["heldBy"] == "single"
    expect(page.locator(".node-state")).to_contain_text("Stopped by an operator")
    page.get_by_role("button", name="Start producers…").click()
    confirm(page, "Start producers")
    assert api.queue("single")["heldBy"] == ""


def test_messages_are_browsed_moved_and_purged(look: Open, api: Api, clients: Clients) -> None:
    filled(api, clients, "source", 25)
    api("/queues", {"name": "target"})
    page = look().node("queue", "source")
    page.get_by_role("button", name="Browse").click()
    messages = page.get_by_role("region", name="Messages")
    expect(messages.locator("tbody tr")).to_have_count(20)
    expect(messages).to_contain_text("hello")
    page.get_by_role("button", name="Newer").click()
    expect(messages.locator("tbody tr")).to_have_count(5)
    page.get_by_role("button", name="Move…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To queue").fill("target")
    dialog.get_by_label("How many").fill("10")
    expect(dialog.get_by_role("status")).to_contain_text("10 oldest messages go to target")
    assert api.queue("target")["depth_msgs"] == 0
    confirm(page, "Move")
    wait_until(lambda: bool(api.queue("target")["depth_msgs"] == 10), 10, "the move")
    page.get_by_role("button", name="Purge…").click()
    expect(dialog.get_by_role("status")).to_contain_text("15 messages that no consumer holds")
    assert api.queue("source")["depth_msgs"] == 15
    confirm(page, "Purge 15 messages")
    assert api.queue("source")["depth_msgs"] == 0


def test_a_queue_is_deleted_once_its_name_is_typed(look: Open, api: Api) -> None:
    api("/queues", {"name": "gone"})
    page = look().node("queue", "gone")
    page.get_by_role("button", name="Delete…").click()
    delete = page.get_by_role("dialog").get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("gone")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
    assert "gone" not in api.names()


def test_each_setting_says_where_it_comes_from(look: Open, api: Api) -> None:
    api("/queues", {"name": "full.origin", "arguments": {"max_count": 60}})
    page = look().node("queue", "full.origin")
    page.locator("section", has_text="Every setting and its origin").locator("summary").click()
    rows = page.get_by_role("region", name="Effective settings").get_by_role("row")
    expect(rows.filter(has_text="flow_stop_count")).to_contain_text(re.compile(r"policies\.yaml:\d+"))
    expect(rows.filter(has_text="max_count")).to_contain_text("argument")


# --- policies, connections, links, wiring


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
        page.get_by_role("region", name="Effective settings").get_by_role("row", name="flow_stop_count")
    ).to_contain_text("33")
    page.get_by_role("button", name="Read the files again…").click()
    confirm(page, "Read again")
    wait_until(lambda: bool(api.queue("fresh.one")["flow_stop_count"] == 0), 10, "the files to hold again")


def test_a_connection_is_closed(look: Open, api: Api, clients: Clients) -> None:
    client = clients.start("receive", "closing", "--no-output")
    wait_until(lambda: "closing" in api.names() and bool(api.queue("closing")["consumers"]), 10, "a consumer")
    [link] = api("/links?node=closing&role=consumer")["items"]
    page = look().goto("connections")
    row = page.locator(".vtable tbody tr", has_text=link["peer"])
    row.get_by_role("button", name="Close…").click()
    confirm(page, "Close connection")
    assert client.wait(15) != 0
    expect(row).to_have_count(0)


def test_a_link_is_detached(look: Open, api: Api, clients: Clients) -> None:
    client = clients.start("receive", "detaching", "--no-output")
    wait_until(
        lambda: "detaching" in api.names() and bool(api.queue("detaching")["consumers"]), 10, "a consumer"
    )
    page = look().goto("links?role=consumer")
    row = page.locator(".vtable tbody tr", has_text="detaching")
    row.get_by_role("button", name="Detach…").click()
    confirm(page, "Detach link")
    wait_until(lambda: not api.queue("detaching")["consumers"], 10, "the link to be gone")
    assert client.wait(15) != 0


def test_a_queue_is_bound_and_bridged(look: Open, api: Api) -> None:
    api("/topics", {"name": "news.uk"})
    for name in ("inbox", "copy"):
        api("/queues", {"name": name})
    page = look().goto("wiring")
    page.get_by_role("button", name="Bind…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic").fill("news.uk")
    dialog.get_by_label("Queue").fill("inbox")
    confirm(page, "Bind")
    bindings = page.get_by_role("region", name="Bindings")
    expect(bindings.get_by_role("row", name="inbox")).to_be_visible()
    assert [(row["source"], row["target"]) for row in api("/bindings")["items"]] == [("news.uk", "inbox")]
    bindings.get_by_role("button", name="Unbind…").click()
    confirm(page, "Unbind")
    wait_until(lambda: api("/bindings")["items"] == [], 10, "no binding")
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


# --- whoever looks, and from where


def test_names_are_text(look: Open, api: Api, clients: Clients) -> None:
    filled(api, clients, HTML, 1)
    api("/producers/stop", {"target": HTML})
    watched = look()
    page = watched.goto("nodes")
    expect(page.get_by_role("link", name=HTML)).to_be_visible()
    for place in ("", "links", "connections", "wiring", "policies"):
        watched.goto(place)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    watched.node("queue", HTML)
    page.get_by_role("button", name="Browse").click()
    expect(page.get_by_role("region", name="Messages")).to_contain_text("hello")
    page.get_by_role("button", name="Purge…").click()
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("1 message")
    assert page.evaluate("window.hurt") is None
    assert page.locator("main b, main img").count() == 0


def test_the_keyboard_is_enough(look: Open, api: Api) -> None:
    api("/queues", {"name": "keys"})
    page = look().goto("")
    expect(page.locator("#link")).to_have_text("live")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Filter the list")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for key, title in (
        ("n", "Nodes"),
        ("c", "Connections"),
        ("l", "Links"),
        ("w", "Wiring"),
        ("p", "Policies"),
        ("o", "Overview"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text(title)
        expect(heading).to_be_focused()


def test_what_a_screen_reader_meets(look: Open, api: Api) -> None:
    api("/queues", {"name": "read.aloud"})
    watched = look()
    for place in ("", "nodes", "queue/read.aloud", "connections", "links", "wiring", "policies"):
        page = watched.goto(place)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        for landmark in ("banner", "main"):
            expect(page.get_by_role(landmark)).to_have_count(1)  # type: ignore[arg-type]
        assert page.evaluate(NAMELESS) == []
        assert page.locator("table th:not([scope])").count() == 0
    assert page.title() == "Policies · Sluice"
    expect(page.locator("#banners")).to_have_attribute("aria-live", "polite")


NAMELESS = """() => [...document.querySelectorAll('button, a, input, select, textarea, [role=meter], svg[role=img]')]
  .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
    || (e.labels && e.labels.length)))
  .map(e => e.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_toggle(look: Open, scheme: str) -> None:
    page = look(color_scheme=scheme).goto("")
    dark = "getComputedStyle(document.documentElement).getPropertyValue('--bg').trim() === '#12171a'"
    assert page.evaluate(dark) is (scheme == "dark")
    page.get_by_role("button", name="Colours: system").click()
    assert page.evaluate(dark) is False
    page.get_by_role("button", name="Colours: light").click()
    assert page.evaluate(dark) is True
    page.reload()
    assert page.evaluate(dark) is True


def test_on_a_phone_nothing_runs_out_of_the_page(look: Open, api: Api, clients: Clients) -> None:
    filled(api, clients, "a.rather.long.name.of.a.queue.that.does.not.fit.on.any.phone", 3)
    watched = look(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, device_scale_factor=2
    )
    for place in ("", "nodes", "connections", "links", "wiring", "policies"):
        page = watched.goto(place)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, place
        assert page.evaluate("document.querySelector('main').scrollWidth") <= 390, place
    watched.goto("nodes")
    page.get_by_role("link", name="a.rather.long").tap()
    expect(page.get_by_role("heading", level=1)).to_contain_text("a.rather.long")
    assert page.evaluate("document.querySelector('main').scrollWidth") <= 390
    page.get_by_role("button", name="Purge…").tap()
    expect(page.get_by_role("dialog")).to_be_in_viewport()


def test_a_broker_that_does_not_answer_is_seen_and_comes_back(look: Open, live: RunningBroker) -> None:
    page = look().goto("")
    status = page.locator("#link")
    expect(status).to_have_text("live")
    live.signal(signal.SIGSTOP)
    try:
        expect(status).to_have_text("no answer, trying again…", timeout=15_000)
    finally:
        live.signal(signal.SIGCONT)
    expect(status).to_have_text("live", timeout=15_000)
