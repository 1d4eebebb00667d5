"""Whoever looks, and from where: keyboards, screen readers, phones, darkness; HTML in names; no broker."""

from __future__ import annotations

import http.client
import signal
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from broker.http.api.live import MOST_WATCHERS
from tests.console.world import PATIENCE_S, PHONE, Api, Clients, Open, filled
from tests.wire.conftest import START_SECONDS, RunningBroker, wait_until

pytestmark = pytest.mark.wire

HTML = '<img src=x onerror="window.hurt=1"><b>bold</b>'


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
    # Two keys belong together for a second and a half: here however long the second takes to be pressed.
    page.evaluate("() => { const now = performance.now(); performance.now = () => now }")
    for key, title in (
        ("n", "Queues & topics"),
        ("c", "Connections"),
        ("l", "Links"),
        ("w", "Routing"),
        ("e", "Log"),
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
    for place, title in (
        ("", "Overview"),
        ("nodes", "Queues & topics"),
        ("queue/read.aloud", "read.aloud"),
        ("connections", "Connections"),
        ("links", "Links"),
        ("wiring", "Routing"),
        ("log", "Log"),
        ("policies", "Policies"),
    ):
        page = watched.goto(place)
        # The page before has one as well, and stays until this one is shown.
        expect(page.get_by_role("heading", level=1)).to_have_text([title])
        for landmark in ("banner", "main"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        assert page.evaluate(NAMELESS) == []
        assert page.locator("table th:not([scope])").count() == 0
    expect(page).to_have_title("Policies · Sluice")
    expect(page.locator("#banners")).to_have_attribute("aria-live", "polite")


NAMELESS = """() => [...document.querySelectorAll(
    'button, a, input, select, textarea, [role=meter], svg[role=img]')]
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
    watched = look(**PHONE)
    for place in ("", "nodes", "connections", "links", "wiring", "log", "policies"):
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
    # A question that the stop interrupts for longer than the loop has to answer is refused with 503.
    page = look(faults=("503",)).goto("")
    status = page.locator("#link")
    expect(status).to_have_text("live")
    live.signal(signal.SIGSTOP)
    try:
        expect(status).to_have_text("no answer, trying again…")
    finally:
        live.signal(signal.SIGCONT)
    expect(status).to_have_text("live")


def watching(broker: RunningBroker) -> http.client.HTTPResponse:
    """A stream of events, once there is a place for it: an earlier page's may be just ending."""
    found: list[http.client.HTTPResponse] = []

    def opened() -> bool:
        try:
            url = f"http://127.0.0.1:{broker.http_port}/api/v1/live"
            found.append(urllib.request.urlopen(url, timeout=START_SECONDS))
        except urllib.error.HTTPError as refusal:
            refusal.close()
        return bool(found)

    wait_until(opened, PATIENCE_S, "a place to watch from")
    return found[0]


def test_a_window_too_many_goes_on_more_slowly(look: Open, live: RunningBroker) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_WATCHERS):
            stack.enter_context(watching(live)).readline()
        page = look(faults=("429",)).goto("")
        expect(page.locator("#link")).to_have_text("too many windows: slower")
        expect(page.locator(".about")).to_contain_text("up ")
    expect(page.locator("#link")).to_have_text("live")
