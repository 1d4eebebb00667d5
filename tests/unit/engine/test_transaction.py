"""What a transaction holds, and when its owner hears that nothing of it waits for room any more."""

from __future__ import annotations

from broker import constants
from broker.engine.transaction import ROLLED_BACK, Transaction
from tests.unit.engine.parts_world import Link, PartsWorld

BODY = b"\x00\x53\x77\xa0\x01x"


class Controller:
    """The link that declares."""

    def __init__(self) -> None:
        self.came: list[Transaction] = []

    def came_in(self, transaction: Transaction) -> None:
        self.came.append(transaction)

    def finish(self, transaction: Transaction) -> None: ...

    def timed_out(self, transaction: Transaction) -> None: ...


def transaction(most_bytes: int = 1 << 20) -> tuple[Transaction, Controller]:
    owner = Controller()
    return Transaction(b"t", owner, 0, 0, most_bytes), owner


def test_it_holds_no_more_bytes_than_it_may_but_one_message_always() -> None:
    world = PartsWorld()
    node = world.create()
    begun, _ = transaction(most_bytes=2 * (len(BODY) + constants.HELD_BYTES))
    for fits in (True, True, False):
        assert begun.has_room(len(BODY)) is fits
        begun.post(node, None, BODY, 0, len(BODY), None)
    small, _ = transaction(most_bytes=1)
    assert small.has_room(1000), "else a message larger than that could never be posted"


def test_its_owner_hears_once_the_last_parked_message_came_in() -> None:
    world = PartsWorld()
    account = world.engine.producers.open(world.create(), Link(), True)
    begun, owner = transaction()
    begun.park("a", account)
    begun.park("b", account)
    begun.unpark("a")
    assert owner.came == []
    begun.unpark("b")
    begun.unpark("b")
    assert owner.came == [begun]
    assert begun.fault == ""


def test_a_parked_message_that_is_lost_is_a_fault() -> None:
    world = PartsWorld()
    account = world.engine.producers.open(world.create(), Link(), True)
    begun, owner = transaction()
    begun.park("a", account)
    begun.lose("a")
    assert owner.came == [begun]
    assert "its link went" in begun.fault


def test_once_it_has_ended_nobody_is_told() -> None:
    world = PartsWorld()
    account = world.engine.producers.open(world.create(), Link(), True)
    begun, owner = transaction()
    begun.park("a", account)
    begun.state = ROLLED_BACK
    begun.unpark("a")
    assert owner.came == []
