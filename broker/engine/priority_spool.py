"""The part of a deep priority queue that is on disk: each level has runs of its own.

So what is on disk of a low level is in nobody's way: a message of a higher level leaves before it without
being read late. The lowest levels go to disk first. What is read ahead in memory, ``ahead_bytes``, the levels
that have messages share. In a strict queue lower levels wait while the next messages of a higher one are on
their way from disk, but not where that can't be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from broker import constants
from broker.engine.spool import Message, PagerPort, Run, Spool
from broker.queues.priority import PriorityQueue
from broker.queues.queue import Reader


class LevelSpool(Spool):
    """The runs of one level; the whole is told when they come back."""

    whole: PrioritySpool

    def _take_in(self) -> None:
        super()._take_in()
        self.whole.refresh()


class PrioritySpool(Spool):
    """The spools of a priority queue's levels under the face of one; its counters are the sums of theirs."""

    def __init__(
        self,
        queue: PriorityQueue,
        pager: PagerPort,
        on_loaded: Callable[[Run, list[Message]], None],
        on_memory: Callable[[int], None],
        on_disk: Callable[[int], None],
        on_answer: Callable[[], None] = lambda: None,
        **others: Any,
    ) -> None:
        super().__init__(queue, pager, on_loaded, on_memory, on_disk, on_answer, **others)
        self._order = queue
        self._measuring: Spool | None = None
        self.levels = [self._level(number, others) for number in range(len(queue.levels))]

    def _level(self, number: int, others: dict[str, Any]) -> LevelSpool:
        on_scanned = self.on_scanned

        def loaded(run: Run, messages: list[Message]) -> None:
            self.refresh()
            self.on_loaded(run, messages)

        def answered() -> None:
            self.refresh()
            self.on_answer()

        def scanned(run: Run, messages: list[Message]) -> list[Message]:
            self._measuring = made
            found: list[Message] = messages if on_scanned is None else on_scanned(run, messages)
            self.refresh()
            return found

        made = LevelSpool(
            self._order.levels[number],
            self.pager,
            loaded,
            self.on_memory,
            self.on_disk,
            answered,
            **{**others, "on_scanned": scanned},
        )
        made.whole = self
        return made

    def refresh(self) -> None:
        """Set the sums right after something happened to a level's runs."""
        self.count = self.nbytes = self.paged_out = self.paged_in = 0
        self.write_fault = self.read_fault = self.look_fault = None
        first: deque[Run] = deque()
        for level in self.levels:
            self.count += level.count
            self.nbytes += level.nbytes
            self.paged_out += level.paged_out
            self.paged_in += level.paged_in
            self.husks += level.husks
            level.husks = 0
            self.grown += level.grown
            level.grown = 0
            self.write_fault = self.write_fault or level.write_fault
            self.read_fault = self.read_fault or level.read_fault
            self.look_fault = self.look_fault or level.look_fault
            if level.runs:
                first.append(level.runs[0])
        self.runs = first
        self._order.recount()

    def page_out(self, nbytes: int) -> int:
        """Put messages of about so many bytes on disk, of the lowest levels first; how many left memory."""
        moved = 0
        self._share_ahead()
        for level in self.levels:
            if nbytes <= 0:
                break
            before = level.nbytes
            moved += level.page_out(nbytes)
            nbytes -= level.nbytes - before
        self.refresh()
        return moved

    def add(self, run: Run) -> None:
        """Runs that were on disk before are of one level each: ``add_to``."""
        raise NotImplementedError

    def add_to(self, number: int, run: Run) -> None:
        """A run that was on disk before us, with messages of this level alone, behind all others of it."""
        self.levels[number].add(run)
        self.refresh()

    def read_ahead(self, now_ns: int = 0, room_bytes: int = constants.UNBOUNDED) -> None:
        """Ask for what will be needed soon, of the highest levels first.

        Without room in memory nothing is read of a level while a higher one has messages ready.
        """
        self._share_ahead()
        is_ready = False
        for level in reversed(self.levels):
            if room_bytes > 0 or not is_ready or level.is_over(now_ns):
                level.read_ahead(now_ns, room_bytes)
            is_ready = is_ready or level.queue.ready > 0
        self.refresh()

    def _share_ahead(self) -> None:
        """Let the levels that have messages share what may be read ahead."""
        count = sum(1 for level in self.levels if level.runs or level.queue.head is not None)
        for level in self.levels:
            level.ahead_bytes = max(self.ahead_bytes // max(count, 1), 1)

    def tidy(self) -> None:
        """Let go of what readers have emptied."""
        for level in self.levels:
            level.tidy()
        self.refresh()

    def is_over(self, now_ns: int) -> bool:
        """Whether all of a level's first run has expired."""
        return any(level.is_over(now_ns) for level in self.levels)

    def retry(self) -> None:
        """Try again what failed."""
        for level in self.levels:
            level.retry()
        self.refresh()

    def drop(self) -> tuple[int, int, list[Run]]:
        """Forget every run: how many messages and bytes they held, and the runs."""
        dropped = [level.drop() for level in self.levels]
        self.refresh()
        runs = [run for _, _, of_level in dropped for run in of_level]
        return sum(count for count, _, _ in dropped), sum(nbytes for _, nbytes, _ in dropped), runs

    def measure(self, run: Run, count: int, nbytes: int) -> tuple[int, int]:
        """What a run of the level that was looked at holds; how much more that is than was counted."""
        assert self._measuring is not None, "a level's run was read"
        found = self._measuring.measure(run, count, nbytes)
        self.refresh()
        return found

    def left_for(self, reader: Reader) -> int:
        """How many messages a reader has yet to look at on disk, in all levels."""
        if reader.parts is None:
            return 0
        return sum(level.left_for(part) for level, part in zip(self.levels, reader.parts, strict=True))
