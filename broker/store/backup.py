"""A backup: a copy of a data directory that a broker has open, as of one moment."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.directory import DIRECTORY, Directory
from broker.store.files import JournalFiles
from broker.store.largefiles import LARGE, LargeFile
from broker.store.pagefile import PAGES, PageFile
from broker.store.streamlogs import StreamLogs
from broker.units import format_size

# What a backup leaves of a disk.
ROOM_LEFT = 64 << 20


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A copy to be made: the parts of a store, and the moment, as a place in its journal.

    Of the journal file ``current`` it has the first ``offset`` bytes, or all where that is 0. ``larges`` are
    the large messages' files that it refers to.
    """

    directory: Directory
    pages: PageFile
    files: JournalFiles
    streams: StreamLogs
    larges: list[LargeFile]
    current: int
    offset: int

    def make(self, target: Path) -> Exception | None:
        """Make the new directory ``target``, whole or not at all; return why it could not be made.

        On the thread that makes checkpoints: none may come between.
        """
        # It has its name once it is complete.
        begun = target.with_name(f".{target.name}.begun")
        try:
            self._check_room(target)
            shutil.rmtree(begun, ignore_errors=True)
            # Nobody else reads it, neither while it is made nor where it is put afterwards.
            begun.mkdir(mode=0o700, parents=True)
            self._copy_parts(begun)
            for path in begun.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
            begun.rename(target)
        except Exception as fault:  # noqa: BLE001 - whoever asked waits for an answer, whatever it is
            shutil.rmtree(begun, ignore_errors=True)
            return fault
        return None

    def _check_room(self, target: Path) -> None:
        """Refuse (OperatorError) where the target is there, or its disk has no room for it, or hardly."""
        if os.path.lexists(target):
            raise OperatorError(f"{target} exists already")
        place = next(each for each in target.absolute().parents if each.exists())
        paths = [self.directory.path, self.pages.path, *(each.path for each in self.larges)]
        needed = self.files.nbytes() + self.streams.nbytes() + sum(path.stat().st_size for path in paths)
        free = shutil.disk_usage(place).free
        if free < needed + ROOM_LEFT:
            raise OperatorError(
                f"{place}: {format_size(free)} free is too little: the backup takes up to"
                f" {format_size(needed)}, and {format_size(ROOM_LEFT)} are to be left"
            )

    def _copy_parts(self, begun: Path) -> None:
        self.directory.copy(begun / DIRECTORY)
        self.pages.copy(begun / PAGES)
        self.streams.copy(begun)
        for number in range(self.directory.meta().oldest, self.current + 1):
            # Of the file that is written what is on disk; an old one is whole.
            is_written = self.offset and number == self.current
            self.files.copy(number, begun, self.offset if is_written else None)
        (begun / LARGE).mkdir()
        for each in self.larges:
            shutil.copyfile(each.path, begun / LARGE / each.path.name)
