"""The directory's table: found again, decided once, and names stay where their nodes are."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.policy_files import parse_policies
from broker.errors import ConflictError, ElsewhereError, OperatorError
from broker.server.cells.directory import CellDirectory, heaviest
from broker.server.cells.keeper import DirectoryKeeper, Line
from broker.server.cells.layout import CellsDirectory
from broker.server.cells.table import NAME, NamedPlace, PlacementTable, patterns_of, read_table, write_table

CELLS = 3


class Cells:
    """A keeper and what it has said to each cell."""

    def __init__(self, data: Path) -> None:
        self.said: list[tuple[int, Line]] = []
        self.data = data
        self.keeper = DirectoryKeeper(data, CELLS, lambda cell, line: self.said.append((cell, line)))

    def commit(self, cell: int, key: str, to: int, move: str = "m1") -> Line:
        self.said.clear()
        self.keeper.on_line(cell, {"do": "commit", "id": 1, "key": key, "to": to, "move": move})
        return self.answer()

    def give_up(self, cell: int, move: str = "m1") -> bool:
        self.said.clear()
        self.keeper.on_line(cell, {"do": "give-up", "id": 1, "move": move})
        return bool(self.answer()["done"])

    def answer(self) -> Line:
        return next(line for _, line in self.said if "answer" in line)

    def cell_of(self, name: str) -> int:
        """As a cell that is started now finds it."""
        return CellDirectory(0, CELLS, read_table(self.data, CELLS)).cell_of(name)


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path)


def owner(key: str = "orders") -> int:
    return heaviest(key, CELLS)


def test_without_a_file_the_hash_alone_decides(tmp_path: Path) -> None:
    assert read_table(tmp_path, CELLS) == PlacementTable(CELLS)
    assert CellDirectory(0, CELLS).cell_of("orders/1::reader") == owner()


@given(
    st.dictionaries(st.text(max_size=9), st.tuples(st.integers(0, 63), st.text(max_size=9)), max_size=9),
    st.lists(st.tuples(st.sampled_from(["a.>", "*", "a.b"]), st.integers(0, 63)), max_size=3),
)
def test_a_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    names: dict[str, tuple[int, str]],
    patterns: list[tuple[str, int]],
) -> None:
    data = tmp_path_factory.mktemp("table")
    table = PlacementTable(5, tuple(patterns), {key: NamedPlace(*each) for key, each in names.items()}, 7)
    write_table(data, table)
    assert read_table(data, CELLS) == table


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "edition": 0}'])
def test_a_table_that_can_not_be_read_ends_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(OperatorError, match="can't"):
        read_table(tmp_path, CELLS)


def test_a_committed_move_is_on_disk_before_anybody_is_told(cells: Cells) -> None:
    to = (owner() + 1) % CELLS
    found: list[int] = []
    cells.keeper._send = lambda cell, line: found.append(cells.cell_of("orders"))
    cells.keeper.on_line(owner(), {"do": "commit", "id": 1, "key": "orders", "to": to, "move": "m"})
    assert found == [to] * (CELLS + 1)


def test_the_cell_that_takes_a_name_hears_of_it_first_and_all_do(cells: Cells) -> None:
    to = (owner() + 2) % CELLS
    assert cells.commit(owner(), "orders", to)["done"]
    told = [cell for cell, line in cells.said if "directory" in line]
    assert told[0] == to
    assert sorted(told) == list(range(CELLS))
    # A cell has heard of its new directory before its own answer.
    assert "answer" in cells.said[-1][1]


def test_names_of_a_cell_that_was_emptied_are_made_where_others_look(cells: Cells) -> None:
    key = "orders"
    to = (owner() + 1) % CELLS
    CellsDirectory(cells.data, CELLS).close()
    cells.commit(owner(), key, to)
    cells.keeper.on_line(to, {"do": "drained"})
    assert cells.cell_of(key) == owner()


def test_partitions_and_readers_go_with_their_stream(cells: Cells) -> None:
    to = (owner("ticks") + 1) % CELLS
    cells.commit(owner("ticks"), "ticks", to)
    assert {cells.cell_of(name) for name in ("ticks", "ticks/0", "ticks/11::billing")} == {to}


def test_a_move_that_was_given_up_can_not_be_done_any_more(cells: Cells) -> None:
    to = (owner() + 1) % CELLS
    assert not cells.give_up(to)
    answer = cells.commit(owner(), "orders", to)
    assert not answer["done"]
    assert "given it up" in answer["reason"]
    assert cells.cell_of("orders") == owner()


def test_a_move_that_is_done_can_not_be_given_up(cells: Cells) -> None:
    to = (owner() + 1) % CELLS
    cells.commit(owner(), "orders", to)
    assert cells.give_up(to)
    assert cells.cell_of("orders") == to


def test_only_the_cell_of_a_name_may_give_it_away(cells: Cells) -> None:
    other = (owner() + 1) % CELLS
    assert not cells.commit(other, "orders", other)["done"]
    assert not cells.commit(owner(), "orders", CELLS)["done"]
    assert cells.cell_of("orders") == owner()


def test_names_stay_where_they_are_by_another_table(cells: Cells) -> None:
    """Of those that no node bears the new table decides."""
    proposed = PlacementTable(CELLS, (("a.>", 2),))
    names = [f"a.{number}" for number in range(60)]
    there = {cell: [name for name in names if heaviest(name, CELLS) == cell][:5] for cell in range(CELLS)}
    cells.keeper.propose(proposed)
    for cell, held in there.items():
        keys = CellDirectory(cell, CELLS).leaving([*held, "$sluice/events"], proposed)
        assert cells.keeper.is_deciding
        assert keys == (set() if cell == 2 else set(held))
        cells.keeper.on_line(cell, {"do": "told", "keys": sorted(keys), "round": 1})
    assert not cells.keeper.is_deciding
    staying = {name: cell for cell, held in there.items() for name in held}
    for name in names:
        assert cells.cell_of(name) == staying.get(name, 2)
    assert len(read_table(cells.data, CELLS).names) == 10


def test_a_moved_name_stays_where_it_was_moved_by_another_table(cells: Cells) -> None:
    to = (owner() + 1) % CELLS
    cells.commit(owner(), "orders", to)
    cells.keeper.propose(PlacementTable(CELLS, (("orders", owner()),)))
    for cell in range(CELLS):
        cells.keeper.on_line(cell, {"do": "told", "keys": []})
    assert cells.cell_of("orders") == to


def test_nothing_is_decided_twice_at_once_or_by_a_round_that_was_left(cells: Cells) -> None:
    cells.keeper.propose(PlacementTable(CELLS, (("a.>", 2),)))
    answer = cells.commit(owner(), "orders", (owner() + 1) % CELLS)
    assert "anew" in answer["reason"]
    cells.keeper.cancel("nobody answers")
    for cell in range(CELLS):
        cells.keeper.on_line(cell, {"do": "told", "keys": [], "round": 1})
    assert read_table(cells.data, CELLS) == PlacementTable(CELLS)
    assert cells.commit(owner(), "orders", (owner() + 1) % CELLS)["done"]


def test_while_it_is_decided_no_node_is_made_that_either_table_has_elsewhere() -> None:
    directory = CellDirectory(owner(), CELLS)
    assert directory.elsewhere("orders") is None
    directory.proposed = PlacementTable(CELLS, (("orders", (owner() + 1) % CELLS),))
    assert isinstance(directory.elsewhere("orders"), ConflictError)
    assert directory.elsewhere("$sluice/events") is None
    directory.take(directory.proposed)
    assert isinstance(directory.elsewhere("orders"), ElsewhereError)
    assert CellDirectory((owner() + 1) % CELLS, CELLS, directory.table).elsewhere("orders") is None


def test_of_several_patterns_the_most_specific_decides() -> None:
    policies = parse_policies(
        "policies:\n"
        "  - {match: 'a.>', cell: 0}\n"
        "  - {match: a.b, cell: 2}\n"
        "  - {match: 'a.*', cell: '1'}\n"
        "  - {match: c, cell: }\n",
        "p.yaml",
    )
    patterns = patterns_of(policies, CELLS)
    assert sorted(patterns) == [("a.*", 1), ("a.>", 0), ("a.b", 2), ("c", -1)]
    directory = CellDirectory(0, CELLS, PlacementTable(CELLS, patterns))
    assert [directory.cell_of(name) for name in ("a.b", "a.c", "a.c.d", "a.b/7")] == [2, 1, 0, 2]
    # Empty is none: its name decides, whatever a wider pattern says.
    assert directory.cell_of("c") == heaviest("c", CELLS)


def test_a_policy_that_names_no_cell_there_is_is_refused_with_its_line() -> None:
    policies = parse_policies("policies:\n  - match: a\n    cell: 3\n", "p.yaml")
    with pytest.raises(OperatorError, match=r"p.yaml:3:\d+: cell: 3 of 'a', and there are 3 cells"):
        patterns_of(policies, CELLS)


@pytest.mark.parametrize("at", ["replace", "fsync"])
def test_what_can_not_be_written_is_not_decided(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """By a move or by a policy, at the question or at the decision; and it can be asked for again."""

    def failing(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    patched = (Path, "replace", failing) if at == "replace" else (os, "fsync", failing)
    to = (owner() + 1) % CELLS
    table = PlacementTable(CELLS, (("orders", to),))
    with monkeypatch.context() as patch:
        patch.setattr(*patched)
        answer = cells.commit(owner(), "orders", to)
        assert not answer["done"]
        assert answer["reason"] == "the directory can't be written: No space left on device"
        with pytest.raises(OSError, match="No space"):
            cells.keeper.propose(table)
    assert not cells.keeper.is_deciding
    cells.keeper.propose(table)
    cells.said.clear()
    with monkeypatch.context() as patch:
        patch.setattr(*patched)
        tell_all(cells)
    assert [list(line) for _, line in cells.said] == [["cancel"]] * CELLS
    assert cells.cell_of("orders") == owner()
    cells.keeper.propose(table)
    tell_all(cells)
    assert cells.cell_of("orders") == to


def test_what_is_written_and_can_not_be_synced_ends_all(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is there after a power cut nobody knows."""
    fsync = os.fsync

    def failing(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(SystemExit):
        cells.commit(owner(), "orders", (owner() + 1) % CELLS)


def tell_all(cells: Cells) -> None:
    for cell in range(CELLS):
        cells.keeper.on_line(cell, {"do": "told", "keys": []})
