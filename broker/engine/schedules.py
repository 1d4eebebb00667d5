"""Messages that are delivered later: those that come with a time, and those that are tried again.

Such a message counts at its node from the moment it arrives, so that all of them becoming ready at once is
no more than the node has room for. It waits in the node's ``Schedule`` and, when its time has come, goes to
the end of the queue under a new number. A durable one is kept in a log of its own beside the node's, each
record with the time in front; from there to the node's log it goes in one group.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable

from broker import constants
from broker.codec import message
from broker.engine.bodies import NodeBodies
from broker.engine.changes import Changes
from broker.engine.departure import Departure
from broker.engine.depths import Depths
from broker.engine.durability import Durability
from broker.engine.expirations import Expirations
from broker.engine.large import LargeMessages, dress
from broker.engine.last_values import LastValues
from broker.engine.letters import Letters
from broker.engine.node import Node
from broker.engine.transfer import BODY_LOST, EXPIRED
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.queues.queue import Entry
from broker.queues.schedule import LOST, Delayed, Schedule
from broker.store.port import DURABLE, LARGE, REDELIVERED, SPARED, QueueLog

# The name of a node's log of delayed messages, which no client can take: such names begin with '$'.
LOG_NAME = "$delayed/"
# How many become ready in one turn: others have their turn in between.
RELEASE_MSGS = 2000
# How many an operator moves at a time.
MOVE_MSGS = 10_000
# When a dead letter that its node refused is offered again.
RETRY_NS = 1_000_000_000
# The place in line of a schedule that is paused.
PAUSED = -1
# A record of the log begins with the time, in milliseconds since the epoch.
TIME_BYTES = 8


class Schedules:
    """The nodes with messages that wait for their time.

    ``next_ns`` is when the first is to be looked at, 0 for never.
    """

    def __init__(
        self,
        turn: Turn,
        changes: Changes,
        depths: Depths,
        durability: Durability,
        bodies: NodeBodies,
        expirations: Expirations,
        departure: Departure,
        large: LargeMessages,
        letters: Letters,
        last_values: LastValues,
    ) -> None:
        self._turn = turn
        self._changes = changes
        self._depths = depths
        self._durability = durability
        self._bodies = bodies
        self._expirations = expirations
        self._departure = departure
        self._large = large
        self._letters = letters
        self._last_values = last_values
        # When a schedule wakes, which of those with that time, and its node. One that wakes earlier by now
        # stands there again; ``Schedule.queued_ns`` says which place counts.
        self._line: list[tuple[int, int, Node]] = []
        self._queued = 0
        self.next_ns = 0

    def time_ms(self, data: bytes) -> int:
        """Return when a message is to be delivered, in wall-clock milliseconds; 0 for at once.

        A dead letter is never delayed, whatever it came with.
        """
        time_ms = message.delivery_time_ms(data, self._turn.wall_ms())
        return 0 if time_ms <= 0 or message.is_dead_lettered(data) else time_ms

    def put(self, node: Node, data: bytes, bits: int, size: int, time_ms: int) -> int:
        """Put in a message that has room and is not to be delivered before a time of the wall clock.

        Return ACCEPTED, or STORING where it isn't on disk yet. ``size`` counts the body of a large one.
        """
        keep = bits & constants.IS_DURABLE != 0 and node.shelf is not None
        delayed = Delayed(data, node.queue.next_seq, self._monotonic_ns(time_ms), 0)
        node.queue.next_seq += 1
        if bits & (constants.HAS_TTL | constants.HAS_EXPIRY) or node.limits_ttl:
            expires_ms = self._expirations.expiry_ms(node, data)
            delayed.expires_ns = self._monotonic_ns(expires_ms) if expires_ms else 0
        node.received += 1
        node.received_bytes += size
        self._depths.enter(node, size)
        if bits >> constants.LARGE_SHIFT:
            self._bodies.add(node, delayed, self._large.of(bits), keep)
        if keep:
            self._keep(node, delayed, data)
        self._add(node, delayed)
        self._turn.mark_dirty(node)
        return constants.STORING if keep else constants.ACCEPTED

    def put_back(self, node: Node, entry: Entry, time_ms: int) -> None:
        """Have a message that a consumer gave back wait for a time before it is tried again."""
        queue = node.queue
        extra = entry.extra
        expires_ns = 0 if extra is None else extra.expires_ns
        delayed = Delayed(entry.data, queue.next_seq, self._monotonic_ns(time_ms), expires_ns)
        queue.next_seq += 1
        delayed.extra = extra
        delayed.delivery_count = entry.delivery_count
        delayed.redelivered = entry.redelivered
        delayed.spared = entry.spared
        queue.settle(entry)
        if expires_ns:
            self._expirations.left(node)
        if extra is not None and extra.body is not None:
            self._bodies.renumber(node, entry.seq, delayed.seq)
        if entry.durable:
            self._durability.forget(node, entry)
            data = entry.data
            if extra is not None and extra.annotations:
                data = message.with_annotations(data, extra.annotations)
            self._keep(node, delayed, data)
        self._add(node, delayed)
        self._turn.mark_dirty(node)

    def has_due(self) -> bool:
        """Return whether there is a message whose time may have come."""
        return 0 < self.next_ns <= self._turn.now_ns

    def release(self) -> None:
        """Let the messages whose time has come be delivered, ``RELEASE_MSGS`` a turn; those that have expired
        meanwhile become dead letters.
        """
        now_ns = self._turn.now_ns
        left = RELEASE_MSGS
        while left > 0 and self._line and self._line[0][0] <= now_ns:
            wake_ns, _, node = heapq.heappop(self._line)
            schedule = node.schedule
            if node.deleted or schedule is None or schedule.queued_ns != wake_ns:
                continue
            schedule.queued_ns = 0
            while left > 0:
                delayed = schedule.take_due(now_ns)
                if delayed is None:
                    break
                left -= 1
                if delayed.state == LOST or 0 < delayed.expires_ns <= now_ns:
                    self._dead_letter(node, delayed)
                else:
                    self._make_ready(node, delayed)
            self._turn.mark_dirty(node)
            self._queue(node, schedule)
        self._note_next()

    def cancel(self, node: Node, delayed: Delayed) -> None:
        """Drop a message before its time; it is counted as dropped."""
        node.dropped += 1
        schedule_of(node).remove(delayed)
        self._leave(node, delayed)

    def purge(self, node: Node) -> int:
        """Drop all messages of a node that wait for their time; return how many there were."""
        schedule = node.schedule
        if schedule is None or not schedule.count:
            return 0
        dropped = list(schedule)
        schedule.clear()
        for delayed in dropped:
            self._leave(node, delayed)
        node.dropped += len(dropped)
        return len(dropped)

    def move(
        self,
        source: Node,
        target: Node,
        count: int,
        ahead: int,
        put: Callable[[Node, bytes, int, int, int], int],
    ) -> int:
        """Move messages that wait for their time to another queue, the next first, as far as it has room now;
        return how many went, ``MOVE_MSGS`` at most. They wait on there. A topic takes none.

        ``put`` is ``Intake.put_waiting``. Room for ``ahead`` messages is left to those that go first, at the
        end of the turn.
        """
        if source.schedule is None or target.is_topic or count <= 0:
            return 0
        moved = 0
        for delayed in source.schedule.first(0, min(count, MOVE_MSGS)):
            extra = delayed.extra
            data = delayed.data
            if extra is not None and extra.annotations:
                data = message.with_annotations(data, extra.annotations)
            due_ms = self._wall_ms(delayed.due_ns)
            data = message.with_delivery_time(data, due_ms)
            bits = self._large.bits_of(data, None if extra is None else extra.body)
            size = len(data) + self._large.size_of(bits)
            gate, allocator = target.gate, target.allocator
            if (
                allocator.line
                or allocator.room(size) <= ahead
                or gate.depth_msgs + ahead >= target.hard_msgs
                or gate.depth_bytes + (ahead + 1) * size > target.hard_bytes
            ):
                break
            put(target, data, bits, size, due_ms)
            source.schedule.remove(delayed)
            self._leave(source, delayed)
            moved += 1
        return moved

    def drop_next(self, node: Node) -> bool:
        """Drop the message that is due first, to make room in a ring; false if there is none."""
        schedule = node.schedule
        first = [] if schedule is None else schedule.first(0, 1)
        for delayed in first:
            self.cancel(node, delayed)
        return bool(first)

    def forget(self, node: Node) -> None:
        """Forget a node that is gone, with the log of its delayed messages."""
        schedule = node.schedule
        if schedule is None:
            return
        node.schedule = None
        schedule.clear()
        if schedule.log is not None:
            self._durability.remove_log(schedule.log)

    def restore(
        self, node: Node, log: QueueLog, messages: Iterable[tuple[int, int, int, int, bytes]]
    ) -> None:
        """Put in messages that survived in a node's log of delayed ones, each (seq, flags, delivery count,
        expiry, record), before any link is there.
        """
        schedule = schedule_of(node)
        schedule.log = log
        for seq, flags, delivery_count, expires_ms, record in messages:
            time_ms = int.from_bytes(record[:TIME_BYTES], "big")
            expires_ns = self._monotonic_ns(expires_ms) if expires_ms else 0
            delayed = Delayed(record[TIME_BYTES:], seq, self._monotonic_ns(time_ms), expires_ns)
            delayed.delivery_count = delivery_count
            delayed.durable = True
            delayed.redelivered = flags & REDELIVERED != 0
            delayed.spared = flags & SPARED != 0
            if seq in node.bodies:
                dress(delayed, node.bodies[seq][0])
            elif flags & LARGE:
                # Nobody is sent the rest of it.
                delayed.state = LOST
                delayed.due_ns = 1
            node.queue.next_seq = max(node.queue.next_seq, seq + 1)
            self._depths.restore(node, len(delayed.data))
            self._add(node, delayed)

    def pause(self, node: Node) -> None:
        """Have no message of a node become ready until ``resume``, whatever its time is."""
        schedule_of(node).queued_ns = PAUSED

    def resume(self, node: Node) -> None:
        """Have a node's messages become ready again when their time comes, or has come."""
        schedule = schedule_of(node)
        schedule.queued_ns = 0
        self._queue(node, schedule)
        self._note_next()

    def take_in(
        self, node: Node, data: bytes, due_ms: int, expires_ms: int, delivery_count: int, flags: int
    ) -> None:
        """Put in a message that waited for its time at another broker's node, as it was there; times in
        milliseconds of the wall clock.
        """
        delayed = Delayed(data, node.queue.next_seq, self._monotonic_ns(due_ms), 0)
        node.queue.next_seq += 1
        if expires_ms:
            delayed.expires_ns = self._monotonic_ns(expires_ms)
        delayed.delivery_count = delivery_count
        delayed.redelivered = flags & REDELIVERED != 0
        delayed.spared = flags & SPARED != 0
        self._depths.enter(node, len(data))
        if flags & DURABLE and node.shelf is not None:
            self._keep(node, delayed, data)
        self._add(node, delayed)

    def due_ms(self, delayed: Delayed) -> tuple[int, int]:
        """Return when a message is due and expires, in milliseconds of the wall clock; 0 for never."""
        expires_ms = self._wall_ms(delayed.expires_ns) if delayed.expires_ns else 0
        return self._wall_ms(delayed.due_ns), expires_ms

    def _make_ready(self, node: Node, delayed: Delayed) -> None:
        """Put a message whose time has come at the end of its queue.

        In a last-value queue it replaces an older value, or yields to one that came since it was tried.
        """
        older = None
        if node.last_values is not None:
            if self._last_values.is_late(node, delayed):
                node.replaced += 1
                self._leave(node, delayed)
                return
            older = node.last_values.replaceable(delayed.data)
            if older is not None:
                self._last_values.make_way(node, older, 0)
        keep = delayed.durable and node.shelf is not None
        entry = node.queue.append(delayed.data, keep)
        entry.delivery_count = delayed.delivery_count
        entry.redelivered = delayed.redelivered
        entry.spared = delayed.spared
        extra = delayed.extra
        if extra is not None:
            node.queue.adorn(entry, extra)
            if extra.body is not None:
                self._bodies.renumber(node, delayed.seq, entry.seq)
        expires_ms = 0
        if delayed.expires_ns:
            expires_ms = self._wall_ms(delayed.expires_ns)
            self._expirations.set_deadline_ms(node, entry, expires_ms)
        if keep:
            self._durability.keep(node, entry, expires_ms)
            if entry.redelivered:
                self._durability.update(node, entry)
        if delayed.durable:
            self._forget_kept(node, delayed)
        if older is not None:
            self._last_values.settle(node, older)

    def _dead_letter(self, node: Node, delayed: Delayed) -> None:
        """Make a dead letter of a message that expired before it was due, or has lost its body."""
        reason = BODY_LOST if delayed.state == LOST else EXPIRED
        if delayed.state == LOST or node.settings.dead_letter_expired:
            extra = delayed.extra
            data = delayed.data
            if extra is not None and extra.annotations:
                data = message.with_annotations(data, extra.annotations)
            bits = self._large.bits_of(data, None if extra is None else extra.body)
            code = self._letters.take(node, data, bits, reason)
            if code == constants.REFUSED:
                # No room there: its time comes once more.
                delayed.due_ns = self._turn.now_ns + RETRY_NS
                if delayed.state != LOST:
                    delayed.expires_ns = delayed.due_ns
                self._add(node, delayed)
                return
            if code is None and delayed.state == LOST:
                node.dropped += 1
        if delayed.state != LOST:
            node.expired += 1
        self._leave(node, delayed)

    def _add(self, node: Node, delayed: Delayed) -> None:
        schedule = schedule_of(node)
        schedule.add(delayed)
        self._queue(node, schedule)
        self._note_next()

    def _queue(self, node: Node, schedule: Schedule) -> None:
        """Give a schedule its place in line, where it has none or wakes before that."""
        next_ns = schedule.next_ns()
        if next_ns and (schedule.queued_ns == 0 or next_ns < schedule.queued_ns):
            schedule.queued_ns = next_ns
            self._queued += 1
            heapq.heappush(self._line, (next_ns, self._queued, node))

    def _note_next(self) -> None:
        self.next_ns = self._line[0][0] if self._line else 0

    def _leave(self, node: Node, delayed: Delayed) -> None:
        """Give back what a message has that is in its schedule no more."""
        if delayed.durable:
            self._forget_kept(node, delayed)
        extra = delayed.extra
        if extra is not None and extra.body is not None:
            extra.body = None
            self._bodies.let_go(node, delayed.seq)
        self._departure.leave(node, len(delayed.data))

    def _keep(self, node: Node, delayed: Delayed, data: bytes) -> None:
        """Put a message into the log of the node's delayed ones, which is made with the first."""
        schedule = schedule_of(node)
        if schedule.log is None:
            schedule.log = self._durability.open_named(LOG_NAME + node.name, log_definition(node.name))
        if schedule.log is None:
            return
        flags = DURABLE
        if delayed.extra is not None and delayed.extra.body is not None:
            flags |= LARGE
        if delayed.redelivered:
            flags |= REDELIVERED
        if delayed.spared:
            flags |= SPARED
        delayed.durable = True
        record = self._wall_ms(delayed.due_ns).to_bytes(TIME_BYTES, "big") + data
        expires_ms = self._wall_ms(delayed.expires_ns) if delayed.expires_ns else 0
        schedule.log.append(delayed.seq, flags, delayed.delivery_count, expires_ms, record)
        self._depths.count_kept(node, 1, len(delayed.data))

    def _forget_kept(self, node: Node, delayed: Delayed) -> None:
        size = len(delayed.data)
        self._depths.count_kept(node, -1, -size)
        log = schedule_of(node).log
        if log is not None:
            log.forget(delayed.seq, size + TIME_BYTES)

    def _monotonic_ns(self, time_ms: int) -> int:
        """Return a time of the wall clock as the engine counts it; 1 for one before it began."""
        return max(time_ms * 1_000_000 - self._turn.epoch_ns, 1)

    def _wall_ms(self, time_ns: int) -> int:
        """Return a monotonic time in wall-clock milliseconds, rounded up: nothing is early."""
        return (time_ns + self._turn.epoch_ns + 999_999) // 1_000_000


def log_definition(name: str) -> bytes:
    """Return what the store keeps of the log of a node's delayed messages."""
    return json.dumps({"kind": "delayed", "node": name}).encode()


def owner_of(definition: bytes) -> str:
    """Return the node of a log of delayed messages. OperatorError if that can't be read."""
    try:
        return str(json.loads(definition)["node"])
    except (ValueError, KeyError, TypeError) as fault:
        raise OperatorError(f"the definition of a log of delayed messages can't be read: {fault}") from None


def schedule_of(node: Node) -> Schedule:
    """Return the node's schedule, made when it is first needed."""
    if node.schedule is None:
        node.schedule = Schedule()
    return node.schedule
