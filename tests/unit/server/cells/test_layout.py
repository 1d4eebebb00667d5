"""The data directory of several cells: made, opened again, for another number of cells, adopted and left."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from broker.errors import OperatorError
from broker.server.cells.layout import MARKER, SINGLE, CellsDirectory, cells_in, folder_of, mark_drained
from broker.server.cells.table import read_table


def test_a_new_directory_has_a_folder_for_each_cell(tmp_path: Path) -> None:
    CellsDirectory(tmp_path / "data", 3).close()
    assert cells_in(tmp_path / "data") == 3
    assert all(folder_of(tmp_path / "data", cell).is_dir() for cell in range(3))
    CellsDirectory(tmp_path / "data", 3).close()


def hashed_over(data: Path) -> int:
    """Return among how many cells names without a place of their own are shared out."""
    return read_table(data, cells_in(data)).cells


def test_more_cells_begin_empty_and_names_are_found_as_before_until_all_are_asked(tmp_path: Path) -> None:
    CellsDirectory(tmp_path, 3).close()
    grown = CellsDirectory(tmp_path, 5)
    grown.close()
    assert (grown.cells, cells_in(tmp_path), hashed_over(tmp_path)) == (5, 5, 3)
    assert folder_of(tmp_path, 4).is_dir()


def test_cells_that_go_run_until_they_are_drained(tmp_path: Path) -> None:
    CellsDirectory(tmp_path, 4).close()
    for drained, running in ((3, 4), (2, 2)):
        mark_drained(tmp_path, drained)
        directory = CellsDirectory(tmp_path, 2)
        directory.close()
        assert directory.cells == running
    assert cells_in(tmp_path) == 2


def test_a_cell_that_was_drained_and_stays_after_all_isnt_left_out(tmp_path: Path) -> None:
    CellsDirectory(tmp_path, 3).close()
    mark_drained(tmp_path, 2)
    CellsDirectory(tmp_path, 3).close()
    directory = CellsDirectory(tmp_path, 2)
    directory.close()
    assert directory.cells == 3


def single(data: Path) -> dict[str, str]:
    """Make what looks like a single broker's data; its files."""
    (data / "pages").mkdir(parents=True)
    for name in (SINGLE, "journal-00000001", "lock", "pages/1"):
        (data / name).write_text(name)
    (data / "backups").mkdir()
    return files(data)


def files(data: Path) -> dict[str, str]:
    found = {str(each.relative_to(data)): each.read_text() for each in data.rglob("*") if each.is_file()}
    return {name: text for name, text in found.items() if name != "lock"}


def test_a_single_brokers_data_becomes_cell_0_and_single_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = single(data)
    directory = CellsDirectory(data, 3)
    directory.close()
    assert (directory.cells, hashed_over(data)) == (3, 1)
    assert files(folder_of(data, 0)) == before
    for cell in (1, 2):
        mark_drained(data, cell)
    directory = CellsDirectory(data, 1)
    directory.close()
    assert (directory.cells, cells_in(data)) == (1, 0)
    assert files(data) == before


@pytest.mark.parametrize("at", range(12))
def test_an_adoption_that_was_cut_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Both ways, at any of the steps that change something."""
    data = tmp_path / "data"
    before = single(data)
    _cut_off(monkeypatch, at, lambda: CellsDirectory(data, 2).close())
    CellsDirectory(data, 2).close()
    assert files(folder_of(data, 0)) == before
    mark_drained(data, 1)
    _cut_off(monkeypatch, at, lambda: CellsDirectory(data, 1).close())
    CellsDirectory(data, 1).close()
    assert files(data) == before


def _cut_off(monkeypatch: pytest.MonkeyPatch, at: int, work: Callable[[], None]) -> None:
    """Do some work until its so manieth renaming, at which it ends."""
    left = [at]
    replace = Path.replace

    def counting(self: Path, target: Path) -> Path:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counting)
        with suppress(KeyboardInterrupt):
            work()


def test_what_is_nobodys_data_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(OperatorError, match="holds 'journal', and is neither"):
        CellsDirectory(tmp_path, 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["journal"]


def test_what_is_no_data_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / f".{MARKER}").write_text("{")
    CellsDirectory(tmp_path, 2).close()
    assert cells_in(tmp_path) == 2


def test_two_supervisors_do_not_share_a_directory(tmp_path: Path) -> None:
    first = CellsDirectory(tmp_path, 2)
    with pytest.raises(OperatorError, match="another broker uses it"):
        CellsDirectory(tmp_path, 2)
    first.close()
    CellsDirectory(tmp_path, 2).close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "cells": 3}',
        '{"version": 1, "cells": "3"}',
        '{"version": 1, "cells": 1}',
    ],
)
def test_a_marker_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    with pytest.raises(OperatorError, match="can't"):
        CellsDirectory(tmp_path, 3)


def test_the_marker_says_how_many(tmp_path: Path) -> None:
    CellsDirectory(tmp_path, 2).close()
    assert json.loads((tmp_path / MARKER).read_text()) == {"version": 1, "cells": 2}
