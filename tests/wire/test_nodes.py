"""Which node an address means: kinds, prefixes, virtual hosts, dynamic nodes and how long they live."""

from __future__ import annotations

import re
from typing import Any

import pytest
from proton import Delivery, Message, Terminus
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.frames import ATTACH, SENDER, SOURCE, TARGET, Described, RawPeer, UByte, performative
from tests.wire.seeing import numbers_of, queue_of
from tests.wire.terminus import Asks, close, connected, detach, flush, is_silent, send, take

pytestmark = pytest.mark.wire

ON_CLOSE, ON_NO_LINKS, ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES = 0x2B, 0x2C, 0x2D, 0x2E


@pytest.mark.parametrize(("capability", "kind"), [("queue", "queue"), ("topic", "topic")])
def test_a_capability_says_which_kind(broker: RunningBroker, capability: str, kind: str) -> None:
    with connected(broker.url) as connection:
        connection.create_sender("made", options=Asks(capability))
        assert queue_of(broker, "made", kind)["kind"] == kind


@pytest.mark.parametrize(
    ("sent_to", "received_from", "kind"),
    [
        ("queue://orders", "orders", "queue"),
        ("orders", "/orders", "queue"),
        ("topic://orders", "/orders", "topic"),
        ("/orders", "queue://orders", "queue"),
    ],
)
def test_other_brokers_ways_to_write_an_address(
    broker: RunningBroker, sent_to: str, received_from: str, kind: str
) -> None:
    with connected(broker.url) as connection:
        sender = connection.create_sender(sent_to)
        receiver = connection.create_receiver(received_from)
        send(sender, "one")
        assert take(receiver, 1) == ["one"]
        assert queue_of(broker, "orders", kind)["kind"] == kind


