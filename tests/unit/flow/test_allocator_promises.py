"""Promises of credit: what a link is told is what its account used and may use, within every gate's room."""

from __future__ import annotations

import pytest

from broker import constants
from broker.flow.allocator import CreditAllocator
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.producer_credit import Port, ProducerCredit

pytestmark = pytest.mark.flow

WINDOW = 100


class Link(Port):
    """A peer that notes what it is told; what is parked for it enters its node's gate."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.granted = 0
        self.revoked = 0
        self.admitted: list[object] = []

    def grant(self, msgs: int) -> None:
        self.granted += msgs

    def revoke(self, msgs: int) -> None:
        self.revoked += msgs

    def admit(self, parked: object, size: int) -> None:
        self.gate.enter(size, 0)
        self.admitted.append(parked)


class World:
    """A node that stops at so many messages, and its producers."""

    def __init__(self, stop_msgs: int) -> None:
        self.gate = Gate("orders")
        self.gate.configure(stop_msgs, stop_msgs, 0, 0, 0, 0)
        self.allocator = CreditAllocator(self.gate)
        self.links: list[tuple[ProducerCredit, Link]] = []

    def open(
        self, window: int = WINDOW, budget: ConnectionBudget | None = None
    ) -> tuple[ProducerCredit, Link]:
        link = Link(self.gate)
        self.links.append((self.allocator.open(link, window, window, 0, budget), link))
        return self.links[-1]

    def turn(self) -> None:
        """End a turn and check the laws."""
        self.allocator.settle_turn(0)
        for account, link in self.links:
            told = link.granted - link.revoked
            assert told == account.used - account.late_count + account.outstanding
        assert self.allocator.promised_msgs == sum(account.outstanding for account, _ in self.links)
        assert self.gate.depth_msgs + self.allocator.promised_msgs <= self.gate.stop_msgs

    def send(self, account: ProducerCredit, count: int = 1, size: int = 10) -> list[int]:
        codes = []
        for _ in range(count):
            codes.append(account.use(size, 0))
            if codes[-1] == constants.TAKEN:
                self.gate.enter(size, 0)
        return codes


def test_all_room_is_promised_and_nobody_who_wants_some_goes_without() -> None:
    world = World(90)
    for _ in range(3):
        world.open()
    world.turn()
    promised = [account.outstanding for account, _ in world.links]
    assert min(promised) > 0
    assert sum(promised) == 90
    assert [link.granted - link.revoked for _, link in world.links] == promised


def test_what_is_sent_takes_its_promise_into_the_node() -> None:
    world = World(20)
    account, _ = world.open()
    world.turn()
    assert world.send(account, 20) == [constants.TAKEN] * 20
    world.turn()
    assert (account.outstanding, world.gate.depth_msgs, world.allocator.room(10)) == (0, 20, 0)


def test_nobody_sends_more_than_it_was_allowed() -> None:
    world = World(1)
    account, _ = world.open()
    world.turn()
    assert world.send(account, 2) == [constants.TAKEN, constants.VIOLATION]


def test_a_parked_message_takes_credit_back_and_is_admitted_with_room() -> None:
    world = World(2)
    account, link = world.open()
    world.turn()
    assert account.outstanding == 2
    account.park("large", 10, 0)
    assert (account.outstanding, account.withdrawn, link.revoked) == (0, 2, 2)
    # The peer may have sent before it heard of that.
    assert world.send(account) == [constants.LATE]
    world.turn()
    assert link.admitted == ["large"]
    assert (world.allocator.parked_msgs, account.parked_bytes) == (0, 0)


def test_a_parked_message_can_be_taken_back() -> None:
    world = World(2)
    account, link = world.open()
    account.park("one", 10, 0)
    assert (account.unpark("one"), account.unpark("one")) == (True, False)
    world.turn()
    assert link.admitted == []


def test_credit_that_the_peer_gives_up_is_promised_anew() -> None:
    world = World(10)
    account, _ = world.open()
    world.turn()
    account.return_unused(4, 0)
    assert (account.outstanding, account.used) == (6, 4)
    world.turn()
    other, _ = world.open()
    world.turn()
    assert account.outstanding + other.outstanding <= 10


def test_one_who_leaves_gives_back_what_it_held() -> None:
    world = World(10)
    account, _ = world.open()
    world.turn()
    account.close()
    world.links.clear()
    other, _ = world.open()
    world.turn()
    assert (account.outstanding, other.outstanding) == (0, 10)


def test_the_room_is_the_least_of_every_gate() -> None:
    world = World(50)
    other, disk = Gate("audit"), Gate("disk")
    other.configure(7, 7, 0, 0, 0, 0)
    disk.configure(0, 0, 40, 40, 0, 0)
    world.allocator.attach_gate(other, 0)
    assert world.allocator.room(1) == 7
    world.allocator.claim(disk, 2)
    assert world.allocator.room(10) == min(7, disk.room(world.allocator.takes(disk, 10)))
    world.allocator.claim(disk, 0)
    world.allocator.detach_gate(other)
    assert world.allocator.room(1) == 50


def test_a_promise_counts_at_every_gate_it_needs() -> None:
    world = World(50)
    audit = Gate("audit")
    audit.configure(7, 7, 0, 0, 0, 0)
    world.allocator.attach_gate(audit, 0)
    account, _ = world.open()
    world.turn()
    assert account.outstanding == 7
    assert audit.room(1) == 0
    account.close()
    assert audit.room(1) == 7


def test_credit_fits_its_connections_budget() -> None:
    world = World(1000)
    budget = ConnectionBudget(4096)
    account, _ = world.open(1000, budget)
    world.turn()
    assert 0 < account.outstanding < 1000
    assert account.outstanding * account.reserve_bytes <= 4096
    assert not budget.is_overdrawn()
