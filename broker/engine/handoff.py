"""A queue goes to another engine: it stands still here, its messages are read in order, and put in there.

While a queue is frozen nothing of it changes: no message is handed out, expires or becomes due, and producers
have no credit. Whoever freezes it thaws it or deletes it. Nothing here knows where the other engine is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from broker import constants
from broker.codec import message
from broker.engine.durability import SEEN
from broker.engine.node import Node
from broker.engine.priority_spool import PrioritySpool
from broker.errors import OperatorError
from broker.queues.priority import PriorityQueue
from broker.queues.queue import Entry, Queue, Reader
from broker.store.port import DURABLE, REDELIVERED, SPARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.engine.engine import Engine
    from broker.engine.spool import Run, Spool

# How much of a queue is read, or put in, at a time.
MOST_MSGS = 2000
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HandedMessage:
    """A message with all that its queue knows of it; times in milliseconds of the wall clock, 0 for none.

    ``flags`` are those of the store (``store.port``). One with a ``due_ms`` waits for that time.
    """

    flags: int
    delivery_count: int
    expires_ms: int
    due_ms: int
    data: bytes


def why_not(node: Node) -> str:
    """Return why a node can't go to another engine, empty if it can."""
    if node.stream is not None or node.settings.partitions:
        return "it is a stream, whose offsets and readers stay with its files"
    if node.is_subscription:
        return "it is a subscription, which is where its topic is"
    if node.subscriptions:
        return "it is a topic with subscriptions or bound queues: unbind and remove them first"
    if node.topics:
        return "it is bound to a topic: unbind it first"
    if node.bridges or node.bridge_sources:
        return "a bridge begins or ends there: remove it first"
    if node.bodies:
        return "it has messages whose bodies are in files (large_message_size): let them leave first"
    return ""


def freeze(engine: Engine, node: Node) -> None:
    """Have nothing of a node change any more but by outcomes of what is out; producers lose their credit."""
    engine.delivery.freeze(node)
    engine.expirations.forget(node)
    engine.schedules.pause(node)
    engine.changes.hold(node, True)


def thaw(engine: Engine, node: Node) -> None:
    """Have a node go on; the caller lets producers send again."""
    engine.delivery.thaw(node)
    engine.expirations.resume(node)
    engine.schedules.resume(node)
    # Before anything goes out: the time of some may be over since.
    engine.settlement.expire()
    engine.turn.mark_dirty(node)


def admit_parked(node: Node) -> int:
    """Take in what came on credit that had been taken back, as far as the thresholds have room; return how
    many those were.
    """
    gate = node.gate
    admitted = 0
    for account in list(node.allocator.accounts):
        while account.parked:
            size = account.parked[0][1]
            gate.held = False
            fits = gate.could_hold(1, size) and node.gate.depth_bytes + size <= node.hard_bytes
            gate.held = True
            if not fits:
                break
            parked, size = account.next_parked()
            account.port.admit(parked, size)
            admitted += 1
    return admitted


def unrest(engine: Engine, node: Node) -> str:
    """Return what of a frozen node isn't settled yet, empty if all is: then ``Capture`` may begin."""
    if node.deleted:
        raise OperatorError(f"'{node.name}' was deleted")
    if any(move.source is node for move in engine.moves):
        return "an operator moves messages out of it"
    if node.transactions:
        return "a transaction is open that has messages of it"
    if node.letters is not None and node.letters.waiting_msgs():
        return f"{node.letters.waiting_msgs()} of its dead letters wait for room"
    if node.queue.acquired:
        return f"{node.queue.acquired} messages are unsettled at consumers"
    if node.queue.pending:
        return "messages wait for the disk"
    return ""


