"""The command line over several cells: what is asked of all, and what is said of one that is silent."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.wire.cells import (
    ARGS,
    CELLS,
    kill_cell,
    let_stand_still,
    names_in,
    one_in_each,
    stopped,
    wait_for_cell,
)
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice

pytestmark = pytest.mark.wire

POLICIES = "policies: [{match: 'full.*', flow_stop_count: 1}]\n"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells that the tests of this module share."""
    broker = RunningBroker(tmp_path_factory.mktemp("cells"), "", POLICIES, ARGS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def sluice(broker: RunningBroker, *words: str) -> str:
    done = run_sluice(*words, "-b", broker.url)
    assert done.returncode == 0, done.stderr
    return done.stdout


def visit(broker: RunningBroker, name: str) -> None:
    """Be a producer of a queue for a moment, which is told of."""
    client = BlockingConnection(broker.url, timeout=10)
    client.create_sender(name)
    client.close()


def test_why_says_from_which_cell_a_passed_on_producer_has_no_credit(cells: RunningBroker) -> None:
    first, second, third = one_in_each("full")
    client = BlockingConnection(cells.url, timeout=10)
    # The connection goes to the cell of its first link; the second link is passed on.
    client.create_sender(first)
    there = client.create_sender(third)
    there.send(Message("x"))
    told = sluice(cells, "why")
    assert f"at '{third}' has no credit from cell 2" in told
    assert f"queue '{third}' is stopped by flow_stop_count (1 of 1 messages queued)" in told, told
    assert "from cell 2" in sluice(cells, "why", third)
    assert "from cell 2" in sluice(cells, "why", there.link.name)
    [answer] = json.loads(sluice(cells, "why", there.link.name, "--json"))
    assert answer["node"] == third
    # By its id too, which bears its cell.
    rows = json.loads(sluice(cells, "stat", "-f", "--json"))["senders"]
    [identity] = [row["identity"] for row in rows if row["node"] == third]
    assert identity.startswith("2:c")
    told = sluice(cells, "why", identity)
    assert f"at '{third}' has no credit from cell 2" in told
    assert "Beyond what it holds it gets the least of" in told
    # A link of a connection that is in the node's own cell isn't passed on.
    local = BlockingConnection(cells.url, timeout=10)
    local.create_sender(second).send(Message("x"))
    assert f"at '{second}' has no credit, " in sluice(cells, "why", second)
    # A consumer's side.
    receiver = client.create_receiver(third, credit=0)
    assert "is sent nothing by cell 2" in sluice(cells, "why", receiver.link.name)
    unknown = run_sluice("why", "nothing-of-that-name", "-b", cells.url)
    assert unknown.returncode == 1
    assert "no queue, topic, subscription or link named" in unknown.stderr
    # Neither stands in the lists twice: the one is a client's, the other another cell's.
    rows = json.loads(sluice(cells, "stat", "-c", "--json"))["connections"]
    assert sorted(
        row["container"] for row in rows if not row["container"].startswith("sluice-cli")
    ) == sorted((client.container.container_id, local.container.container_id))
    client.close()
    local.close()


def test_tables_have_the_cell_and_top_adds_up(cells: RunningBroker) -> None:
    names = one_in_each("shown")
    for name in names:
        sluice(cells, "config", "add", "queue", name)
    rows = json.loads(sluice(cells, "stat", "-q", "--json"))["queues"]
    assert {(row["name"], row["cell"]) for row in rows if row["name"] in names} == {
        (name, cell) for cell, name in enumerate(names)
    }
    heading = sluice(cells, "stat", "-q").splitlines()[1]
    assert " cell " in heading
    assert len(json.loads(sluice(cells, "stat", "-g", "--json"))["broker"]) == CELLS
    client = BlockingConnection(cells.url, timeout=10)
    client.create_sender(names[0]).send(Message("x"))
    shown = json.loads(sluice(cells, "top", "--json", "--count", "1", "shown"))
    assert {row["name"] for row in shown["nodes"]} == set(names)
    assert shown["broker"]["depth_msgs"] >= 1
    client.close()
    sluice(cells, "producers", "stop", "shown.#")
    assert sluice(cells, "producers", "list") == "shown.#\n"
    sluice(cells, "producers", "start", "shown.#")
    assert sluice(cells, "producers", "list") == "no producers are stopped\n"


def test_events_of_all_cells_are_in_the_order_of_time(cells: RunningBroker) -> None:
    names = one_in_each("event")
    for name in names:
        visit(cells, name)
    lines = sluice(cells, "events", "--count", "1000", "--json").splitlines()
    events = [json.loads(line) for line in lines]
    made = {(each["node"], each["cell"]) for each in events if each["event"] == "link_opened"}
    assert {(name, cell) for cell, name in enumerate(names)} <= made
    assert [each["time"] for each in events] == sorted(each["time"] for each in events)


def test_events_to_come_are_of_all_cells(cells: RunningBroker) -> None:
    words = ["events", "--follow", "--json", "--count", "0", "--kind", "link_opened", "-b", cells.url]
    command = [sys.executable, "-m", "broker.cli.main", *words]
    told: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=told.extend, args=(process.stdout,))
        reader.start()
        wanted = {(name, cell) for cell, name in enumerate(one_in_each("coming"))}

        def all_came() -> bool:
            for name, _ in wanted:
                visit(cells, name)
            return wanted <= {(each["node"], each["cell"]) for each in map(json.loads, list(told))}

        # It follows a moment after it was started.
        wait_until(all_came, 60, lambda: str(told), every_s=0.5)
        process.terminate()
        reader.join(10)


