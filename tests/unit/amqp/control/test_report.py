"""Events of connections and links; those of the command line are left out while it does nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from broker.amqp.control.client import ClientDetails
from broker.amqp.control.report import TOOL, ConnectionReport
from broker.engine.engine import Engine
from broker.security.exchange import ListenerTrust
from tests.unit.amqp.world import AmqpWorld


class Listening:
    """The events that an engine is told."""

    def __init__(self) -> None:
        self.changes = self
        self.told: list[tuple[str, Mapping[str, object]]] = []

    def emit(self, kind: str, node: object, fields: Mapping[str, object]) -> None:
        self.told.append((kind, fields))


def a_report(name: str) -> tuple[ConnectionReport, Listening]:
    engine = Listening()
    client = ClientDetails("c1", "192.0.2.1:5000", "alice", ListenerTrust(), name=name)
    return ConnectionReport(cast("Engine", engine), client, ""), engine


def test_an_open_is_told_with_its_container_and_address() -> None:
    report, engine = a_report("app")
    report.opened("PLAIN")
    assert engine.told == [
        ("connection_opened", {"connection": "c1", "container": "app", "peer": "192.0.2.1:5000"})
    ]


def test_the_command_line_is_left_out_until_it_does_more() -> None:
    report, engine = a_report(f"{TOOL}1")
    report.opened("")
    report.attached(None, [], "")
    report.left()
    assert report.is_tool
    assert engine.told == []


def test_a_tool_that_attaches_to_a_queue_is_told_of_with_all_its_links(world: AmqpWorld) -> None:
    told: list[str] = []
    world.engine.changes.emit = lambda kind, node, fields: told.append(kind)
    client = world.begun(f"{TOOL}1")
    client.attach_sender("$management", name="a", handle=0)
    assert told.count("connection_opened") == 0
    client.attach_sender("orders", name="b", handle=1)
    assert [kind for kind in told if kind != "node_created"][:1] == ["connection_opened"]
    assert told.count("link_opened") == 2


def test_only_the_first_reason_counts() -> None:
    report, _ = a_report("app")
    report.ends("", "by the client")
    report.ends("amqp:internal-error", "later")
    assert report.end == ("", "by the client")


def test_a_refusal_says_which_limit_and_how_often() -> None:
    report, engine = a_report("app")
    report.refused("max_connections_per_user", 3, 7)
    [(kind, fields)] = engine.told
    assert kind == "connection_refused"
    assert (fields["limit"], fields["most"], fields["count"]) == ("max_connections_per_user", 3, 7)
