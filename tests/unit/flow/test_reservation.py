"""The room a credit reserves: the weight of a message in each kind of gate, and all gates together."""

from __future__ import annotations

import pytest

from broker import constants
from broker.flow.reservation import Reservation, ReservationSet
from tests.unit.flow.ports import allocator, gate_of


def test_a_message_weighs_its_size_at_a_node() -> None:
    assert Reservation(gate_of("orders")).weight(5_000) == 5_000


def test_memory_has_each_copy_with_its_place_and_no_more_than_most_of_it() -> None:
    memory = Reservation(gate_of("memory_limit"), 1_000, in_memory=True)
    memory.copies = 3
    assert memory.weight(10) == 3 * (10 + constants.HELD_BYTES)
    assert memory.weight(5_000) == 3 * (1_000 + constants.HELD_BYTES)


def test_copies_on_disk_share_the_rest_of_a_large_message() -> None:
    disk = Reservation(gate_of("store_limit"), 1_000, on_disk=True)
    disk.copies = 3
    assert disk.weight(10) == 30
    assert disk.weight(5_000) == 3 * 1_000 + 4_000


@pytest.mark.parametrize(("there", "room"), [(0, 5), (1, 4), (9, 0)])
def test_each_way_a_message_comes_needs_room(there: int, room: int) -> None:
    twice = Reservation(gate_of("orders", 10))
    twice.ways = 2
    twice.gate.depth_msgs = there
    assert twice.room(1) == room


def test_one_message_fits_where_nothing_is_in_however_many_ways_it_comes() -> None:
    twice = Reservation(gate_of("orders", 1))
    twice.ways = 2
    assert twice.room(1) == 1
    twice.promise(1, 10)
    assert (twice.gate.promised_msgs, twice.gate.promised_bytes) == (2, 20)
    assert twice.room(1) == 0


def test_a_set_has_the_least_room_of_its_gates() -> None:
    address = allocator(50)
    memory, other, disk = (
        gate_of("memory_limit", 0, 100_000),
        gate_of("sub", 20),
        gate_of("store_limit", 0, 900),
    )
    address.budget(memory, 500)
    found = address.reservations
    assert found.memory is not None
    assert [found.room(1), found.memory.room(100_000)] == [50, 100_000 // (500 + constants.HELD_BYTES)]
    address.attach_gate(other, 0)
    assert found.room(1) == 20
    address.claim(disk, 1)
    assert found.room(100) == 9
    assert [each.gate for each in found.members] == [address.gate, memory, other, disk]
    assert found.takes(disk, 100) == 100
    assert found.takes(memory, 100) == 100 + constants.HELD_BYTES
    assert found.takes(other, 100) == 0


def test_a_set_holds_no_more_than_most_held() -> None:
    found = ReservationSet(gate_of("orders"))
    found.most_held = 100
    assert found.held(5_000) == 100 + constants.HELD_BYTES
    assert found.copies == 1
