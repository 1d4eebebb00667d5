"""Where backups go, how many there are, and that there is one at a time.

A backup is a name in one folder of the operator's choice: whoever may ask for one over the network can't
write anywhere else, nor fill the disk with them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from broker.errors import ConflictError, OperatorError

# As the data directory of the next broker they are typed and written into scripts: plain words.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

Copy = Callable[[Path, Callable[[Exception | None], None]], None]


class Backup:
    """One backup; ``finish`` may be called on any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = False
        self.fault: Exception | None = None

    def finish(self, fault: Exception | None) -> None:
        """It is complete, or it failed."""
        self.fault = fault
        self.done = True


class Backups:
    """Those in ``folder``, at most ``most``; ``copy``, where there is any, makes one beside the loop."""

    def __init__(self) -> None:
        self.folder = Path("backups")
        self.most = 0
        self.copy: Copy | None = None
        self._last: Backup | None = None

    def begin(self, target: str) -> Path:
        """Begin to copy the data directory to a new one in the folder: its path. ``is_done`` says when it is
        there. ``target`` is its name, or its whole path.
        """
        if self.copy is None:
            raise OperatorError("this broker keeps nothing on disk")
        path = self._path(target)
        if self._last is not None and not self._last.done:
            raise ConflictError("a backup is under way")
        self._check_room(path)
        backup = Backup(path)
        self.copy(path, backup.finish)
        self._last = backup
        return path

    def clear(self, data: Path) -> None:
        """Remove what a broker that was killed meanwhile had begun. Only below our own data directory, where
        no other broker makes any.
        """
        folder = self.folder.absolute()
        if data.absolute() in folder.parents:
            for each in folder.glob(".*.begun"):
                shutil.rmtree(each, ignore_errors=True)

    def is_done(self) -> bool:
        """Whether the last backup is complete; OperatorError with the reason if it failed."""
        if self._last is None:
            raise OperatorError("no backup was begun")
        if self._last.fault is not None:
            raise OperatorError(f"the backup failed: {self._last.fault}")
        return self._last.done

    def _path(self, target: str) -> Path:
        folder = self.folder.absolute()
        place, _, name = target.rpartition("/")
        # Compared as it is written: a path with a link or a '..' in it is not the folder's.
        if place and place != str(folder):
            raise OperatorError(
                f"{target!a} is outside {folder}, where backups are made: say a name for it there"
                " (backup_directory is where that folder is)"
            )
        if not NAME.fullmatch(name):
            allowed = "letters, digits and . _ - (up to 100, the first one no . or -)"
            raise OperatorError(f"{name!a} is no name for a backup: {allowed}")
        return folder / name

    def _check_room(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            there = [each for each in path.parent.iterdir() if NAME.fullmatch(each.name)]
        except OSError as fault:
            raise OperatorError(f"{path.parent}: can't be written: {fault.strerror}") from fault
        if os.path.lexists(path):
            raise ConflictError(f"{path} exists already")
        if len(there) >= self.most > 0:
            raise OperatorError(
                f"{path.parent} holds {len(there)} backups already (limits.max_backups): remove some"
            )
