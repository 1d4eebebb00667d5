"""A data directory that is a prefix of a replicated log, whoever has it open."""

from __future__ import annotations

from pathlib import Path

from broker.store.cell import APPLIED, Position, position_in
from broker.store.checkpoint import Taken
from broker.store.disk import DiskStore
from broker.store.replay import Progress

# Journal files that are there before they are written. Groups that wait for the log or for the disk may fill
# many more than the journal can have open.
AHEAD_FILES = 4


class PrefixStore(DiskStore):
    """A lazy store in which each group says how much of the log is in it, with its last record."""

    def __init__(self, path: Path, file_bytes: int | None, progress: Progress | None) -> None:
        super().__init__(path, file_bytes, progress, lazy=True)

    @property
    def applied(self) -> Position:
        """The last group in it: its epoch and its number in the log; (0, 0) where it has followed no log."""
        return position_in(self._notes.get(APPLIED, b""))

    def _join_or_leave_cell(self) -> None:
        """It stays a prefix of the log."""

    def _take(self, numbers: range, clean_group: int) -> Taken:
        taken = super()._take(numbers, clean_group)
        # Each group has another one: it would make a checkpoint due once a second.
        if APPLIED in self._notes:
            taken.notes[APPLIED] = self._notes[APPLIED]
        return taken

    def _order_file(self) -> None:
        if self._prepared <= self.journal.file + AHEAD_FILES:
            super()._order_file()
