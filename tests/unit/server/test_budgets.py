"""The limits over all nodes of one broker, and of one cell of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.broker import Settings
from broker.server import server
from broker.server.resources import (
    MEMORY_PERCENT,
    STORE_PERCENT,
    TEMP_PERCENT,
    memory_bytes,
    taken_bytes,
)
from broker.server.server import Budgets


def test_what_is_set_is_divided_among_cells(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, memory_limit=1000, store_limit=3001, temp_limit=10)
    assert Budgets.of(settings) == Budgets(1000, 3001, 10)
    assert Budgets.of(settings, 3) == Budgets(333, 1000, 3)


@pytest.mark.parametrize("share", [1, 4])
def test_no_limit_stays_none_and_a_small_one_does_not_become_none(tmp_path: Path, share: int) -> None:
    settings = Settings(data=tmp_path, memory_limit=0, store_limit=0, temp_limit=0)
    assert Budgets.of(settings, share) == Budgets(0, 0, 0)
    settings = Settings(data=tmp_path, memory_limit=1, store_limit=2, temp_limit=3)
    assert min(vars_of(Budgets.of(settings, share))) >= 1


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> int:
    """The room on a disk to which nobody else writes."""
    monkeypatch.setattr(server, "free_bytes", lambda _: 1 << 40)
    return 1 << 40


def test_what_the_machine_has_is_divided_too(tmp_path: Path, free: int) -> None:
    settings = Settings(data=tmp_path, memory_limit=None, store_limit=None, temp_limit=None)
    whole, part = Budgets.of(settings), Budgets.of(settings, 4)
    assert whole.memory_bytes == memory_bytes() * MEMORY_PERCENT // 100
    assert part.memory_bytes == whole.memory_bytes // 4
    assert whole.store_bytes == free * STORE_PERCENT // 100
    assert part.store_bytes == whole.store_bytes // 4
    assert part.temp_bytes == whole.temp_bytes // 4 == free * TEMP_PERCENT // 400


def test_what_a_cell_has_stored_is_its_own(tmp_path: Path, free: int) -> None:
    """Its share of what is free, and all that it takes already: a restart stops no full one."""
    settings = Settings(data=tmp_path, store_limit=None)
    (tmp_path / "journal").write_bytes(bytes(32 << 20))
    taken = taken_bytes(tmp_path)
    assert taken >= 32 << 20
    assert Budgets.of(settings, 4).store_bytes == (free // 4 + taken) * STORE_PERCENT // 100


def vars_of(budgets: Budgets) -> tuple[int, int, int]:
    return budgets.memory_bytes, budgets.store_bytes, budgets.temp_bytes
