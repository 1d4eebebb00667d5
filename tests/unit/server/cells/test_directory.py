"""Which cell a name belongs to: stable, balanced, and with as few moves as may be where a cell is added."""

from __future__ import annotations

import random

import pytest

from broker.server.cells.directory import CellDirectory, heaviest, key_of

NAMES = [f"orders.{number}" for number in range(20_000)]


def test_a_name_is_in_the_same_cell_in_every_version_and_on_every_machine() -> None:
    assert [heaviest(name, 4) for name in ("orders", "prices", "flights", "ä", "")] == [2, 0, 1, 3, 3]


@pytest.mark.parametrize("cells", [2, 3, 5, 8, 64])
def test_names_are_spread_evenly(cells: int) -> None:
    counts = [0] * cells
    for name in NAMES:
        counts[heaviest(name, cells)] += 1
    fair = len(NAMES) / cells
    # Five standard deviations of a fair draw.
    assert max(abs(count - fair) for count in counts) < 5 * fair**0.5


@pytest.mark.parametrize("cells", [1, 2, 3, 7])
def test_one_more_cell_takes_its_share_and_moves_nothing_else(cells: int) -> None:
    moved = [name for name in NAMES if heaviest(name, cells) != heaviest(name, cells + 1)]
    assert {heaviest(name, cells + 1) for name in moved} == {cells}
    fair = len(NAMES) / (cells + 1)
    assert abs(len(moved) - fair) < 5 * fair**0.5


def test_partitions_and_readers_are_where_their_stream_is() -> None:
    draw = random.Random(7)
    for cells in (2, 3, 8):
        directory = CellDirectory(0, cells)
        for name in draw.sample(NAMES, 50):
            here = directory.cell_of(name)
            assert {directory.cell_of(f"{name}/{part}") for part in range(20)} == {here}
            assert directory.cell_of(f"{name}/3::billing") == directory.cell_of(f"{name}::billing") == here


def test_only_a_number_behind_a_slash_is_a_partition() -> None:
    assert key_of("shop/orders") == "shop/orders"
    assert key_of("/7") == "/7"
    assert key_of("orders/٣") == "orders/٣"
    assert key_of("orders/7/8") == "orders/7"
    assert key_of("::billing") == "::billing"


def test_names_of_the_broker_stay_where_they_are_asked_for() -> None:
    for own in range(3):
        directory = CellDirectory(own, 3)
        assert directory.cell_of("$management") == directory.cell_of("$sluice/events") == own


def test_a_temporary_node_is_where_its_name_says() -> None:
    directory = CellDirectory(2, 3)
    assert directory.cell_of("$temporary/1.abc") == 1
    # None of ours: nobody has it, and each cell says so itself.
    assert [directory.cell_of(f"$temporary/{text}") for text in ("3.abc", "abc", "1abc", "-1.a", "")] == [
        2
    ] * 5


def test_an_address_may_name_its_cell() -> None:
    directory = CellDirectory(0, 3)
    assert directory.split("$cell/2/orders/7") == (2, "orders/7")
    assert directory.split("orders") == (None, "orders")
    for wrong in ("$cell/3/orders", "$cell/2", "$cell/2/", "$cell/x/orders", "$cell/", "$cell/-1/x"):
        with pytest.raises(ValueError, match=r"from 0 to 2"):
            directory.split(wrong)
