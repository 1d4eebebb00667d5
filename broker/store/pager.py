"""The temporary store: runs of messages that left memory, in one file that is emptied at start.

Nothing here survives a restart or needs to. One thread does the reading and writing; answers reach
the owner's thread through ``post``.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.pagefile import PageFile, Place

log = logging.getLogger("sluice.store")

TEMP = "temp"

Done = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Messages that are kept somewhere else, and how to get at them; they are never freed here."""

    load: Callable[[], bytes]


class Pager:
    """Writes, reads and frees runs in order of asking. ``done`` gets the answer, or the exception."""

    def __init__(self, directory: Path, post: Callable[[Callable[[], None]], None]) -> None:
        folder = directory / TEMP
        folder.mkdir(parents=True, exist_ok=True)
        self._post = post
        self._file = PageFile(folder / "runs", empty=True)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sluice-pager", daemon=True)
        self._thread.start()

    @property
    def used_bytes(self) -> int:
        """What the runs take on disk."""
        return self._file.used_bytes

    def write(self, blob: bytes, done: Done) -> None:
        """Put a run on disk; the answer is its place."""
        self._jobs.put(lambda: self._answer(lambda: self._file.write(blob), done))

    def read(self, place: object, done: Done) -> None:
        """Read a run; the answer is its bytes."""
        self._jobs.put(lambda: self._answer(lambda: self._load(place), done))

    def free(self, place: object) -> None:
        """The run is not needed any more."""
        if isinstance(place, Place):
            self._jobs.put(lambda: self._file.free(place))

    def close(self) -> None:
        """Finish and let go of the file."""
        self._jobs.put(None)
        self._thread.join()
        self._file.close()

    def _load(self, place: object) -> bytes:
        if isinstance(place, Elsewhere):
            return place.load()
        assert isinstance(place, Place)
        return self._file.read(place)

    def _answer(self, work: Callable[[], object], done: Done) -> None:
        answer: object
        try:
            answer = work()
        except (OSError, OperatorError) as fault:
            log.error("paging: %s", fault)
            answer = fault
        self._post(lambda: done(answer))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a task of the pager failed")
