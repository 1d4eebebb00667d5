"""Connections, sessions and links as management shows them, and an operator who ends them."""

from __future__ import annotations

from broker.manage.views import ConnectionView, ProducerView
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import BODY, CLOSE, DETACH, DISPOSITION, transfer


def test_connections_are_shown_oldest_first_with_what_they_have(world: AmqpWorld) -> None:
    first = world.begun("first").begin(channel=1)
    world.begun("second")
    first.attach_sender("orders")
    views = world.registry.connections()
    assert [view.container for view in views] == ["first", "second"]
    assert (views[0].sessions, views[0].links) == (2, 1)
    assert (views[0].user, views[0].mechanism) == ("anonymous", "ANONYMOUS")


def test_links_are_counted_at_their_session(world: AmqpWorld) -> None:
    client = world.begun().begin(channel=1)
    client.attach_sender("orders", name="a", handle=0)
    client.attach_receiver("orders", name="b", handle=0, channel=1)
    shown = [(view.channel, view.producers, view.consumers) for view in world.registry.sessions()]
    assert sorted(shown) == [(0, 1, 0), (1, 0, 1)]


def test_links_are_shown_at_their_node(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders", name="a", handle=0)
    client.attach_receiver("orders", name="b", handle=1)
    client.attach_sender("other", name="c", handle=2)
    assert [view.link for view in world.registry.producers("orders")] == ["a"]
    assert [view.link for view in world.registry.consumers("orders")] == ["b"]
    assert {view.link for view in world.registry.producers(None)} == {"a", "c"}
    [receiver] = world.registry.consumers("orders")
    assert world.registry.nodes_of(receiver.id) == ["orders"]
    assert world.registry.nodes_of("c999.1") == world.registry.nodes_of("") == []
    other = world.model.nodes.find("other")
    assert [view.link for view in world.registry.producers(None, lambda node: node is other)] == ["c"]


def test_a_relay_is_shown_once_for_each_node_it_sent_to(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender(None)
    client.await_credit()
    for number, name in enumerate((b"north", b"south")):
        client.send(transfer(number, b"\x00\x53\x73\xc0\x0a\x03\x40\x40\xa1\x05" + name + BODY))
        client.expect(DISPOSITION)
    assert sorted(view.node for view in world.registry.producers(None)) == ["north", "south"]
    [relay] = {view.id for view in world.registry.producers(None)}
    assert sorted(world.registry.nodes_of(relay)) == ["north", "south"]


def test_an_operator_ends_a_connection_or_a_link(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders")
    [link] = world.registry.producers("orders")
    assert isinstance(link, ProducerView)
    assert world.registry.detach(link.id)
    assert not world.registry.detach(link.id)
    world.turn()
    assert client.expect(DETACH).condition == "amqp:link:detach-forced"
    assert world.registry.close(link.connection)
    assert not world.registry.close("c999")
    world.turn()
    assert client.expect(CLOSE).condition == "amqp:connection:forced"


def test_views_are_made_one_by_one_of_what_is_there_still(world: AmqpWorld) -> None:
    for name in ("first", "second", "third"):
        world.begun(name)
    views = world.registry.every("connection")
    found = [next(views)]
    world.registry.peers.discard(world.connection("second"))
    found += list(views)
    assert [each.container for each in found if isinstance(each, ConnectionView)] == ["first", "third"]
