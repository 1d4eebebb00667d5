"""A node's page in a real Chromium: its chart, its thresholds, its messages, and what can be done to it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from broker.client.link import Connection
from tests.console.world import PATIENCE_S, Api, Clients, Open, blocked, confirm, filled
from tests.wire.conftest import RunningBroker, wait_until

pytestmark = pytest.mark.wire


def test_depth_is_drawn_against_its_lines(look: Open, api: Api, clients: Clients) -> None:
    blocked(api, clients, "full.two")
    consumer = clients.start("receive", "full.two", "--rate", "20", "--credit", "10", "--no-output")
    page = look().node("queue", "full.two")
    chart = page.locator("svg.chart")
    expect(chart.locator(".limit.stop text")).to_have_text("stop 50")
    expect(chart.locator(".limit.resume text")).to_have_text("resume 20")
    expect(chart.locator(".curve")).to_have_count(1)
    wait_until(lambda: chart.locator(".shade").count() > 0, PATIENCE_S, "a shaded period")
    expect(chart).to_have_accessible_name(
        re.compile("Depth of full.two .*stop at 50, resume below 20; stopped")
    )
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("cell", name="stopped").first).to_be_visible()
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".reading")).to_contain_text("messages")
    page.get_by_text("Bytes", exact=True).first.click()
    page.get_by_text("5 min", exact=True).click()
    producers = page.get_by_role("region", name="Producers")
    expect(producers.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("region", name="Consumers").locator("tbody td").nth(3)).to_have_text(
        re.compile(r"\d+")
    )
    consumer.terminate()
    expect(producers.locator("tbody td").nth(4)).to_have_text(re.compile(r"\d s$"))
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


def test_a_topic_shows_who_takes_from_it(look: Open, api: Api, clients: Clients) -> None:
    api("/topics", {"name": "news.all"})
    api("/queues", {"name": "archive"})
    api("/bindings", {"source": "news.all", "target": "archive"})
    clients.start("receive", "news.all", "--no-output")
    wait_until(lambda: api.queue("news.all", "topic")["subscriptions"] == 2, PATIENCE_S, "a subscription")
    page = look().node("topic", "news.all")
    rows = page.get_by_role("region", name="Subscriptions and bound queues").locator("tbody tr")
    expect(rows).to_have_count(2)
    rows.filter(has_text="subscription").get_by_role("link").click()
    expect(page.locator(".crumbs")).to_contain_text("subscriptions")
    page.get_by_role("button", name="Browse").click()
    expect(page.get_by_text("The queue holds no message.")).to_be_visible()


def test_a_topic_shows_who_takes_by_a_pattern_and_not_whose_name_is_like_it(
    look: Open, api: Api, live: RunningBroker
) -> None:
    """More than 200 subscriptions bear the topic's name as part of theirs, and stand before its own."""
    for name in ("a.news.one", "news.one"):
        api("/topics", {"name": name})
    with Connection(live.url) as connection:
        for _ in range(201):
            connection.receiver("a.news.one")
        connection.receiver("news.>")
        wait_until(lambda: bool(api.queue("news.one", "topic")["subscriptions"] == 1), 10, "a subscription")
        page = look().node("topic", "news.one")
        rows = page.get_by_role("region", name="Subscriptions and bound queues").locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("news.>/")
        connection.receiver("news.one")
        page.reload()
        expect(rows).to_have_count(2)
        page = look().node("topic", "a.news.one")
        rows = page.get_by_role("region", name="Subscriptions and bound queues").locator("tbody tr")
        expect(rows).to_have_count(200)
        expect(page.get_by_text("and 1 more", exact=True)).to_be_visible()


def test_a_topic_nobody_takes_from_says_so(look: Open, api: Api) -> None:
    api("/topics", {"name": "news.unheard"})
    page = look().node("topic", "news.unheard")
    expect(page.get_by_text("No subscriptions: messages sent here are dropped.")).to_be_visible()


def test_a_queue_is_deleted_once_its_name_is_typed(look: Open, api: Api) -> None:
    api("/queues", {"name": "gone"})
    page = look().node("queue", "gone")
    page.get_by_role("button", name="Delete…").click()
    delete = page.get_by_role("dialog").get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("gone")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues & topics")
    assert "gone" not in api.names()


def test_terms_of_this_broker_say_what_they_mean(look: Open, api: Api) -> None:
    api("/queues", {"name": "full.terms"})
    page = look().node("queue", "full.terms")
    for term, meaning in (("Promised credit", "room is reserved"), ("Parked", "wait outside the queue")):
        expect(page.get_by_text(term, exact=True).first).to_have_attribute("title", re.compile(meaning))


def test_each_setting_says_where_it_comes_from(look: Open, api: Api) -> None:
    api("/queues", {"name": "full.origin", "arguments": {"max_count": 60}})
    page = look().node("queue", "full.origin")
    # What comes above it moves it away from under the pointer.
    expect(page.locator("[aria-busy]")).to_have_count(0)
    section = page.locator("section", has_text="Every setting and its origin")
    section.locator("summary").click()
    expect(section.locator("details")).to_have_attribute("open", "")
    rows = page.get_by_role("region", name="Effective settings").get_by_role("row")
    expect(rows.filter(has_text="flow_stop_count")).to_contain_text(re.compile(r"policies\.yaml:\d+"))
    expect(rows.filter(has_text="max_count")).to_contain_text("argument")
