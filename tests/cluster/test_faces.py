"""What operators see of a real cell, and tell it: over HTTP, AMQP, on the command line and in the history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Timeout
from proton.utils import BlockingConnection

from broker.client.request import Management
from tests.cluster.applications import send
from tests.cluster.world import Cell, MemberProcess, cell, wait_until
from tools.nats import server

pytestmark = pytest.mark.cluster

POLICIES = """policies:
  - match: "*"
    kind: queue
    durable: true
    flow_stop_count: 100
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    if server() is None:
        if os.environ.get("CI"):
            pytest.fail("neither nats-server nor go is installed")
        pytest.skip("neither nats-server nor go is installed")
    with cell(tmp_path_factory.mktemp("cell"), policies=POLICIES) as found:
        found.start()
        wait_until(lambda: all(each.is_running for each in found.members), "three members")
        yield found


def owner(running: Cell) -> MemberProcess:
    """The owner, once both others stand by and it has heard of them."""
    found = running.wait_for_owner()
    wait_until(lambda: roles(found) == ["owner", "standby", "standby"], "an owner and two standbys")
    return found


def roles(member: MemberProcess) -> list[str]:
    try:
        return sorted(each["role"] for each in member.api("/api/v1/cluster")["members"])
    except (OSError, ValueError):
        return []


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def samples(port: int) -> dict[str, float]:
    """The cell's figures as Prometheus reads them."""
    lines = get(port, "/metrics")[1].splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("sluice_cluster_"))
    return {name.removesuffix('{cell="main"}'): float(value) for name, value in pairs}


def events(member: MemberProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = member.api("/api/v1/events?count=1000&samples=false")
    return found


def told(member: MemberProcess, kind: str) -> list[dict[str, Any]]:
    return [each for each in events(member) if each["event"] == kind]


def sluice(*words: str, status: int = 0, at: str = "") -> str:
    """What a verb prints; on stderr if it is refused."""
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"SLUICE_HTTP": at},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_every_member_tells_how_the_cell_is(running: Cell) -> None:
    first = owner(running)
    for each in running.members:
        for port in (each.http, each.member_port):
            status, text = get(port, "/api/v1/cluster")
            found = json.loads(text)
            assert status == 200
            assert (found["member"], found["owner"], found["cell"]) == (each.name, first.name, "main")
            assert found["role"] == ("owner" if each is first else "standby")
            assert sorted(row["name"] for row in found["members"]) == ["a", "b", "c"]
            assert len(found["engine"]["servers"]) == 3
            assert get(port, "/healthz") == (200, "ok\n")
            assert get(port, "/readyz") == (200, "ready\n")
        assert get(each.member_port, "/api/v1/queues")[0] == 404


def test_every_member_has_metrics_of_its_own(running: Cell) -> None:
    first = owner(running)
    for each in running.members:
        found = samples(each.http)
        assert found == samples(each.member_port) | {
            name: found[name] for name in found if "position" in name
        }
        assert found["sluice_cluster_owner"] == (each is first)
        assert found["sluice_cluster_epoch"] == first.epoch_owned
        assert found["sluice_cluster_takeovers_total"] == first.epoch_owned - 1
        assert found["sluice_cluster_members"] == 3
        assert found["sluice_cluster_suspended"] == 0
        assert found["sluice_cluster_engine_reachable"] == 1
        assert found["sluice_cluster_position"] > 0
        assert found["sluice_cluster_lag_seconds"] < 10
    assert "sluice_uptime_seconds" in get(first.http, "/metrics")[1]
    standby = next(each for each in running.members if each is not first)
    assert "sluice_uptime_seconds" not in get(standby.http, "/metrics")[1]


def test_the_management_node_tells_the_owner(running: Cell) -> None:
    first = owner(running)
    for each in running.members:
        with Management(f"amqp://127.0.0.1:{each.amqp}") as management:
            body = management.call("READ", type="org.sluice.broker", name="sluice", attributes={}).body
            assert isinstance(body, dict)
            assert body["cluster_role"] == "owner"
            assert body["cluster_owner"] == first.name
            assert body["cluster_epoch"] == first.epoch_owned
            assert body["cluster_suspended"] == ""


