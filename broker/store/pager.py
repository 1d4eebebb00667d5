"""The temporary store: runs of messages that left memory, in one file that is emptied at start.

Nothing here survives a restart or needs to. One thread does the reading and writing; answers reach
the owner's thread through ``post``. Who reads waits for one write at most: consumers are behind it. Who only
looks waits in turn with what is written: there may always be somebody who does.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.pagefile import BlobPlace, PageFile

log = logging.getLogger("sluice.store")

TEMP = "temp"
RUNS = "runs"

Done = Callable[[object], None]

# What comes first of all that is asked for.
_END, _READ, _WRITE = range(3)


def empty_runs(directory: Path) -> None:
    """Let go of what an earlier broker left: its room may be needed before there is a pager."""
    with suppress(OSError):
        os.truncate(directory / TEMP / RUNS, 0)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Messages that are kept somewhere else, and how to get at them; they are never freed here."""

    load: Callable[[], bytes]


class Pager:
    """Writes, reads and frees runs, reads first. ``done`` gets the answer, or the exception."""

    def __init__(self, directory: Path, post: Callable[[Callable[[], None]], None]) -> None:
        folder = directory / TEMP
        folder.mkdir(parents=True, exist_ok=True)
        self._post = post
        self._file = PageFile(folder / RUNS, empty=True)
        # What, number in order of asking, and how.
        self._jobs: queue.PriorityQueue[tuple[int, int, Callable[[], None]]] = queue.PriorityQueue()
        self._asked = 0
        self._faulty = False
        self._thread = threading.Thread(target=self._run, name="sluice-pager", daemon=True)
        self._thread.start()

    @property
    def used_bytes(self) -> int:
        """What the runs take on disk."""
        return self._file.used_bytes

    def write(self, blob: bytes, done: Done) -> None:
        """Put a run on disk; the answer is its place."""
        self._ask(_WRITE, lambda: self._answer(lambda: self._file.write(blob), done))

    def read(self, place: object, done: Done) -> None:
        """Read a run; the answer is its bytes."""
        self._ask(_READ, lambda: self._answer(lambda: self._load(place), done))

    def look(self, place: object, done: Done) -> None:
        """Read a run for who can wait."""
        self._ask(_WRITE, lambda: self._answer(lambda: self._load(place), done))

    def run(self, job: Callable[[], object], done: Done) -> None:
        """Read something else for who can wait; the answer is what the job returns."""
        self._ask(_WRITE, lambda: self._answer(job, done))

    def free(self, place: object) -> None:
        """The run is not needed any more; reading it may have been asked for before, not after."""
        if isinstance(place, BlobPlace):
            self._ask(_WRITE, lambda: self._file.free(place))

    def give_back(self) -> None:
        """Give a full disk back what lies free between runs."""
        self._ask(_WRITE, self._file.give_back)

    def close(self) -> None:
        """Let go of the file; what was asked for and isn't done is nobody's any more."""
        self._ask(_END, lambda: None)
        self._thread.join()
        self._file.close()

    def _ask(self, what: int, job: Callable[[], None]) -> None:
        self._asked += 1
        self._jobs.put((what, self._asked, job))

    def _load(self, place: object) -> bytes:
        if isinstance(place, Elsewhere):
            return place.load()
        assert isinstance(place, BlobPlace)
        return self._file.read(place)

    def _answer(self, work: Callable[[], object], done: Done) -> None:
        answer: object
        fault: Exception | None = None
        try:
            answer = work()
        except Exception as raised:
            if not isinstance(raised, OSError | OperatorError):
                log.exception("a task of the pager failed")
            answer = fault = raised
        self._say(fault)
        self._post(lambda: done(answer))

    def _say(self, fault: Exception | None) -> None:
        """Once when it begins and once when it is over: a full disk answers as often as it is asked."""
        if fault is not None and not self._faulty:
            log.error("%s: what is to be paged can't be written or read: %s", self._file.path, fault)
        elif fault is None and self._faulty:
            log.warning("%s: it can be written and read again", self._file.path)
        self._faulty = fault is not None

    def _run(self) -> None:
        while True:
            what, _, job = self._jobs.get()
            if what == _END:
                return
            try:
                job()
            except Exception:
                log.exception("a task of the pager failed")
