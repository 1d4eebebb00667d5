"""Links on which a client sends: their credit, and the outcome of a message that isn't taken."""

from __future__ import annotations

import pytest

from broker.amqp.control.attach_producer import COORDINATOR_CREDIT, MANAGEMENT_CREDIT, OPEN_CREDIT
from tests.unit.amqp.world import AmqpWorld, attach
from tests.wire.frames import (
    BODY,
    COORDINATOR,
    DISPOSITION,
    MODIFIED,
    REJECTED,
    RELEASED,
    Symbol,
    Symbols,
    transfer,
)

FULL = "policies: [{match: full, max_count: 1, when_full: reject}]"


@pytest.mark.parametrize(("address", "credit"), [("$management", MANAGEMENT_CREDIT), (None, OPEN_CREDIT)])
def test_links_that_reserve_nothing_have_open_credit(
    world: AmqpWorld, address: str | None, credit: int
) -> None:
    client = world.begun()
    client.attach_sender(address)
    assert client.await_credit() == credit


def test_a_coordinator_has_open_credit_and_says_what_it_can(world: AmqpWorld) -> None:
    client = world.begun()
    target = client.attach_coordinator().field(6)
    assert int(target.descriptor) == COORDINATOR  # type: ignore[attr-defined]
    assert "amqp:local-transactions" in str(target.value)  # type: ignore[attr-defined]
    assert client.await_credit() == COORDINATOR_CREDIT


def test_the_relay_makes_the_node_that_a_message_names(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender(None)
    client.await_credit()
    client.send(transfer(0, b"\x00\x53\x73\xc0\x0a\x03\x40\x40\xa1\x05there" + BODY))
    client.expect(DISPOSITION)
    assert world.engine.topology.nodes["there"].queue.ready == 1


@pytest.mark.parametrize(
    ("offered", "code"),
    [
        ((), REJECTED),
        (("amqp:accepted:list", "amqp:released:list"), RELEASED),
        (("amqp:modified:list",), MODIFIED),
        (("amqp:rejected:list", "amqp:released:list"), REJECTED),
    ],
)
def test_a_message_that_is_not_taken_has_an_outcome_that_the_source_offers(
    offered: tuple[str, ...], code: int
) -> None:
    world = AmqpWorld(FULL)
    try:
        client = world.begun()
        source = [*[None] * 9, Symbols(offered)] if offered else []
        attach(client, "out", 0, source=source, target=["full"], receives=False)
        assert client.await_credit() == OPEN_CREDIT
        client.send(transfer(0), transfer(1))
        states = [client.expect(DISPOSITION).field(4), client.expect(DISPOSITION).field(4)]
        assert [int(state.descriptor) for state in states][1] == code  # type: ignore[attr-defined]
    finally:
        world.close()


def test_the_links_most_is_the_lesser_of_the_brokers_and_the_nodes() -> None:
    world = AmqpWorld(
        "policies: [{match: small, max_message_size: 1000}]", limits={"max_message_size": "10 KB"}
    )
    try:
        client = world.begun()
        assert client.attach_sender("small", name="a").field(10) == 1000
        assert client.attach_sender("other", name="b", handle=1).field(10) == 10 * 1024
    finally:
        world.close()


def test_properties_asked_for_are_answered_with_what_holds(world: AmqpWorld) -> None:
    client = world.begun()
    asked = {Symbol("qpid.max_count"): 7}
    answer = attach(client, "out", 0, source=[], target=["q", *[None] * 4, asked], receives=False)
    assert answer.field(6).value[5] == {"qpid.max_count": 7}  # type: ignore[attr-defined]
    assert world.engine.topology.nodes["q"].settings is not None
