"""dead_letters: what lies there by address, reason and producer, and back again with ids and bytes kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection

from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import NotFoundError
from broker.queues.selector.selector import compile_selector
from pyspark_sluice.jobs import dead_letters, redrive
from tests.wire.conftest import RunningBroker, StartBroker, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEAD = "dead"
POLICIES = """policies:
  - match: "orders.*"
    dead_letter_address: dead
    max_delivery_count: 1
  - match: "dead"
    kind: queue
  - match: "small"
    flow_control: false
    overflow: reject
    max_count: 10
"""
REASON = symbol("x-opt-sluice-dead-letter-reason")
# How many of each address and producer, and by which way they died.
REJECTED, EXPIRED = 40, 25


@pytest.fixture
def letters(start_broker: StartBroker) -> RunningBroker:
    """A broker with letters that died in two ways on the way to two addresses."""
    broker = start_broker(policies=POLICIES)
    connection = BlockingConnection(broker.url)
    for address, who, count, ttl in (
        ("orders.new", "ana", REJECTED, 0),
        ("orders.new", "ben", REJECTED // 2, 0),
        ("orders.old", "ana", EXPIRED, 0.001),
    ):
        sender = connection.create_sender(address)
        for number in range(count):
            body = {"row": number, "kind": symbol("as it was")}
            named = {"id": f"{address}-{who}-{number}", "properties": {"from": who}, "subject": "s"}
            sender.send(Message(body=body, ttl=ttl, **named))
        sender.close()  # type: ignore[no-untyped-call]
    receiver = connection.create_receiver("orders.new", credit=0)
    for _ in range(REJECTED + REJECTED // 2):
        receiver.receive(timeout=10)
        receiver.reject()
    connection.close()
    total = REJECTED + REJECTED // 2 + EXPIRED
    wait_until(lambda: depth(broker, DEAD) == total, 20, "the letters to be dead")
    return broker


def depth(broker: RunningBroker, address: str) -> int:
    with Management(broker.url) as management:
        try:
            found = management.call("READ", "org.sluice.queue", address).body
        except NotFoundError:
            return 0
    assert isinstance(found, dict)
    return int(found["depth_msgs"])


def id_of(encoded: bytes) -> str:
    message = Message()
    message.decode(encoded)
    return str(message.id)


def taken(broker: RunningBroker, address: str) -> dict[str, bytes]:
    """Every message there, as it is on the wire, by its id."""
    found: dict[str, bytes] = {}
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address)
        for _ in range(depth(broker, address)):
            (encoded,) = receiver.take(1, 10.0)
            found[id_of(encoded)] = encoded
    return found


def run(broker: RunningBroker, verb: str, *more: str) -> int:
    return dead_letters.main([verb, DEAD, "-b", broker.url, "--producer-property", "from", *more])


def test_the_report_groups_and_takes_nothing(
    spark: SparkSession, letters: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = depth(letters, DEAD)
    assert run(letters, "report", "--out", str(tmp_path / "out")) == 0
    assert depth(letters, DEAD) == before
    groups = pq.read_table(tmp_path / "out/groups").to_pylist()
    assert {(row["address"], row["reason"], row["producer"]): row["letters"] for row in groups} == {
        ("orders.new", "rejected", "ana"): REJECTED,
        ("orders.new", "rejected", "ben"): REJECTED // 2,
        ("orders.old", "expired", "ana"): EXPIRED,
    }
    assert all(row["first"] is not None and row["first"] <= row["last"] for row in groups)
    assert "orders.old" in capsys.readouterr().out
    page = (tmp_path / "out/report.html").read_text()
    assert "orders.old" in page
    assert "expired" in page


def test_redriving_is_only_said_until_yes(
    spark: SparkSession, letters: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    before = depth(letters, DEAD)
    assert run(letters, "redrive", "--reason", "rejected") == 0
    assert f"would bring back {REJECTED + REJECTED // 2} letters" in capsys.readouterr().out
    assert depth(letters, DEAD) == before
    assert depth(letters, "orders.new") == 0


def test_a_filtered_part_goes_back_with_its_ids(spark: SparkSession, letters: RunningBroker) -> None:
    """Types, annotations and all as they lay in the dead-letter queue; the others stay there."""
    # One option is the source's, one the sink's.
    given = ("-o", "links=2", "-o", "creditTimeout=60s")
    assert run(letters, "redrive", "--reason", "rejected", "--producer", "an%", "--yes", *given) == 0
    assert depth(letters, DEAD) == REJECTED // 2 + EXPIRED
    back = taken(letters, "orders.new")
    assert set(back) == {f"orders.new-ana-{number}" for number in range(REJECTED)}
    for number in range(REJECTED):
        message = Message()
        message.decode(back[f"orders.new-ana-{number}"])
        body: object = message.body
        assert body == {"row": number, "kind": symbol("as it was")}
        assert isinstance(body, dict)
        assert isinstance(body["kind"], symbol)
        named: dict[str, object] = message.properties or {}
        told = {name for name in named if name.startswith("sluice_dead_letter_")}
        assert told == {f"sluice_dead_letter_{name}" for name in ("reason", "origin", "count")}
        assert {name: named[name] for name in named.keys() - told} == {"from": "ana"}
        assert message.subject == "s"
        assert message.annotations is not None
        assert message.annotations[REASON] == "rejected"
    rest = taken(letters, DEAD)
    assert not any(message_id.startswith("orders.new-ana") for message_id in rest)


def test_to_another_address_and_what_must_stay(
    spark: SparkSession, letters: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A letter without an id of its own can't be asked for; it stays, and that is said."""
    connection = BlockingConnection(letters.url)
    sender = connection.create_sender(DEAD)
    for given in (None, "twice", "twice"):
        message = Message(id=given, body="x")
        message.annotations = {REASON: "by hand"}
        sender.send(message)
    connection.close()
    assert run(letters, "redrive", "--where", "reason <> 'rejected'", "--to", "orders.again", "--yes") == 1
    assert "3 stay" in capsys.readouterr().out
    assert depth(letters, "orders.again") == EXPIRED
    assert depth(letters, DEAD) == REJECTED + REJECTED // 2 + 3


def test_what_the_target_refuses_stays(
    spark: SparkSession, letters: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settled is only what was accepted: a full queue costs no letter."""
    before = depth(letters, DEAD)
    assert run(letters, "redrive", "--to", "small", "--yes") == 1
    assert "reject" in capsys.readouterr().err
    wait_until(lambda: depth(letters, DEAD) == before, 10, "all letters to be there")
    assert len(taken(letters, DEAD)) == before


def test_ids_are_asked_for_as_many_as_a_selector_takes() -> None:
    ids = [f"it's {number} {'x' * 300}" for number in range(60)] + ["00ff"] * 2
    chunks = list(redrive.chunks(ids))
    assert [each for some in chunks for each in some] == ids
    assert len(chunks) > 1
    for some in chunks:
        compile_selector(redrive.selector(some))
    assert redrive.selector(["00ff"]) == "amqp.message_id IN ('00ff','00FF')"
