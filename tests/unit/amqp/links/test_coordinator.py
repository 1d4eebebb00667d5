"""The coordinator's answers, byte by byte, to controllers that do as the specification says, or don't."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import (
    BODY,
    DETACH,
    DISPOSITION,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    encode,
    performative,
    transfer,
)

VALUE = b"\x00\x53\x77"
DECLARE = VALUE + b"\x00\x53\x31\x45"
DECLARED, TRANSACTIONAL, ACCEPTED, REJECTED = 0x33, 0x34, 0x24, 0x25
TX, OUT, IN = 0, 5, 6


def discharge(name: bytes, fail: bool = False) -> bytes:
    return VALUE + encode(Described(0x32, [name, fail]))


class Controller:
    """A raw client with a coordinator's link, and a sender to a queue."""

    def __init__(self, world: AmqpWorld, address: str = "orders") -> None:
        self.world = world
        self.client: RawPeer = world.begun()
        self.number = 0
        self.client.attach_coordinator(handle=TX)
        self.client.await_credit(TX)
        self.client.attach_sender(address, handle=OUT)
        self.client.await_credit(OUT)

    def ask(self, request: bytes, settled: bool = False) -> Any:
        self.client.send(transfer(self.number, request, handle=TX, settled=settled))
        self.number += 1
        return None if settled else self.outcome()

    def outcome(self) -> Any:
        return self.client.expect(DISPOSITION).field(4)

    def declare(self) -> bytes:
        state = self.ask(DECLARE)
        assert int(state.descriptor) == DECLARED
        name = state.value[0]
        assert isinstance(name, bytes | memoryview)
        return bytes(name)

    def post(self, name: bytes, settled: bool = False) -> None:
        state = Described(TRANSACTIONAL, [name])
        fields = (OUT, self.number, self.number.to_bytes(4, "big"), 0, settled, False, None, state)
        self.client.send(performative(TRANSFER, *fields, payload=BODY))
        self.number += 1

    @property
    def depth(self) -> int:
        return int(self.world.engine.topology.nodes["orders"].gate.depth_msgs)

    def condition(self, state: Any) -> str:
        assert int(state.descriptor) == REJECTED
        return str(state.value[0].value[0])


@pytest.fixture
def controller(world: AmqpWorld) -> Controller:
    return Controller(world)


def test_a_post_is_answered_in_its_transaction(controller: Controller) -> None:
    name = controller.declare()
    controller.post(name)
    state = controller.outcome()
    assert int(state.descriptor) == TRANSACTIONAL
    assert bytes(state.value[0]) == name
    assert int(state.value[1].descriptor) == ACCEPTED
    assert controller.depth == 0
    assert int(controller.ask(discharge(name)).descriptor) == ACCEPTED
    assert controller.depth == 1


def test_ids_differ(controller: Controller) -> None:
    assert len({controller.declare() for _ in range(10)}) == 10


def test_a_presettled_post_counts_too(controller: Controller) -> None:
    name = controller.declare()
    controller.post(name, settled=True)
    controller.ask(discharge(name))
    assert controller.depth == 1


def test_a_discharge_counts_once(controller: Controller) -> None:
    name = controller.declare()
    controller.post(name)
    controller.outcome()
    controller.ask(discharge(name))
    assert controller.condition(controller.ask(discharge(name))) == "amqp:transaction:unknown-id"
    assert controller.depth == 1


def test_a_failed_discharge_rolls_back(controller: Controller) -> None:
    name = controller.declare()
    controller.post(name)
    controller.outcome()
    assert int(controller.ask(discharge(name, fail=True)).descriptor) == ACCEPTED
    assert controller.depth == 0


def test_an_id_is_unknown_on_another_connection(world: AmqpWorld, controller: Controller) -> None:
    name = controller.declare()
    other = Controller(world)
    assert other.condition(other.ask(discharge(name))) == "amqp:transaction:unknown-id"
    other.post(name)
    assert other.condition(other.outcome()) == "amqp:transaction:unknown-id"
    assert controller.depth == 0


@pytest.mark.parametrize(
    ("request_bytes", "condition"),
    [
        (VALUE + b"\x40", "amqp:decode-error"),
        (VALUE + encode(Described(0x31, [Described(1, [])])), "amqp:not-implemented"),
        (discharge(b"none"), "amqp:transaction:unknown-id"),
    ],
)
def test_requests_that_cant_be_done(controller: Controller, request_bytes: bytes, condition: str) -> None:
    assert controller.condition(controller.ask(request_bytes)) == condition
    controller.declare()


def test_a_declare_that_is_settled_cant_be_told_its_id(controller: Controller) -> None:
    controller.ask(DECLARE, settled=True)
    assert controller.client.expect(DETACH).condition == "amqp:not-allowed"


