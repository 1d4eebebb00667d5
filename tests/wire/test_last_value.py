"""Last-value queues on the wire, with Proton's own clients: replacing, held messages, readers, restarts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from proton import Message, Terminus, symbol
from proton.reactor import Copy, ReceiverOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from broker.cli.main import main
from broker.client.link import Connection, Receiver
from broker.client.request import Management
from broker.errors import OperatorError, SluiceError
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of, queue_of, update

pytestmark = pytest.mark.wire

POLICIES = """\
policies:
  - match: "prices"
    durable: true
    last_value_key: share
  - match: "board"
    last_value_key: share
    last_value_position: kept
    non_destructive: true
"""
KEPT = {"last_value_key": "share", "last_value_position": "kept"}

_numbers = count(1)


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=20)
    try:
        yield made
    finally:
        made.close()


def put(sender: BlockingSender, *values: str, durable: bool = True) -> None:
    """Send values such as ``a1``: the key is the first letter; of ``@a1`` it is an annotation."""
    for value in values:
        if value.startswith("@"):
            made = Message(body=value, durable=durable, annotations={symbol("share"): value[1]})
        else:
            made = Message(body=value, durable=durable, properties={"share": value[0]})
        sender.send(made)


def reader(
    client: BlockingConnection, address: str, credit: int = 10, options: ReceiverOption | None = None
) -> BlockingReceiver:
    """A receiver of its own name: a connection may have several at one address."""
    return client.create_receiver(address, credit=credit, name=f"reader{next(_numbers)}", options=options)


def taken(receiver: BlockingReceiver, msgs: int) -> list[str]:
    found = []
    for _ in range(msgs):
        found.append(str(receiver.receive(timeout=20).body))
        receiver.accept()
    return found


def held(connection: Connection, receiver: Receiver) -> int:
    """Have a receiver take one message and hold it: the delivery."""
    receiver.grant(1)
    assert connection.wait_until(receiver.has_message, 20)
    ((delivery, _),) = receiver.hand_over()
    return delivery


def test_a_newer_value_replaces_one_that_is_ready(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        put(client.create_sender("prices"), "a1", "b1", "a2", "c1", "a3")
        assert number_of(broker, "prices", "depth_msgs") == 3
        assert number_of(broker, "prices", "replaced") == 2
        assert number_of(broker, "prices", "last_values") == 3
        receiver = reader(client, "prices")
        assert taken(receiver, 3) == ["b1", "c1", "a3"]
        receiver.close()  # type: ignore[no-untyped-call]
        await_number(broker, "prices", "depth_msgs", 0)
        assert number_of(broker, "prices", "last_values") == 0


def test_a_message_annotation_is_the_key_where_no_property_is(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("prices")
        put(sender, "a1", "@a2", "@b1", "b2")
        sender.send(Message(body="no key"))
        sender.send(Message(body="none either"))
        assert taken(reader(client, "prices"), 4) == ["@a2", "b2", "no key", "none either"]


@pytest.mark.parametrize("outcome", ["released", "modified", "lost"])
def test_a_held_value_is_not_replaced_and_yields_when_it_comes_back(
    start_broker: StartBroker, outcome: str
) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Connection(broker.url) as other:
        sender = client.create_sender("prices")
        put(sender, "a1")
        holder = other.receiver("prices", credit=1, manual=True)
        delivery = held(other, holder)
        put(sender, "a2", "a3")
        assert number_of(broker, "prices", "depth_msgs") == 2
        assert number_of(broker, "prices", "replaced") == 1
        if outcome == "lost":
            holder.close()
        else:
            holder.settle(delivery, outcome, failed=outcome == "modified")
            other.pump()
        await_number(broker, "prices", "depth_msgs", 1)
        assert number_of(broker, "prices", "replaced") == 2
        assert taken(reader(client, "prices"), 1) == ["a3"]


def test_a_held_value_that_is_accepted_leaves_the_newer_one(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Connection(broker.url) as other:
        sender = client.create_sender("prices")
        put(sender, "a1")
        holder = other.receiver("prices", credit=1, manual=True)
        delivery = held(other, holder)
        put(sender, "a2")
        holder.settle(delivery, "accepted")
        other.pump()
        await_number(broker, "prices", "depth_msgs", 1)
        assert taken(reader(client, "prices"), 1) == ["a2"]
        assert number_of(broker, "prices", "replaced") == 0


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_one_value_of_each_key_survives(start_broker: StartBroker, tmp_path: Path, how: str) -> None:
    data = ("--data", str(tmp_path / "kept"))
    broker = start_broker("", POLICIES, data)
    with connected(broker) as client:
        put(client.create_sender("prices"), "a1", "b1", "c1", "b2")
    other = Connection(broker.url)
    held(other, other.receiver("prices", credit=1, manual=True))
    with connected(broker) as client:
        put(client.create_sender("prices"), "a2")
    assert number_of(broker, "prices", "depth_msgs") == 4
    if how == "killed":
        # The value that was held when the broker was killed yields to the newer one at the next start.
        broker.signal(signal.SIGKILL)
        broker.process.wait(20)
    with suppress(OSError, OperatorError):
        other.close()
    broker.stop()
    again = start_broker("", POLICIES, data)
    assert number_of(again, "prices", "depth_msgs") == 3
    with connected(again) as client:
        put(client.create_sender("prices"), "c2")
        assert taken(reader(client, "prices"), 3) == ["b2", "a2", "c2"]


def test_receivers_of_a_board_read_every_value_and_take_none(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("board")
        put(sender, "a1", "b1", "a2", durable=False)
        first = reader(client, "board")
        assert first.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
        assert taken(first, 2) == ["a2", "b1"]
        second = reader(client, "board")
        assert taken(second, 2) == ["a2", "b1"]
        # A value that takes an older one's place is shown to those that have passed it.
        put(sender, "a3", durable=False)
        assert taken(first, 1) == taken(second, 1) == ["a3"]
        assert taken(reader(client, "board"), 2) == ["a3", "b1"]
        assert number_of(broker, "board", "depth_msgs") == 2


def test_a_queue_that_only_replaces_never_stops_its_producers(start_broker: StartBroker) -> None:
    policy = (
        '  - match: "tight"\n    last_value_key: share\n    flow_stop_count: 4\n    flow_resume_count: 1\n'
    )
    broker = start_broker(policies=POLICIES + policy)
    with connected(broker) as client:
        sender = client.create_sender("tight")
        for number in range(100):
            put(sender, f"a{number}", f"b{number}", f"c{number}", durable=False)
        assert number_of(broker, "tight", "depth_msgs") == 3
        assert number_of(broker, "tight", "flowStoppedCount") == 0
        assert taken(reader(client, "tight"), 3) == ["a99", "b99", "c99"]


def test_copies_are_read_beside_consumers(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("prices")
        put(sender, "a1", "b1")
        browser = reader(client, "prices", options=Copy())
        assert taken(browser, 2) == ["a1", "b1"]
        put(sender, "a2")
        assert taken(browser, 1) == ["a2"]
        assert taken(reader(client, "prices"), 2) == ["b1", "a2"]


def test_it_is_set_by_every_way_in_and_refused_with_a_reason(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(policies=POLICIES)
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "one", {"qpid.last_value_queue_key": "share"})
        wrong = {"last_value_key": "share", "message_groups": "sticky"}
        with pytest.raises(SluiceError, match="can't be combined"):
            management.call("CREATE", "org.sluice.queue", "wrong", wrong)
    words = ["-b", broker.url, "add", "queue", "two", "--argument", "last_value_key=share"]
    assert main(["config", *words]) == 0
    capsys.readouterr()
    Api(broker).post("/queues", {"name": "three", "arguments": KEPT}, 201)
    with connected(broker) as client:
        for name in ("one", "two", "three"):
            assert queue_of(broker, name)["last_value_key"] == "share"
            put(client.create_sender(name), "a1", "b1", "a2", durable=False)
            assert number_of(broker, name, "replaced") == 1
        put(client.create_sender("prices"), "a1")
        assert taken(reader(client, "one"), 2) == ["b1", "a2"]
        assert taken(reader(client, "three"), 2) == ["a2", "b1"]
    with pytest.raises(SluiceError, match="can't change while it has messages"):
        update(broker, "two", last_value_key="other")
    with pytest.raises(SluiceError, match="kept needs durable: false"):
        update(broker, "prices", last_value_position="kept")
    update(broker, "two", last_value_position="kept", non_destructive=True)
    with connected(broker) as client:
        put(client.create_sender("two"), "b2", durable=False)
        assert taken(reader(client, "two"), 2) == ["b2", "a2"]
    assert number_of(broker, "two", "depth_msgs") == 2
