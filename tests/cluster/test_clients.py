"""Real client libraries across a kill of the owner: each finds the next one itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from tests.clients.programs import BY_NAME, build, missing_tools
from tests.clients.running import Running
from tests.cluster.conftest import skip_without_servers
from tests.cluster.transfers import COUNT, go_amqp, killed_once, progress, proton, qpid_jms, rhea
from tests.cluster.world import Cell, cell

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
POLICIES = 'policies:\n  - {match: "*", kind: queue, durable: true}\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    skip_without_servers()
    with cell(tmp_path_factory.mktemp("cell"), policies=POLICIES) as made:
        made.start()
        yield made


def run(made: Cell, start: Callable[[Cell, str, int], Running], address: str) -> None:
    """Lead one transfer across a kill."""
    made.settle()
    running = start(made, address, COUNT)
    try:
        killed_once(made, running)
        running.stop()
        found = progress(running)
        assert (running.process.returncode, found.accepted, found.received) == (0, COUNT, COUNT), running.tail
        assert found.confirmed_again == 0, running.tail
    finally:
        running.stop()


def test_proton_reconnects_and_nothing_is_lost(made: Cell) -> None:
    run(made, proton, "proton")


def test_rhea_reconnects_and_nothing_is_lost(made: Cell) -> None:
    program = BY_NAME["rhea"]
    if missing_tools(program):
        pytest.skip(f"needs {missing_tools(program)}")
    build(program)
    run(made, rhea, "rhea")


def test_go_amqp_is_dialled_again_and_nothing_is_lost(made: Cell) -> None:
    program = BY_NAME["go-amqp"]
    if missing_tools(program):
        pytest.skip(f"needs {missing_tools(program)}")
    build(program)
    run(made, go_amqp, "go-amqp")


# It takes minutes where the machine does other work as well: its reconnects back off.
@pytest.mark.soak
@pytest.mark.parametrize("members", [3, 1])
def test_qpid_jms_fails_over_and_nothing_is_lost(made: Cell, members: int) -> None:
    """With one member in its URL it finds the others in the broker's open."""
    program = BY_NAME["qpid-jms"]
    if missing_tools(program):
        pytest.skip(f"needs {missing_tools(program)}")
    build(program)
    owner = made.settle()
    # The one that it is told of is the one that is killed.
    made.members.sort(key=lambda each: each is not owner)
    run(made, functools.partial(qpid_jms, members=members), f"jms-{members}")