def test_a_node_is_not_made_twice_for_two_ways_to_write_it(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        for address in ("orders", "/orders", "queue://orders"):
            connection.create_sender(address)
        assert queue_of(broker, "orders")["producers"] == 3


def test_a_pattern_is_no_place_to_send_to(broker: RunningBroker) -> None:
    with connected(broker.url) as connection, pytest.raises(LinkDetached, match="stands for many"):
        connection.create_sender("orders.*")


def test_an_answer_to_an_address_that_is_gone_is_told_so(broker: RunningBroker) -> None:
    """Whoever answers late reads what became of the asker, not which names the broker keeps for itself."""
    with connected(broker.url) as connection:
        with connected(broker.url) as asking:
            gone = asking.create_receiver(None, dynamic=True).link.remote_source.address
            other = asking.create_receiver(None, dynamic=True)
            closed = other.link.remote_source.address
            close(other)
            with pytest.raises(LinkDetached, match=f"the reply address '{re.escape(str(closed))}' is gone"):
                connection.create_sender(closed)
        with pytest.raises(LinkDetached, match=f"the reply address '{re.escape(str(gone))}' is gone"):
            connection.create_sender(gone)
        relay = connection.create_sender(None)
        delivery = relay.link.send(Message(address=gone, body="late"))
        assert isinstance(delivery, Delivery)
        connection.wait(lambda: delivery.settled, msg="the outcome")
        condition = delivery.remote.condition
        assert condition is not None
        assert condition.name == "amqp:not-found"
        assert "is gone" in str(condition.description)
        with pytest.raises(LinkDetached, match="the broker's own"):
            connection.create_sender("$elsewhere")


def test_virtual_hosts_have_nodes_of_their_own(start_broker: StartBroker) -> None:
    broker = start_broker(config="virtual_hosts: [shop, lab]\n")
    with (
        connected(broker.url, host="shop") as shop,
        connected(broker.url, host="lab") as lab,
        connected(broker.url, host="elsewhere") as common,
    ):
        receivers = [each.create_receiver("orders") for each in (shop, lab, common)]
        for name, each in (("shop", shop), ("lab", lab), ("common", common)):
            send(each.create_sender("orders"), name)
            send(each.create_sender(None), f"{name} by relay", address="orders")
        for name, receiver in zip(("shop", "lab", "common"), receivers, strict=True):
            assert take(receiver, 2) == [name, f"{name} by relay"]
        assert queue_of(broker, "shop/orders")["kind"] == "queue"
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            common.create_sender("shop/orders")
        lab.create_sender("shop/orders")
        assert queue_of(broker, "lab/shop/orders")["kind"] == "queue"


def dynamic(
    connection: BlockingConnection,
    lifetime: int,
    capability: str = "",
    *,
    name: str | None = None,
    expiry: int | None = None,
    timeout: int = 0,
) -> tuple[str, BlockingReceiver]:
    """A dynamic node of that lifetime, and the receiver it was made for."""
    asks = Asks(*filter(None, [capability]), lifetime=lifetime, expiry=expiry, timeout=timeout)
    receiver = connection.create_receiver(None, name=name, dynamic=True, options=asks)
    told = receiver.link.remote_source.properties
    told.rewind()
    assert told.next() is not None
    [policy] = told.get_object().values()
    assert policy.descriptor == (lifetime or ON_CLOSE)
    return str(receiver.link.remote_source.address), receiver


def exists(broker: RunningBroker, address: str) -> bool:
    with connected(broker.url) as connection:
        try:
            connection.create_sender(address)
        except LinkDetached as fault:
            if "amqp:not-found" not in str(fault):
                raise
            return False
        return True


@pytest.mark.parametrize("lifetime", [0, ON_CLOSE])
def test_a_dynamic_node_goes_with_its_link(broker: RunningBroker, lifetime: int) -> None:
    with connected(broker.url) as connection, connected(broker.url) as other:
        address, receiver = dynamic(connection, lifetime)
        sender = other.create_sender(address)
        send(sender, "one")
        close(receiver)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            send(sender, "two")
    assert not exists(broker, address)


def test_a_dynamic_node_that_lives_as_long_as_it_has_links(broker: RunningBroker) -> None:
    with connected(broker.url) as connection, connected(broker.url) as other:
        address, receiver = dynamic(connection, ON_NO_LINKS)
        sender = other.create_sender(address)
        close(receiver)
        send(sender, "one")
        receiver = connection.create_receiver(address)
        close(sender)
        assert take(receiver, 1) == ["one"]
        close(receiver)
    assert not exists(broker, address)


def test_a_dynamic_node_that_lives_as_long_as_it_has_messages(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        address, receiver = dynamic(connection, ON_NO_MESSAGES)
        send(connection.create_sender(address), "one", "two")
        close(receiver)
        assert exists(broker, address)
        receiver = connection.create_receiver(address)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            take(receiver, 2)
    assert not exists(broker, address)


def test_a_dynamic_node_that_lives_as_long_as_it_has_either(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        address, receiver = dynamic(connection, ON_NO_LINKS_OR_MESSAGES)
        sender = connection.create_sender(address)
        send(sender, "one")
        close(receiver)
        close(sender)
        assert exists(broker, address)
        receiver = connection.create_receiver(address)
        assert take(receiver, 1) == ["one"]
        assert exists(broker, address)
        close(receiver)
    assert not exists(broker, address)


def test_a_dynamic_node_goes_with_its_connection(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        address, _ = dynamic(connection, ON_CLOSE)
    assert not exists(broker, address)


def test_a_dynamic_topic(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        address, first = dynamic(connection, ON_CLOSE, "temporary-topic")
        second = connection.create_receiver(address)
        send(connection.create_sender(address), "one")
        assert take(first, 1) == take(second, 1) == ["one"]


def test_request_and_response(broker: RunningBroker) -> None:
    with connected(broker.url) as asking, connected(broker.url) as answering:
        address, replies = dynamic(asking, ON_CLOSE)
        requests = answering.create_receiver("requests")
        asking.create_sender("requests").send(Message(body="who", reply_to=address, correlation_id=7))
        request = requests.receive(timeout=20)
        requests.accept()
        answering.create_sender(None).send(
            Message(body="me", address=request.reply_to, correlation_id=request.correlation_id)
        )
        reply = replies.receive(timeout=20)
        assert (reply.body, reply.correlation_id) == ("me", 7)


POLICIES = """policies:
  - {match: one, consumers: exclusive}
  - {match: turns, consumers: single_active}
"""


def test_an_exclusive_queue_has_one_consumer(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker.url) as connection:
        first = connection.create_receiver("one", name="first")
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            connection.create_receiver("one", name="second")
        sender = connection.create_sender("one")
        send(sender, 1)
        assert take(first, 1) == [1]
        close(first)
        send(sender, 2)
        assert take(connection.create_receiver("one", name="third"), 1) == [2]


def test_of_several_consumers_one_is_active_and_hands_over(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker.url) as connection, connected(broker.url) as other:
        first = connection.create_receiver("turns", credit=10)
        second = other.create_receiver("turns", credit=10)
        sender = other.create_sender("turns")
        send(sender, *range(5))
        assert take(first, 3) == [0, 1, 2]
        assert is_silent(second)
        close(first)
        send(sender, 5)
        assert take(second, 3) == [3, 4, 5]


# --- whose they are


@pytest.mark.parametrize("capability", ["", "temporary-queue", "temporary-topic"])
def test_nobody_else_receives_from_a_dynamic_node(broker: RunningBroker, capability: str) -> None:
    with connected(broker.url) as connection, connected(broker.url) as other:
        address, receiver = dynamic(connection, ON_CLOSE, capability)
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            other.create_receiver(address)
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            other.create_receiver(address, options=Asks(copy=True))
        # Anybody may answer there, and its own connection may read it by more than one link.
        send(other.create_sender(address), "one")
        assert take(receiver, 1) == ["one"]
        connection.create_receiver(address)


def test_a_node_made_for_a_sender_is_its_connections_too(broker: RunningBroker) -> None:
    """As Qpid JMS makes its temporary queues."""
    with RawPeer(broker.port) as peer, connected(broker.url) as other:
        target = Described(TARGET, [None, 0, None, 0, True])
        peer.open().begin()
        peer.send(
            performative(ATTACH, "m", 0, SENDER, UByte(2), UByte(0), Described(SOURCE), target, None, None, 0)
        )
        made: Any = peer.expect(ATTACH).field(6)
        address = str(made.value[0])
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            other.create_receiver(address)
        assert peer.attach_receiver(address, handle=1).field(5) is not None


def test_another_connections_management_replies_are_its_own(broker: RunningBroker) -> None:
    with connected(broker.url) as connection, connected(broker.url) as other:
        connection.create_receiver("$management")
        names = [name for name in numbers_of(broker, "depth_msgs") if name.startswith("$temporary/")]
        assert names
        for name in names:
            with pytest.raises(LinkDetached, match=r"amqp:resource-locked|amqp:not-found"):
                other.create_receiver(name)


def test_names_of_dynamic_nodes_do_not_follow_from_each_other(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        names = [dynamic(connection, ON_CLOSE, name=f"r{each}")[0] for each in range(4)]
    ends = {name.removeprefix("$temporary/") for name in names}
    assert len(ends) == 4
    assert all(len(end) >= 20 for end in ends)
    # No part but the first is common to all.
    assert len({end[:4] for end in ends}) > 1
    assert len({end[-4:] for end in ends}) > 1


def test_once_its_connection_is_gone_what_a_dynamic_node_holds_is_anybodys(broker: RunningBroker) -> None:
    with connected(broker.url) as other:
        with connected(broker.url) as connection:
            address, receiver = dynamic(connection, ON_NO_MESSAGES)
            send(connection.create_sender(address), "one", "two")
            close(receiver)
        assert exists(broker, address)
        receiver = other.create_receiver(address)
        assert receiver.receive(timeout=20).body == "one"


def test_a_dynamic_topic_goes_with_its_link(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        address, receiver = dynamic(connection, ON_CLOSE, "temporary-topic")
        assert exists(broker, address)
        close(receiver)
        flush(connection)
        assert not exists(broker, address)


# --- a link that comes back


@pytest.mark.parametrize("capability", ["", "temporary-topic"])
def test_a_detached_link_finds_its_dynamic_node_again(broker: RunningBroker, capability: str) -> None:
    with connected(broker.url) as connection:
        address, receiver = dynamic(connection, ON_CLOSE, capability, name="mine")
        detach(receiver)
        send(connection.create_sender(address), "meanwhile")
        again, receiver = dynamic(connection, ON_CLOSE, capability, name="mine")
        assert again == address
        assert take(receiver, 1) == ["meanwhile"]
        # Once more, and then for good.
        detach(receiver)
        assert dynamic(connection, ON_CLOSE, capability, name="mine")[0] == address
    assert not exists(broker, address)


def test_another_name_gets_a_node_of_its_own(broker: RunningBroker) -> None:
    with connected(broker.url, "same") as connection, connected(broker.url, "same") as other:
        address, receiver = dynamic(connection, ON_CLOSE, name="mine")
        assert dynamic(connection, ON_CLOSE, name="another")[0] != address
        detach(receiver)
        # Nor does the same name on another connection, while this one lives.
        assert dynamic(other, ON_CLOSE, name="mine")[0] != address
        assert dynamic(connection, ON_CLOSE, name="mine")[0] == address


def test_a_closed_link_gets_a_new_node(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        address, receiver = dynamic(connection, ON_CLOSE, name="mine")
        close(receiver)
        assert dynamic(connection, ON_CLOSE, name="mine")[0] != address


@pytest.mark.parametrize("timeout", [0, 600])
def test_a_node_that_outlives_its_connection_is_found_by_the_next(
    broker: RunningBroker, timeout: int
) -> None:
    expiry = Terminus.EXPIRE_WITH_CONNECTION if timeout else Terminus.EXPIRE_NEVER
    asks = {"expiry": expiry, "timeout": timeout}
    with connected(broker.url, "reader") as connection:
        address, _ = dynamic(connection, ON_CLOSE, name="mine", **asks)
        send(connection.create_sender(address), "kept")
    with connected(broker.url, "stranger") as connection:
        assert dynamic(connection, ON_CLOSE, name="mine", **asks)[0] != address
    with connected(broker.url, "reader") as connection:
        again, receiver = dynamic(connection, ON_CLOSE, name="mine", **asks)
        assert again == address
        assert take(receiver, 1) == ["kept"]
