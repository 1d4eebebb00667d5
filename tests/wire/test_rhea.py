"""rhea, the JavaScript client, with its default settings; the scripts stand in tests/clients/rhea."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from broker.client.request import Management
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of

pytestmark = [pytest.mark.wire, pytest.mark.clients]

FOLDER = Path(__file__).parent.parent / "clients" / "rhea"


@pytest.fixture(scope="session")
def node() -> str:
    """Node.js with rhea installed. Without Node.js these tests are skipped, but fail where CI is set."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("node and npm are needed here")
        pytest.skip("node and npm are not installed")
    lock, installed = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run([npm, "ci", "--silent"], cwd=FOLDER, check=True, timeout=90)
    return found


class Rhea:
    """Runs one verb of client.js against a broker."""

    def __init__(self, node: str, broker: RunningBroker) -> None:
        self.node, self.broker = node, broker

    def run(self, verb: str, address: str, *args: object) -> dict[str, Any]:
        command = [self.node, "client.js", str(self.broker.port), verb, address, *map(str, args)]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert isinstance(result, dict)
        return result


@pytest.fixture
def rhea(node: str, broker: RunningBroker) -> Rhea:
    return Rhea(node, broker)


@pytest.mark.parametrize(("start", "first"), [("first", 0), ("1234", 1234), ("last", 2999), ("1h", 0)])
def test_a_stream_is_read_from_any_offset(rhea: Rhea, broker: RunningBroker, start: str, first: int) -> None:
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "flights", {"x-queue-type": "stream", "durable": True})
    assert rhea.run("send", "flights", 3000) == {"accepted": 3000}
    for _ in range(2):
        found = rhea.run("read", "flights", 3000 - first, start)
        assert found == {"offsets": list(range(first, 3000))}


def test_send_and_receive_in_order(rhea: Rhea, broker: RunningBroker) -> None:
    assert rhea.run("send", "orders", 3000) == {"accepted": 3000}
    assert number_of(broker, "orders", "depth_msgs") == 3000
    assert rhea.run("receive", "orders", 3000) == {"bodies": list(range(3000))}


@pytest.mark.parametrize(
    ("outcome", "bodies", "counts"),
    [
        ("rejected", [0, 1, 2, 3], [0, 0, 0, 0]),
        ("released", [0, 1, 0, 1, 2, 3], [0, 0, 0, 0, 0, 0]),
        ("failed", [0, 1, 0, 1, 2, 3], [0, 0, 1, 1, 0, 0]),
    ],
)
def test_outcomes(
    rhea: Rhea, broker: RunningBroker, outcome: str, bodies: list[int], counts: list[int]
) -> None:
    rhea.run("send", "orders", 4)
    seen = rhea.run("outcome", "orders", 2, outcome, min(len(bodies), 4))["seen"]
    # What comes back may overtake what was already on its way, never its like.
    first_two, rest = seen[:2], seen[2:]
    assert [each["body"] for each in first_two] == [0, 1]
    returned = [each for each in rest if each["body"] in (0, 1)]
    assert [each["body"] for each in returned] == sorted(each["body"] for each in returned)
    expected = dict(zip(bodies[2:], counts[2:], strict=True))
    assert all(expected[each["body"]] == each["delivery_count"] for each in rest)


def test_drain(rhea: Rhea) -> None:
    rhea.run("send", "orders", 3)
    assert rhea.run("drain", "orders") == {"bodies": [0, 1, 2], "credit": 0}
    assert rhea.run("drain", "orders") == {"bodies": [], "credit": 0}


def test_sixty_four_megabytes(rhea: Rhea) -> None:
    assert rhea.run("large", "orders", 64 << 20) == {"bytes": 64 << 20}


def test_a_message_that_is_too_large_costs_its_link_and_no_more(node: str, start_broker: StartBroker) -> None:
    broker = start_broker(config="limits: {max_message_size: 1 MB}\n")
    said = Rhea(node, broker).run("oversize", "orders", 70 << 20)
    assert said == {"condition": "amqp:link:message-size-exceeded"}
    assert number_of(broker, "others", "received") == 1


def test_five_hundred_links(rhea: Rhea) -> None:
    assert rhea.run("links", "orders", 500) == {"got": 250}


@pytest.mark.flow
def test_a_rejection_has_its_reason(node: str, start_broker: StartBroker) -> None:
    policy = "policies:\n  - match: full\n    max_count: 2\n    flow_stop_count: 1\n    when_full: reject\n"
    broker = start_broker(policies=policy)
    rhea = Rhea(node, broker)
    assert rhea.run("refused", "full") == {"outcome": "accepted"}
    refusal = {"outcome": "rejected", "condition": "amqp:resource-limit-exceeded"}
    assert rhea.run("refused", "full") == refusal
    await_number(broker, "full", "refused", 1)
