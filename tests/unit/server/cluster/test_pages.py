"""Pages that a member answers itself over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace

from broker.manage.cluster import ClusterMember, ClusterStatus, EngineStatus
from broker.server.cluster.pages import Answered, MemberPages, asked_path, written_answer

ENGINE = EngineStatus(True, ("nats://127.0.0.1:4222",), "n1", 7)
MEMBERS = (
    ClusterMember("b", "standby", 5, 1, 2.5, 0.0, "1.0", ("amqp://10.0.0.2:5672",), ""),
    ClusterMember("a", "owner", 7, 0, 0.0, 0.3, "1.0", ("amqp://10.0.0.1:5672",), "disk of 10.0.0.1"),
    ClusterMember("c", "gone", 3, 0, 0.0, 30.0, "1.0", ("amqp://10.0.0.3:5672",), ""),
)
STATUS = ClusterStatus("main", "b", "standby", "a", True, 3, "", 2, ENGINE, MEMBERS)


def pages(
    status: ClusterStatus = STATUS, *, unready: str = "", is_near: bool = True, relays: bool = True
) -> MemberPages:
    return MemberPages(lambda: status, lambda: unready, is_near=is_near, relays=relays)


def found(answered: Answered | None) -> tuple[int, bytes]:
    assert answered is not None
    return answered[0], answered[2]


def test_ready_is_a_standby_that_can_relay() -> None:
    assert found(pages().page("/readyz")) == (200, b"ready\n")
    alone = replace(STATUS, owner="", owner_reachable=False)
    assert found(pages(alone).page("/readyz")) == (503, b"not ready: the cell has no owner\n")
    cut = replace(STATUS, owner_reachable=False)
    assert found(pages(cut).page("/readyz")) == (503, b"not ready: the owner, a, can't be reached\n")


def test_ready_is_an_owner_that_isnt_suspended() -> None:
    owner = replace(STATUS, member="a", role="owner")
    assert found(pages(owner).page("/readyz")) == (200, b"ready\n")
    told = pages(owner, unready="suspended: no log").page("/readyz")
    assert found(told) == (503, b"not ready: suspended: no log\n")
    assert found(pages(owner, unready="suspended: no log").page("/healthz")) == (200, b"ok\n")


def test_an_owner_whose_loop_does_not_turn_is_neither_alive_nor_ready() -> None:
    def silent() -> str:
        raise TimeoutError("the loop")

    stuck = MemberPages(lambda: STATUS, silent, is_near=True, relays=False)
    for path in ("/healthz", "/readyz"):
        assert found(stuck.page(path)) == (503, b"the broker's loop does not answer\n")


def test_this_machine_is_told_everything() -> None:
    status, body = found(pages().page("/api/v1/cluster"))
    told = json.loads(body)
    assert status == 200
    assert told["engine"] == {
        "reachable": True,
        "servers": ["nats://127.0.0.1:4222"],
        "connected": "n1",
        "position": 7,
    }
    assert told["members"][1]["addresses"] == ["amqp://10.0.0.1:5672"]


def test_others_ask_the_owner_or_are_told_no_addresses() -> None:
    assert pages(is_near=False).page("/api/v1/cluster") is None
    for status in (replace(STATUS, owner=""), replace(STATUS, owner_reachable=False)):
        body = found(pages(status, is_near=False).page("/api/v1/cluster"))[1]
        assert json.loads(body)["members"][0]["name"] == "b"
        assert b"10.0.0" not in body
        assert b"4222" not in body
    outline = found(pages(is_near=False, relays=False).page("/api/v1/cluster"))[1]
    assert json.loads(outline)["owner"] == "a"
    assert b"10.0.0" not in outline


def test_a_standby_has_metrics_of_the_cell_alone() -> None:
    status, body = found(pages().page("/metrics"))
    assert status == 200
    samples = dict(line.split(" ") for line in body.decode().splitlines() if not line.startswith("#"))
    assert samples == {
        'sluice_cluster_owner{cell="main"}': "0",
        'sluice_cluster_epoch{cell="main"}': "3",
        'sluice_cluster_position{cell="main"}': "5",
        'sluice_cluster_log_position{cell="main"}': "7",
        'sluice_cluster_lag_seconds{cell="main"}': "2.5",
        'sluice_cluster_members{cell="main"}': "2",
        'sluice_cluster_suspended{cell="main"}': "0",
        'sluice_cluster_engine_reachable{cell="main"}': "1",
        'sluice_cluster_takeovers_total{cell="main"}': "2",
    }


def test_what_is_not_the_members_own() -> None:
    assert pages().page("/api/v1/queues") is None
    assert pages().any_page("/api/v1/queues")[0] == 404
    assert pages().any_page("/healthz") == pages().page("/healthz")


def test_a_request_s_first_line() -> None:
    assert asked_path("GET /readyz?verbose HTTP/1.1") == "/readyz"
    assert asked_path("HEAD /readyz HTTP/1.1") == "/readyz"
    assert asked_path("POST /readyz HTTP/1.1") == ""
    assert asked_path("GET") == ""


def test_head_has_no_body() -> None:
    whole = written_answer("GET / HTTP/1.1", (503, "text/plain", b"no\n"))
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nContent-Length: 3\r\n" in head
    assert body == b"no\n"
    assert written_answer("HEAD / HTTP/1.1", (503, "text/plain", b"no\n")) == head + b"\r\n\r\n"


def test_one_of_several_cells_leaves_to_an_owner_what_that_says_of_all() -> None:
    several = MemberPages(lambda: STATUS, lambda: "", is_near=True, relays=True, is_one_of_several=True)
    assert several.page("/metrics") is None
    assert several.page("/api/v1/cluster") is None
    assert found(several.page("/readyz")) == (200, b"ready\n")
    alone = replace(STATUS, owner="", owner_reachable=False)
    several = MemberPages(lambda: alone, lambda: "", is_near=True, relays=True, is_one_of_several=True)
    assert found(several.page("/metrics"))[0] == 200
    assert found(several.page("/api/v1/cluster"))[0] == 200
