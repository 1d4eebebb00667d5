"""The page of a replicated cell in a real Chromium, at a real cell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cluster.conftest import skip_without_servers
from tests.cluster.spread import cells_cluster
from tests.cluster.world import Cell, MemberProcess, cell, wait_until
from tests.console.world import Open, Watched, confirm
from tools.nats import server

pytestmark = [pytest.mark.wire, pytest.mark.cluster]

NAVIGATION = "#nav a[data-place=cluster]"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    if server() is None:
        if os.environ.get("CI"):
            pytest.fail("neither nats-server nor go is installed")
        pytest.skip("neither nats-server nor go is installed")
    with cell(tmp_path_factory.mktemp("cell"), members=2) as found:
        found.start()
        yield found


@pytest.fixture
def seen(browser: Browser, running: Cell) -> Iterator[Watched]:
    """A page of the owner's console; a take-over may break what it asks for."""
    owner = running.wait_for_owner()
    wait_until(lambda: is_followed(owner), "a standby")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Watched(context, f"http://127.0.0.1:{owner.http}")
    yield found
    context.close()


def is_followed(owner: MemberProcess) -> bool:
    return any(each["role"] == "standby" for each in owner.api("/api/v1/cluster")["members"])


def test_a_single_broker_has_no_such_page(look: Open) -> None:
    page = look(faults=("404",)).goto("")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator(NAVIGATION)).to_be_hidden()
    page = look(faults=("404",)).goto("cluster")
    expect(page.get_by_role("alert")).to_contain_text("this broker is no member of a cluster")


def test_the_cell_is_suspended_and_goes_on(seen: Watched, running: Cell) -> None:
    page = seen.goto("nodes")
    expect(page.locator(NAVIGATION)).to_be_visible()
    expect(page.locator("#suspended")).to_have_count(0)
    stopped = running.log.servers[1:]
    for each in stopped:
        each.kill()
    try:
        expect(page.locator("#suspended")).to_contain_text("The cell is suspended")
    finally:
        for each in stopped:
            each.start()
    expect(page.locator("#suspended")).to_have_count(0)
    seen.check()


def test_the_page_shows_the_cell_and_moves_it(seen: Watched, running: Cell) -> None:
    owner = running.wait_for_owner()
    other = next(each for each in running.members if each is not owner)
    page = seen.goto("")
    page.locator(NAVIGATION).click()
    rows = page.get_by_role("region", name="Members").get_by_role("row")
    expect(rows.filter(has_text="owner").filter(has_text=f"amqp://127.0.0.1:{owner.amqp}")).to_have_count(1)
    standby = rows.filter(has_text="standby").filter(has_text=f"amqp://127.0.0.1:{other.amqp}")
    expect(standby).to_have_count(1)
    expect(page.locator("main")).to_contain_text("nats://127.0.0.1:")
    if os.environ.get("SLUICE_PICTURES"):
        page.screenshot(path=f"{os.environ['SLUICE_PICTURES']}/cluster.png", full_page=True)
    seen.check()
    standby.get_by_role("button", name="Make owner…").click()
    confirm(page, "Move the cell")
    assert running.wait_for_owner(other_than=owner) is other
    # Its connections were closed; it goes on at the member that it came from, which relays it.
    expect(rows.filter(has_text="owner").filter(has_text=f"amqp://127.0.0.1:{other.amqp}")).to_have_count(1)


def test_of_several_cells_each_has_its_owner_and_the_chosen_one_is_moved(
    browser: Browser, tmp_path: Path
) -> None:
    skip_without_servers()
    with cells_cluster(tmp_path, members=2, cells=2, servers=1) as made:
        made.wait_for_standbys()
        owners = made.wait_for_spread()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = Watched(context, f"http://127.0.0.1:{made.member(owners[0]).http}").goto("")
        page.locator(NAVIGATION).click()
        rows = page.get_by_role("region", name="Cells").get_by_role("row")
        for cell, owner in owners.items():
            expect(rows.nth(cell + 1)).to_contain_text(owner)
        expect(page.locator("main")).to_contain_text("main-0")
        rows.nth(2).get_by_role("button", name="Show").click()
        expect(page.locator("main")).to_contain_text("main-1")
        members = page.get_by_role("region", name="Members").get_by_role("row")
        members.filter(has_text="standby").get_by_role("button", name="Make owner…").click()
        confirm(page, "Move the cell")
        wait_until(lambda: made.owners() == {0: owners[0], 1: owners[0]}, "cell 1 at its new owner")
        expect(rows.nth(2)).to_contain_text(f"1{owners[0]}")
        context.close()
