"""Links on which a client receives: queues, browsers, subscriptions and what outlives them."""

from __future__ import annotations

from tests.unit.amqp.world import AmqpWorld, attach, detach
from tests.wire.frames import DETACH, TRANSFER, RawPeer, Symbol, Symbols, performative, transfer

CONFIGURATION, NEVER = 1, Symbol("never")


def durable(address: str | None, *capabilities: str) -> list[object]:
    """A source that stays when its link goes."""
    filters_and_outcomes = [None] * 4
    more = [Symbols(capabilities)] if capabilities else []
    return [address, CONFIGURATION, NEVER, 0, False, None, *filters_and_outcomes, *more]


def published(client: RawPeer, count: int = 1) -> None:
    client.attach_sender("topic://news", name="out", handle=9)
    client.send(*(transfer(number, handle=9) for number in range(count)))


def test_a_browser_leaves_messages_where_they_are(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders")
    client.send(transfer(0))
    attach(client, "look", 1, source=["orders", *[None] * 5, Symbol("copy")], target=[])
    client.give_credit(5)
    client.expect(TRANSFER)
    node = world.engine.topology.nodes["orders"]
    assert (len(node.browsers), node.queue.ready) == (1, 1)


def test_a_subscription_is_offered_as_a_topic(world: AmqpWorld) -> None:
    client = world.begun()
    published(client, 0)
    answer = attach(client, "in", 0, source=["news"], target=[])
    assert [str(each) for each in answer.field(5).value[10].elements] == ["topic"]  # type: ignore[attr-defined]


def test_a_durable_subscription_is_found_again_by_its_name(world: AmqpWorld) -> None:
    client = world.begun()
    published(client, 0)
    attach(client, "mine", 0, source=durable("news"), target=[])
    detach(client, 0, closed=False)
    client.send(transfer(0, handle=9))
    # JMS gives no source when it comes back to unsubscribe.
    answer = attach(client, "mine", 0, source=None, target=[])
    assert answer.field(5).value[0] == "news"  # type: ignore[attr-defined]
    assert len(world.engine.topology.subscriptions) == 1
    detach(client, 0)
    assert len(world.engine.topology.subscriptions) == 0


def test_no_subscription_of_that_name_is_not_found(world: AmqpWorld) -> None:
    client = world.begun()
    attach(client, "nobody", 0, source=None, target=[])
    assert client.expect(DETACH).condition == "amqp:not-found"


def test_receivers_share_a_subscription_only_where_they_ask_for_it(world: AmqpWorld) -> None:
    client = world.begun()
    published(client, 0)
    for number in range(2):
        attach(client, f"a{'|' * number}", number, source=durable("news", "shared"), target=[])
    [topic] = [node for node in world.engine.topology.nodes.values() if node.is_topic]
    assert sum(len(each.consumers) for each in topic.subscriptions) == 2


def test_a_nodes_exclusive_consumer_keeps_others_out() -> None:
    world = AmqpWorld("policies: [{match: one, consumers: exclusive}]")
    try:
        client = world.begun()
        client.attach_receiver("one", name="first", handle=0)
        client.attach_receiver("one", name="second", handle=1)
        assert client.expect(DETACH).condition == "amqp:resource-locked"
    finally:
        world.close()


def test_the_node_for_replies_goes_with_its_link(world: AmqpWorld) -> None:
    client = world.begun()
    attach(client, "replies", 0, source=["$management"], target=["me"])
    control = world.connection()
    node = control.replies["me"]
    assert node.name in world.engine.topology.nodes
    client.send(performative(DETACH, 0, False))
    client.expect(DETACH)
    assert not control.replies
    assert node.name not in world.engine.topology.nodes
