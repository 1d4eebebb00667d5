"""A connection's links: one of a name (§2.6.1), detached when rules change, shut a part at a time."""

from __future__ import annotations

from broker.amqp.control.attached import AT_ONCE, LINK_COST
from broker.security.rules import parse_acl
from tests.unit.amqp.world import AmqpWorld, attach
from tests.wire.frames import CLOSE, DETACH, Symbol, performative

MOST = AT_ONCE // LINK_COST


def test_another_link_of_the_name_steals_it(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders", name="out", handle=0)
    client.attach_sender("other", name="out", handle=1)
    assert [frame.condition for frame in client.log if frame.code == DETACH] == ["amqp:link:stolen"]
    assert [link.node.name for link in world.connection().wire.links if link.node] == ["other"]


def test_a_sender_and_a_receiver_may_have_one_name(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders", name="both", handle=0)
    client.attach_receiver("orders", name="both", handle=1)
    assert len(world.connection().wire.links) == 2


def test_a_lasting_link_is_stolen_from_another_connection_of_the_container(world: AmqpWorld) -> None:
    source = ["topic://news", 1, Symbol("never")]
    first, second = world.begun("app"), world.begun("app")
    attach(first, "mine", 0, source=source, target=[])
    attach(second, "mine", 0, source=source, target=[])
    assert first.expect(DETACH).condition == "amqp:link:stolen"
    assert len(world.engine.topology.subscriptions) == 1


def test_a_passing_link_is_not(world: AmqpWorld) -> None:
    first, second = world.begun("app"), world.begun("app")
    first.attach_receiver("orders", name="mine")
    second.attach_receiver("orders", name="mine")
    assert len(world.engine.topology.nodes["orders"].consumers) == 2


def test_links_that_the_rules_forbid_from_now_on_are_detached(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders", name="a", handle=0)
    client.attach_sender("other", name="b", handle=1)
    rules = "rules: [{allow: [send, create], addresses: orders}, {allow: connect}]"
    world.model.authority.replace(parse_acl(rules, "acl.yaml"), ())
    world.container.recheck()
    world.turn()
    assert client.expect(DETACH).condition == "amqp:unauthorized-access"
    assert [link.node.name for link in world.connection().wire.links if link.node] == ["orders"]


def test_very_many_links_are_shut_over_several_turns(world: AmqpWorld) -> None:
    client = world.begun()
    for number in range(MOST + 5):
        client.attach_sender("orders", name=f"out{number}", handle=number)
    control = world.connection()
    control.close("amqp:internal-error", "the end")
    assert len(control.wire.links) == 5
    assert list(world.container.parting) == [control]
    world.until(lambda: not world.container.parting, "the end of the links")
    assert not control.wire.links
    assert client.expect(CLOSE).condition == "amqp:internal-error"
    client.send(performative(CLOSE))
    world.until(lambda: not world.registry.peers, "the end of the connection")
    assert not world.engine.topology.nodes["orders"].allocator.accounts
