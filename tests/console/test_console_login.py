"""The console in a real Chromium where there are users: logging in and out, and what one may not do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from broker.security.usersfile import changing
from tests.console.world import PATIENCE_S, Open, Watched
from tests.wire import people
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.people import PASSWORDS, basic

pytestmark = pytest.mark.wire

REFUSED = ("401", "403")
FAST = "  longest_pause: 0\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("login")


@pytest.fixture(scope="module")
def closed(folder: Path) -> Iterator[RunningBroker]:
    """A broker with users and rules."""
    broker = RunningBroker(folder / "broker", people.settings_for(folder, more=FAST), "", ())
    api = Api(broker)
    for name in ("orders.a", "stock.a"):
        assert api.call("POST", "/queues", {"name": name}, basic("alice")).status == 201
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def log_in(page: Page, user: str, password: str | None = None) -> None:
    dialog = page.get_by_role("dialog", name="Log in")
    dialog.get_by_label("User", exact=True).fill(user)
    dialog.get_by_label("Password", exact=True).fill(PASSWORDS[user] if password is None else password)
    dialog.get_by_role("button", name="Log in").click()


def at(looked: Watched, place: str, user: str) -> Page:
    """A place of the console, after a login."""
    page = looked.goto(place)
    log_in(page, user)
    expect(page.get_by_role("dialog")).to_have_count(0)
    return page


def test_nothing_is_shown_until_somebody_has_logged_in(look: Open, closed: RunningBroker) -> None:
    page = look(closed, REFUSED).goto("nodes")
    dialog = page.get_by_role("dialog", name="Log in")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("User", exact=True)).to_be_focused()
    expect(page.locator("main h1")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    # All of it by the keyboard.
    page.keyboard.type("rita")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORDS["rita"])
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues & topics")
    expect(page.locator("#who .user")).to_have_text("Logged in as rita")
    expect(page.locator("#link")).to_have_text("live")
    assert page.evaluate("document.cookie") == ""


def test_a_wrong_password_is_told_and_tried_again(look: Open, closed: RunningBroker) -> None:
    page = look(closed, REFUSED).goto("")
    log_in(page, "alice", "wrong")
    dialog = page.get_by_role("dialog", name="Log in")
    expect(dialog.get_by_role("alert")).to_have_text("this user and password are not known here")
    expect(dialog.get_by_label("Password", exact=True)).to_have_value("")
    expect(dialog.get_by_label("Password", exact=True)).to_be_focused()
    log_in(page, "alice")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_who_logs_out_is_gone(look: Open, closed: RunningBroker, colours: str) -> None:
    looked = look(closed, REFUSED, color_scheme=colours)
    page = at(looked, "", "alice")
    [session] = page.context.cookies()
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("dialog", name="Log in")).to_be_visible()
    assert page.context.cookies() == []
    old = {"Cookie": f"{session['name']}={session['value']}"}
    assert Api(closed).call("GET", "/session", headers=old).status == 401


def test_a_session_that_ends_asks_again_and_goes_on_where_one_was(
    look: Open, closed: RunningBroker, folder: Path
) -> None:
    page = at(look(closed, REFUSED), "nodes", "rita")
    with changing(folder / "users") as file:
        people.give(file, "rita", "changed")
    closed.signal(signal.SIGHUP)
    try:
        dialog = page.get_by_role("dialog", name="Log in")
        expect(dialog).to_contain_text("Your session has ended")
        expect(dialog).to_have_count(1)
        log_in(page, "rita", "changed")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("link", name="orders.a")).to_be_visible()
        expect(page.locator("#link")).to_have_text("live")
    finally:
        with changing(folder / "users") as file:
            people.give(file, "rita", PASSWORDS["rita"])
        closed.signal(signal.SIGHUP)
        again = Api(closed)
        wait_until(
            lambda: again.call("GET", "/session", headers=basic("rita")).status == 200,
            PATIENCE_S,
            "the password",
        )


def test_an_answer_that_was_asked_for_before_the_login_asks_nobody_again(
    look: Open, closed: RunningBroker
) -> None:
    """A page asks for several things at once; one of the refusals may come when somebody is there again."""
    page = at(look(closed, REFUSED), "nodes", "rita")
    expect(page.get_by_role("link", name="orders.a")).to_be_visible()
    kept: list[Route] = []
    page.route("**/api/v1/topics", lambda route: kept.append(route))
    page.evaluate(
        """import(new URL("api.js", document.querySelector("script[type=module]").src))
        .then(({ get }) => { get("/topics").catch(() => {}); })"""
    )

    def is_asked() -> bool:
        page.wait_for_timeout(50)
        return bool(kept)

    wait_until(is_asked, PATIENCE_S, "the question")
    [late] = kept
    page.context.clear_cookies()
    dialog = page.get_by_role("dialog", name="Log in")
    expect(dialog).to_contain_text("Your session has ended")
    log_in(page, "rita")
    expect(dialog).to_have_count(0)
    with page.expect_response(lambda answer: answer.status == 401):
        late.fulfill(status=401, body="{}")
    page.wait_for_timeout(300)
    expect(dialog).to_have_count(0)
    expect(page.locator("#link")).to_have_text("live")


def test_what_one_may_not_do_says_why(look: Open, closed: RunningBroker) -> None:
    page = at(look(closed, REFUSED), "queue/stock.a", "rita")
    purge = page.get_by_role("button", name="Purge…")
    expect(purge).to_be_disabled()
    expect(purge).to_have_attribute("aria-description", "user 'rita' may not purge 'stock.a'")
    # It keeps its place in the order of the keyboard, and says why when it is used all the same.
    purge.focus()
    expect(purge).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("rita' may not purge 'stock.a'")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for name in ("Move…", "Delete…", "Stop producers…", "Browse", "Apply"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("button", name="Stop all producers…")).to_be_disabled()


def test_a_refusal_of_the_broker_is_shown_with_its_reason(look: Open, closed: RunningBroker) -> None:
    page = at(look(closed, REFUSED), "nodes", "rita")
    page.get_by_role("button", name="Create…").click()
    dialog = page.get_by_role("dialog", name="Create")
    dialog.get_by_label("Name", exact=True).fill("mine")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_have_text("user 'rita' may not create 'mine'")


def test_who_may_see_a_few_nodes_sees_those(look: Open, closed: RunningBroker) -> None:
    page = at(look(closed, REFUSED), "nodes", "otto")
    expect(page.get_by_role("link", name="orders.a")).to_be_visible()
    expect(page.get_by_role("link", name="stock.a")).to_have_count(0)
    expect(page.locator("#link")).to_have_text("you may not see the broker")
    page.get_by_role("link", name="orders.a").click()
    expect(page.get_by_role("button", name="Purge…")).to_be_enabled()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("alert").first).to_contain_text("otto' may not see")


def test_nobody_is_asked_where_nobody_needs_to_say(look: Open) -> None:
    page = look().goto("")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#who")).to_be_empty()
    expect(page.get_by_role("button", name="Stop all producers…")).to_be_enabled()
