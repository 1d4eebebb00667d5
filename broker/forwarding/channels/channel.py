"""One channel: a subscription of a topic whose messages leave as datagrams, one each, at a bounded rate.

It runs on the reactor's thread and never waits: what may not leave yet stays in the subscription. Nobody
says whether a datagram arrived; a message is consumed once the system has taken it.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config.forwards import LARGEST_DATAGRAM, ChannelDefinition
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.rate import TokenBucket
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

MS = 1_000_000
# A burst is what passes in this time at the channel's rate, or a datagram that no network splits.
BURST_MS = 10
LEAST_BURST = 1472
# When to try again after the system took no datagram: its buffer is full, or there is no way.
FULL_NS = 2 * MS
FAULT_NS = 500 * MS

OPEN, FAULTY = "open", "faulty"
FAULT_EVENT = "channel_fault"


class Channel(Consumer):
    """Sends what its node has through ``send_datagram``, which raises OSError where that fails.

    ``wake(when_ns)`` has the node touched then.
    """

    def __init__(
        self,
        engine: Engine,
        node: Node,
        definition: ChannelDefinition,
        send_datagram: Callable[[bytes], None],
        wake: Callable[[int], None],
    ) -> None:
        Consumer.__init__(self)
        self.engine = engine
        self.node = node
        self.definition = definition
        rate = definition.max_rate
        self.bucket = TokenBucket(rate, max(rate * BURST_MS // 1000, LEAST_BURST), engine.turn.now_ns)
        self.state = OPEN
        self.last_error = ""
        self.sent = 0
        self.sent_bytes = 0
        self.too_large = 0
        self._send_datagram = send_datagram
        self._wake = wake
        self._retry_ns = 0
        self._woken_ns = 0

    def capacity(self) -> int:
        """One, if the next message may leave now."""
        entry = self.node.queue.oldest()
        if entry is None:
            return 0
        now_ns = self.engine.turn.now_ns
        due_ns = max(now_ns + self.bucket.wait_ns(self._size(entry), now_ns), self._retry_ns)
        if due_ns <= now_ns:
            return 1
        if self._woken_ns <= now_ns or due_ns < self._woken_ns:
            self._woken_ns = due_ns
            self._wake(due_ns)
        return 0

    def send(self, entry: Entry) -> None:
        """The message leaves, or waits for another try, or is too large for any."""
        size = self._size(entry)
        if size == 0:
            self.too_large += 1
        elif not self._sent(entry, size):
            return
        self.engine.settlement.acknowledge(self.node, entry)
        if self.node.queue.ready > 0:
            self.engine.turn.mark_dirty(self.node)

    def _sent(self, entry: Entry, size: int) -> bool:
        try:
            self._send_datagram(entry.data)
        except BlockingIOError:
            self._retry(entry, FULL_NS)
            return False
        except OSError as fault:
            self._failed(fault)
            self._retry(entry, FAULT_NS)
            return False
        self.state = OPEN
        self.bucket.take(size)
        self.sent += 1
        self.sent_bytes += size
        return True

    def _retry(self, entry: Entry, pause_ns: int) -> None:
        self._retry_ns = self.engine.turn.now_ns + pause_ns
        self.engine.settlement.requeue(self.node, entry, False)

    def _failed(self, fault: OSError) -> None:
        self.last_error = fault.strerror or str(fault)
        if self.state != FAULTY:
            self.state = FAULTY
            fields = {"channel": self.definition.name, "reason": self.last_error}
            self.engine.changes.emit(FAULT_EVENT, self.node, fields)

    def _size(self, entry: Entry) -> int:
        """The datagram's size; 0 if the message fits none."""
        if entry.extra is not None and entry.extra.body is not None:
            return 0
        return len(entry.data) if len(entry.data) <= LARGEST_DATAGRAM else 0
