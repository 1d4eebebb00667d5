"""What a job is doing, on stderr: a line a step, and on a terminal how many of its tasks are done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.3


class Steps:
    """``total`` steps, each told when it is done with how long it took."""

    def __init__(self, spark: SparkSession, total: int) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._live = sys.stderr.isatty()
        self._total = total
        self._number = 0
        self._note = ""

    @contextmanager
    def step(self, title: str) -> Iterator[Steps]:
        """One step; what ``note`` is told meanwhile stands beside it at the end."""
        self._number += 1
        self._note = ""
        head, begin_s, ended = f"{self._number}/{self._total} {title}", time.monotonic(), threading.Event()
        watcher = threading.Thread(target=self._watch, args=(head, ended), daemon=True)
        if self._live:
            watcher.start()
        try:
            yield self
        finally:
            ended.set()
            if self._live:
                watcher.join()
            took_s = time.monotonic() - begin_s
            note = f": {self._note}" if self._note else ""
            print(f"{head}{note} ({took_s:,.1f} s)", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """What came of the step."""
        self._note = text

    def _watch(self, head: str, ended: threading.Event) -> None:
        while not ended.wait(EVERY_S):
            done, tasks = self._tasks()
            shown = f" [{'#' * (20 * done // tasks):<20}] {done}/{tasks} tasks" if tasks else ""
            print(f"\r\x1b[K{head}{shown}", end="", file=sys.stderr, flush=True)
        print("\r\x1b[K", end="", file=sys.stderr)

    def _tasks(self) -> tuple[int, int]:
        stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
        found = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found)
