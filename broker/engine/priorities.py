"""What a node's settings on priority do: the order of its messages, and the room kept for high ones."""

from __future__ import annotations

from broker.codec.message import priority
from broker.config.node import NodeSettings
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.flow.producer_credit import ProducerCredit
from broker.queues.priority import PriorityQueue, rearrange
from broker.queues.queue import Queue

UNORDERED = "none"
FAIR = "fair"


class Priorities:
    """Applies `priority`, `priority_reserve` and `priority_reserve_from` to nodes."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def check(self, node: Node, settings: NodeSettings) -> None:
        """Raise OperatorError where the messages can't be brought into the order that is asked for."""
        if _is_ordered(node.queue, settings) or not node.queue.gap:
            return
        raise OperatorError(
            f"priority of '{node.name}' can't become {settings.priority} while part of its backlog is on"
            " disk: it can once that is consumed, moved or purged"
        )

    def order(self, node: Node, settings: NodeSettings) -> None:
        """Bring the node's messages, also those that are held, into the order that its settings ask for."""
        if node.is_topic or (node.queue.gap and not _is_ordered(node.queue, settings)):
            return
        if not _is_ordered(node.queue, settings):
            target = Queue() if settings.priority == UNORDERED else PriorityQueue()
            rearrange(node.queue, target)
            node.queue = target
            node.ordered = isinstance(target, PriorityQueue)
            # It knew the other queue; nothing of that is on disk.
            node.spool = None
            self._turn.mark_dirty(node)
        if isinstance(node.queue, PriorityQueue):
            node.queue.fair = settings.priority == FAIR

    def reserve(self, node: Node, settings: NodeSettings) -> None:
        """Keep the part of the thresholds that the settings say, and take back credit that stands in it."""
        node.gate.reserve(settings.priority_reserve)
        node.reserves_room = settings.priority_reserve > 0
        node.reserve_from = settings.priority_reserve_from
        for account in node.allocator.accounts:
            classify(node, account)
        for owner in node.owners():
            owner.allocator.trim_bulk(self._turn.now_ns)
            self._turn.mark_dirty(owner)


def classify(node: Node, account: ProducerCredit) -> None:
    """Give a producer its part in the reserve, if it says that it sends such priorities only."""
    node.allocator.classify(account, node.reserves_room and account.stated >= node.reserve_from)


def is_high(node: Node, data: bytes) -> bool:
    """Return whether a message is of those that the node keeps room for."""
    return node.reserves_room and priority(data) >= node.reserve_from


def _is_ordered(queue: Queue, settings: NodeSettings) -> bool:
    """Whether the queue is of the kind that the settings ask for."""
    return isinstance(queue, PriorityQueue) == (settings.priority != UNORDERED)
