"""A look at a queue's messages, oldest first, wherever they are: in memory, or on disk only.

Where messages leave by their priority those of the highest come first. What is on disk is read a run at a
time; who looks is told when to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker import constants
from broker.engine.node import Node
from broker.engine.priority_spool import PrioritySpool
from broker.engine.spool import Message, Run, Spool
from broker.errors import NotFoundError, OperatorError
from broker.manage.views import Browsed, BrowsedMessage, browsed
from broker.queues.priority import PriorityQueue
from broker.queues.queue import Entry, Queue, Reader
from broker.store.port import DURABLE, REDELIVERED

# How much of a queue one look shows at most.
BROWSE_BYTES = 1 << 19
ON_DISK = "on disk"


class Browsing:
    """Up to ``count`` messages behind the first ``offset``; fewer where they are large.

    ``told`` is called on the reactor's thread when a look that couldn't be finished can go on.
    """

    def __init__(self, node: Node, offset: int, count: int, told: Callable[[], None]) -> None:
        self._node = node
        self._skip = offset
        self._count = count
        self.told = told
        self._found: list[BrowsedMessage] = []
        self._nbytes = 0
        self._full = count == 0
        self._waits = False
        # Whether somebody waits for it already.
        self.resumed = False
        # How far it is in each of the queue's lists; nothing is shown to it by the queue.
        self._places = _places_of(node)
        self._queue, self._level, self._reader = self._places[0]
        self._seen = node.queue

    def go_on(self) -> Browsed | None:
        """Return the messages there are to see; None while some of them have to be read first.

        NotFoundError where the queue is gone meanwhile, OperatorError where its disk can't be read.
        """
        if self._node.deleted:
            raise NotFoundError(f"'{self._node.name}' was deleted")
        if self._seen is not self._node.queue:
            raise OperatorError(f"the order of '{self._node.name}' has changed meanwhile: look again")
        while not self._look():
            if self._waits:
                return None
            self._places.pop(0)
            self._queue, self._level, self._reader = self._places[0]
        spool = self._node.spool
        return Browsed(tuple(self._found), 0 if spool is None else spool.count)

    def _look(self) -> bool:
        """Meet the messages of one list; false where there are others to look at, or it ``_waits``."""
        self._waits = False
        entries = self._entries()
        entry = next(entries, None)
        while not self._full:
            run = self._run()
            before = constants.UNBOUNDED if run is None else run.first
            while entry is not None and entry.seq < before and not self._full:
                self._meet(entry.seq, browsed(entry))
                entry = next(entries, None)
            if run is None or self._full:
                break
            inside: list[Entry] = []
            while entry is not None and entry.seq <= run.last:
                inside.append(entry)
                entry = next(entries, None)
            if not self._pass(run, inside):
                self._waits = True
                return False
        return self._full or len(self._places) == 1

    def _entries(self) -> Iterator[Entry]:
        """Those in memory that it hasn't met yet."""
        return (entry for entry in self._queue if entry.seq > self._reader.passed)

    def _run(self) -> Run | None:
        spool = self._spool()
        return None if spool is None else spool.run_of(self._reader)

    def _spool(self) -> Spool | None:
        """The spool of the list that is looked at."""
        spool = self._node.spool
        return spool.levels[self._level] if isinstance(spool, PrioritySpool) else spool

    def _pass(self, run: Run, inside: list[Entry]) -> bool:
        """Meet what is in a run and between its messages; false where it has to be read first."""
        spool = self._spool()
        assert spool is not None, "it has a run"
        if self._reader.passed < run.first and run.count + len(inside) <= self._skip:
            self._skip -= run.count + len(inside)
            self._reader.passed = run.last
            return True
        messages = self._messages(spool, run)
        if messages is None:
            return False
        shown = [self._shown(each) for each in run.left(messages) if each[0] > self._reader.passed]
        shown += [browsed(entry) for entry in inside]
        for each in sorted(shown, key=_number):
            if self._full:
                return True
            self._meet(each.number, each)
        if not self._full:
            self._reader.passed = run.last
        return True

    def _messages(self, spool: Spool, run: Run) -> list[Message] | None:
        if run.fault is not None:
            raise OperatorError(f"messages of '{self._node.name}' can't be read: {run.fault}")
        messages = spool.scans.messages(spool, run)
        if messages is None:
            spool.scans.ask(spool, run, lambda: self.told())
            # A turn that ends asks for it.
            spool.on_answer()
        return messages

    def _meet(self, number: int, message: BrowsedMessage) -> None:
        if self._skip > 0:
            self._skip -= 1
        elif self._found and self._nbytes + len(message.message) > BROWSE_BYTES:
            self._full = True
            return
        else:
            self._found.append(message)
            self._nbytes += len(message.message)
            self._full = len(self._found) == self._count
        self._reader.passed = number

    def _shown(self, message: Message) -> BrowsedMessage:
        seq, flags, delivery_count, _, data = message
        body = self._node.bodies.get(seq)
        return BrowsedMessage(
            number=seq,
            state=ON_DISK,
            bytes=len(data) + (0 if body is None else body[0].size),
            durable=bool(flags & DURABLE),
            delivery_count=delivery_count,
            redelivered=bool(flags & REDELIVERED),
            message=data,
        )


def _places_of(node: Node) -> list[tuple[Queue, int, Reader]]:
    """The lists that a node's messages are in, each with its level and how far somebody is there.

    There is one; of a priority queue one for each level, the highest first.
    """
    queue = node.queue
    if not isinstance(queue, PriorityQueue):
        return [(queue, 0, Reader(None, None, True))]
    numbered = list(enumerate(queue.levels))
    return [(level, number, Reader(None, None, True)) for number, level in reversed(numbered)]


def _number(message: BrowsedMessage) -> int:
    return message.number
