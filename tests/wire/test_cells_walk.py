"""The laws of flow over all cells, while queues move, cells die and clients do as they like."""

from __future__ import annotations

import pytest

from tests.wire.cells_walk import run
from tests.wire.conftest import StartBroker


@pytest.mark.parametrize(("seed", "cells"), [(1, 2), (2, 3)])
def test_the_laws_hold_over_the_whole(start_broker: StartBroker, seed: int, cells: int) -> None:
    walk = run(start_broker, seed, cells, 40)
    # Otherwise little was tried.
    assert walk.kills > 0
    assert walk.moves > 0
    assert len(walk.books.surely) > 100
    assert len(walk.books.letters) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
def test_the_laws_hold_over_the_whole_for_long(start_broker: StartBroker, seed: int) -> None:
    walk = run(start_broker, seed, 2 + seed % 4, 300)
    assert walk.kills > 5
    assert walk.moves > 10
