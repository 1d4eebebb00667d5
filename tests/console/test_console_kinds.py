"""Transactions, delayed messages, priorities and message groups of a node in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from proton import Message, symbol

from broker.client.link import Connection
from tests.console.world import PHONE, Api, Open, confirm
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.test_transactions import Controller

pytestmark = pytest.mark.wire

HOUR_MS = 3_600_000


@pytest.fixture
def controller(live: RunningBroker) -> Iterator[Controller]:
    made = Controller(f"127.0.0.1:{live.port}")
    yield made
    made.close()


def panel(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", name=title, exact=True, level=2)
    return page.locator("section.panel").filter(has=heading)


def figure(page: Page, title: str, term: str) -> Locator:
    named = page.get_by_role("term").get_by_text(term, exact=True)
    return panel(page, title).locator("dl > div").filter(has=named).locator("dd")


def delayed(live: RunningBroker, name: str, delays_ms: list[int]) -> None:
    with Connection(live.url) as connection:
        sender = connection.sender(name)
        for number, delay_ms in enumerate(delays_ms):
            message = Message(body=f"body {number}", annotations={symbol("x-opt-delivery-delay"): delay_ms})
            sender.send(bytes(message.encode()), 30)
        sender.flush(30)


def test_a_plain_queue_shows_none_of_the_kinds(look: Open, api: Api) -> None:
    api("/queues", {"name": "plain"})
    page = look().node("queue", "plain")
    expect(panel(page, "Now")).to_be_visible()
    for title in ("Open transactions", "Delayed messages", "Priorities", "Message groups"):
        expect(panel(page, title)).to_be_hidden()


def test_open_transactions_of_a_queue_and_of_a_connection(
    look: Open, api: Api, controller: Controller
) -> None:
    api("/queues", {"name": "posted"})
    sender = controller.sender("posted")
    transaction = controller.declare()
    for _ in range(3):
        transaction.send(sender, Message(body="x" * 1000))
    controller.until(lambda: bool(api.queue("posted")["uncommitted_msgs"] == 3), "three messages")
    row = api.queue("posted")
    assert (row["open_transactions"], row["depth_msgs"]) == (1, 0)
    assert 3000 < row["uncommitted_bytes"] < 4000
    page = look().node("queue", "posted")
    expect(figure(page, "Open transactions", "Open")).to_have_text("1")
    expect(figure(page, "Open transactions", "Oldest open for")).to_have_text(re.compile(r"^[\d.]+ s$"))
    expect(figure(page, "Open transactions", "Uncommitted size")).to_have_text(re.compile(r"^3[.\d]* KB$"))
    connections = look().goto("connections")
    mine = connections.locator(".vtable tbody tr", has_text=controller.container.container_id)
    expect(mine).to_contain_text(re.compile(r"1, for \d+"))
    expect(mine).to_contain_text("3, 3")
    controller.commit(transaction)
    expect(panel(page, "Open transactions")).to_be_hidden()
    wait_until(lambda: bool(api.queue("posted")["depth_msgs"] == 3), 10, "the commit")
    assert api.queue("posted")["oldest_transaction"] is None


def test_a_topics_transactions_are_shown_too(look: Open, api: Api, controller: Controller) -> None:
    api("/topics", {"name": "news.posted"})
    sender = controller.sender("news.posted")
    transaction = controller.declare()
    transaction.send(sender, Message(body="x"))
    controller.until(lambda: api.queue("news.posted", "topic")["open_transactions"] == 1, "it is open")
    page = look().node("topic", "news.posted")
    expect(figure(page, "Open transactions", "Open")).to_have_text("1")
    controller.abort(transaction)
    expect(panel(page, "Open transactions")).to_be_hidden()


def test_delayed_messages_are_listed_in_pages_and_cancelled(
    look: Open, api: Api, live: RunningBroker
) -> None:
    api("/queues", {"name": "later"})
    delayed(live, "later", [HOUR_MS + 60_000 * number for number in range(25)])
    page = look().node("queue", "later")
    section = panel(page, "Delayed messages")
    expect(section).to_contain_text(re.compile(r"25 messages wait; next due .*, in (59|60) min"))
    section.get_by_role("button", name="List").press("Enter")
    rows = section.locator("tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.first).to_contain_text("body 0")
    expect(section).to_contain_text("messages 1 to 20 of 25")
    section.get_by_role("button", name="Later").click()
    expect(rows).to_have_count(5)
    expect(section.get_by_role("button", name="Later")).to_be_disabled()
    section.get_by_role("button", name="Earlier").click()
    expect(rows).to_have_count(20)
    rows.first.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("dropped and never delivered")
    dialog.get_by_role("button", name="Cancel").click()
    assert api.queue("later")["delayed_msgs"] == 25, "asked, and not confirmed"
    rows.first.get_by_role("button", name="Cancel…").click()
    confirm(page, "Drop the message")
    expect(rows.first).to_contain_text("body 1")
    expect(section).to_contain_text("messages 1 to 20 of 24")
    assert api.queue("later")["delayed_msgs"] == 24


def test_one_that_was_delivered_meanwhile_cant_be_cancelled(
    look: Open, api: Api, live: RunningBroker
) -> None:
    api("/queues", {"name": "raced"})
    delayed(live, "raced", [HOUR_MS, HOUR_MS])
    page = look(faults=("404", "400", "409")).node("queue", "raced")
    section = panel(page, "Delayed messages")
    section.get_by_role("button", name="List").click()
    section.locator("tbody tr").first.get_by_role("button", name="Cancel…").click()
    first = api("/queues/raced/delayed")["messages"][0]["number"]
    api(f"/queues/raced/delayed/{first}", method="DELETE")
    page.get_by_role("dialog").get_by_role("button", name="Drop the message").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()


def test_messages_by_priority_and_the_reserve(look: Open, api: Api, live: RunningBroker) -> None:
    arguments = {"priority": "strict", "flow_stop_count": 200, "priority_reserve": 10}
    api("/queues", {"name": "alarms", "arguments": arguments})
    with Connection(live.url) as connection:
        sender = connection.sender("alarms")
        for priority in (9, 9, 4, 4, 4, 0):
            sender.send(bytes(Message(body="x", priority=priority).encode()), 30)
        sender.flush(30)
    page = look().node("queue", "alarms")
    section = panel(page, "Priorities")
    expect(section).to_contain_text("10 % of the stop thresholds is kept for priorities from 5 on")
    expect(section).to_contain_text("20 of 200 messages")
    levels = section.locator("tbody tr")
    expect(levels).to_have_count(10)
    shown = [" ".join(each.split()) for each in levels.all_inner_texts()]
    assert shown == ["9 2", "8 0", "7 0", "6 0", "5 0", "4 3", "3 0", "2 0", "1 0", "0 1"]
    with Connection(live.url) as connection:
        receiver = connection.receiver("alarms")
        taken: list[bytes] = []
        while len(taken) < 2:
            taken += receiver.take(2 - len(taken), 30)
        expect(levels.first).to_have_text(re.compile(r"^\s*9\s*0\s*$"))


def test_a_stream_and_its_named_readers(look: Open, api: Api, live: RunningBroker) -> None:
    api("/queues", {"name": "kept", "arguments": {"queue_type": "stream", "flow_stop_count": 100}})
    with Connection(live.url) as connection:
        sender = connection.sender("kept")
        for _ in range(7):
            sender.send(bytes(Message(body="x").encode()), 30)
        sender.flush(30)
        receiver = connection.receiver("kept::billing", credit=3, limit=3, start="first")
        taken = 0
        while taken < 3:
            taken += len(receiver.take(3 - taken, 30))
        page = look().node("queue", "kept")
        section = panel(page, "Stream")
        expect(section).to_contain_text("7 messages, offsets 0 to 6.")
        expect(section).to_contain_text("once the slowest named reader is 100 behind")
        billing = section.locator("tbody tr", has_text="billing")
        expect(billing).to_contain_text("reading")
        expect(page.get_by_role("button", name="Purge…")).to_have_count(0)
    expect(billing).to_contain_text("no link")
    billing.get_by_role("button", name="Forget…").click()
    confirm(page, "Forget")
    expect(section).to_contain_text("No named readers.")


def test_message_groups_and_their_owners(look: Open, api: Api, live: RunningBroker) -> None:
    api("/queues", {"name": "grouped", "arguments": {"message_groups": "sticky"}})
    with Connection(live.url) as connection:
        receiver = connection.receiver("grouped", credit=1, limit=1, manual=True)
        sender = connection.sender("grouped")
        for group in ("red", "red", "blue"):
            sender.send(bytes(Message(body="x", group_id=group).encode()), 30)
        sender.flush(30)
        receiver.grant(1)
        connection.wait_until(receiver.has_message, 20)
        wait_until(lambda: bool(api.queue("grouped")["groups"] == 1), 10, "an owner")
        page = look().node("queue", "grouped")
        section = panel(page, "Message groups")
        expect(section).to_contain_text("1 group with a consumer (sticky)")
        [link] = api("/links?node=grouped&role=consumer")["items"]
        red = section.locator("tbody tr", has_text="red")
        expect(red).to_contain_text("owned")
        expect(red).to_contain_text(link["container"] or link["peer"])
        red.get_by_role("button", name="Take away…").click()
        confirm(page, "Take away")
        expect(red).to_contain_text("ending")


def test_a_group_is_found_by_its_id(look: Open, api: Api, live: RunningBroker) -> None:
    api("/queues", {"name": "sought", "arguments": {"message_groups": "sticky"}})
    with Connection(live.url) as connection:
        receiver = connection.receiver("sought", credit=1000, manual=True)
        receiver.grant(100)
        connection.pump()
        sender = connection.sender("sought")
        for number in range(30):
            sender.send(bytes(Message(body="x", group_id=f"order-{number}").encode()), 30)
        sender.flush(30)
        wait_until(lambda: bool(api.queue("sought")["groups"] == 30), 10, "owners of all groups")
        page = look().node("queue", "sought")
        section = panel(page, "Message groups")
        rows = section.locator("tbody tr")
        expect(rows).to_have_count(20)
        section.get_by_role("button", name="Next").click()
        expect(rows).to_have_count(10)
        section.get_by_role("searchbox", name="Filter groups by id").fill("order-2*")
        expect(rows).to_have_count(11)
        expect(section).to_contain_text("groups 1 to 11")
        section.get_by_role("searchbox").fill("nobody's")
        expect(section).to_contain_text("No group has this in its id.")
        section.get_by_role("searchbox").fill("")
        expect(rows).to_have_count(20)


def test_times_are_changed_like_thresholds(look: Open, api: Api) -> None:
    api("/queues", {"name": "timed", "arguments": {"consumer_timeout": "90 s"}})
    page = look(faults=("400",)).node("queue", "timed")
    timeout = page.get_by_label("consumer_timeout", exact=True)
    expect(timeout).to_have_value("90 s")
    page.get_by_label("redelivery_delay", exact=True).fill("1500 ms")
    outcome = page.locator(".thresholds .outcome")
    expect(outcome).to_contain_text("redelivery_delay_ms 0 → 1500 ms")
    page.get_by_role("button", name="Apply").click()
    wait_until(lambda: bool(api.queue("timed")["redelivery_delay_ms"] == 1500), 10, "the change")
    expect(page.get_by_role("button", name="Take back redelivery_delay")).to_be_visible()
    timeout.fill("soon")
    expect(outcome.locator(".problem")).to_contain_text("consumer_timeout")
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    assert api.queue("timed")["consumer_timeout_ms"] == 90_000


@pytest.mark.parametrize("settings", [PHONE, {"color_scheme": "dark"}], ids=["phone", "dark"])
def test_nothing_is_wider_than_the_screen(
    look: Open, api: Api, live: RunningBroker, settings: dict[str, object], request: pytest.FixtureRequest
) -> None:
    name = f"kinds.{request.node.callspec.id}"
    arguments = {"priority": "fair", "flow_stop_count": 200, "priority_reserve": 10}
    api("/queues", {"name": name, "arguments": arguments})
    delayed(live, name, [HOUR_MS] * 3)
    page = look(**settings).node("queue", name)
    panel(page, "Delayed messages").get_by_role("button", name="List").click()
    expect(panel(page, "Delayed messages").locator("tbody tr")).to_have_count(3)
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0
