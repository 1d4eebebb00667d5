"""One data directory through many lives: what its broker keeps is what its clients were told, after each.

``python -m tests.crash.chaos`` does so with any number of lives; a seed that it prints says how they go.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.chaos.lives import run


def test_every_message_is_where_it_should_be_after_a_few_lives(tmp_path: Path) -> None:
    world = run(tmp_path / "broker", seed=7, lives=4, faults=2)
    assert world.books.confirmations > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_where_it_should_be_after_many(tmp_path: Path, seed: int) -> None:
    world = run(tmp_path / "broker", seed, lives=50, faults=50)
    assert world.faults_hit > 10
    assert world.books.confirmations > 1000
