"""Streams with partitions, with Proton's clients: where a message goes, order, restarts and credit."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from proton import Delivery, Described, Message, Timeout, symbol
from proton.reactor import AtLeastOnce, Filter
from proton.utils import BlockingConnection, LinkDetached, SendException

from broker.client.request import Management
from broker.errors import OperatorError
from tests.store.test_set_aside import store_of
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of
from tests.wire.test_cli_wire import sluice

pytestmark = pytest.mark.wire

PARTITIONS = 4
STOP = 20
POLICIES = f"""\
policies:
  - match: "flights"
    kind: stream
    partitions: {PARTITIONS}
    durable: true
    max_age: 24h
  - match: "held"
    kind: stream
    partitions: 2
    durable: true
    flow_stop_count: {STOP}
    flow_resume_count: {STOP // 2}
"""
SPEC = symbol("rabbitmq:stream-offset-spec")
OFFSET = symbol("x-opt-sluice-offset")
CARRIERS = [f"carrier{number}" for number in range(20)]


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=30)
    try:
        yield made
    finally:
        made.close()


def fill(client: BlockingConnection, address: str, msgs: int, first: int = 0) -> None:
    sender = client.create_sender(address)
    for number in range(first, first + msgs):
        group = CARRIERS[number % len(CARRIERS)]
        sender.send(Message(body=number, durable=True, group_id=group))
    sender.close()  # type: ignore[no-untyped-call]


def read(client: BlockingConnection, broker: RunningBroker, address: str) -> list[tuple[int, str, int]]:
    """The offset, the group and the body of each message that there is."""
    options = Filter({SPEC: Described(SPEC, "first")})
    receiver = client.create_receiver(address, credit=100, options=options, name=f"{address} reader")
    found = []
    for _ in range(int(number_of(broker, address, "stream_msgs"))):
        message = receiver.receive(timeout=30)
        assert message.annotations is not None
        found.append((int(message.annotations[OFFSET]), str(message.group_id), int(str(message.body))))
        receiver.accept()
    receiver.close()  # type: ignore[no-untyped-call]
    return found


def partition(group: str, partitions: int = PARTITIONS) -> int:
    return zlib.crc32(group.encode()) % partitions


def check(client: BlockingConnection, broker: RunningBroker, msgs: int) -> None:
    """Each message stands once, in its group's partition, in its group's order."""
    bodies: list[int] = []
    for at in range(PARTITIONS):
        found = read(client, broker, f"flights/{at}")
        assert [offset for offset, _, _ in found] == list(range(len(found)))
        assert {partition(group) for _, group, _ in found} <= {at}
        for group in CARRIERS:
            of_group = [body for _, each, body in found if each == group]
            assert of_group == sorted(of_group)
        bodies += [body for _, _, body in found]
    assert sorted(bodies) == list(range(msgs))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_group_stays_in_its_partition_over_restarts(start_broker: StartBroker, how: str) -> None:
    broker = start_broker(policies=POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    with connected(broker) as client:
        fill(client, "flights", 200)
        check(client, broker, 200)
    for life in range(1, 3):
        if how == "killed":
            broker.signal(signal.SIGKILL)
            broker.process.wait(20)
        broker.stop()
        # What is on disk counts, whatever a policy says.
        broker = start_broker("", POLICIES.replace(f"partitions: {PARTITIONS}", "partitions: 3"), data)
        with connected(broker) as client:
            fill(client, "flights", 200, 200 * life)
            check(client, broker, 200 * (life + 1))


def test_messages_without_a_group_are_spread(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("flights")
        for number in range(200):
            sender.send(Message(body=number, durable=True))
    counts = [int(number_of(broker, f"flights/{at}", "stream_msgs")) for at in range(PARTITIONS)]
    assert sum(counts) == 200
    assert min(counts) > 20


def test_settings_come_from_the_topic(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        client.create_sender("flights").close()  # type: ignore[no-untyped-call]
        assert number_of(broker, "flights/3", "max_age_ms") == 24 * 3600 * 1000
        assert number_of(broker, "flights/3", "durable") is True
        # A subscription is no stream, and gets what comes.
        live = client.create_receiver("flights", credit=10)
        fill(client, "flights", 5)
        assert [live.receive(timeout=10).body for _ in range(5)] == list(range(5))


def test_producers_wait_for_the_slowest_reader_of_any_partition(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, connected(broker) as other:
        sender = client.create_sender("held")
        options = Filter({SPEC: Described(SPEC, "first")})
        readers = [
            other.create_receiver(f"held/{at}::billing", credit=10, options=options) for at in range(2)
        ]
        group = next(each for each in CARRIERS if partition(each, 2) == 1)
        sent = 0
        while sender.link.credit > 0 or sent < STOP:
            sender.send(Message(body=sent, durable=True, group_id=group), timeout=30)
            sent += 1
            assert sent <= STOP, "credit overshoots"
        await_number(broker, "held/1", "flow_stopped", True)
        for number in range(STOP):
            assert readers[1].receive(timeout=30).body == number
            readers[1].accept()
        # The client says what it has settled once it waits for something.
        with suppress(Timeout):
            other.wait(lambda: False, timeout=0.05)
        for number in range(STOP // 2):
            sender.send(Message(body=number, durable=True, group_id=group), timeout=30)


def test_a_partition_stays_as_long_as_the_stream_and_goes_with_it(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Management(broker.url) as management:
        fill(client, "flights", 10)
        with pytest.raises(OperatorError, match="is a partition of 'flights'"):
            management.call("DELETE", "org.sluice.queue", "flights/1")
        with pytest.raises(OperatorError, match="is a partition of 'flights'"):
            management.call("DELETE", "org.sluice.binding", "flights/flights%2F1")
        with pytest.raises(OperatorError, match="has 4 partitions"):
            management.call("UPDATE", "org.sluice.topic", "flights", body={"partitions": 8})
        with pytest.raises(LinkDetached, match="a reader reads one"):
            client.create_receiver("flights::billing")
        management.call("DELETE", "org.sluice.topic", "flights")
        with pytest.raises(OperatorError, match="flights/1"):
            management.call("READ", "org.sluice.queue", "flights/1")


def test_what_has_no_partitions_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Management(broker.url) as management:
        wrong: list[dict[str, object]] = [
            {"partitions": 4},
            {"queue_type": "stream", "partitions": 4, "expire_after": "1m"},
        ]
        for number, attributes in enumerate(wrong):
            with pytest.raises(OperatorError, match="partitions"):
                management.call("CREATE", "org.sluice.queue", f"wrong{number}", body=attributes)
        management.call("CREATE", "org.sluice.queue", "taken/1")
        with pytest.raises(OperatorError, match="'taken/1' exists already"):
            management.call("CREATE", "org.sluice.topic", "taken", body={"partitions": 2})
        with pytest.raises(OperatorError, match="taken"):
            management.call("READ", "org.sluice.queue", "taken/0")


def test_a_message_too_large_for_a_partition_is_refused_and_not_lost(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        sender = client.create_sender("flights")
        assert 0 < sender.link.remote_max_message_size <= 1 << 20
        with pytest.raises((LinkDetached, SendException)):
            sender.send(Message(body=b"x" * (2 << 20), durable=True), timeout=20)


def spoil(data: Path, name: str, how: str) -> bytes:
    """Make a partition one that a start can't serve; its definition as it was."""
    with store_of(data) as store:
        (found,) = [each for each in store.recovered.streams if each.name == name]
        if how == "missing":
            store.remove(found.shelf)
        else:
            store.redefine(found.shelf, b"?")
        return found.definition


def waits(client: BlockingConnection, address: str) -> bool:
    """Whether a sender is given no credit."""
    sender = client.create_sender(address)
    with suppress(Timeout):
        client.wait(lambda: sender.link.credit > 0, timeout=1)
    found = sender.link.credit == 0
    sender.close()  # type: ignore[no-untyped-call]
    return found


def counts(broker: RunningBroker) -> list[int]:
    return [number_of(broker, f"flights/{at}", "stream_msgs") for at in range(PARTITIONS)]


@pytest.mark.parametrize("how", ["unreadable", "missing"])
def test_a_partition_that_was_set_aside_and_is_discarded_begins_anew(
    start_broker: StartBroker, how: str
) -> None:
    broker = start_broker(policies=POLICIES)
    folder = broker.config_file.parent / "data"
    with connected(broker) as client:
        fill(client, "flights", 200)
        options = Filter({SPEC: Described(SPEC, "first")})
        receiver = client.create_receiver("flights/2::billing", credit=10, options=options)
        for _ in range(10):
            receiver.receive(timeout=30)
            receiver.accept()
        with suppress(Timeout):
            client.wait(lambda: False, timeout=0.05)
    before = counts(broker)
    broker.stop()
    spoil(folder, "flights/2", how)
    broker = start_broker("", POLICIES, ("--data", str(folder)))
    group = next(each for each in CARRIERS if partition(each) == 2)
    with connected(broker) as client:
        assert waits(client, "flights")
        # One for another partition waits as well: the topic is whole, or nobody gets anything.
        relay = client.create_sender(None, options=AtLeastOnce())
        waiting = relay.link.send(Message(body=200, durable=True, group_id=group, address="flights"))
        assert isinstance(waiting, Delivery)
        with suppress(Timeout):
            client.wait(lambda: waiting.remote_state != 0, timeout=1)
        assert waiting.remote_state == 0
        said = sluice(broker, "store", "discard", "flights/2")
        assert (f"{before[2]} messages" if how == "unreadable" else "0 messages") in said
        client.wait(lambda: waiting.remote_state != 0, timeout=20)
        assert waiting.remote_state == Delivery.ACCEPTED
        fill(client, "flights", 200, first=201)
    after = counts(broker)
    parts = [partition(CARRIERS[number % len(CARRIERS)]) for number in range(201, 401)]
    assert after == [parts.count(at) + (before[at] if at != 2 else 1) for at in range(PARTITIONS)], (
        "what came since is in its partition, and in no other"
    )
    broker.signal(signal.SIGKILL)
    broker.process.wait(20)
    broker.stop()
    broker = start_broker("", POLICIES, ("--data", str(folder)))
    assert counts(broker) == after
    with connected(broker) as client, Management(broker.url) as management:
        # The place of a reader of the messages that are gone went with them.
        assert management.call("readers", name="flights/2").body == {"readers": []}
        assert [offset for offset, _, _ in read(client, broker, "flights/2")] == list(range(after[2]))
        assert not waits(client, "flights")
        with pytest.raises(OperatorError, match="is a partition of 'flights'"):
            management.call("DELETE", "org.sluice.queue", "flights/2")
        with pytest.raises(OperatorError, match="nothing named"):
            management.call("discard", name="flights/2")


def test_a_partition_that_was_set_aside_comes_back_with_its_messages(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    folder = broker.config_file.parent / "data"
    with connected(broker) as client:
        fill(client, "flights", 200)
    broker.stop()
    definition = spoil(folder, "flights/2", "unreadable")
    broker = start_broker("", POLICIES, ("--data", str(folder)))
    with connected(broker) as client:
        assert waits(client, "flights")
        assert not waits(client, "held")
        with pytest.raises(LinkDetached, match="set aside"):
            client.create_receiver("flights/2")
    broker.stop()
    with store_of(folder) as store:
        (found,) = [each for each in store.recovered.streams if each.name == "flights/2"]
        store.redefine(found.shelf, definition)
    broker = start_broker("", POLICIES, ("--data", str(folder)))
    with connected(broker) as client:
        check(client, broker, 200)
        fill(client, "flights", 200, 200)
        check(client, broker, 400)


def test_explain_calls_it_a_stream_and_names_its_partitions(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    would = "would be created by whoever attaches"
    parts = "stream 'flights' of 4 partitions, 'flights/0' to 'flights/3'"
    assert sluice(broker, "config", "explain", "flights").startswith(f"{parts}: {would}\n")
    with connected(broker) as client:
        client.create_sender("flights").close()  # type: ignore[no-untyped-call]
    assert sluice(broker, "explain", "flights").startswith(f"{parts}: exists\n")
    assert sluice(broker, "explain", "flights/1").startswith("stream 'flights/1': exists\n")
    assert sluice(broker, "explain", "orders").startswith("queue 'orders'")
