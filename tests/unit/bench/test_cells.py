"""The benchmark of cells: its tables, and turns that don't count."""

from __future__ import annotations

import pytest

from bench.cells import SETUPS, SIZES, Figures, checked, model_shown, modelled, table
from bench.contenders import BenchError


def figures(*cell_us: float) -> Figures:
    return Figures(100_000.0, cell_us, 1.0)


def test_cells_carry_as_many_times_as_they_are_less_what_passing_on_costs() -> None:
    assert modelled(1, 0.0, 1.0, 1.0, 2.0) == 1.0
    assert modelled(4, 0.0, 1.0, 1.0, 2.0) == 4.0
    assert modelled(4, 1.0, 1.0, 1.0, 3.0) == 1.0
    assert modelled(4, 0.5, 1.0, 1.0, 2.0) == 2.0


def test_the_table_on_paper_has_beside_it_all_that_was_measured() -> None:
    measured = {
        "cells: 1": figures(1.0),
        "at home": figures(1.0, 0.0),
        "sender passed on": figures(1.0, 1.0),
        "receiver passed on": figures(1.0, 1.0),
        "both passed on": figures(1.0, 2.0),
    }
    shown = model_shown({(name, SIZES[0]): each for name, each in measured.items()}, None)
    assert "| 1 | 1.00 | – | – |" in shown
    assert "| 2 | 2.00 (2.00) | 1.00 (1.00) | 0.67 (0.67) |" in shown
    assert "| 16 | 16.00 | 5.57 | 5.33 |" in shown


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("at home", (1.0, 0.0), (1.0, 0.5)), ("both passed on", (1.0, 2.0), (1.0, 0.0))],
)
def test_a_turn_whose_clients_were_elsewhere_is_void(
    name: str, right: tuple[float, ...], wrong: tuple[float, ...]
) -> None:
    assert checked(SETUPS[name], figures(*right)).cell_us == right
    with pytest.raises(BenchError):
        checked(SETUPS[name], figures(*wrong))


def test_a_table_is_markdown() -> None:
    assert table(("a", "b"), [("1", "2")]).splitlines() == ["| a | b |", "| --- | ---: |", "| 1 | 2 |"]
