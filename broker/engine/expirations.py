"""Messages with a time to live: when each expires, and the nodes that have any."""

from __future__ import annotations

from broker import constants
from broker.codec import message
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.queues.expiry import Expiry, deadline_ms
from broker.queues.queue import Entry, Extra

# When to look again at a message that expired before it was on disk.
PENDING_NS = 500_000_000


class Expirations:
    """The nodes with messages that expire."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._nodes: set[Node] = set()

    def set_deadline(self, node: Node, entry: Entry, data: bytes) -> int:
        """Have a message expire as it says and as its node's settings say; return ``expiry_ms``."""
        expires_ms = self.expiry_ms(node, data)
        if expires_ms:
            self.set_deadline_ms(node, entry, expires_ms)
        return expires_ms

    def expiry_ms(self, node: Node, data: bytes) -> int:
        """Return when a message that has come expires, as it says and as its node's settings say (AMQP 1.0
        §3.2.1, §3.2.4), in wall-clock milliseconds; 0 for never.
        """
        now_ms = self._turn.wall_ms()
        ttl_ms = message.ttl_ms(data)
        expires_ms = now_ms + ttl_ms if ttl_ms else 0
        absolute_ms = 0 if message.is_dead_lettered(data) else message.absolute_expiry_ms(data)
        if node.limits_ttl:
            settings = node.settings
            default_ms, most_ms = settings.message_ttl_ms, settings.max_ttl_ms
            expires_ms = deadline_ms(now_ms, ttl_ms, absolute_ms, default_ms, most_ms)
        elif absolute_ms and (expires_ms == 0 or absolute_ms < expires_ms):
            expires_ms = absolute_ms
        return expires_ms

    def set_deadline_ms(self, node: Node, entry: Entry, expires_ms: int) -> None:
        """Have a message expire at a time of the wall clock."""
        if entry.extra is None:
            entry.extra = Extra()
        entry.extra.expires_ns = max(expires_ms * 1_000_000 - self._turn.epoch_ns, 1)
        self.watch(node, entry)

    def watch(self, node: Node, entry: Entry) -> None:
        """Expect the expiry that a message has."""
        if entry.extra is not None:
            _expiry_of(node).add(entry, entry.extra.expires_ns)
            self._nodes.add(node)

    def is_expired(self, entry: Entry) -> bool:
        """Return whether the time of a message is over."""
        return entry.extra is not None and 0 < entry.extra.expires_ns <= self._turn.now_ns

    def left(self, node: Node) -> None:
        """Count a message that was to expire and has left its node."""
        _expiry_of(node).left()

    def has_any(self) -> bool:
        """Return whether any message is to expire."""
        return len(self._nodes) > 0

    def nodes(self) -> list[Node]:
        """Return the nodes with messages that expire."""
        return list(self._nodes)

    def due(self, node: Node) -> list[Entry]:
        """Return the messages of a node whose time has come, still in their queue; each is returned once."""
        expiry = _expiry_of(node)
        found: list[Entry] = []
        for entry in expiry.due(self._turn.now_ns):
            if entry.state == constants.PENDING:
                expiry.add(entry, self._turn.now_ns + PENDING_NS)
            else:
                found.append(entry)
        return found

    def tidy(self, node: Node) -> None:
        """Forget a node that has no message to expire any more."""
        if not len(_expiry_of(node)) or node.deleted:
            self.forget(node)

    def forget(self, node: Node) -> None:
        """Forget a node that is gone."""
        self._nodes.discard(node)

    def resume(self, node: Node) -> None:
        """Have the messages of a node expire again, after ``forget``."""
        if node.expiry is not None and len(node.expiry):
            self._nodes.add(node)

    def next_deadline(self) -> int:
        """Return when the next message expires, in monotonic nanoseconds; 0 for never."""
        earliest = 0
        for node in self._nodes:
            due = _expiry_of(node).next_deadline()
            if due and (earliest == 0 or due < earliest):
                earliest = due
        return earliest


def _expiry_of(node: Node) -> Expiry:
    if node.expiry is None:
        node.expiry = Expiry()
    return node.expiry
