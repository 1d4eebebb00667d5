"""Last-value queues on the wire, with Proton's own clients: replacing, held messages, readers, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proton import Message, symbol
from proton.reactor import Copy
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of

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
        made = Message(body=value, durable=durable)
        if value.startswith("@"):
            made.annotations = {symbol("share"): value[1]}
        else:
            made.properties = {"share": value[0]}
        sender.send(made)


def taken(receiver: BlockingReceiver, count: int, *, accepts: bool = True) -> list[str]:
    found = []
    for _ in range(count):
        found.append(str(receiver.receive(timeout=20).body))
        if accepts:
            receiver.accept()
    return found


def test_a_newer_value_replaces_one_that_is_ready(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        put(client.create_sender("prices"), "a1", "b1", "a2", "@b2", "c1", "a3")
        await_number(broker, "prices", "depth_msgs", 3)
        assert number_of(broker, "prices", "replaced") == 3
        receiver = client.create_receiver("prices", credit=10)
        assert taken(receiver, 3) == ["@b2", "c1", "a3"]
        await_number(broker, "prices", "depth_msgs", 0)


def test_a_held_value_stays_in_its_consumers_hands_and_yields_when_it_comes_back(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, connected(broker) as other:
        sender = client.create_sender("prices")
        put(sender, "a1")
        holder = other.create_receiver("prices", credit=1)
        assert taken(holder, 1, accepts=False) == ["a1"]
        put(sender, "a2", "a3")
        await_number(broker, "prices", "depth_msgs", 2)
        holder.release()
        await_number(broker, "prices", "depth_msgs", 1)
        assert number_of(broker, "prices", "replaced") == 2
        # Its credit may bring it the newer one at once.
        holder.close()
        assert taken(client.create_receiver("prices", credit=1), 1) == ["a3"]
        await_number(broker, "prices", "depth_msgs", 0)


def test_a_held_value_that_is_accepted_leaves_the_newer_one(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("prices")
        receiver = client.create_receiver("prices", credit=1)
        put(sender, "a1")
        assert taken(receiver, 1, accepts=False) == ["a1"]
        put(sender, "a2")
        receiver.accept()
        assert taken(receiver, 1) == ["a2"]
        await_number(broker, "prices", "depth_msgs", 0)
        assert number_of(broker, "prices", "replaced") == 0


def test_values_survive_a_restart_one_of_each_key(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, connected(broker) as other:
        sender = client.create_sender("prices")
        put(sender, "a1", "b1", "c1", "b2")
        holder = other.create_receiver("prices", credit=1)
        assert taken(holder, 1, accepts=False) == ["a1"]
        put(sender, "a2")
        broker.kill()
    broker.start()
    await_number(broker, "prices", "depth_msgs", 3)
    with connected(broker) as client:
        receiver = client.create_receiver("prices", credit=10)
        assert taken(receiver, 3) == ["c1", "b2", "a2"]
        await_number(broker, "prices", "depth_msgs", 0)


def test_receivers_of_a_board_read_every_value_and_take_none(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, connected(broker) as other:
        sender = client.create_sender("board")
        put(sender, "a1", "b1", "a2", durable=False)
        first = client.create_receiver("board", credit=10)
        assert first.link.remote_source.distribution_mode == 1  # copy
        assert taken(first, 2) == ["a2", "b1"]
        second = other.create_receiver("board", credit=10)
        assert taken(second, 2) == ["a2", "b1"]
        # A value that takes an older one's place is shown to those that have passed it.
        put(sender, "a3", durable=False)
        assert taken(first, 1) == taken(second, 1) == ["a3"]
        assert taken(client.create_receiver("board", credit=10), 2) == ["a3", "b1"]
        assert number_of(broker, "board", "depth_msgs") == 2
        assert number_of(broker, "board", "last_values") == 2


def test_a_board_that_only_replaces_never_stops_its_producers(start_broker: StartBroker) -> None:
    policy = '  - match: "tight"\n    last_value_key: share\n    flow_stop_count: 4\n    flow_resume_count: 1\n'
    broker = start_broker(policies=POLICIES + policy)
    with connected(broker) as client:
        sender = client.create_sender("tight")
        for number in range(100):
            put(sender, f"a{number}", f"b{number}", f"c{number}", durable=False)
        assert number_of(broker, "tight", "depth_msgs") == 3
        assert number_of(broker, "tight", "flowStoppedCount") == 0
        assert taken(client.create_receiver("tight", credit=3), 3) == ["a99", "b99", "c99"]


def test_copies_are_read_beside_consumers_of_a_last_value_queue(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("prices")
        put(sender, "a1", "b1")
        reader = client.create_receiver("prices", credit=10, options=Copy())
        assert taken(reader, 2) == ["a1", "b1"]
        put(sender, "a2")
        assert taken(reader, 1) == ["a2"]
        assert taken(client.create_receiver("prices", credit=10), 2) == ["b1", "a2"]
