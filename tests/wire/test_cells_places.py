"""Policies that say which of several cells a node belongs to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.errors import NotFoundError
from broker.server.cells.table import read_table
from tests.wire.cells import kill_cell, names_in, pids_of, wait_for_cell
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice

CELLS = 3
ARGS = ("--cells", str(CELLS))
QUEUE = "org.sluice.queue"


def policies(cell: int | None, match: str = "orders.>") -> str:
    said = "" if cell is None else f", cell: {cell}"
    return f'policies:\n  - {{match: "{match}", durable: true{said}}}\n'


def send(broker: RunningBroker, *names: str) -> None:
    connection = BlockingConnection(broker.url, timeout=10)
    for name in names:
        connection.create_sender(name).send(Message(name, durable=True))
    connection.close()


def received(broker: RunningBroker, name: str) -> object:
    connection = BlockingConnection(broker.url, timeout=10)
    receiver = connection.create_receiver(name, credit=1)
    body = receiver.receive(timeout=10).body
    receiver.accept()
    connection.close()
    return body


def cells_with(broker: RunningBroker, name: str) -> list[int]:
    """Return the cells in which there is a queue of that name."""
    found = []
    for cell in range(CELLS):
        with Management(broker.url, cell=cell) as management:
            try:
                management.call("READ", QUEUE, name)
            except NotFoundError:
                continue
            found.append(cell)
    return found


def data_of(broker: RunningBroker) -> Path:
    return broker.config_file.parent / "data"


def test_nodes_of_a_pattern_are_made_where_the_policy_says(start_broker: StartBroker) -> None:
    broker = start_broker(policies=policies(2), args=ARGS)
    names = [names_in(cell, CELLS, 1)[0] for cell in range(CELLS)]
    send(broker, *names)
    assert [cells_with(broker, name) for name in names] == [[2]] * CELLS
    assert [received(broker, name) for name in names] == names


def test_a_cell_finds_names_as_the_others_do_after_it_was_killed(start_broker: StartBroker) -> None:
    broker = start_broker(policies=policies(2), args=ARGS)
    [name] = names_in(0, CELLS, 1)
    send(broker, name)
    for cell in (0, 2):
        wait_for_cell(broker, cell, kill_cell(broker, cell))
    assert received(broker, name) == name
    assert cells_with(broker, name) == [2]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_node_that_is_there_stays_where_it_is(start_broker: StartBroker, restarts: bool) -> None:
    """Others of the pattern are made in the cell that the policy says from then on."""
    broker = start_broker(policies=policies(None), args=ARGS)
    before = [names_in(cell, CELLS, 1)[0] for cell in range(CELLS)]
    after = [names_in(cell, CELLS, 2)[1] for cell in range(CELLS)]
    send(broker, *before)
    if restarts:
        data = str(data_of(broker))
        broker.stop()
        broker = start_broker(policies=policies(2), args=(*ARGS, "--data", data))
    else:
        broker.policy_file.write_text(policies(2))
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("policies reloaded")
    wait_until(lambda: broker.log.count("stays there, though") == 2, 15, lambda: broker.log)
    assert f"'{before[0]}' is in cell 0 and stays there, though" in broker.log
    assert f"cluster move {before[0]} 2" in broker.log
    with Management(broker.url) as management:
        told = management.call("why", "org.sluice.broker", body={"address": before[0]}).body
        assert "policies.yaml:2" in str(told)
        assert f"says cell: 2, since it was there before; 'sluice cluster move {before[0]} 2'" in str(told)
    send(broker, *after)
    assert [cells_with(broker, name) for name in before] == [[0], [1], [2]]
    assert [cells_with(broker, name) for name in after] == [[2], [2], [2]]
    assert [received(broker, name) for name in before] == before


def test_a_node_stays_where_it_is_when_its_policy_goes(start_broker: StartBroker) -> None:
    broker = start_broker(policies=policies(2), args=ARGS)
    [old, new] = names_in(0, CELLS, 2)
    send(broker, old)
    broker.policy_file.write_text(policies(None))
    assert run_sluice("config", "apply", "-b", broker.url).returncode == 0
    data = data_of(broker)
    wait_until(lambda: not read_table(data, CELLS).patterns, 15, lambda: broker.log)
    send(broker, new)
    assert (cells_with(broker, old), cells_with(broker, new)) == ([2], [0])
    assert received(broker, old) == old


def test_a_cell_that_does_not_answer_leaves_everything_as_it_was(start_broker: StartBroker) -> None:
    """And once it answers, the next reload has it taken over."""
    broker = start_broker(policies=policies(None), args=ARGS)
    stopped = pids_of(broker)[1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        broker.policy_file.write_text(policies(2))
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("isn't taken over: a cell hasn't answered")
    finally:
        os.kill(stopped, signal.SIGCONT)
    data = data_of(broker)
    assert not read_table(data, CELLS).patterns
    broker.signal(signal.SIGHUP)
    wait_until(lambda: read_table(data, CELLS).patterns == (("orders.>", 2),), 20, lambda: broker.log)
    [name] = names_in(0, CELLS, 1)
    send(broker, name)
    assert cells_with(broker, name) == [2]


def test_a_cell_that_there_is_not_is_refused_by_the_check(start_broker: StartBroker, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(policies(3))
    refused = run_sluice("serve", "--check", "--cells", "3", "--policies", str(file))
    assert refused.returncode == 1
    assert "cell: 3 of 'orders.>', and there are 3 cells" in refused.stderr
    # A single broker has the same files, and has nothing to choose.
    assert run_sluice("serve", "--check", "--policies", str(file)).returncode == 0


def test_only_a_policy_may_say_it(start_broker: StartBroker) -> None:
    broker = start_broker(args=ARGS)
    refused = run_sluice("config", "add", "queue", "q", "--option", "cell=1", "-b", broker.url)
    assert refused.returncode != 0
    with Management(broker.url) as management, pytest.raises(Exception, match="only a policy can say"):
        management.call("CREATE", QUEUE, "q", {"cell": 1})


def test_a_cell_says_which_other_has_a_node_that_is_read(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: placed, cell: 1}\n", args=ARGS)
    for cell in range(CELLS):
        with Management(broker.url, cell=cell) as management:
            answer = management._exchange("READ", "org.sluice.queue", "placed", None, None, {})
            told: dict[str, object] = answer.properties or {}
            assert told["statusCode"] == (404 if cell == 1 else 421)
            assert told["cell"] == (cell if cell == 1 else 1)
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "placed")
    for cell in range(CELLS):
        with Management(broker.url) as management:
            # Whichever cell has accepted it.
            assert management.call("READ", "org.sluice.queue", "placed").cell == 1, cell
