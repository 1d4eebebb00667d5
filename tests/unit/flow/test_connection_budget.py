"""The room all producers of one connection share: shares, those who wait, credit that is taken back."""

from __future__ import annotations

from broker import constants
from broker.flow.connection_budget import ConnectionBudget
from tests.unit.flow.ports import Link, allocator

SIZE = 72
HELD = SIZE + constants.HELD_BYTES


def test_a_share_leaves_room_for_those_who_wait_already() -> None:
    budget = ConnectionBudget(10 * HELD)
    assert budget.share(HELD) == 10
    budget.asking = 3
    assert budget.share(HELD) == 3
    budget.hold(9, 9 * HELD)
    assert budget.share(HELD) == 1
    budget.hold(2, 2 * HELD)
    assert budget.is_overdrawn()


def test_producers_wait_for_the_budget_until_there_is_room() -> None:
    budget, address = ConnectionBudget(10 * HELD), allocator(1000)
    address.gate.typical_bytes = SIZE
    first, second = (address.open(Link(), 100, 8, 0, budget) for _ in range(2))
    address.settle_turn(0)
    assert (first.outstanding, second.outstanding) == (8, 2)
    assert second.waits_for_budget
    assert budget.serve(1) == []
    for _ in range(8):
        first.use(SIZE, 1)
    assert budget.serve(1) == [second]
    address.settle_turn(1)
    assert second.outstanding == 8
    assert budget.gate.promised_bytes == 8 * HELD


def test_a_message_so_large_that_all_credit_is_taken_back_came_late() -> None:
    budget, address = ConnectionBudget(15 * HELD), allocator(1000)
    address.gate.typical_bytes = SIZE
    account = address.open(Link(), 10, 10, 0, budget)
    address.settle_turn(0)
    assert account.outstanding == 10
    assert account.use(100 * SIZE, 1) == constants.LATE
    assert (account.used, account.outstanding, account.withdrawn) == (1, 0, 9)
    assert (address.promised_msgs, budget.gate.promised_msgs, budget.gate.promised_bytes) == (0, 0, 0)


def test_the_longest_idle_lose_credit_that_the_limit_does_not_cover() -> None:
    budget, address = ConnectionBudget(10 * HELD), allocator(1000)
    address.gate.typical_bytes = SIZE
    first, second = (address.open(Link(), 100, 5, now_ns, budget) for now_ns in (0, 1))
    address.settle_turn(1)
    budget.hold(3, 3 * HELD)
    budget.trim(2)
    assert (first.outstanding, second.outstanding) == (2, 5)
    assert first in budget.budget_queue