class Capture:
    """Reads all messages of a frozen node, in the order of each of its lists, a part at a time.

    ``told`` is called, on the engine's thread, when a part that had to wait for the disk can be taken.
    """

    def __init__(self, engine: Engine, node: Node, told: Callable[[], None]) -> None:
        self._engine = engine
        self._node = node
        self._told = told
        self._places = _places_of(node)
        self._queue = node.queue
        # The last entry of the current list that was taken, where nothing is paged.
        self._last: Entry | None = None
        self._delayed = iter(sorted(node.schedule, key=lambda each: each.seq) if node.schedule else ())
        self._ids = iter(node.duplicates.ids() if node.duplicates is not None else ())
        self.count = 0

    def ids(self) -> list[tuple[bytes, int]]:
        """Return the next message-ids that the node remembers, each with when it came; none at the end."""
        return list(islice(self._ids, MOST_MSGS))

    def take(self) -> list[HandedMessage] | None:
        """Return the next messages, none at the end; None while they have to be read from disk first.

        OperatorError where they can't be.
        """
        if self._node.deleted or self._node.queue is not self._queue:
            raise OperatorError(f"'{self._node.name}' has changed meanwhile")
        found: list[HandedMessage] = []
        nbytes = 0
        while self._places:
            for each in self._of_list():
                found.append(each)
                nbytes += len(each.data)
                if len(found) >= MOST_MSGS or nbytes >= MOST_BYTES:
                    break
            else:
                if self._is_waiting():
                    if found:
                        break
                    return None
                self._places.pop(0)
                self._last = None
                continue
            break
        if not self._places:
            found += self._of_schedule(nbytes, MOST_MSGS - len(found))
        self.count += len(found)
        return found

    # --- inside

    def _of_list(self) -> Iterator[HandedMessage]:
        """Yield what comes next in the current list, until its end, or a run that has to be read."""
        queue, _, reader = self._places[0]
        if self._spool() is None:
            entry = queue.head if self._last is None else self._last.next
            while entry is not None:
                self._last = entry
                following = entry.next
                yield self._of_entry(entry)
                entry = following
            return
        entries = iter([entry for entry in queue if entry.seq > reader.passed])
        entry = next(entries, None)
        while True:
            run = self._run()
            before = constants.UNBOUNDED if run is None else run.first
            while entry is not None and entry.seq < before:
                reader.passed = entry.seq
                yield self._of_entry(entry)
                entry = next(entries, None)
            if run is None:
                return
            messages = self._messages(run)
            if messages is None:
                return
            inside: dict[int, HandedMessage] = {}
            while entry is not None and entry.seq <= run.last:
                inside[entry.seq] = self._of_entry(entry)
                entry = next(entries, None)
            for seq, flags, delivery_count, expires_ns, data in run.left(messages):
                expires_ms = self._wall_ms(expires_ns) if expires_ns else 0
                inside.setdefault(seq, HandedMessage(flags, delivery_count, expires_ms, 0, data))
            for seq in sorted(inside):
                if seq > reader.passed:
                    reader.passed = seq
                    yield inside[seq]
            reader.passed = max(reader.passed, run.last)

    def _of_entry(self, entry: Entry) -> HandedMessage:
        if entry.state == constants.ACQUIRED:
            raise OperatorError(f"'{self._node.name}' has changed meanwhile")
        flags = DURABLE if entry.durable else 0
        flags |= REDELIVERED if entry.redelivered else 0
        flags |= SPARED if entry.spared else 0
        data, expires_ms = entry.data, 0
        if entry.extra is not None:
            expires_ms = self._wall_ms(entry.extra.expires_ns) if entry.extra.expires_ns else 0
            if entry.extra.annotations:
                data = message.with_annotations(data, entry.extra.annotations)
        return HandedMessage(flags, entry.delivery_count, expires_ms, 0, data)

    def _of_schedule(self, nbytes: int, most: int) -> list[HandedMessage]:
        found: list[HandedMessage] = []
        while nbytes < MOST_BYTES and len(found) < most:
            delayed = next(self._delayed, None)
            if delayed is None:
                break
            flags = DURABLE if delayed.durable else 0
            flags |= REDELIVERED if delayed.redelivered else 0
            flags |= SPARED if delayed.spared else 0
            data = delayed.data
            if delayed.extra is not None and delayed.extra.annotations:
                data = message.with_annotations(data, delayed.extra.annotations)
            due_ms, expires_ms = self._engine.schedules.due_ms(delayed)
            found.append(HandedMessage(flags, delayed.delivery_count, expires_ms, due_ms, data))
            nbytes += len(data)
        return found

    def _wall_ms(self, time_ns: int) -> int:
        return (time_ns + self._engine.turn.epoch_ns + 999_999) // 1_000_000

    def _spool(self) -> Spool | None:
        spool = self._node.spool
        if isinstance(spool, PrioritySpool):
            found: Spool = spool.levels[self._places[0][1]]
            return found
        return spool

    def _run(self) -> Run | None:
        spool = self._spool()
        return None if spool is None else spool.run_of(self._places[0][2])

    def _messages(self, run: Run) -> list[tuple[int, int, int, int, bytes]] | None:
        if run.fault is not None:
            raise OperatorError(f"messages of '{self._node.name}' can't be read: {run.fault}")
        spool = self._spool()
        assert spool is not None, "it has a run"
        messages = spool.scans.messages(spool, run)
        if messages is None:
            spool.scans.ask(spool, run, self._told)
            # A turn that ends asks for it.
            spool.on_answer()
        return messages

    def _is_waiting(self) -> bool:
        return self._run() is not None


