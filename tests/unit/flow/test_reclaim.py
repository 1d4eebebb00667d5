"""Idle credit: it goes to those who wait, and links that lost theirs are tried again."""

from __future__ import annotations

from broker.flow.connection_budget import ConnectionBudget
from broker.flow.level import Level
from broker.flow.producer_credit import IDLE_NS, PROBE_NS
from broker.flow.reclaim import lend_in_connection, lend_of
from tests.unit.flow.ports import MS, Link, allocator


def test_credit_that_lies_idle_goes_to_one_that_waits() -> None:
    address = allocator(100)
    idle = address.open(Link(), 100, 100, 0)
    address.settle_turn(0)
    assert idle.outstanding == 100
    waiting = address.open(Link(), 100, 100, MS)
    now_ns = PROBE_NS + 2 * IDLE_NS
    address.settle_turn(now_ns)
    address.settle_turn(now_ns + 2 * IDLE_NS)
    assert waiting.outstanding >= 50
    assert idle.outstanding + waiting.outstanding <= 100
    assert idle.withdrawn == 100 - idle.outstanding


def test_a_link_that_lost_all_rests_and_is_tried_again() -> None:
    address = allocator(100)
    idle = address.open(Link(), 100, 100, 0)
    address.settle_turn(0)
    now_ns = PROBE_NS + IDLE_NS
    assert lend_of(idle, now_ns, Level(address.accounts, 0, 0, now_ns)) == 100
    assert (idle.resting, list(address.rest)) == (True, [idle])
    assert address.probe_ns == now_ns + PROBE_NS
    address.settle_turn(address.probe_ns)
    assert not idle.resting
    assert idle.outstanding > 0


def test_one_that_uses_its_credit_keeps_it_unless_somebody_waits_for_long() -> None:
    address = allocator(100)
    busy = address.open(Link(), 100, 100, 0)
    address.settle_turn(0)
    busy.use(1, MS)
    shares = Level(address.accounts, 0, 0, MS)
    assert lend_of(busy, MS, shares) == 0


def test_a_connections_idle_link_lends_to_one_that_waits_for_the_budget() -> None:
    budget, address = ConnectionBudget(100_000), allocator(1000)
    address.gate.typical_bytes = 72
    idle = address.open(Link(), 500, 500, 0, budget)
    address.settle_turn(0)
    waiting = address.open(Link(), 500, 500, MS, budget)
    address.settle_turn(MS)
    assert (idle.outstanding, waiting.outstanding, waiting.waits_for_budget) == (500, 0, True)
    assert lend_in_connection(budget, PROBE_NS + IDLE_NS) == [idle]
    assert budget.serve(PROBE_NS + IDLE_NS) == [waiting]
    address.settle_turn(PROBE_NS + IDLE_NS)
    assert waiting.outstanding > 0
