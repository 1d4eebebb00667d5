"""Proton's own Python clients with their default settings, and what the specification promises them."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import pytest
from proton import Delivery, Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container, LinkOption, Selector
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached, SendException

from broker.codec.owned import owned
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    DETACH,
    DISPOSITION,
    FLOW,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    UByte,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, number_of, queue_of

pytestmark = pytest.mark.wire

Connect = Callable[[], BlockingConnection]


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Connect]:
    """Blocking connections to the broker, closed at the end."""
    with ExitStack() as closing:

        def connected() -> BlockingConnection:
            made = BlockingConnection(broker.url, timeout=10)
            closing.callback(made.close)
            return made

        yield connected


@contextmanager
def blocking(url: str) -> Iterator[BlockingConnection]:
    made = BlockingConnection(url, timeout=10)
    try:
        yield made
    finally:
        made.close()


class Ask(LinkOption):
    """Settle modes and capabilities as a test wants them."""

    def __init__(self, capability: str = "", rcv: int | None = None, snd: int | None = None) -> None:
        self.capability, self.rcv, self.snd = capability, rcv, snd

    def apply(self, link: Link) -> None:
        if self.capability:
            terminus = link.target if link.is_sender else link.source
            terminus.capabilities.put_object(symbol(self.capability))
        if self.rcv is not None:
            link.rcv_settle_mode = self.rcv
        if self.snd is not None:
            link.snd_settle_mode = self.snd


def send(sender: BlockingSender, *bodies: Any) -> None:
    for body in bodies:
        sender.send(Message(body=body))


def receive(receiver: BlockingReceiver, count: int) -> list[Any]:
    """So many bodies, accepted."""
    got = []
    for _ in range(count):
        message = receiver.receive()
        # Binary bodies are views of the message's own memory.
        got.append(bytes(message.body) if isinstance(message.body, memoryview) else message.body)
        receiver.accept()
    return got


def taken(receiver: BlockingReceiver) -> Delivery:
    """The delivery of the message received last, not settled yet."""
    assert receiver.fetcher is not None
    delivery: Delivery = receiver.fetcher.unsettled.popleft()
    return delivery


def has_message(receiver: BlockingReceiver) -> bool:
    assert receiver.fetcher is not None
    return bool(receiver.fetcher.has_message)


def flush(connection: BlockingConnection) -> None:
    """A round trip: what was settled before it has been written. Proton writes only while it waits."""
    connection.create_receiver(None, dynamic=True, name=f"flush{next(_numbers)}").close()  # type: ignore[no-untyped-call]


_numbers = count()


# --- the ordinary


class OneByOne(MessagingHandler):
    """Proton's tutorial: send so many, receive so many, everything by default."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__()
        self.url, self.count = url, count
        self.sent = self.accepted = 0
        self.got: list[Any] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url)
        event.container.create_receiver(connection, "orders")
        event.container.create_sender(connection, "orders")

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            self.sent += 1
            event.sender.send(Message(body=self.sent))

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        self.end(event)

    def on_message(self, event: Any) -> None:
        self.got.append(owned(event.message.body))
        self.end(event)

    def end(self, event: Any) -> None:
        if self.accepted == len(self.got) == self.count:
            event.connection.close()


def test_a_messaging_handler_sends_and_receives(broker: RunningBroker) -> None:
    handler = OneByOne(broker.url, 2000)
    Container(handler).run()
    assert handler.got == list(range(1, 2001))
    await_number(broker, "orders", "depth_msgs", 0)


def test_blocking_send_and_receive(connect: Connect) -> None:
    connection = connect()
    bodies = ["text", b"bytes", 5, {"k": [1, 2]}, True, None, 1.5]
    send(connection.create_sender("orders"), *bodies)
    assert receive(connection.create_receiver("orders"), len(bodies)) == bodies


