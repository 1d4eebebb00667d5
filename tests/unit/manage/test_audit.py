"""The audit of a live broker counts anew, and says which number is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.producer_credit import UNKNOWN_BYTES, Port, ProducerCredit
from broker.manage.audit import LONG_NS, audit

pytestmark = pytest.mark.flow

BODY = b"\x00\x53\x77\xa0\x03abc"
BUDGET = "connection_memory_limit"
# What each of the producer's credits takes of its connection's budget.
HELD = UNKNOWN_BYTES + constants.HELD_BYTES


class Silent(Port):
    def grant(self, msgs: int) -> None:
        """Nobody is told."""

    def revoke(self, msgs: int) -> None:
        """Nobody is told."""


class Scene:
    """A queue with a message and its producer, whose credit counts in its connection's budget too."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.begin_turn(1_000_000)
        self.node: Node = self.engine.lifecycle.create(
            "orders", resolve({"flow_stop_count": 10}, BrokerDefaults())
        )
        self.budget = ConnectionBudget(1_000_000)
        self.account: ProducerCredit = self.engine.producers.open(self.node, Silent(), True, self.budget)
        self.engine.end_turn()
        assert self.engine.intake.arrive(self.node, self.account, BODY, 0, False) == constants.ACCEPTED
        self.engine.end_turn()


def leak(scene: Scene) -> None:
    scene.node.gate.promise(1, 100)


def forget(scene: Scene) -> None:
    scene.account.outstanding -= 1


def miscount(scene: Scene) -> None:
    scene.node.gate.depth_msgs += 1


def overshoot(scene: Scene) -> None:
    scene.node.gate.stop_msgs = 3


def leak_too(scene: Scene) -> None:
    scene.budget.gate.promise(1, 0)


def overdraw(scene: Scene) -> None:
    scene.budget.gate.stop_bytes = 500


def strand(scene: Scene) -> None:
    scene.engine.actions.hold(scene.node, True)
    scene.engine.end_turn()
    scene.node.allocator.line.clear()
    scene.account.waiting = False


def test_a_link_that_waits_for_long_beside_room_is_named() -> None:
    scene = Scene()
    engine, node = scene.engine, scene.node
    engine.actions.hold(node, True)
    engine.end_turn()
    engine.begin_turn(engine.turn.now_ns + 2 * LONG_NS)
    assert list(node.allocator.line) == [scene.account]
    assert audit(engine).breaches == ()
    # Opened by nobody who would say so to the turn.
    node.gate.hold(False, engine.turn.now_ns)
    [said] = audit(engine).breaches
    assert said.startswith("orders: a link has waited 10.0 s for credit, and there is room for ")


def test_a_sound_broker_has_no_breach() -> None:
    found = audit(Scene().engine)
    assert (found.nodes, found.producers, found.depth_msgs, found.breaches) == (1, 1, 1, ())
    assert found.promised_msgs > 0


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (leak, "orders: 10 credits promised, links hold 9"),
        (forget, "orders: the allocator promised 9 credits, its links hold 8"),
        (miscount, "orders: depth 2, and 1 messages are there"),
        (overshoot, "orders: 1 there and 9 promised pass 3"),
        (leak_too, f"{BUDGET}: 10 credits of {9 * HELD} bytes promised, links hold 9 of {9 * HELD}"),
        (overdraw, f"{BUDGET}: 0 bytes held and {9 * HELD} promised, limit 500"),
        (strand, "orders: a link without credit waits nowhere: nothing would give it any"),
    ],
)
def test_a_number_that_is_wrong_is_named(harm: Callable[[Scene], None], said: str) -> None:
    scene = Scene()
    harm(scene)
    assert said in audit(scene.engine).breaches
