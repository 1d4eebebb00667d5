"""Backups that are asked for: one is made at a time, and a failed one keeps no other from being made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.errors import ConflictError, OperatorError
from broker.manage.backups import Backups


def test_there_is_one_at_a_time(tmp_path: Path) -> None:
    begun: list[tuple[Path, Callable[[Exception | None], None]]] = []
    backups = Backups()
    backups.folder = tmp_path / "backups"
    backups.copy = lambda path, done: begun.append((path, done))
    backups.begin("one")
    with pytest.raises(ConflictError, match="a backup is under way"):
        backups.begin("two")
    assert not backups.is_done()
    begun[0][1](OSError("no room"))
    with pytest.raises(OperatorError, match="the backup failed: no room"):
        backups.is_done()
    backups.begin("two")
    begun[1][1](None)
    assert backups.is_done()
    assert [path.name for path, _ in begun] == ["one", "two"]


def test_what_a_killed_broker_had_begun_goes(tmp_path: Path) -> None:
    backups = Backups()
    for folder in (tmp_path / "data" / "backups", tmp_path / "elsewhere"):
        for name in (".one.begun", "two"):
            (folder / name / "large").mkdir(parents=True)
        backups.folder = folder
        backups.clear(tmp_path / "data")
    assert [path.name for path in (tmp_path / "data" / "backups").iterdir()] == ["two"]
    # Another broker may be about to make that one.
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == [".one.begun", "two"]
    backups.folder = tmp_path / "data" / "nothing"
    backups.clear(tmp_path / "data")
