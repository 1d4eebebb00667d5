"""Progress on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVERY_S = 0.1


class ProgressBar:
    """A bar on stderr while the block runs; ``show`` may be called per message."""

    def __init__(self, title: str, total: int | None, *, wanted: bool = True) -> None:
        self._title, self._total = title, total
        self._wanted = wanted and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._next_s = 0.0

    def __enter__(self) -> ProgressBar:
        if self._wanted:
            self._start()
        return self

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(self._title, total=self._total)
        self._progress.start()

    def show(self, done: int, note: str = "") -> None:
        """Draws at most ten times a second."""
        if self._progress is None or self._task is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        self._progress.update(self._task, completed=done, description=f"{self._title} {note}".rstrip())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