class Reception:
    """Puts messages of another engine's queue into a frozen one that was made for them."""

    def __init__(self, engine: Engine, node: Node) -> None:
        self._engine = engine
        self._node = node
        self.count = 0

    def remember(self, ids: list[tuple[bytes, int]]) -> None:
        """Have the node know ids of messages that came before, as the other did."""
        node = self._node
        if node.duplicates is None:
            return
        for message_id, when_ms in ids:
            place, note, gone = node.duplicates.remember(message_id, when_ms)
            if node.shelf is not None:
                self._engine.durability.note(f"{SEEN}{node.name}/{place}", note)
                self._engine.durability.forget_seen(node.name, gone)

    def put(self, messages: list[HandedMessage]) -> None:
        """Put in messages, in order. OperatorError where the broker's budgets have no room for them."""
        self._check_room(sum(len(each.data) for each in messages))
        engine, node = self._engine, self._node
        for each in messages:
            self.count += 1
            if each.due_ms:
                rest = each.expires_ms, each.delivery_count, each.flags
                engine.schedules.take_in(node, each.data, each.due_ms, *rest)
                continue
            keep = each.flags & DURABLE != 0 and node.shelf is not None
            entry = node.queue.append(each.data, keep)
            entry.delivery_count = each.delivery_count
            entry.redelivered = each.flags & REDELIVERED != 0
            entry.spared = each.flags & SPARED != 0
            if each.expires_ms:
                engine.expirations.set_deadline_ms(node, entry, each.expires_ms)
            engine.depths.enter(node, len(each.data))
            if keep:
                engine.durability.keep(node, entry, each.expires_ms)
                if entry.redelivered:
                    engine.durability.update(node, entry)
        engine.expirations.forget(node)
        engine.schedules.pause(node)
        engine.turn.mark_dirty(node)

    def _check_room(self, nbytes: int) -> None:
        depths, node = self._engine.depths, self._node
        if self._engine.durability.has_failed():
            raise OperatorError("its store has failed")
        named = []
        if node.shelf is not None:
            named.append(("store_limit", depths.disk))
        if node not in self._engine.topology.paging:
            named.append(("memory_limit", depths.memory))
        for name, gate in named:
            if gate.stop_bytes and gate.depth_bytes + gate.promised_bytes + nbytes > gate.stop_bytes:
                raise OperatorError(f"its {name} has no room for the messages of '{node.name}'")


def _places_of(node: Node) -> list[tuple[Queue, int, Reader]]:
    """The lists that a node's messages are in: one, or one for each level, the highest first."""
    queue = node.queue
    if not isinstance(queue, PriorityQueue):
        return [(queue, 0, Reader(None, None, True))]
    numbered = list(enumerate(queue.levels))
    return [(level, number, Reader(None, None, True)) for number, level in reversed(numbered)]
