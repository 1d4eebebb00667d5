"""Links of one connection to nodes of several cells: everything passes, and nothing is granted twice."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message, Terminus, Timeout, symbol
from proton import Described as ProtonDescribed
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, Filter, LinkOption, Selector
from proton.utils import (
    BlockingConnection,
    BlockingSender,
    ConnectionClosed,
    LinkDetached,
    SendException,
)

from broker.client.request import Management
from tests.wire.cells import kill_cell, names_in, pids_of, wait_for_cell
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    BODY,
    DISPOSITION,
    FLOW,
    RECEIVER,
    TRANSFER,
    Described,
    RawPeer,
    performative,
)
from tests.wire.frames import transfer as transferred
from tests.wire.test_cells_handover import depths

CELLS = 3
ARGS = ("--cells", str(CELLS))
POLICIES = """policies:
  - match: "bounded.>"
    flow_stop_count: 40
    flow_resume_count: 20
  - match: "kept.>"
    durable: true
  - match: "refusing.>"
    auto_create: false
  - match: "rows.>"
    queue_type: stream
    durable: true
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells that the tests of this module share."""
    broker = RunningBroker(tmp_path_factory.mktemp("cells"), "", POLICIES, ARGS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@contextmanager
def settled_in(broker: RunningBroker, cell: int) -> Iterator[BlockingConnection]:
    """A connection that has gone to a cell for its first link, and stays there."""
    connection = BlockingConnection(broker.url, timeout=10)
    connection.create_sender(names_in(cell, CELLS, 1, "first")[0])
    try:
        yield connection
    finally:
        connection.close()


PAIRS = [(here, there) for here in range(CELLS) for there in range(CELLS) if here != there]


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_messages_pass_both_ways_in_order(cells: RunningBroker, here: int, there: int) -> None:
    [name] = names_in(there, CELLS, 1, f"both{here}")
    with settled_in(cells, here) as connection:
        sender = connection.create_sender(name)
        receiver = connection.create_receiver(name, credit=10)
        for number in range(50):
            sender.send(Message(number, properties={"number": number}))
        for number in range(50):
            assert receiver.receive(timeout=10).body == number
            receiver.accept()
    wait_until(lambda: depths(cells, there)[name] == 0, 10, "an empty queue")


def test_one_connection_has_links_to_all_cells(cells: RunningBroker) -> None:
    names = [f"all.{number}" for number in range(20)]
    connection = BlockingConnection(cells.url, timeout=10)
    senders = {name: connection.create_sender(name) for name in names}
    for name in names:
        senders[name].send(Message(name))
    receivers = {name: connection.create_receiver(name, credit=1) for name in names}
    for name in names:
        assert receivers[name].receive(timeout=10).body == name
        receivers[name].accept()
    connection.close()

    def left() -> int:
        found = [depths(cells, cell) for cell in range(CELLS)]
        return sum(each.get(name, 0) for each in found for name in names)

    wait_until(lambda: not left(), 10, "empty queues")


@pytest.mark.parametrize("options", [AtMostOnce(), AtLeastOnce()])
def test_either_settlement_passes(cells: RunningBroker, options: LinkOption) -> None:
    [name] = names_in(1, CELLS, 1, f"settled{type(options).__name__}")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name, options=options)
        for number in range(20):
            sender.send(Message(number))
        # A blocking client writes what waits for no answer when it waits for one.
        connection.create_sender(name, name="round trip")
        wait_until(lambda: depths(cells, 1).get(name) == 20, 10, "20 messages")
        receiver = connection.create_receiver(name, credit=20, options=options)
        assert [receiver.receive(timeout=10).body for _ in range(20)] == list(range(20))
        if isinstance(options, AtLeastOnce):
            assert depths(cells, 1)[name] == 20
            for _ in range(20):
                receiver.accept()
    wait_until(lambda: depths(cells, 1)[name] == 0, 10, "an empty queue")


@pytest.mark.parametrize("outcome", [Delivery.RELEASED, Delivery.MODIFIED, Delivery.REJECTED])
def test_outcomes_of_a_consumer_reach_the_owner(cells: RunningBroker, outcome: Any) -> None:
    [name] = names_in(2, CELLS, 1, f"outcome{int(outcome)}")
    with settled_in(cells, 0) as connection:
        connection.create_sender(name).send(Message("x"))
        receiver = connection.create_receiver(name, credit=1)
        receiver.receive(timeout=10)
        if outcome == Delivery.MODIFIED:
            assert receiver.fetcher is not None
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.failed = True
            delivery.local.annotations = {symbol("x-opt-seen"): "once"}
            delivery.update(outcome)
            delivery.settle()
        else:
            receiver.settle(outcome)
        if outcome == Delivery.REJECTED:
            connection.create_sender(name, name="written by now")
            wait_until(lambda: depths(cells, 2)[name] == 0, 10, "no message")
            return
        receiver.link.flow(1)
        again = receiver.receive(timeout=10)
        assert again.body == "x"
        assert again.delivery_count == (outcome == Delivery.MODIFIED)
        if outcome == Delivery.MODIFIED:
            assert again.annotations is not None
            assert again.annotations["x-opt-seen"] == "once"
        receiver.accept()


def test_outcomes_of_the_owner_reach_a_producer(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "full")
    with Management(cells.url, cell=1) as management:
        limits = {"max_count": 3, "flow_stop_count": 3, "when_full": "reject"}
        management.call("CREATE", "org.sluice.queue", name, limits)
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for _ in range(3):
            sender.send(Message("x"))
        with pytest.raises(SendException) as refused:
            sender.send(Message("x"))
        assert refused.value.state == Delivery.REJECTED
        assert depths(cells, 1)[name] == 3


def test_a_client_gets_as_much_as_it_has_asked_for(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "asked")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for number in range(30):
            sender.send(Message(number))
    [first] = names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, handle=0)
    peer.attach_receiver(name, handle=1)
    peer.give_credit(7)
    for _ in range(7):
        peer.expect(TRANSFER)
    with pytest.raises(AssertionError):
        peer.expect(TRANSFER, 0.3)
    # Of ten more, six are taken back before the owner's messages run out.
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 7, 100, None, True))
    for _ in range(23):
        peer.expect(TRANSFER)
    drained = peer.expect(FLOW)
    while drained.field(4) is None:
        drained = peer.expect(FLOW)
    assert (drained.field(5), drained.field(6)) == (107, 0)
    peer.close()
    wait_until(lambda: depths(cells, 2)[name] == 30, 10, "all of them again")


def test_a_drain_of_an_empty_queue_is_answered(cells: RunningBroker) -> None:
    [name], [first] = names_in(1, CELLS, 1, "empty"), names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, handle=0)
    peer.attach_receiver(name, handle=1)
    for round_ in range(3):
        peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 5 * round_, 5, None, True))
        drained = peer.expect(FLOW)
        while drained.field(4) is None:
            drained = peer.expect(FLOW)
        assert (drained.field(5), drained.field(6)) == (5 * round_ + 5, 0)
    # With nothing left to give back it is answered all the same.
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 15, 0, None, True))
    assert peer.expect(FLOW).field(6) == 0
    # And an echo is, with what there is.
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 15, 3, None, False, True))
    echoed = peer.expect(FLOW)
    assert (echoed.field(5), echoed.field(6)) == (15, 3)
    peer.close()


class Flood(MessagingHandler):
    """Connections that stay in one cell, and send to a queue of another one whatever they may."""

    def __init__(self, url: str, first: str, name: str, connections: int) -> None:
        super().__init__()
        self.url, self.first, self.name, self.connections = url, first, name, connections
        self.sent = self.accepted = self.closed = 0
        self.opened: list[Any] = []

    def on_start(self, event: Any) -> None:
        for _ in range(self.connections):
            connection = event.container.connect(self.url, reconnect=False)
            self.opened.append(connection)
            event.container.create_sender(connection, self.first, name="first")
            event.container.create_sender(connection, self.name, name="second")

    def on_sendable(self, event: Any) -> None:
        while event.sender.name == "second" and event.sender.credit > 0:
            event.sender.send(Message(self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1

    def on_connection_closed(self, event: Any) -> None:
        self.closed += 1

    def end(self, container: Container) -> None:
        """Close all of them, and see them closed."""
        for connection in self.opened:
            connection.close()
        deadline = time.monotonic() + 10
        while self.closed < len(self.opened) and time.monotonic() < deadline:
            container.process()
        # Their sockets go with the turn after that.
        container.process()
        container.stop()


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_threshold_is_held_to_the_message(cells: RunningBroker, here: int, there: int) -> None:
    [name], [first] = names_in(there, CELLS, 1, f"bounded.{here}"), names_in(here, CELLS, 1, "first")
    flood = Flood(cells.url, first, name, 8)
    container = Container(flood)
    container.timeout = 0.05
    container.start()
    deadline = time.monotonic() + 10
    while flood.accepted < 40 and time.monotonic() < deadline:
        container.process()
    for _ in range(10):
        container.process()
    assert flood.accepted == depths(cells, there)[name] == 40
    # As soon as there is room again, they go on.
    with settled_in(cells, there) as connection:
        receiver = connection.create_receiver(name, credit=30)
        for _ in range(30):
            receiver.receive(timeout=10)
            receiver.accept()
    deadline = time.monotonic() + 10
    while flood.accepted < 70 and time.monotonic() < deadline:
        container.process()
    assert flood.accepted == 70
    wait_until(lambda: depths(cells, there)[name] == 40, 10, "the threshold again")
    flood.end(container)


def test_large_messages_pass_in_pieces(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "large")
    body = bytes(range(256)) * 40_000
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        receiver = connection.create_receiver(name, credit=3)
        for number in range(3):
            sender.send(Message(body=body, properties={"number": number}), timeout=30)
        for number in range(3):
            found: Any = receiver.receive(timeout=30)
            assert found.properties["number"] == number
            assert bytes(found.body) == body
            receiver.accept()


def test_a_selector_and_browsing_are_the_owner_s(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "chosen")
    with settled_in(cells, 1) as connection:
        sender = connection.create_sender(name)
        for number in range(10):
            sender.send(Message(number, properties={"odd": bool(number % 2)}))
        copies = connection.create_receiver(name, credit=10, options=Browsing(), name="copies")
        assert [copies.receive(timeout=10).body for _ in range(10)] == list(range(10))
        copies.close()  # type: ignore[no-untyped-call]
        assert depths(cells, 2)[name] == 10
        odd = connection.create_receiver(name, credit=10, options=Selector("odd"), name="odd")
        for number in range(1, 10, 2):
            assert odd.receive(timeout=10).body == number
            odd.accept()
    wait_until(lambda: depths(cells, 2)[name] == 5, 10, "the even ones to be left")


class Browsing(LinkOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.distribution_mode = Terminus.DIST_MODE_COPY


def test_a_stream_of_another_cell_is_read_from_an_offset(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "rows")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for number in range(20):
            sender.send(Message(number, durable=True))
        offset = Filter(
            {symbol("rabbitmq:stream-offset-spec"): ProtonDescribed(symbol("rabbitmq:stream-offset-spec"), 5)}
        )
        receiver = connection.create_receiver(name, credit=15, options=offset)
        assert [receiver.receive(timeout=10).body for _ in range(15)] == list(range(5, 20))


def test_what_a_client_leaves_unsettled_is_there_again(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "left")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for number in range(10):
            sender.send(Message(number))
        receiver = connection.create_receiver(name, credit=5)
        for _ in range(5):
            receiver.receive(timeout=10)
        receiver.accept()
        receiver.close()  # type: ignore[no-untyped-call]
        again = connection.create_receiver(name, credit=9, name="again")
        bodies: list[Any] = []
        for _ in range(9):
            bodies.append(again.receive(timeout=10).body)
            again.accept()
        assert sorted(bodies) == list(range(1, 10))


def test_a_reply_finds_its_way_between_cells(cells: RunningBroker) -> None:
    for here, there in PAIRS:
        [service] = names_in(there, CELLS, 1, f"service{here}")
        with settled_in(cells, here) as client, settled_in(cells, there) as server:
            replies = client.create_receiver(None, dynamic=True, credit=1)
            reply_to = replies.link.remote_source.address
            assert reply_to is not None
            assert reply_to.startswith(f"$temporary/{here}.")
            client.create_sender(service).send(Message("ask", reply_to=reply_to))
            requests = server.create_receiver(service, credit=1)
            request = requests.receive(timeout=10)
            requests.accept()
            server.create_sender(request.reply_to).send(Message("answer"))
            assert replies.receive(timeout=10).body == "answer"
            replies.accept()


@pytest.mark.parametrize("options", [AtMostOnce(), AtLeastOnce()])
def test_the_anonymous_relay_reaches_all_cells(cells: RunningBroker, options: LinkOption) -> None:
    names = [f"relayed.{number}" for number in range(12)]
    kind = type(options).__name__
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(None, options=options, name="relay")
        for number in range(60):
            sender.send(Message(number, address=f"{kind}.{names[number % 12]}"))
        sender.send(Message("explicit", address=f"$cell/2/{names_in(2, CELLS, 1, kind)[0]}"))
        connection.create_sender(names_in(0, CELLS, 1, "first")[0], name="round trip")

        def arrived() -> dict[str, int]:
            found: dict[str, int] = {}
            for cell in range(CELLS):
                found |= {
                    name: depth for name, depth in depths(cells, cell).items() if kind in name and depth
                }
            return found

        wanted = {f"{kind}.{name}": 5 for name in names} | {names_in(2, CELLS, 1, kind)[0]: 1}
        wait_until(lambda: arrived() == wanted, 10, lambda: f"all to arrive, not {arrived()}")


def test_what_a_relay_refuses_is_the_owner_s_word(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "refusing")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(None, name="relay")
        with pytest.raises(SendException) as refused:
            sender.send(Message("x", address=name))
        assert refused.value.state == Delivery.REJECTED
        for address in ("$temporary/1.gone", "$cell/7/x"):
            with pytest.raises(SendException):
                sender.send(Message("x", address=address))
        # The link is none the worse.
        sender.send(Message("x", address=names_in(2, CELLS, 1, "well")[0]))


def test_a_reply_through_the_relay_finds_its_way(cells: RunningBroker) -> None:
    for here, there in PAIRS:
        with settled_in(cells, here) as client, settled_in(cells, there) as server:
            replies = client.create_receiver(None, dynamic=True, credit=1)
            sender = server.create_sender(None, name="relay")
            sender.send(Message("answer", address=replies.link.remote_source.address))
            assert replies.receive(timeout=10).body == "answer"
            replies.accept()


def test_a_threshold_holds_through_the_relay(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "bounded.relay")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(None, name="relay")
        for number in range(40):
            sender.send(Message(number, address=name))
        with pytest.raises(Timeout):
            sender.send(Message(40, address=name), timeout=1)
        assert depths(cells, 1)[name] == 40


def test_a_refusal_is_the_owner_s(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "refusing")
    with settled_in(cells, 0) as connection:
        with pytest.raises(LinkDetached, match=r"amqp:not-found.*auto_create is false"):
            connection.create_sender(name)
        with pytest.raises(LinkDetached, match=r"amqp:invalid-field.*selector"):
            connection.create_receiver(names_in(2, CELLS, 1)[0], options=Selector("(("))
        # The connection is none the worse.
        connection.create_sender(names_in(1, CELLS, 1)[0]).send(Message("x"))


def test_a_node_that_is_deleted_detaches_its_links_everywhere(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "deleted")
    with settled_in(cells, 0) as connection:
        receiver = connection.create_receiver(name, credit=1)
        with Management(cells.url, cell=2) as management:
            management.call("DELETE", "org.sluice.queue", name)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            receiver.receive(timeout=10)


def test_wildcard_subscriptions_are_refused(cells: RunningBroker) -> None:
    connection = BlockingConnection(cells.url, timeout=10)
    with pytest.raises(LinkDetached, match=r"amqp:not-implemented.*stands for many topics"):
        connection.create_receiver("news.*")
    connection.close()


def test_a_node_of_another_cell_is_reached_by_its_cell(cells: RunningBroker) -> None:
    connection = BlockingConnection(cells.url, timeout=10)
    [name] = names_in(1, CELLS, 1, "explicit")
    connection.create_sender(f"$cell/1/{name}").send(Message("x"))
    with pytest.raises(LinkDetached, match=r"amqp:not-found.*from 0 to 2"):
        connection.create_sender("$cell/3/x")
    with pytest.raises(LinkDetached, match="belongs to cell 1"):
        connection.create_sender(f"$cell/2/{names_in(1, CELLS, 2, 'explicit')[1]}")
    connection.close()
    assert depths(cells, 1)[name] == 1


def test_a_transaction_takes_no_message_of_another_cell(cells: RunningBroker) -> None:
    [first], [name] = names_in(0, CELLS, 1, "first"), names_in(1, CELLS, 1, "transacted")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, name="first", handle=2)
    peer.attach_coordinator(handle=0)
    peer.await_credit(0)
    peer.send(transferred(0, b"\x00\x53\x77\x00\x53\x31\x45", handle=0))
    declared = peer.expect(DISPOSITION)
    txn = declared.fields[4].value[0]  # type: ignore[attr-defined]
    peer.attach_sender(name, name="second", handle=1)
    peer.await_credit(1)
    state = Described(0x34, [bytes(txn)])
    peer.send(
        performative(TRANSFER, 1, 1, b"t", 0, False, False, None, state, payload=b"\x00\x53\x77\xa1\x02hi")
    )
    detached = peer.expect(0x16)
    assert detached.condition == "amqp:not-implemented"
    peer.close()
    assert depths(cells, 1)[name] == 0


def _send_until_it_fails(sender: BlockingSender) -> None:
    for _ in range(1000):
        sender.send(Message("after", durable=True), timeout=5)


def test_a_killed_cell_ends_the_connections_with_links_to_it_and_no_others(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    queues = {cell: names_in(cell, CELLS, 1, "kept")[0] for cell in range(CELLS)}
    with settled_in(broker, 0) as touched, settled_in(broker, 0) as untouched:
        sender = touched.create_sender(queues[1])
        sender.send(Message("before", durable=True))
        other = untouched.create_sender(queues[2])
        old = kill_cell(broker, 1)
        with pytest.raises((ConnectionClosed, LinkDetached)):
            _send_until_it_fails(sender)
        other.send(Message("on", durable=True))
        wait_for_cell(broker, 1, old)
        other.send(Message("on", durable=True))
    with settled_in(broker, 0) as again:
        assert again.create_receiver(queues[1], credit=1).receive(timeout=10).body == "before"
    assert sorted(pids_of(broker)) == [0, 1, 2]


def test_a_reader_that_stands_still_holds_up_nobody_else(cells: RunningBroker) -> None:
    [name], [other] = names_in(1, CELLS, 1, "still"), names_in(1, CELLS, 1, "moving")
    body = bytes(100_000)
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for _ in range(100):
            sender.send(Message(body), timeout=20)
    [first] = names_in(0, CELLS, 1, "first")
    still = RawPeer(cells.port).open().begin(window=5)
    still.attach_sender(first, handle=0)
    still.attach_receiver(name, handle=1)
    still.give_credit(100)
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(other)
        receiver = connection.create_receiver(other, credit=10)
        for number in range(100):
            sender.send(Message(number))
            assert receiver.receive(timeout=10).body == number
            receiver.accept()
    still.close()
    wait_until(lambda: depths(cells, 1)[name] == 100, 10, "all of them again")


def test_what_a_client_sends_before_it_closes_arrives(cells: RunningBroker) -> None:
    [first] = names_in(0, CELLS, 1, "first")
    for settled in (True, False):
        [name] = names_in(1, CELLS, 1, f"closed{settled}")
        peer = RawPeer(cells.port).open().begin()
        peer.attach_sender(first, name="first", handle=1)
        peer.attach_sender(name, name="second", handle=0, mode=1 if settled else 0)
        assert peer.await_credit(0) >= 50
        sent = [transferred(number, handle=0, settled=settled) for number in range(50)]
        peer.send(b"".join(sent) + performative(0x18))
        peer.expect(0x18)
        peer.close()
        wait_until(lambda name=name: depths(cells, 1)[name] == 50, 10, "50 messages")  # type: ignore[misc]


def _misbehave(broker: RunningBroker, draw: random.Random) -> None:
    """Attach links to several cells, send and receive at random, and go away in some way or other."""
    peer = RawPeer(broker.port)
    try:
        peer.open().begin(window=draw.choice([1, 5, 1000]))
        for handle in range(draw.randint(1, 6)):
            name = f"wild.{draw.randrange(6)}"
            if draw.random() < 0.5:
                peer.attach_sender(name, f"out{handle}", handle, mode=draw.choice([0, 1, 2]))
                for number in range(draw.randint(0, 20)):
                    peer.send(
                        transferred(
                            1000 * handle + number,
                            BODY + bytes(draw.choice([0, 0, 70_000])),
                            handle=handle,
                            settled=draw.random() < 0.5,
                            more=draw.random() < 0.1,
                        )
                    )
            else:
                peer.attach_receiver(name, f"in{handle}", handle, mode=draw.choice([0, 1]))
                credit, drain = draw.randint(1, 30), draw.random() < 0.3
                peer.give_credit(credit, handle, drain=drain, echo=draw.random() < 0.3)
                if draw.random() < 0.5:
                    state = Described(draw.choice([0x24, 0x25, 0x26, 0x27]))
                    peer.send(performative(DISPOSITION, RECEIVER, 0, draw.randint(0, 20), True, state))
                if draw.random() < 0.3:
                    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, handle, 0, 0))
            if draw.random() < 0.3:
                peer.send(performative(0x16, handle, draw.random() < 0.5))
        if draw.random() < 0.3:
            peer.send(performative(0x17))
        if draw.random() < 0.3:
            peer.send(performative(0x18))
    except (AssertionError, OSError):
        pass  # the broker has ended what breaks the protocol
    finally:
        peer.close()


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_clients_that_go_away_anyhow_do_no_harm(cells: RunningBroker) -> None:
    before = pids_of(cells)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: _misbehave(cells, random.Random(seed)), range(60)))
    assert pids_of(cells) == before
    # The first clients have everything loaded that opens files of its own.
    opened = sum(_descriptors(pid) for pid in before.values())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: _misbehave(cells, random.Random(seed)), range(60, 90)))
    wait_until(lambda: sum(map(_descriptors, before.values())) <= opened + 3, 20, "sockets to be closed")
    assert pids_of(cells) == before
    for cell in range(CELLS):
        with Management(cells.url, cell=cell) as management:
            audit: Any = management.call("audit", "org.sluice.broker").body
            assert not any(audit["breaches"]), audit
    with settled_in(cells, 0) as connection:
        connection.create_sender(names_in(1, CELLS, 1, "sound")[0]).send(Message("x"))
