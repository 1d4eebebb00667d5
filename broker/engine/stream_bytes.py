"""How many bytes of a stream's messages are behind an offset, where only a disk can tell.

Sums of sizes are known for what is in memory (``StreamQueue.bytes_from``) and at one place before that, the
last one that was asked for. From the nearest known place to another one the heads of the blocks between are
read, on the pager's thread; until the answer is there a number stands that is too large, and never one too
small.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.constants import STAMP_BYTES
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.store.port import OffsetGone, StreamLog

# What is walked of files in one job, so that readers get their turn.
COUNT_BYTES = 16 << 20
# How many such parts are walked at a start before anybody is served.
MOST_AT_ONCE = 64

Run = Callable[[Callable[[], object], Callable[[object], None]], None]


class _Count:
    """A count from ``at`` to ``end``: of these ``known`` is where the sum is known, ``wanted`` the other one.

    ``anew`` where nothing but the size of the whole log bounded what is counted, and closes the gate.
    """

    def __init__(self, source: StreamLog, wanted: int, known: int, known_sum: int, anew: bool) -> None:
        self.source = source
        self.wanted = wanted
        self.known = known
        self.known_sum = known_sum
        self.anew = anew
        self.at, self.end = min(wanted, known), max(wanted, known)
        self.nbytes = 0

    def go_on(self) -> bool:
        """Count a part more, on any thread; return whether that was the last one. OffsetGone, DamagedStore,
        OSError.
        """
        if self.at < self.end:
            upto, nbytes = self.source.count_bytes(self.at, self.end, COUNT_BYTES)
            self.nbytes += nbytes - STAMP_BYTES * (upto - self.at)
            self.at = upto
        return self.at >= self.end

    def sum(self) -> int:
        """Return the sum at the wanted place."""
        return self.known_sum + (self.nbytes if self.wanted > self.known else -self.nbytes)


class StreamBytes:
    """Counts for every stream; ``run`` has a job done on another thread.

    ``on_counted`` is told of a node whose bytes are known by now, and whether the size of the whole log stood
    for them until now.
    """

    def __init__(self, on_counted: Callable[[Node, bool], None]) -> None:
        self.run: Run | None = None
        self._on_counted = on_counted
        self._counts: dict[Node, _Count] = {}
        self._failed: set[Node] = set()

    def behind(self, node: Node, offset: int, at_once: bool) -> int:
        """Return how many bytes a stream's messages from an offset on have, or more where it isn't known yet.

        ``at_once``: it is read now, before anybody is served.
        """
        stream, source = node.stream, node.shelf
        assert stream is not None, "it is a stream"
        found = stream.bytes_from(offset)
        if found >= 0:
            return found
        assert isinstance(source, StreamLog), "without a log all of it is in memory"
        offset = max(offset, source.first_offset)
        found = stream.bytes_from(offset)
        if found < 0:
            self._begin(node, source, offset, at_once)
            found = stream.bytes_from(offset)
        if found < 0 and 0 <= stream.counted_offset <= offset:
            found = stream.total_bytes - stream.counted_sum
        return source.nbytes if found < 0 else found

    def retry(self) -> None:
        """Let what failed be tried again."""
        self._failed.clear()

    def forget(self, node: Node) -> None:
        """A stream is gone."""
        self._counts.pop(node, None)
        self._failed.discard(node)

    def _begin(self, node: Node, source: StreamLog, offset: int, at_once: bool) -> None:
        stream = node.stream
        if stream is None or node in self._counts or node in self._failed:
            return
        known, known_sum = stream.tail_first, stream.total_bytes - stream.bytes_from(stream.tail_first)
        counted = stream.counted_offset
        is_there = counted >= source.first_offset or counted > offset
        if counted >= 0 and is_there and abs(counted - offset) < known - offset:
            known, known_sum = counted, stream.counted_sum
        # One that was full by what it had stays so until it has been drained.
        anew = not 0 <= counted <= offset and not node.gate.full
        count = _Count(source, offset, known, known_sum, anew)
        if at_once:
            self._count_now(node, count)
        elif self.run is not None:
            self._counts[node] = count
            self._go_on(node, count)

    def _count_now(self, node: Node, count: _Count) -> None:
        try:
            for _ in range(MOST_AT_ONCE):
                if count.go_on():
                    self._set(node, count)
                    return
            # So long a log is counted while others are served; until then a larger number stands.
        except (OSError, OperatorError, OffsetGone):
            # Those who read there are told; what is counted is too much until it can be read.
            self._failed.add(node)

    def _go_on(self, node: Node, count: _Count) -> None:
        assert self.run is not None

        def job() -> object:
            try:
                return count.go_on()
            except OffsetGone as gone:
                return gone

        self.run(job, lambda answer: self._answer(node, count, answer))

    def _answer(self, node: Node, count: _Count, answer: object) -> None:
        if self._counts.get(node) is not count or node.deleted:
            return
        if answer is False:
            self._go_on(node, count)
            return
        del self._counts[node]
        if answer is True:
            self._set(node, count)
        elif not isinstance(answer, OffsetGone):
            self._failed.add(node)
            return
        self._on_counted(node, count.anew and answer is True)

    def _set(self, node: Node, count: _Count) -> None:
        if node.stream is not None:
            node.stream.counted_offset, node.stream.counted_sum = count.wanted, count.sum()
