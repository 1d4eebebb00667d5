"""What the command line and the HTTP ports show and do where there are several cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.codec.owned import owned
from broker.errors import ElsewhereError, NotFoundError, OperatorError
from tests.wire.cells import names_in
from tests.wire.conftest import RunningBroker
from tests.wire.forked import run_sluice

CELLS = 3
ARGS = ("--cells", str(CELLS))


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells that the tests of this module share."""
    broker = RunningBroker(tmp_path_factory.mktemp("cells"), "", "", ARGS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def sluice(broker: RunningBroker, *words: str) -> str:
    done = run_sluice(*words, "-b", broker.url)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_queue_is_made_shown_changed_and_deleted_wherever_it_belongs(cells: RunningBroker) -> None:
    for name in (names_in(cell, CELLS, 1, "made")[0] for cell in range(CELLS)):
        sluice(cells, "config", "add", "queue", name, "--max-queue-count", "7")
        sluice(cells, "config", "set", "queue", name, "--max-queue-count", "9")
        assert name in sluice(cells, "config", "queues")
        assert json.loads(sluice(cells, "why", name, "--json")) is not None
        sluice(cells, "config", "del", "queue", name)
        assert name not in sluice(cells, "config", "queues")


def test_lists_have_the_nodes_of_all_cells(cells: RunningBroker) -> None:
    names = [f"listed.{number}" for number in range(12)]
    for name in names:
        connection = BlockingConnection(cells.url, timeout=10)
        connection.create_sender(name).send(Message("x"))
        connection.close()
    shown = sluice(cells, "stat", "-q")
    assert all(re.search(rf"{name}\b.* 1\b", shown) for name in names), shown
    for name in names:
        sluice(cells, "purge", name)


def test_producers_are_stopped_in_all_cells(cells: RunningBroker) -> None:
    names = [names_in(cell, CELLS, 1, "held")[0] for cell in range(CELLS)]
    for name in names:
        sluice(cells, "config", "add", "queue", name)
    told = sluice(cells, "producers", "stop", "held.#")
    assert all(name in told for name in names)
    for cell, name in enumerate(names):
        with Management(cells.url, cell=cell) as management:
            assert management.call("READ", "org.sluice.queue", name).body["flowStopped"] is True  # type: ignore[index]
    sluice(cells, "producers", "start", "held.#")


def test_another_client_is_told_the_cell(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "told")
    with Management(cells.url, cell=0) as management, pytest.raises(OperatorError, match="belongs to cell 2"):
        management.call("CREATE", "org.sluice.queue", name)
    with Management(cells.url) as management, pytest.raises(NotFoundError):
        management.call("READ", "org.sluice.queue", name)


def test_an_error_says_which_cell() -> None:
    assert ElsewhereError("elsewhere", 2).cell == 2


def test_the_events_of_each_cell_are_read_by_its_address(cells: RunningBroker) -> None:
    for cell in range(CELLS):
        [name] = names_in(cell, CELLS, 1, "told-of")
        listener = BlockingConnection(cells.url, timeout=10)
        events = listener.create_receiver(f"$cell/{cell}/$sluice/events", credit=100)
        producer = BlockingConnection(cells.url, timeout=10)
        producer.create_sender(name).send(Message("x"))
        told = ""
        while name not in told:
            message = events.receive(timeout=10)
            # Its body is a view, which ends with it.
            told = str(owned(message.body))
            events.accept()
        producer.close()
        listener.close()