def test_a_stopped_cell_is_said_and_the_rest_is_shown(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_stand_still(monkeypatch)
    broker = start_broker(args=ARGS)
    names = one_in_each("kept")
    for name in names:
        sluice(broker, "config", "add", "queue", name)
    with stopped(broker, 2):
        began = time.monotonic()
        done = run_sluice("stat", "-q", "-b", broker.url)
        assert time.monotonic() - began < 40
        assert done.returncode == 0, done.stderr
        assert names[0] in done.stdout
        assert names[1] in done.stdout
        assert names[2] not in done.stdout
        assert "note: cell 2 is left out: " in done.stderr
        stop = run_sluice("producers", "stop", "kept.#", "-b", broker.url)
        assert stop.returncode == 1
        assert "done in cells 0, 1 only; cell 2: " in stop.stderr
    told = sluice(broker, "producers", "stop", "kept.#")
    assert all(name in told for name in names)
    wait_for_cell(broker, 1, kill_cell(broker, 1))
    assert all(name in sluice(broker, "stat", "-q") for name in (names[0], names[2]))


def test_a_connection_is_closed_in_the_cell_that_is_said(cells: RunningBroker) -> None:
    names = one_in_each("closed")
    clients = [BlockingConnection(cells.url, timeout=10) for _ in names]
    for client, name in zip(clients, names, strict=True):
        client.create_sender(name)
    rows = json.loads(sluice(cells, "stat", "-c", "--json"))["connections"]
    of_client = {row["container"]: row for row in rows}
    wanted = of_client[clients[1].container.container_id]
    assert wanted["identity"].startswith("1:c")
    bare = run_sluice("close", wanted["identity"].partition(":")[2], "-b", cells.url)
    assert bare.returncode == 1
    assert "each cell has connections of its own: say 0:c" in bare.stderr
    assert "closed connection 1:c" in sluice(cells, "close", wanted["identity"])
    rows = json.loads(sluice(cells, "stat", "-c", "--json"))["connections"]
    left = {row["container"] for row in rows}
    assert [each.container.container_id in left for each in clients] == [True, False, True]
    for client in (clients[0], clients[2]):
        client.close()


def test_advise_reads_the_history_of_all_cells(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "advised")
    sender = subprocess.Popen(
        [sys.executable, *f"-m broker.cli.main send {name} --count 3000 --rate 1000 -b {cells.url}".split()],
        stdout=subprocess.DEVNULL,
    )
    done = run_sluice("receive", name, "--count", "3000", "--no-output", "-b", cells.url)
    assert done.returncode == 0, done.stderr
    assert sender.wait(30) == 0
    data = cells.config_file.parent / "data"
    # Events are written a moment after they happen.
    wait_until(
        lambda: run_sluice("advise", str(data), "--node", name).returncode == 0, 30, "a history", every_s=0.5
    )
    assert f"{name}: " in run_sluice("advise", str(data), "--node", name).stdout
