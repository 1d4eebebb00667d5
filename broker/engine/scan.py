"""Runs that readers look at on disk: over all queues so many are read at once, and so many held.

A run that was read serves every reader that comes to it while it is held. Those that are asked for are read
in the order in which they were, whatever the queue: nobody is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

# Number, flags, delivery count, expiry, bytes: as ``spool.Message``.
Scanned = tuple[int, int, int, int, bytes]

# Runs being read at once, and held: in number, and in bytes (but for one, and those that just came).
MOST_READING = 8
MOST_HELD = 16
MOST_BYTES = 1 << 21


class ScannedRun(Protocol):
    """A run of messages on disk (``spool.Run``)."""

    scanned: list[Scanned] | None
    blob: bytes | None
    fault: Exception | None
    gone: bool

    def is_empty(self) -> bool: ...

    def decode(self, blob: bytes) -> list[Scanned]: ...


class RunReader(Protocol):
    """A queue's messages on disk (``spool.Spool``), which reads runs and is told of them."""

    on_memory: Callable[[int], None]
    on_answer: Callable[[], None]

    def look_up(self, run: Any) -> None: ...

    def scanned(self, run: Any, messages: list[Scanned]) -> list[Scanned]: ...


class Scans:
    """The runs held for readers, oldest use first; ``asked`` are those that have yet to be read.

    ``told`` is called once for each who asked in so many words (``ask``), when the run is there or won't be.
    """

    def __init__(self) -> None:
        self.asked: dict[ScannedRun, RunReader] = {}
        self.reading: dict[ScannedRun, RunReader] = {}
        self.nbytes = 0
        self._held: dict[ScannedRun, tuple[RunReader, int]] = {}
        self._fresh: set[ScannedRun] = set()
        self._used: set[ScannedRun] = set()
        self._told: dict[ScannedRun, list[Callable[[], None]]] = {}

    def messages(self, spool: RunReader, run: ScannedRun) -> list[Scanned] | None:
        """The run's messages; None while they have to be read, which ``spool.on_answer`` tells."""
        if run.is_empty():
            return []
        if run.scanned is not None:
            self._held[run] = self._held.pop(run)
            self._used.add(run)
            return run.scanned
        if run.blob is not None:
            return self._hold(spool, run, run.blob)
        if run.fault is None and run not in self.reading:
            self.asked.setdefault(run, spool)
        return None

    def ask(self, spool: RunReader, run: ScannedRun, told: Callable[[], None]) -> None:
        """Read a run that ``messages`` hasn't got; ``told`` is called once it has, or there is a fault."""
        if self.messages(spool, run) is not None or run.fault is not None:
            told()
        else:
            self._told.setdefault(run, []).append(told)

    def read(self) -> None:
        """Begin to read what was asked for, as far as may be at once. At the end of a turn: those who asked
        for what is held have had a look at it.
        """
        self._fresh.clear()
        while self.asked and len(self.reading) < MOST_READING:
            run = next(iter(self.asked))
            spool = self.asked.pop(run)
            if run.gone or run.blob is not None:
                self._tell(spool, run)
            else:
                self.reading[run] = spool
                spool.look_up(run)

    def answered(self, spool: RunReader, run: ScannedRun, answer: object) -> None:
        """The pager's answer."""
        self.reading.pop(run, None)
        if isinstance(answer, bytes) and not run.gone:
            # Not let go before those who asked for it have had a look.
            self._fresh.add(run)
            self._hold(spool, run, answer)
        elif isinstance(answer, Exception):
            run.fault = answer
        self._tell(spool, run)

    def let_go(self, run: ScannedRun) -> None:
        """The run isn't on disk any more, or has nothing left."""
        held = self._held.pop(run, None)
        if held is not None:
            spool, nbytes = held
            run.scanned = None
            self.nbytes -= nbytes
            spool.on_memory(-nbytes)
        self._fresh.discard(run)
        self._used.discard(run)
        spool_asked = self.asked.pop(run, None)
        if spool_asked is not None:
            self._tell(spool_asked, run)

    def sweep(self) -> None:
        """Once a second: what nobody looked at since the last time isn't held any longer."""
        for run in [run for run in self._held if run not in self._used]:
            self.let_go(run)
        self._used.clear()

    def _hold(self, spool: RunReader, run: ScannedRun, blob: bytes) -> list[Scanned]:
        messages = spool.scanned(run, run.decode(blob))
        run.scanned = messages
        self._held[run] = (spool, len(blob))
        self._used.add(run)
        self.nbytes += len(blob)
        spool.on_memory(len(blob))
        for old in [each for each in self._held if each is not run and each not in self._fresh]:
            if len(self._held) <= MOST_HELD and self.nbytes <= MOST_BYTES:
                break
            self.let_go(old)
        return messages

    def _tell(self, spool: RunReader, run: ScannedRun) -> None:
        for told in self._told.pop(run, []):
            told()
        spool.on_answer()
