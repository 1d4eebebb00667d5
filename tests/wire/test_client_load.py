"""The load generator against the bare loop: what it counts must be what happened."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from statistics import median
from typing import Any

import pytest

from bench.contenders import Running
from broker.client.link import Connection
from broker.client.load.load import Job, LoadRun
from broker.codec import sections
from tests.wire.client_fixtures import bare, peer

__all__ = ["bare", "peer"]  # fixtures

pytestmark = pytest.mark.wire


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (1, 4)])
@pytest.mark.parametrize("presettled", [False, True])
def test_a_count_arrives_once_and_in_order(bare: Running, shape: tuple[int, int], presettled: bool) -> None:
    senders, receivers = shape
    job = Job(
        bare.url,
        f"count-{senders}-{receivers}-{presettled}",
        senders=senders,
        receivers=receivers,
        count=20_001,
        presettled=presettled,
        durable=True,
    )
    result = LoadRun(job).run()
    assert (result["sent"], result["settled"], result["received"]) == (20_001, 20_001, 20_001)
    faults = ("lost", "duplicated", "unordered", "foreign", "refused")
    assert [result[name] for name in faults] == [0] * 5


def test_a_rate_is_kept(bare: Running) -> None:
    """In most seconds: one in which the machine stands still is made up for in the next."""
    seen: list[dict[str, Any]] = []
    job = Job(bare.url, "paced", senders=2, rate=1000, seconds=5, warmup=0.2, pid=bare.pid)
    result = LoadRun(job, seen.append).run()
    assert 900 <= median(line["out_s"] for line in seen) <= 1100
    latency = result["latency_us"]
    assert isinstance(latency, dict)
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"] * 1.01


def test_a_backlog_stays_below_its_limit(bare: Running) -> None:
    seen: list[dict[str, object]] = []
    LoadRun(Job(bare.url, "closed", max_backlog=50, seconds=2, warmup=0), seen.append).run()
    assert seen
    assert all(isinstance(line["backlog"], int) and line["backlog"] <= 50 for line in seen)


def test_what_another_run_left_behind_is_foreign(bare: Running) -> None:
    with Connection(bare.url) as connection:
        sender = connection.sender("left")
        for size in (3, 200):
            sender.send(sections.binary_body(bytes(size)))
        sender.flush(20)
    result = LoadRun(Job(bare.url, "left", count=100)).run()
    assert (result["received"], result["foreign"], result["lost"]) == (100, 2, 0)


def test_without_senders_it_drains_what_others_left(bare: Running) -> None:
    for body, count in ((100, 3000), (200, 2000)):
        assert LoadRun(Job(bare.url, "drained", receivers=0, body=body, count=count)).run()["sent"] == count
    with Connection(bare.url) as connection:
        sender = connection.sender("drained")
        sender.send(sections.binary_body(bytes(3)))
        sender.flush(20)
    result = LoadRun(Job(bare.url, "drained", senders=0, count=5001)).run()
    assert (result["received"], result["lost"], result["unordered"], result["foreign"]) == (5001, 0, 0, 0)


def test_a_drain_finds_out_what_came_twice_or_too_late(bare: Running) -> None:
    with Connection(bare.url) as connection:
        sender = connection.sender("disordered")
        for seq in (1, 3, 2, 4, 4, 5):
            sender.send(sections.binary_body(struct.pack("=4Q", 7, 0, seq, 0).ljust(100)))
        sender.flush(20)
    result = LoadRun(Job(bare.url, "disordered", senders=0, count=6)).run()
    assert (result["received"], result["unordered"]) == (6, 2)


@pytest.mark.parametrize(
    ("address", "fault", "number"),
    [("twice", "duplicated", 10), ("lossy", "lost", 10), ("swapped", "unordered", 10)],
)
def test_a_broken_broker_is_found_out(peer: str, address: str, fault: str, number: int) -> None:
    result = LoadRun(Job(peer, address, count=100, max_backlog=0, stall=5)).run()
    found = {name: result[name] for name in ("duplicated", "lost", "unordered", "foreign")}
    assert found == dict.fromkeys(found, 0) | {fault: number}


def test_rejected_messages_are_not_lost_ones(peer: str) -> None:
    result = LoadRun(Job(peer, "picky", receivers=0, count=100)).run()
    assert (result["sent"], result["settled"], result["refused"]) == (100, 100, 50)


def test_the_process_speaks_json_lines(bare: Running) -> None:
    job = {
        "url": bare.url,
        "address": "lines-%d",
        "senders": 2,
        "receivers": 2,
        "seconds": 1.9,
        "warmup": 0.1,
    }
    lines = _process(job, 0)
    # One that lasted for two, if the machine stood still.
    assert [line["second"] for line in lines[:-1]] in ([1, 2], [1])
    assert lines[-1]["result"]["lost"] == 0
    assert lines[-1]["result"]["messages"] > 0


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"url": "127.0.0.1:1", "bdoy": 3}, "unknown in the job: bdoy"),
        ({"url": "127.0.0.1:1", "body": 3}, "body must be at least 32 bytes"),
        ({"url": "127.0.0.1:1"}, "Connection refused"),
    ],
)
def test_the_process_says_why_it_can_not(job: dict[str, object], reason: str) -> None:
    (line,) = _process(job, 1)
    assert reason in line["error"]


def _process(job: dict[str, object], status: int) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "broker.client.load.load"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
