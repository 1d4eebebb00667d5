"""The console's charts in a real Chromium: what nobody saw isn't drawn, and each line is against its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from broker.client.link import Connection
from broker.codec import sections
from tests.console.world import PATIENCE_S, Api, Clients, Open, filled
from tests.wire.conftest import RunningBroker, StartBroker, start_broker, wait_until

__all__ = ["start_broker"]

pytestmark = pytest.mark.wire

BODY = sections.binary_body(b"x")
# How the curve's path goes: each part of it begins with M.
PARTS = "(element) => element.getAttribute('d').split('M').length - 1"


@contextmanager
def subscribed(broker: RunningBroker, topic: str, *names: str) -> Iterator[Connection]:
    """Durable subscriptions of these names, each with a link that has asked for nothing."""
    with Connection(broker.url, container_id="subscriber") as connection:
        for name in names:
            connection.receiver(topic, name=name, durable=True, manual=True)
        yield connection


def published(broker: RunningBroker, topic: str, count: int) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(topic)
        for _ in range(count):
            sender.send(BODY)
        sender.flush()


def points(page: Page) -> int:
    """How many points the curve has."""
    path = page.locator("svg.chart .curve").get_attribute("d") or ""
    return path.count(",")


def away(page: Page) -> None:
    """On another page, until more seconds have gone by than a gap needs."""
    page.evaluate("location.hash = '#/policies'")
    expect(page.get_by_role("heading", name="Policies", exact=True)).to_be_visible()
    begun = page.evaluate("performance.now()")
    wait_until(
        lambda: bool(page.evaluate("performance.now()") - begun > 6500), PATIENCE_S, "seconds to go by"
    )


def test_time_on_another_page_is_a_gap_where_nobody_remembers_it(
    look: Open, api: Api, clients: Clients
) -> None:
    filled(api, clients, "gapped", 5)
    page = look().node("queue", "gapped")
    wait_until(lambda: page.locator(".curve").count() == 1 and points(page) > 3, PATIENCE_S, "some points")
    place = page.url.partition("#")[2]

    def forgetful(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body='{"rows": []}')

    page.route(re.compile("/api/v1/history/"), forgetful)
    away(page)
    page.evaluate(f"location.hash = {json.dumps('#' + place)}")
    wait_until(
        lambda: page.locator(".curve").count() == 1 and page.locator(".curve").evaluate(PARTS) == 2,
        PATIENCE_S,
        "a curve in two parts",
    )
    page.unroute(re.compile("/api/v1/history/"))


def test_time_on_another_page_is_drawn_from_the_brokers_memory(
    look: Open, api: Api, clients: Clients, live: RunningBroker
) -> None:
    filled(api, clients, "recalled", 5)
    page = look().node("queue", "recalled")
    wait_until(lambda: page.locator(".curve").count() == 1 and points(page) > 3, PATIENCE_S, "some points")
    place = page.url.partition("#")[2]
    # The page's own last point stands for the second around it, also beside the broker's.
    away(page)
    with Connection(live.url) as connection:
        sender = connection.sender("recalled")
        for _ in range(500):
            sender.send(BODY)
        sender.flush()
        # The peak comes and goes while nobody looks: the broker has seen it, and remembers.
        wait_until(
            lambda: any(row["depth_msgs"] == 505 for row in api("/history/recalled")["rows"]),
            PATIENCE_S,
            "the broker to see it",
        )
        receiver = connection.receiver("recalled", limit=500)
        taken = 0
        while taken < 500:
            taken += len(receiver.take(100, 30))
    page.evaluate(f"location.hash = {json.dumps('#' + place)}")
    chart = page.locator("svg.chart")
    expect(chart).to_have_accessible_name(re.compile("between 0 and 505|between 5 and 505"))
    wait_until(lambda: bool(page.locator(".curve").evaluate(PARTS) == 1), PATIENCE_S, "one curve")


def test_a_topics_deepest_subscription_is_drawn_against_its_own_line(
    look: Open, api: Api, live: RunningBroker
) -> None:
    api("/topics", {"name": "news.depth", "arguments": {"flow_stop_count": 40, "flow_resume_count": 20}})
    with subscribed(live, "news.depth", "one", "two", "three") as connection:
        published(live, "news.depth", 30)
        connection.receiver("news.depth", name="empty", durable=True, manual=True)
        page = look().node("topic", "news.depth")
        chart = page.locator("svg.chart")
        expect(chart).to_have_accessible_name(
            re.compile(r"Depth of \S*(one|two|three)\S*, the deepest of the 4")
        )
        expect(chart).to_have_accessible_name(re.compile("now 30, .*stop at 40, resume below 20"))
        expect(chart.locator(".limit.stop text")).to_have_text("stop 40")
        # The topic's own figure is the sum.
        expect(page.locator(".figures")).to_contain_text("90")


def test_a_topics_bound_queue_may_be_the_deepest(look: Open, api: Api, live: RunningBroker) -> None:
    api("/topics", {"name": "news.bound"})
    api("/queues", {"name": "deep", "arguments": {"flow_stop_count": 70}})
    api("/bindings", {"source": "news.bound", "target": "deep"})
    published(live, "news.bound", 12)
    page = look().node("topic", "news.bound")
    chart = page.locator("svg.chart")
    expect(chart).to_have_accessible_name(re.compile("Depth of deep, which takes from the topic,.*now 12"))
    expect(chart.locator(".limit.stop text")).to_have_text("stop 70")


def test_the_deepest_of_many_bound_queues_is_drawn(look: Open, api: Api, live: RunningBroker) -> None:
    """It was bound last, behind more than would be followed one by one."""
    api("/topics", {"name": "news.many"})
    for number in range(30):
        api("/queues", {"name": f"heir{number:02}"})
        api("/bindings", {"source": "news.many", "target": f"heir{number:02}"})
    published(live, "news.many", 3)
    published(live, "heir29", 11)
    page = look().node("topic", "news.many")
    expect(page.locator("svg.chart")).to_have_accessible_name(
        re.compile("Depth of heir29, the deepest of the 30 that take from the topic,.*now 14")
    )


def test_messages_that_went_nowhere_are_counted(look: Open, api: Api, live: RunningBroker) -> None:
    api("/topics", {"name": "news.nobody"})
    published(live, "news.nobody", 7)
    page = look().node("topic", "news.nobody")
    expect(page.locator(".figures")).to_contain_text(re.compile("Unrouted\\s*7"))
    page.evaluate("location.hash = '#/'")
    expect(page.locator(".figures")).to_contain_text("Unrouted messages")


def test_the_overviews_chart_is_there_as_soon_as_it_is_loaded(
    look: Open, api: Api, clients: Clients, live: RunningBroker
) -> None:
    filled(api, clients, "loaded", 50)
    wait_until(lambda: len(api("/history")["rows"]) > 8, PATIENCE_S, "the broker to remember some seconds")
    page = look().page
    page.goto(f"http://127.0.0.1:{live.http_port}/")
    curve = page.locator("svg.rates .curve.in")
    expect(curve).to_have_count(1)
    # More seconds than have gone by since the page was opened.
    assert (curve.get_attribute("d") or "").count(",") > 5


@pytest.mark.parametrize("width", [390, 1280, 1600, 2200])
def test_everything_on_a_page_begins_at_one_line(
    look: Open, api: Api, width: int, live: RunningBroker
) -> None:
    api("/queues", {"name": f"aligned{width}"})
    page = look(viewport={"width": width, "height": 900}).page
    for place in ("#/", "#/nodes", f"#/queue/aligned{width}", "#/policies", "#/wiring", "#/log"):
        page.goto(f"http://127.0.0.1:{live.http_port}/{place}")
        expect(page.locator("main .heading")).to_be_visible()
        lefts = page.evaluate(
            """() => [...document.querySelectorAll("main > *")].filter((each) => each.offsetHeight)
                .map((each) => Math.round(each.getBoundingClientRect().left))"""
        )
        assert len(set(lefts)) == 1, (place, lefts)


def test_one_user_has_eight_streams_and_the_ninth_window_says_so(
    start_broker: StartBroker, look: Open
) -> None:
    broker = start_broker()
    pages = [look(broker, faults=("429",)).goto("") for _ in range(8)]
    for page in pages:
        expect(page.locator(".live, [role=status]").filter(has_text="live").first).to_be_visible()
    ninth = look(broker, faults=("429",)).goto("")
    expect(ninth.get_by_text("too many windows: slower")).to_be_visible()
    expect(ninth.locator(".figures")).to_contain_text("Queues")
