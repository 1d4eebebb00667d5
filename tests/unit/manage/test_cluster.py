"""The operators' verbs about a cluster, and what the broker's view and `why` say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import NotFoundError, OperatorError
from broker.http.metrics.metrics import render
from broker.manage.cluster import ClusterMember, ClusterOperations, ClusterStatus, EngineStatus
from broker.manage.why.producer import WhyContext, of_producer
from tests.unit.manage_world import World

MEMBERS = (
    ClusterMember("a", "owner", 7, 0, 0.0, 0.0, "1.0", (), ""),
    ClusterMember("b", "standby", 5, 1, 0.5, 0.2, "1.0", (), ""),
    ClusterMember("c", "gone", 3, 0, 0.0, 30.0, "1.0", (), ""),
)
STATUS = ClusterStatus("main", "a", "owner", "a", True, 3, "", 2, EngineStatus(True, (), "", 7), MEMBERS)


class OneMember:
    """A view of a cell that hands over to `b` only."""

    def __init__(self, status: ClusterStatus = STATUS) -> None:
        self.now = status

    def status(self) -> ClusterStatus:
        return self.now

    def move(self, member: str) -> str:
        if member not in ("", "b"):
            raise OperatorError(f"'{member}' is no standby")
        return "b"


def test_a_single_broker_is_no_member() -> None:
    operations = ClusterOperations()
    assert operations.known() is None
    for ask in (operations.status, lambda: operations.move("b")):
        with pytest.raises(NotFoundError, match="this broker is no member of a cluster"):
            ask()
    world = World()
    broker = world.model.queries.broker()
    assert (broker.cluster_role, broker.cluster_owner, broker.cluster_epoch) == ("", "", 0)
    assert b"sluice_cluster_" not in b"".join(render(world.survey()))


def test_a_members_view_answers() -> None:
    operations = ClusterOperations()
    operations.view = OneMember()
    assert operations.known() == operations.status() == STATUS
    assert operations.move("") == "b"
    with pytest.raises(OperatorError):
        operations.move("c")


def test_a_status_knows_its_own_member_and_those_that_are_there() -> None:
    assert STATUS.own is MEMBERS[0]
    assert [each.name for each in STATUS.present] == ["a", "b"]
    assert replace(STATUS, members=()).own is None


def test_the_brokers_view_has_the_cell() -> None:
    world = World()
    world.model.cluster.view = OneMember(replace(STATUS, suspended="no log"))
    broker = world.model.queries.broker()
    assert broker.cluster_role == "owner"
    assert (broker.cluster_owner, broker.cluster_epoch, broker.cluster_suspended) == ("a", 3, "no log")


def test_why_says_that_the_cell_is_suspended() -> None:
    world = World()
    node = world.queue("orders")
    world.producer(node)
    [link] = world.links.producers("orders")
    memory = node.allocator.reservations.memory
    assert memory is not None
    memory.gate.held = True
    around = WhyContext(world.engine.turn.now_ns, world.model.diagnostics.forecasts, store="full")
    assert of_producer(link, node, around).text == "nothing can be kept on disk (full)"
    reason = of_producer(link, node, replace(around, suspended="the log is silent"))
    assert reason.text == "the replicated cell is suspended: the log is silent"
    assert reason.frees == "when the log answers again, or another member owns the cell"
