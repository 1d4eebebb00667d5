"""Container-ids that one connection has to itself."""

from __future__ import annotations

from proton import symbol

from broker.amqp.control import sole
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import CLOSE, OPEN, Frame, RawPeer, Symbol, Symbols, performative


def opened(world: AmqpWorld, name: str, *, closes: bool = False) -> tuple[RawPeer, Frame]:
    """A client that wants to be the only one of its container-id, and the broker's open."""
    client = world.client().authenticate()
    properties = {Symbol(sole.POLICY): sole.CLOSE_EXISTING} if closes else None
    desired = Symbols([sole.CAPABILITY])
    fields = (name, None, 65_536, 100, None, None, None, None, desired, properties)
    client.send(performative(OPEN, *fields))
    client.read_bytes(8)
    return client, client.expect(OPEN)


def test_the_second_of_a_container_is_refused(world: AmqpWorld) -> None:
    opened(world, "app")
    client, answer = opened(world, "app")
    assert answer.field(9)[sole.FAILED] is True  # type: ignore[index]
    assert client.expect(CLOSE).condition == "amqp:invalid-field"


def test_the_second_closes_the_first_if_it_asks_for_that(world: AmqpWorld) -> None:
    first, _ = opened(world, "app")
    second, answer = opened(world, "app", closes=True)
    assert first.expect(CLOSE).condition == "amqp:resource-locked"
    assert sole.CAPABILITY in [str(each) for each in answer.field(7).elements]  # type: ignore[attr-defined]
    second.begin()


def test_others_may_share_a_container_id(world: AmqpWorld) -> None:
    world.begun("app")
    world.begun("app")
    assert [peer.name for peer in world.registry.peers] == ["app", "app"]


def test_a_container_id_is_free_once_its_holder_has_hung_up(world: AmqpWorld) -> None:
    """Its socket says so before the loop has read anything of it."""
    first, _ = opened(world, "app")
    first.close()
    second, answer = opened(world, "app")
    assert answer.field(9).get(sole.FAILED) is None  # type: ignore[attr-defined]
    second.begin()


def test_errors_say_in_their_info_which_rule_it_was() -> None:
    assert sole.refusal("app").info == {symbol("invalid-field"): symbol("container-id")}
    assert sole.closing("app").info == {symbol("sole-connection-enforcement"): True}
