"""The promises that stand at one address: every gate has each of them, and gets it back."""

from __future__ import annotations

import pytest

from broker import constants
from broker.flow.allocator import CreditAllocator
from tests.unit.flow.ports import Link, allocator, gate_of

SIZE = 100
HELD = SIZE + constants.HELD_BYTES


@pytest.fixture
def address() -> CreditAllocator:
    """An address with two producers that hold ten credits each, of 100 bytes."""
    made = allocator(1000)
    made.budget(gate_of("memory_limit", 0, 1_000_000))
    made.gate.typical_bytes = SIZE
    for _ in range(2):
        made.open(Link(), 10, 10, 0)
    made.settle_turn(0)
    assert made.promised_msgs == 20
    return made


def test_a_gate_that_is_attached_has_what_stands_once_for_each_way(address: CreditAllocator) -> None:
    other = gate_of("sub", 1000)
    address.attach_gate(other, 0)
    address.attach_gate(other, 0)
    assert (other.promised_msgs, other.promised_bytes, address.ways_to(other)) == (40, 40 * SIZE, 2)
    address.detach_gate(other)
    assert (other.promised_msgs, other.promised_bytes, address.ways_to(other)) == (20, 20 * SIZE, 1)
    address.detach_gate(other)
    assert (other.promised_msgs, other.promised_bytes, address.ways_to(other)) == (0, 0, 0)
    assert address.reservations.others == []


def test_a_gate_that_is_attached_takes_back_what_does_not_fit(address: CreditAllocator) -> None:
    other = gate_of("sub", 5)
    address.attach_gate(other, 0)
    assert address.promised_msgs == other.promised_msgs == 5
    assert address.revoked_count > 0


def test_copies_in_memory_and_on_disk_are_reserved_for_what_stands(address: CreditAllocator) -> None:
    disk = gate_of("store_limit", 0, 1_000_000)
    assert address.reservations.memory is not None
    memory = address.reservations.memory.gate
    assert memory.promised_bytes == 20 * HELD
    address.copy(3)
    assert memory.promised_bytes == 3 * 20 * HELD
    address.claim(disk, 2)
    assert (disk.promised_msgs, disk.promised_bytes) == (20, 2 * 20 * SIZE)
    assert address.overpromised
    address.claim(disk, 0)
    assert (disk.promised_msgs, disk.promised_bytes) == (0, 0)
    assert address.reservations.disks == []
    address.copy(0)
    assert memory.promised_bytes == 20 * HELD


def test_every_reservation_comes_back_when_a_producer_leaves(address: CreditAllocator) -> None:
    gates = [each.gate for each in address.reservations.members]
    for account in list(address.accounts):
        account.use(SIZE, 1)
        account.park("late", SIZE, 1)
        account.close()
        account.close()
    assert [(gate.promised_msgs, gate.promised_bytes, gate.depth_bytes) for gate in gates] == [(0, 0, 0)] * 2
    assert (address.promised_msgs, address.parked_msgs, address.parked_bytes) == (0, 0, 0)
    assert not address.line
    assert not address.accounts


def test_an_orphan_gets_no_credit_and_keeps_its_place(address: CreditAllocator) -> None:
    account = address.accounts[0]
    address.orphan(account, 1)
    assert (account.outstanding, account.window, list(address.line)) == (0, 0, [account])
    assert address.blocked() == 1