def test_the_command_shows_the_members(running: Cell) -> None:
    first = owner(running)
    for each in running.members:
        text = sluice("cluster", "status", "--http", f"http://127.0.0.1:{each.http}")
        assert f"cell main as {each.name} sees it: owned by {first.name}, epoch {first.epoch_owned}," in text
        rows = [line.split()[:2] for line in text.splitlines()]
        assert [first.name, "owner"] in rows
        assert sum(row[1:] == ["standby"] for row in rows) == 2
    at = f"http://127.0.0.1:{first.http}"
    assert json.loads(sluice("cluster", "status", "--json", at=at))["owner"] == first.name
    refused = sluice("cluster", "move", "nobody", status=1, at=at)
    assert "'nobody' is no standby that is there" in refused


def test_the_cell_is_moved(running: Cell) -> None:
    first = owner(running)
    wanted = next(each for each in running.members if each is not first)
    at = f"http://127.0.0.1:{wanted.http}"
    assert sluice("cluster", "move", wanted.name, at=at) == f"the cell goes to {wanted.name}\n"
    assert running.wait_for_owner(other_than=first) is wanted
    second = owner(running)
    assert second is wanted
    [begun] = told(second, "owner")
    assert (begun["member"], begun["epoch"]) == (second.name, second.epoch_owned)
    with Management(f"amqp://127.0.0.1:{first.amqp}") as management:
        answer = management.call("move-cell", type="org.sluice.broker", body={"member": first.name}).body
        assert answer == {"member": first.name}
    assert running.wait_for_owner(other_than=second) is first


def test_standbys_come_and_go_in_the_history(running: Cell) -> None:
    first = owner(running)
    wait_until(lambda: len(told(first, "standby_joined")) == 2, "both standbys in the history")
    lost = next(each for each in running.members if each is not first)
    lost.kill()
    wait_until(lambda: told(first, "standby_lost"), "the end of a standby")
    [gone] = told(first, "standby_lost")
    assert (gone["member"], gone["standbys"]) == (lost.name, 1)
    assert samples(first.http)["sluice_cluster_members"] == 2
    lost.start()
    wait_until(lambda: len(told(first, "standby_joined")) == 3, "its return")
    assert told(first, "standby_joined")[-1]["member"] == lost.name


def test_a_suspended_cell_says_so_everywhere(running: Cell) -> None:
    first = owner(running)
    with Management(f"amqp://127.0.0.1:{first.amqp}") as management:
        management.call("CREATE", type="org.sluice.queue", name="orders", attributes={"durable": True})
    send(first.amqp, "orders", ["waits"])
    connection = BlockingConnection(f"amqp://127.0.0.1:{first.amqp}", timeout=30)
    receiver = connection.create_receiver("orders", credit=0, name="taker")
    stopped = running.log.servers[1:]
    for each in stopped:
        each.kill()
    try:
        wait_until(lambda: told(first, "suspended"), "the suspension", 20)
        sender = connection.create_sender("orders")
        assert sender.credit == 0
        # Another member may own the cell by now, and deliver the message.
        receiver.flow(1)
        fetcher = receiver.fetcher
        assert fetcher is not None
        with pytest.raises(Timeout):
            connection.wait(lambda: bool(fetcher.has_message), timeout=1)
        [taker] = first.api("/api/v1/why/taker")["answers"]
        assert "now: the replicated cell is suspended: the cell's log has not" in taker["sentence"]
        for port in (first.http, first.member_port):
            status, text = get(port, "/readyz")
            assert status == 503
            assert "suspended: the cell's log doesn't answer" in text
            assert get(port, "/healthz")[0] == 200
        assert samples(first.http)["sluice_cluster_suspended"] == 1
        assert "has not answered for" in first.api("/api/v1/cluster")["suspended"]
        assert "has not answered for" in first.api("/api/v1/broker")["cluster_suspended"]
        text = sluice("cluster", "status", "--http", f"http://127.0.0.1:{first.http}")
        assert "\nsuspended: the cell's log has not answered for" in text
        answers = first.api("/api/v1/why/orders")["answers"]
        [answer] = [each for each in answers if each["subject"] == "producer"]
        assert "the replicated cell is suspended: the cell's log has not answered" in answer["sentence"]
        assert "when the log answers again, or another member owns the cell" in answer["sentence"]
    finally:
        for each in stopped:
            each.start()
    wait_until(lambda: told(running.wait_for_owner(), "resumed"), "the cell to go on", 60)
    assert owner(running) is first
    assert receiver.receive(timeout=30).body == "waits"
    receiver.accept()
    connection.close()
