"""A management client nobody here wrote: fe2o3-amqp-management, unchanged, with every operation it has."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME
from tests.wire.conftest import cells_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

EXPECTED: list[tuple[str, object]] = [
    *[("CREATE", 50)] * 5,
    ("READ", 100),
    ("READ identity", 100),
    ("UPDATE", 20),
    ("QUERY", 5),
    ("DELETE", True),
    ("READ gone", [404, True]),
    ("DELETE gone", [404, True]),
    ("CREATE wrong", [400, True]),
]


@pytest.fixture(autouse=True)
def over_cells(request: pytest.FixtureRequest) -> None:
    """A client that doesn't follow status 421 finds no node of another cell (docs/cells.md)."""
    if cells_for("", ()) > 1:
        reason = "it doesn't follow status 421 to the node's cell"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))


def run(clients: Clients, prefix: str, page: int) -> list[tuple[str, Any]]:
    """What it said, reading lists so many rows at a time."""
    folder = clients.built(BY_NAME["fe2o3-amqp"]).path
    process = subprocess.Popen(
        ["./target/debug/management", prefix, str(page)],
        cwd=folder,
        env=os.environ | clients.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ran = programs.ran(process, 60)
    assert ran.status == 0, ran.stderr
    return [(str(line["step"]), line["got"]) for line in ran.lines]


def test_it_describes_lists_and_changes_queues(clients: Clients) -> None:
    found = run(clients, "managed", 2)
    told = dict(found[:5])
    assert {"org.sluice.queue", "org.sluice.topic", "org.sluice.link"} <= set(told["GET-TYPES"])
    assert all(count > 2 for _, count in told["GET-ATTRIBUTES"])
    assert {"CREATE", "READ", "UPDATE", "DELETE"} <= set(told["GET-OPERATIONS"])
    assert (told["GET-ANNOTATIONS"], told["GET-MGMT-NODES"]) == (True, [])
    assert found[5:] == EXPECTED


def test_several_at_once_get_their_own_answers(clients: Clients) -> None:
    clients.built(BY_NAME["fe2o3-amqp"])
    with ThreadPoolExecutor(4) as pool:
        # In one page: those behind it would begin elsewhere once others have deleted what stood before.
        for found in pool.map(lambda number: run(clients, f"many{number}", 1000), range(4)):
            assert found[5:] == EXPECTED
