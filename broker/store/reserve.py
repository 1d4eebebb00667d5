"""Room of the disk that a store keeps for when there is no other, behind the last page of the page file."""

from __future__ import annotations

import os

from broker.store.directory import Directory
from broker.store.faults import is_lack_of_room
from broker.store.files import JournalFiles
from broker.store.pagefile import PageFile

# In journal files: for what the closed ones hold and the one that is written, so that all of it can move to
# pages and the files be written again. Of a small disk, a part.
RESERVE_FILES = 3
RESERVE_PART = 8
# What a file system may need besides a file's own bytes.
SLACK = 1 << 16


class Reserve:
    """The reserve of one store; it is there from the first ``restock`` on.

    All of it is for the thread that changes the page file. OSError of the disk passes through.
    """

    def __init__(self, files: JournalFiles, pages: PageFile, directory: Directory) -> None:
        self._files = files
        self._pages = pages
        self._directory = directory
        disk = os.statvfs(files.directory)
        part = disk.f_blocks * disk.f_frsize // RESERVE_PART
        self._nbytes = min(RESERVE_FILES * files.file_bytes, part) & ~4095
        # What an earlier run has reserved stays.
        pages.kept_bytes = self._nbytes

    def restock(self) -> None:
        """Reserve what isn't yet; where there is no room, make some first."""
        try:
            self._take()
        except OSError as fault:
            if not is_lack_of_room(fault):
                raise
            self._pages.give_back()
            self._files.drop_spares(1)
            self._take()

    def give_up(self) -> None:
        """Leave all of it to whoever needs room now."""
        self._pages.give_up(self._nbytes)

    def prepare_file(self, number: int, urgent: bool) -> int:
        """Make a journal file, where it is urgent in place of some of the reserve; return its descriptor.

        OSError, SyncFault as of ``JournalFiles.prepare``.
        """
        try:
            return self._files.prepare(number)
        except OSError as fault:
            needed = self._files.file_bytes + SLACK
            if not urgent or not is_lack_of_room(fault) or not self._pages.give_up(needed):
                raise
        return self._files.prepare(number)

    def _take(self) -> None:
        self._directory.reserve()
        self._pages.reserve(self._nbytes)
