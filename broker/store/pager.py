"""The temporary store: runs of messages that left memory, in one file that is emptied at start.

Nothing here survives a restart or needs to. One thread does the reading and writing; answers reach
the owner's thread through ``post``. Who reads waits for one write at most: consumers are behind it.
Runs that wait to be written together are one write, for each time this thread wants to go on it takes the
interpreter from the owner's (bench: nine subscribers beside a stalled one that pages).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.pagefile import PageFile, Place

log = logging.getLogger("sluice.store")

TEMP = "temp"

Done = Callable[[object], None]

# What comes first of all that is asked for.
_END, _READ, _WRITE = range(3)
# Most of one write; a run that is larger is one of its own.
WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Write:
    """A run to be put on disk, and who wants to hear where."""

    blob: bytes
    done: Done


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
        self._file = PageFile(folder / "runs", empty=True)
        # What, number in order of asking, and the run or how.
        self._jobs: queue.PriorityQueue[tuple[int, int, _Write | Callable[[], None]]] = queue.PriorityQueue()
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
        self._ask(_WRITE, _Write(blob, done))

    def read(self, place: object, done: Done) -> None:
        """Read a run; the answer is its bytes."""
        self._ask(_READ, lambda: self._read(place, done))

    def free(self, place: object) -> None:
        """The run is not needed any more; reading it may have been asked for before, not after."""
        if isinstance(place, Place):
            self._ask(_WRITE, lambda: self._file.free(place))

    def close(self) -> None:
        """Let go of the file; what was asked for and isn't done is nobody's any more."""
        self._ask(_END, lambda: None)
        self._thread.join()
        self._file.close()

    def _ask(self, what: int, job: _Write | Callable[[], None]) -> None:
        self._asked += 1
        self._jobs.put((what, self._asked, job))

    def _load(self, place: object) -> bytes:
        if isinstance(place, Elsewhere):
            return place.load()
        assert isinstance(place, Place)
        return self._file.read(place)

    def _read(self, place: object, done: Done) -> None:
        answer: object
        try:
            answer = self._load(place)
        except (OSError, OperatorError) as fault:
            answer = fault
        self._say(answer if isinstance(answer, Exception) else None)
        self._post(lambda: done(answer))

    def _write(self, runs: list[_Write]) -> None:
        answers: Sequence[object]
        try:
            answers = self._file.write_several([run.blob for run in runs])
            self._say(None)
        except OSError as fault:
            answers = [fault] * len(runs)
            self._say(fault)

        def answer() -> None:
            for run, place in zip(runs, answers, strict=True):
                run.done(place)

        self._post(answer)

    def _say(self, fault: Exception | None) -> None:
        """Once when it begins and once when it is over: a full disk answers as often as it is asked."""
        if fault is not None and not self._faulty:
            log.error("%s: what is to be paged can't be written or read: %s", self._file.path, fault)
        elif fault is None and self._faulty:
            log.warning("%s: it can be written and read again", self._file.path)
        self._faulty = fault is not None

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception:
                log.exception("a task of the pager failed")

    def _next(self) -> Callable[[], None] | None:
        """What to do next; runs that wait one behind the other are one task. None: leave."""
        what, number, job = self._jobs.get()
        if what == _END:
            return None
        if not isinstance(job, _Write):
            return job
        runs, nbytes = [job], len(job.blob)
        with suppress(queue.Empty):
            while True:
                what, number, job = self._jobs.get_nowait()
                if not isinstance(job, _Write) or nbytes + len(job.blob) > WRITE_BYTES:
                    self._jobs.put((what, number, job))
                    break
                runs.append(job)
                nbytes += len(job.blob)
        return lambda: self._write(runs)
