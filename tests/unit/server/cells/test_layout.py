"""The data directory of several cells: made, opened again, and refused where queues would be out of sight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.errors import OperatorError
from broker.server.cells.layout import MARKER, CellsDirectory, cells_in, check_single, folder_of


def test_a_new_directory_has_a_folder_for_each_cell(tmp_path: Path) -> None:
    CellsDirectory(tmp_path / "data", 3).close()
    assert cells_in(tmp_path / "data") == 3
    assert all(folder_of(tmp_path / "data", cell).is_dir() for cell in range(3))
    CellsDirectory(tmp_path / "data", 3).close()


@pytest.mark.parametrize("cells", [2, 4])
def test_another_number_of_cells_is_refused(tmp_path: Path, cells: int) -> None:
    CellsDirectory(tmp_path, 3).close()
    with pytest.raises(OperatorError, match=f"it holds 3 cells, and --cells is {cells}: .* --cells 3"):
        CellsDirectory(tmp_path, cells)
    assert cells_in(tmp_path) == 3


def test_a_single_broker_does_not_start_on_cells(tmp_path: Path) -> None:
    check_single(tmp_path)
    CellsDirectory(tmp_path, 3).close()
    with pytest.raises(OperatorError, match="it holds 3 cells, and --cells is 1"):
        check_single(tmp_path)


def test_the_data_of_a_single_broker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(OperatorError, match="holds 'journal' and isn't a directory of cells"):
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
