"""Another number of cells for the same data: names stay where they are, and cells that go are emptied."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.server.cells.layout import CellsDirectory, cells_in, folder_of
from broker.server.cells.table import read_table
from tests.wire.cells import names_in, pids_of
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.test_cells_moves import bodies, cells_with, connect, send

POLICIES = 'policies:\n  - {match: "orders.>", durable: true}\n  - {match: "news.>", kind: topic}\n'


def start(start_broker: StartBroker, cells: int, data: Path) -> RunningBroker:
    return start_broker(policies=POLICIES, args=("--cells", str(cells), "--data", str(data)))


def fill(broker: RunningBroker, names: list[str]) -> None:
    for name in names:
        send(broker, name, *(f"{name} {number}" for number in range(20)))


def check(broker: RunningBroker, names: list[str]) -> None:
    for name in names:
        assert bodies(broker, name, 20) == [f"{name} {number}" for number in range(20)]


NAMES = [f"orders.{number}" for number in range(12)]


def test_more_cells_have_the_same_queues_and_share_out_new_ones(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = tmp_path / "shared"
    broker = start(start_broker, 2, data)
    fill(broker, NAMES)
    where = {name: cells_with(broker, name, 2) for name in NAMES}
    broker.stop()
    broker = start(start_broker, 4, data)
    assert len(pids_of(broker)) == 4
    assert {name: cells_with(broker, name, 4) for name in NAMES} == where
    check(broker, NAMES)
    fresh = [names_in(cell, 4, 1, "orders.fresh")[0] for cell in range(4)]
    fill(broker, fresh)
    assert [cells_with(broker, name, 4) for name in fresh] == [[0], [1], [2], [3]]


def test_cells_that_go_give_their_queues_away_and_are_left_out(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = tmp_path / "shared"
    broker = start(start_broker, 4, data)
    fill(broker, NAMES)
    broker.stop()
    broker = start(start_broker, 2, data)
    for cell in (2, 3):
        broker.wait_for_log(f"cell {cell} has no queue any more", 60)
    assert all(cells_with(broker, name, 4)[0] < 2 for name in NAMES)
    broker.stop()
    broker = start(start_broker, 2, data)
    assert len(pids_of(broker)) == 2
    check(broker, NAMES)


@pytest.mark.parametrize("place", ["DLQ", "letters", "dead"])
def test_dead_letters_of_a_cell_that_goes_are_kept_under_its_number(
    start_broker: StartBroker, tmp_path: Path, place: str
) -> None:
    """Whichever of the two cells a client finds by that name, each has a node of it."""
    data = tmp_path / "shared"
    policies = POLICIES.replace("durable: true", f"durable: true, dead_letter_address: {place}")
    policies += f"  - {{match: {place}, durable: true}}\n"
    args = ("--data", str(data))
    broker = start_broker(policies=policies, args=("--cells", "2", *args))
    for cell in range(2):
        [name] = names_in(cell, 2, 1)
        send(broker, name, cell)
        connection = connect(broker)
        receiver = connection.create_receiver(name, credit=1)
        receiver.receive(timeout=10)
        receiver.reject()
        connection.close()
    broker.stop()
    broker = start_broker(policies=policies, args=("--cells", "1", *args))
    broker.wait_for_log("cell 1 has no queue any more", 60)
    broker.stop()
    broker = start_broker(policies=policies, args=("--cells", "1", *args))
    assert bodies(broker, place, 1) == [0]
    assert bodies(broker, f"{place}.cell-1", 1) == [1]


def test_what_can_not_be_given_away_keeps_its_cell_and_is_said(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = tmp_path / "shared"
    broker = start(start_broker, 2, data)
    [topic] = names_in(1, 2, 1, "news")
    with Management(broker.url, cell=1) as management:
        management.call("CREATE", "org.sluice.topic", topic, {"durable": True})
        [queue] = names_in(1, 2, 1, "orders.bound")
        management.call("CREATE", "org.sluice.queue", queue)
        management.call("CREATE", "org.sluice.binding", body={"source": topic, "target": queue})
    broker.stop()
    broker = start(start_broker, 1, data)
    broker.wait_for_log(f"'{topic}' is in the way of leaving this cell out", 30)
    broker.wait_for_log(f"'{queue}' is in the way", 30)
    send(broker, topic, "told")
    assert bodies(broker, queue, 1) == ["told"]
    with Management(broker.url, cell=1) as management:
        management.call("DELETE", "org.sluice.binding", body={"source": topic, "target": queue})
    broker.wait_for_log("cell 1 has no queue any more", 60)


def test_a_single_broker_becomes_several_cells_and_single_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = tmp_path / "shared"
    broker = start(start_broker, 1, data)
    fill(broker, NAMES)
    broker.stop()
    broker = start(start_broker, 3, data)
    assert all(cells_with(broker, name, 3) == [0] for name in NAMES)
    fresh = [names_in(cell, 3, 1, "orders.fresh")[0] for cell in range(3)]
    fill(broker, fresh)
    assert [cells_with(broker, name, 3) for name in fresh] == [[0], [1], [2]]
    broker.stop()
    broker = start(start_broker, 1, data)
    assert len(pids_of(broker)) == 3
    for cell in (1, 2):
        broker.wait_for_log(f"cell {cell} has no queue any more", 60)
    broker.stop()
    broker = start(start_broker, 1, data)
    assert not pids_of(broker)
    assert not cells_in(data)
    assert not folder_of(data, 0).exists()
    check(broker, [*NAMES, *fresh])


def test_a_start_that_is_cut_off_while_names_are_asked_for_loses_none(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """The table that was in force is written down before another number of cells is."""
    data = tmp_path / "shared"
    broker = start(start_broker, 2, data)
    fill(broker, NAMES)
    broker.stop()
    CellsDirectory(data, 3).close()
    assert (cells_in(data), read_table(data, 3).cells) == (3, 2)
    broker = start(start_broker, 3, data)
    check(broker, NAMES)
    connection = BlockingConnection(broker.url, timeout=10)
    connection.create_sender(NAMES[0]).send(Message("x"))
    connection.close()