def test_a_message_passes_through_unchanged(connect: Connect) -> None:
    said = Message(
        body="x",
        durable=True,
        priority=7,
        ttl=60,
        id="id-1",
        subject="subject",
        reply_to="replies",
        correlation_id="c-1",
        content_type=symbol("text/plain"),
        group_id="g",
        group_sequence=3,
        annotations={symbol("x-opt-k"): "v"},
        properties={"a": 1, "b": "two"},
    )
    connection = connect()
    sender, receiver = connection.create_sender("orders"), connection.create_receiver("orders")
    begun = time.monotonic()
    sender.send(said)
    heard = receiver.receive()
    # What remains of it (§3.2.1), the one thing that changes; it is told in whole milliseconds.
    assert 60 - (time.monotonic() - begun) - 0.01 < heard.ttl <= 60
    heard.ttl = said.ttl
    assert heard.encode() == said.encode()


# --- outcomes


def test_rejected_is_gone(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    send(connection.create_sender("orders"), "bad", "good")
    receiver = connection.create_receiver("orders")
    assert receiver.receive().body == "bad"
    receiver.reject()
    assert receive(receiver, 1) == ["good"]
    flush(connection)
    await_number(broker, "orders", "depth_msgs", 0)
    assert number_of(broker, "orders", "rejected") == 1


def test_released_comes_again_in_order_and_not_as_a_failure(connect: Connect) -> None:
    connection = connect()
    send(connection.create_sender("orders"), 1, 2, 3)
    first = connection.create_receiver("orders", credit=2)
    assert [first.receive().body, first.receive().body] == [1, 2]
    first.release(delivered=False)
    first.release(delivered=False)
    first.close()  # type: ignore[no-untyped-call]
    second = connection.create_receiver("orders")
    again = [second.receive() for _ in range(3)]
    assert [message.body for message in again] == [1, 2, 3]
    assert [message.delivery_count for message in again] == [0, 0, 0]
    assert [message.first_acquirer for message in again][:2] == [False, False]


def test_modified_as_failed_raises_the_delivery_count(connect: Connect) -> None:
    connection = connect()
    send(connection.create_sender("orders"), "x")
    receiver = connection.create_receiver("orders")
    for attempt in range(3):
        assert receiver.receive().delivery_count == attempt
        delivery = taken(receiver)
        delivery.local.failed = True
        delivery.update(Delivery.MODIFIED)
        delivery.settle()


def test_modified_as_undeliverable_goes_to_another_consumer_with_its_annotations(
    broker: RunningBroker, connect: Connect
) -> None:
    one, other = connect(), connect()
    sender = one.create_sender("orders")
    sender.send(Message(body="x", annotations={symbol("kept"): 1, symbol("changed"): 1}))
    first = one.create_receiver("orders")
    assert first.receive().body == "x"
    delivery = taken(first)
    delivery.local.undeliverable = True
    delivery.local.annotations = {symbol("changed"): 2, symbol("added"): 3}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    first.link.flow(10)
    flush(one)
    await_number(broker, "orders", "ready_msgs", 1)
    heard = other.create_receiver("orders").receive()
    assert heard.body == "x"
    assert heard.annotations == {symbol("kept"): 1, symbol("changed"): 2, symbol("added"): 3}
    assert not has_message(first)


def test_what_a_detached_consumer_held_comes_again_in_order(connect: Connect) -> None:
    connection = connect()
    send(connection.create_sender("orders"), *range(20))
    gone = connection.create_receiver("orders", credit=10)
    assert [gone.receive().body for _ in range(10)] == list(range(10))
    gone.close()  # type: ignore[no-untyped-call]
    taker = connection.create_receiver("orders", credit=20)
    again = [taker.receive() for _ in range(20)]
    assert [message.body for message in again] == list(range(20))
    assert [message.delivery_count for message in again] == [1] * 10 + [0] * 10


def test_what_a_lost_connection_held_comes_again_in_order(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    send(connection.create_sender("orders"), *range(20))
    with RawPeer(broker.port) as lost:
        lost.open().begin().attach_receiver("orders")
        lost.give_credit(10)
        for _ in range(10):
            lost.expect(TRANSFER)
    await_number(broker, "orders", "ready_msgs", 20)
    assert receive(connection.create_receiver("orders"), 20) == list(range(20))


# --- settling


def test_pre_settled_both_ways(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    sender = connection.create_sender("orders", options=AtMostOnce())
    send(sender, *range(50))
    receiver = connection.create_receiver("orders", options=AtMostOnce(), credit=50)
    messages = [receiver.receive().body for _ in range(50)]
    assert messages == list(range(50))
    await_number(broker, "orders", "depth_msgs", 0)


def test_receiver_settles_second(broker: RunningBroker) -> None:
    """The broker says accepted, the sender settles, and only then the broker does (§2.6.12)."""
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        fields = ("out", 0, SENDER, UByte(0), UByte(1), Described(SOURCE), Described(TARGET, ["orders"]))
        peer.send(performative(ATTACH, *fields, None, None, 0))
        assert peer.expect(ATTACH).field(4) == 1
        peer.send(transfer(0))
        told = peer.expect(DISPOSITION)
        assert int(told.field(4).descriptor) == 0x24  # type: ignore[attr-defined]
        assert not told.field(3)
        peer.send(performative(DISPOSITION, False, 0, 0, True))
        await_number(broker, "orders", "depth_msgs", 1)


def test_drain_is_answered_and_credit_returns(connect: Connect) -> None:
    connection = connect()
    send(connection.create_sender("orders"), 1, 2, 3)
    receiver = connection.create_receiver("orders", credit=0)
    receiver.link.drain(10)
    connection.wait(lambda: receiver.link.credit == 0, msg="the drain to be answered")
    assert [receiver.receive().body for _ in range(3)] == [1, 2, 3]
    receiver.link.drain(5)
    connection.wait(lambda: receiver.link.credit == 0, msg="an empty queue to answer")
    assert not has_message(receiver)


# --- many


def test_a_drain_is_answered_while_others_hold_what_a_selector_wants(connect: Connect) -> None:
    """What another consumer has and doesn't settle is nothing to wait for."""
    holder, choosy = connect(), connect()
    held = holder.create_receiver("held", credit=5)
    sender = holder.create_sender("held")
    for _ in range(3):
        sender.send(Message(body="x"))
    for _ in range(3):
        held.receive(10)
    receiver = choosy.create_receiver("held", credit=0, options=Selector("TRUE"))
    receiver.link.drain(7)
    choosy.wait(lambda: receiver.link.credit == 0, msg="the drain to be answered")


def test_competing_consumers_share_without_loss(connect: Connect) -> None:
    connection = connect()
    receivers = [connection.create_receiver("orders", credit=10, name=f"r{i}") for i in range(4)]
    send(connection.create_sender("orders"), *range(40))
    got = [receive(receiver, 10) for receiver in receivers]
    assert sorted(body for bodies in got for body in bodies) == list(range(40))
    assert all(bodies == sorted(bodies) for bodies in got)


def test_five_hundred_links_on_one_connection(connect: Connect) -> None:
    connection = connect()
    receivers = [connection.create_receiver(f"queue{i}") for i in range(250)]
    senders = [connection.create_sender(f"queue{i}") for i in range(250)]
    for i, sender in enumerate(senders):
        send(sender, i)
    assert [receiver.receive().body for receiver in receivers] == list(range(250))


def test_two_thousand_connections_at_once(start_broker: StartBroker) -> None:
    # The first of them say nothing until the last has come.
    broker = start_broker("limits: {idle_timeout: 0s}\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as closing:
        closing.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        # Before the others: Proton's own loop can't watch descriptors above 1023.
        connection = closing.enter_context(blocking(broker.url))
        for _ in range(2000):
            closing.enter_context(RawPeer(broker.port)).open()
        send(connection.create_sender("orders"), "one more")
        assert receive(connection.create_receiver("orders"), 1) == ["one more"]
        assert number_of(broker, "broker", "connections", "broker") >= 2001
    await_number(broker, "broker", "connections", 1, "broker")


# --- addresses


TOPICS = "policies:\n  - match: prices.>\n    kind: topic\n"


def test_every_subscription_of_a_topic_gets_a_copy(start_broker: StartBroker) -> None:
    broker = start_broker(policies=TOPICS)
    with blocking(broker.url) as connection:
        receivers = [connection.create_receiver("prices.oil", credit=10, name=f"r{i}") for i in range(3)]
        send(connection.create_sender("prices.oil"), *range(10))
        assert [receive(receiver, 10) for receiver in receivers] == [list(range(10))] * 3
        assert queue_of(broker, "prices.oil", "topic")["subscriptions"] == 3


def test_a_topic_by_capability(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    receivers = [connection.create_receiver("news", options=Ask("topic"), name=f"r{i}") for i in range(2)]
    send(connection.create_sender("news"), "hello")
    assert [receiver.receive().body for receiver in receivers] == ["hello", "hello"]


def test_a_message_to_a_topic_nobody_listens_to_is_accepted(broker: RunningBroker, connect: Connect) -> None:
    send(connect().create_sender("news", options=Ask("topic")), "hello")
    assert number_of(broker, "news", "unrouted", "topic") == 1


def test_a_dynamic_node_takes_replies(broker: RunningBroker, connect: Connect) -> None:
    client, server = connect(), connect()
    replies = client.create_receiver(None, dynamic=True)
    client.create_sender("requests").send(Message(body="ping", reply_to=replies.link.remote_source.address))
    requests = server.create_receiver("requests")
    request = requests.receive()
    requests.accept()
    send(server.create_sender(request.reply_to), "pong")
    assert replies.receive().body == "pong"


def test_the_anonymous_relay(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    assert connection.conn is not None
    assert "ANONYMOUS-RELAY" in [str(each) for each in connection.conn.remote_offered_capabilities]
    relay = connection.create_sender(None)
    for address in ("one", "other", "one"):
        relay.send(Message(address=address, body=address))
    assert receive(connection.create_receiver("one"), 2) == ["one", "one"]
    assert receive(connection.create_receiver("other"), 1) == ["other"]
    with pytest.raises(SendException):
        relay.send(Message(body="to nobody"))
    relay.send(Message(address="one", body="still there"))


def test_an_unknown_node_is_refused_where_nothing_is_created(start_broker: StartBroker) -> None:
    broker = start_broker("auto_create: false\n")
    with blocking(broker.url) as connection:
        for attach in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkDetached) as refused:
                attach("nowhere")
            assert refused.value.condition == "amqp:not-found"


# --- sizes


def test_sixty_four_megabytes(connect: Connect) -> None:
    connection = connect()
    body = bytes(range(256)) * (64 * 4096)
    sender = connection.create_sender("orders")
    sender.send(Message(body=body), timeout=60)
    receiver = connection.create_receiver("orders")
    assert receiver.receive(timeout=60).body == body


def test_max_message_size_is_said(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - match: small\n    max_message_size: 1 KB\n")
    with blocking(broker.url) as connection:
        assert connection.create_sender("small").link.remote_max_message_size == 1024
        assert connection.create_sender("other").link.remote_max_message_size == 100 << 20
        sender = connection.create_sender("small", name="another")
        with pytest.raises(LinkDetached) as refused:
            sender.send(Message(body="x" * 2000))
        assert refused.value.condition == "amqp:link:message-size-exceeded"


def test_an_aborted_delivery_never_was(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    sender = connection.create_sender("orders")
    delivery = sender.link.delivery("half")
    sender.link.stream(Message(body="x" * 100_000).encode()[:70_000])
    connection.wait(lambda: delivery.pending < 70_000, msg="a part to be written")
    delivery.abort()
    send(sender, "whole")
    assert receive(connection.create_receiver("orders"), 1) == ["whole"]
    assert number_of(broker, "orders", "received") == 1


# --- consumer windows


def put(broker: RunningBroker, address: str, total: int) -> None:
    """Messages in one write, so that they arrive in one turn."""
    with RawPeer(broker.port) as peer:
        peer.open().begin().attach_sender(address)
        number = 0
        while number < total:
            while peer.may_send() <= number:
                peer.expect(FLOW)
            end = min(peer.may_send(), total)
            peer.send(b"".join(transfer(i, settled=True) for i in range(number, end)))
            number = end
        peer.send(performative(DETACH, 0, True))
        peer.expect(DETACH)


def settle(peer: RawPeer, first: int, last: int) -> None:
    peer.send(performative(DISPOSITION, True, first, last, True, Described(ACCEPTED)))


@pytest.mark.flow
def test_a_full_window_reopens_at_half(broker: RunningBroker) -> None:
    """FLOW §5: 1000 unsettled, nothing more until 500 are left, then 500 more."""
    with RawPeer(broker.port) as peer:
        peer.open().begin().attach_receiver("orders")
        peer.give_credit(5000)
        put(broker, "orders", 1700)
        await_number(broker, "orders", "unsettled_msgs", 1000)
        settle(peer, 0, 498)
        await_number(broker, "orders", "unsettled_msgs", 501)
        assert number_of(broker, "orders", "ready_msgs") == 700
        settle(peer, 499, 499)
        await_number(broker, "orders", "unsettled_msgs", 1000)
        assert number_of(broker, "orders", "ready_msgs") == 200


@pytest.mark.flow
def test_a_limit_over_all_consumers_of_a_connection(start_broker: StartBroker) -> None:
    broker = start_broker("flow:\n  connection_flow_limit: 10\n  connection_flow_limit_enabled: true\n")
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        for handle in (1, 2):
            peer.attach_receiver("orders", f"in{handle}", handle)
            peer.give_credit(100, handle)
        put(broker, "orders", 50)
        await_number(broker, "orders", "unsettled_msgs", 10)
        settle(peer, 0, 0)
        await_number(broker, "orders", "ready_msgs", 39)
        assert number_of(broker, "orders", "unsettled_msgs") == 10


@pytest.mark.flow
@pytest.mark.parametrize(("dispatch", "shares"), [("fair", [5, 5]), ("fill", [0, 10])])
def test_dispatch(start_broker: StartBroker, dispatch: str, shares: list[int]) -> None:
    broker = start_broker(policies=f"policies:\n  - match: orders\n    dispatch: {dispatch}\n")
    with RawPeer(broker.port) as one, RawPeer(broker.port) as other:
        for peer in (one, other):
            peer.open().begin().attach_receiver("orders")
            peer.give_credit(100)
        await_number(broker, "orders", "consumers", 2)
        put(broker, "orders", 10)
        await_number(broker, "orders", "unsettled_msgs", 10)
        for peer in (one, other):
            peer.give_credit(100, echo=True)
            peer.expect(FLOW)
        got = [sum(frame.code == TRANSFER for frame in peer.log) for peer in (one, other)]
        assert sorted(got) == shares


def test_a_session_may_attach_and_detach_for_ever(start_broker: StartBroker) -> None:
    """The limit is on links at a time; one that was refused or detached doesn't count."""
    broker = start_broker("limits:\n  max_links: 5\n")
    connection: Any = BlockingConnection(broker.url)
    for _ in range(20):
        connection.create_sender("orders").close()
    kept = [connection.create_sender("orders", name=f"s{n}") for n in range(5)]
    with pytest.raises(LinkDetached, match="too many links"):
        connection.create_sender("orders", name="one too many")
    kept[0].close()
    connection.create_sender("orders", name="again").close()
    connection.close()