def test_a_coordinator_that_detaches_rolls_back(controller: Controller) -> None:
    name = controller.declare()
    controller.post(name)
    controller.outcome()
    controller.client.send(performative(DETACH, TX, True))
    controller.client.expect(DETACH)
    assert controller.world.engine.transactions.open == set()
    assert controller.world.engine.topology.nodes["orders"].allocator.uncommitted_msgs == 0
    controller.post(name)
    assert controller.condition(controller.outcome()) == "amqp:transaction:unknown-id"


def test_one_whose_time_was_over_is_told_so(controller: Controller) -> None:
    name = controller.declare()
    controller.post(name)
    controller.outcome()
    engine = controller.world.engine
    engine.transactions.end_overdue(engine.turn.now_ns + 10**15)
    assert controller.condition(controller.ask(discharge(name))) == "amqp:transaction:timeout"
    assert controller.depth == 0


def test_more_than_a_transaction_may_hold_is_refused_and_it_rolls_back() -> None:
    world = AmqpWorld(limits={"max_transaction_size": "4 KB"})
    try:
        controller = Controller(world)
        name = controller.declare()
        taken = 0
        for _ in range(60):
            controller.post(name)
            state = controller.outcome()
            if int(state.descriptor) == REJECTED:
                break
            taken += 1
        assert controller.condition(state) == "amqp:resource-limit-exceeded"
        assert 0 < taken <= 4096 // len(BODY)
        assert controller.condition(controller.ask(discharge(name))) == "amqp:transaction:rollback"
        assert controller.depth == 0
    finally:
        world.close()


def test_a_discharge_waits_for_messages_without_room() -> None:
    """A producer that heard late that its credit was taken back has its message parked; it still commits."""
    world = AmqpWorld("policies: [{match: orders, flow_stop_count: 4, flow_resume_count: 4}]")
    try:
        controller = Controller(world)
        name = controller.declare()
        node = world.engine.topology.nodes["orders"]
        for _ in range(4):
            # An operator's: they are not held to credit, and take it from those who have it.
            world.engine.intake.put(node, BODY, 0)
        node.allocator.trim(world.engine.turn.now_ns)
        controller.post(name)
        controller.client.send(transfer(controller.number, discharge(name), handle=TX))
        world.turn(5)
        assert (node.parked, controller.depth) == (1, 4)
        for _ in range(2):
            entry = node.queue.acquire()
            assert entry is not None
            world.engine.settlement.acknowledge(node, entry)
        assert int(controller.outcome().descriptor) == TRANSACTIONAL
        assert int(controller.outcome().descriptor) == ACCEPTED
        assert controller.depth == 3
    finally:
        world.close()


def symbolic(name: str, *fields: object) -> Described:
    return Described(Symbol(f"amqp:{name}:list"), fields)


@pytest.mark.parametrize(
    ("outcome", "left", "count"),
    [
        (None, 0, 0),
        (Described(ACCEPTED), 0, 0),
        (symbolic("accepted"), 0, 0),
        (symbolic("released"), 1, 0),
        (symbolic("modified", True), 1, 1),
        (Described(0x27, [True]), 1, 1),
        (Described(0x7F), 1, 0),
        (symbolic("unheard-of"), 1, 0),
        ("no outcome", 1, 0),
    ],
)
def test_an_outcome_that_nobody_knows_releases(
    world: AmqpWorld, controller: Controller, outcome: object, left: int, count: int
) -> None:
    """As outside a transaction; one is known by its descriptor's number and by its symbol."""
    entry = retired(controller, outcome)
    assert controller.depth == left
    if left:
        assert entry.delivery_count == count


def test_annotations_of_an_outcome_in_a_transaction_are_the_messages(
    world: AmqpWorld, controller: Controller
) -> None:
    entry = retired(controller, Described(0x27, [False, False, {Symbol("x-opt-seen"): "here"}]))
    assert b"x-opt-seen" in entry.extra.annotations


def retired(controller: Controller, outcome: object) -> Any:
    """The queue's message after a receiver told this outcome in a transaction that commits."""
    client = controller.client
    client.send(transfer(controller.number, handle=OUT))
    controller.number += 1
    controller.outcome()
    entry = controller.world.engine.topology.nodes["orders"].queue.head
    client.attach_receiver("orders", handle=IN)
    client.give_credit(1, IN)
    number = client.expect(TRANSFER).field(1)
    name = controller.declare()
    state = Described(TRANSACTIONAL, [name, outcome])
    client.send(performative(DISPOSITION, True, number, number, True, state))
    assert int(controller.ask(discharge(name)).descriptor) == ACCEPTED
    return entry
