"""Last-value queues: which messages newer ones replace, and what that gives back.

The room of the older message is free before the newer one takes it, so that a queue that only replaces never
closes its gate. On disk the newer one is written first: a crash between two groups leaves both, of which the
older yields when they are read, and never neither.
"""

from __future__ import annotations

from broker import constants
from broker.codec.lastvalue import ValueKey
from broker.config.node import NodeSettings
from broker.engine.departure import Departure
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.queues.last_value import LastValueQueue
from broker.queues.queue import Entry, Queue
from broker.queues.schedule import Delayed


class LastValues:
    """Takes older messages out of last-value queues."""

    def __init__(self, turn: Turn, departure: Departure) -> None:
        self._turn = turn
        self._departure = departure

    def make_way(self, node: Node, older: Entry, size: int) -> bool:
        """Take out the message that one of ``size`` bytes, its body included, is to replace; return whether
        it is out: it stays where a hard limit leaves the newer one no room even so.

        The caller puts the newer message in, and calls ``settle`` unless the older one left another way.
        """
        queue, gate = node.last_values, node.gate
        if queue is None or gate.depth_msgs > node.hard_msgs:
            return False
        if gate.depth_bytes - _size(older) + size > node.hard_bytes:
            return False
        queue.vacate(older)
        self._departure.replaced(node, older)
        return True

    def settle(self, node: Node, older: Entry) -> None:
        """Be done with an older message, now that the newer one is written.

        One that stayed leaves its queue now, if the newer one came in.
        """
        queue = node.last_values
        if older.state == constants.GONE:
            self._departure.forget_replaced(node, older)
        elif queue is not None and not queue.is_newest(older):
            self.put_out(node, older)

    def put_out(self, node: Node, entry: Entry) -> None:
        """Take out a message that nobody holds, and that a newer one has replaced."""
        node.queue.drop(entry)
        self._departure.replaced(node, entry)
        self._departure.forget_replaced(node, entry)

    def yields(self, node: Node, entry: Entry) -> bool:
        """Take out a message that comes back from a consumer if a newer one is here; return whether it was.

        If an older one has come back before it, that is taken out instead.
        """
        queue = node.last_values
        if queue is None:
            return False
        if not queue.has_after(entry.data, entry.seq):
            older = queue.replaceable(entry.data)
            if older is not None:
                self.put_out(node, older)
            return False
        queue.settle(entry)
        self._departure.replaced(node, entry)
        self._departure.forget_replaced(node, entry)
        return True

    def is_late(self, node: Node, delayed: Delayed) -> bool:
        """Return whether a newer value came while a message waited to be tried again.

        One that its sender had delayed is a value from its time on, and replaces what came before that.
        """
        queue = node.last_values
        return queue is not None and delayed.redelivered and queue.has_after(delayed.data, delayed.seq)

    def check(self, node: Node, settings: NodeSettings) -> None:
        """Raise OperatorError where the key can't change: the queue has messages, by another key."""
        if node.is_topic or _key_of(node) == settings.last_value_key or _is_empty(node.queue):
            return
        raise OperatorError(
            f"last_value_key of '{node.name}' can't change while it has messages: it can once they are"
            " consumed, moved or purged"
        )

    def follow(self, node: Node, settings: NodeSettings) -> None:
        """Make the node's queue of the kind that its settings ask for; it has no messages, or stays."""
        if node.is_topic:
            return
        if _key_of(node) != settings.last_value_key and _is_empty(node.queue) and node.queue.order is None:
            before = node.queue
            queue = Queue()
            node.last_values = None
            if settings.last_value_key:
                queue = node.last_values = LastValueQueue(ValueKey(settings.last_value_key))
            queue.next_seq = before.next_seq
            for reader in list(before.readers):
                before.close_reader(reader)
                queue.open_reader(reader)
            node.queue = queue
            # It knew the other queue; nothing of that is on disk.
            node.spool = None
            self._turn.mark_dirty(node)
        if node.last_values is not None:
            node.last_values.keeps_place = settings.last_value_position == "kept"
        node.takes_as_is = node.duplicates is None and node.last_values is None


def _is_empty(queue: Queue) -> bool:
    """Return whether the queue has no message, on disk neither."""
    return not queue.heads() and not queue.gap


def _key_of(node: Node) -> str:
    """Return the name of the key whose last values the node keeps; empty for none."""
    return "" if node.last_values is None else node.last_values.key.name


def _size(entry: Entry) -> int:
    """Return the size of a message with its body."""
    body = None if entry.extra is None else entry.extra.body
    return len(entry.data) + (0 if body is None else body.size)
