"""The console over several cells in a real Chromium: one console, whichever cell its requests reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from proton import Message
from proton.utils import BlockingConnection

from tests.console.world import PATIENCE_S, Api, Clients, Open, confirm, consumed, filled
from tests.wire.cells import ARGS, CELLS, let_stand_still, names_in, one_in_each, stopped
from tests.wire.conftest import RunningBroker, wait_until

pytestmark = pytest.mark.wire

SIX_CONNECTIONS_MS = 75_000
POLICIES = "policies: [{match: 'full.*', flow_stop_count: 5}]\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with pytest.MonkeyPatch.context() as patch:
        let_stand_still(patch)
        broker = RunningBroker(tmp_path_factory.mktemp("cells"), "", POLICIES, ARGS)
    broker.settle()
    api = Api(broker)
    wait_until(lambda: api("/broker")["absent"] == {}, PATIENCE_S, "all cells to answer", 0.1)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def everywhere(running: RunningBroker) -> Api:
    return Api(running)


@pytest.fixture
def workers(running: RunningBroker) -> Iterator[Clients]:
    started = Clients(running)
    yield started
    started.close()


def test_queues_of_all_cells_stand_in_one_list(look: Open, running: RunningBroker, everywhere: Api) -> None:
    names = one_in_each("listed")
    for name in names:
        everywhere("/queues", {"name": name})
    page = look(running).goto("nodes")
    page.get_by_label("Filter by name").fill("listed.")
    expect(page.get_by_text("3 nodes", exact=True)).to_be_visible()
    for cell, name in enumerate(names):
        row = page.locator(".vtable tbody tr", has_text=name)
        expect(row.get_by_role("cell").first).to_have_text(str(cell))
    page.get_by_role("button", name="Cell").click()
    heads = page.locator(".vtable tbody th")
    expect(heads).to_have_text([names[2], names[1], names[0]])
    # A depth moves as it does in its cell.
    client = BlockingConnection(running.url, timeout=10)
    client.create_sender(names[1]).send(Message("x"))
    expect(page.locator(".vtable tbody tr", has_text=names[1]).locator("td.num").nth(1)).to_have_text("1")
    client.close()


def test_a_node_is_shown_changed_and_deleted_in_its_cell(
    look: Open, running: RunningBroker, everywhere: Api, workers: Clients
) -> None:
    for cell in range(CELLS):
        [name] = names_in(cell, CELLS, 1, "shown")
        filled(everywhere, workers, name, 3)
        page = look(running).node("queue", name)
        expect(page.locator(".crumbs")).to_contain_text(f"cell {cell}")
        expect(page.locator("dl.figures dd").first).to_have_text("3")
        page.get_by_role("button", name="Purge…").click()
        confirm(page, "Purge 3 messages")
        assert everywhere.queue(name)["depth_msgs"] == 0
        page.get_by_role("button", name="Delete…").click()
        page.get_by_label("Type its name to confirm").fill(name)
        confirm(page, "Delete")
        wait_until(lambda name=name: name not in everywhere.names(), PATIENCE_S, "it to be gone")  # type: ignore[misc]


def test_why_names_the_cell_of_a_link_that_is_passed_on(look: Open, running: RunningBroker) -> None:
    first, _, third = one_in_each("full")
    client = BlockingConnection(running.url, timeout=10)
    client.create_sender(first)
    sender = client.create_sender(third)
    for _ in range(5):
        sender.send(Message("x"))
    page = look(running).node("queue", third)
    expect(page.locator(".whys")).to_contain_text("has no credit from cell 2")
    page = look(running).goto("")
    expect(page.get_by_role("region", name="Stopped nodes").get_by_role("row", name=third)).to_contain_text(
        "has no credit from cell 2"
    )
    client.close()


def test_a_connection_of_any_cell_is_closed(
    look: Open, running: RunningBroker, everywhere: Api, workers: Clients
) -> None:
    names = one_in_each("closing")
    clients = [workers.start("receive", name, "--no-output") for name in names]
    for name in names:
        consumed(everywhere, name)
    peers = [everywhere(f"/links?node={name}&role=consumer")["items"][0]["peer"] for name in names]
    page = look(running).goto("connections")
    # All three may have the same id, each in its cell.
    for peer, client in zip(peers, clients, strict=True):
        row = page.locator(".vtable tbody tr", has_text=peer)
        row.get_by_role("button", name="Close…").click()
        confirm(page, "Close connection")
        assert client.wait(PATIENCE_S) != 0
        expect(row).to_have_count(0)


def test_events_bear_their_cell(look: Open, running: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "told")
    client = BlockingConnection(running.url, timeout=10)
    client.create_sender(name)
    page = look(running).goto("log")
    event = page.locator(".events li", has_text=name).first
    expect(event).to_contain_text("cell 1")
    client.close()


def test_a_cell_that_is_stopped_is_told_and_the_rest_goes_on(
    look: Open, running: RunningBroker, everywhere: Api
) -> None:
    names = one_in_each("partly")
    for name in names:
        everywhere("/queues", {"name": name})
    page = look(running, faults=("503",)).goto("")
    cells = page.get_by_role("region", name="Cells")
    expect(cells.get_by_role("row")).to_have_count(1 + CELLS)
    expect(cells.get_by_text("up", exact=True)).to_have_count(CELLS)
    with stopped(running, 2):
        # A browser asks on connections that it has kept, up to six, all of which may be that cell's. The page
        # has another one taken after 8 s.
        absent = page.locator("#absent")
        expect(absent).to_contain_text("cell 2: it doesn't answer", timeout=SIX_CONNECTIONS_MS)
        expect(cells.get_by_text("it doesn't answer")).to_be_visible()
        listing = look(running, faults=("503",)).goto("nodes")
        listing.get_by_label("Filter by name").fill("partly.")
        expect(listing.get_by_text("2 nodes, without cell 2: it doesn't answer")).to_be_visible()
        expect(listing.locator(".vtable tbody tr", has_text=names[0])).to_be_visible()
    expect(page.locator("#absent")).to_have_count(0)
    expect(cells.get_by_text("up", exact=True)).to_have_count(CELLS)
