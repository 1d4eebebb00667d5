"""One data directory through many lives: what its broker keeps is what its clients were told, after each.

``python -m tests.crash.chaos`` does so with any number of lives; a seed that it prints says how they go.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.chaos.lives import FULL_DISK, run
from tests.crash.chaos.mutations import MUTATIONS, ROOT, tried


def test_every_message_is_where_it_should_be_after_a_few_lives(tmp_path: Path) -> None:
    world = run(tmp_path / "broker", seed=7, lives=4, faults=2)
    assert world.books.confirmations > 0


def test_every_message_is_where_it_should_be_where_starts_find_no_room(tmp_path: Path) -> None:
    world = run(tmp_path / "broker", seed=1, lives=1, faults=4, aim=FULL_DISK)
    assert world.faults_hit > 0
    assert any(state.startswith("full") for state in world.states)


def test_what_mutations_take_out_is_there() -> None:
    """Else they would be led on text that has changed since."""
    edits = [edit for mutation in MUTATIONS.values() for edit in mutation.edits]
    assert {edit for edit in edits if (ROOT / edit.file).read_text().count(edit.before) != 1} == set()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_repair_that_is_taken_out_is_missed(name: str) -> None:
    assert tried(name, MUTATIONS[name], control=False)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_where_it_should_be_after_many(tmp_path: Path, seed: int) -> None:
    world = run(tmp_path / "broker", seed, lives=50, faults=50)
    assert world.faults_hit > 10
    assert world.books.confirmations > 1000
