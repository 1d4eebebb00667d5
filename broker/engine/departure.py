"""Messages leave their node: what each has is given back, and who waits for its room is woken."""

from __future__ import annotations

from broker.engine.bodies import NodeBodies
from broker.engine.depths import Depths
from broker.engine.durability import Durability
from broker.engine.expirations import Expirations
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.queues.queue import Entry


class Departure:
    """Takes messages out of nodes."""

    def __init__(
        self, turn: Turn, depths: Depths, durability: Durability, bodies: NodeBodies, expirations: Expirations
    ) -> None:
        self._turn = turn
        self._depths = depths
        self._durability = durability
        self._bodies = bodies
        self._expirations = expirations

    def remove(self, node: Node, entry: Entry) -> None:
        """Take out a message that a consumer has acquired."""
        if node.deleted:
            return
        size = len(entry.data)
        node.queue.settle(entry)
        self._strip(node, entry)
        self._leave(node, size)

    def drop(self, node: Node, entry: Entry) -> None:
        """Take out a message that nobody has acquired; it is counted as dropped."""
        node.dropped += 1
        size = len(entry.data)
        node.queue.drop(entry)
        self._strip(node, entry)
        self._leave(node, size)

    def replaced(self, node: Node, entry: Entry) -> None:
        """Count a message out that a newer one replaces; it is in no list.

        The store still has it, until the caller calls ``forget_replaced``.
        """
        node.replaced += 1
        extra = entry.extra
        if extra is not None:
            if extra.expires_ns:
                self._expirations.left(node)
            if extra.body is not None:
                self._bodies.take_out(node, entry.seq)
        self._leave(node, len(entry.data))

    def forget_replaced(self, node: Node, entry: Entry) -> None:
        """Take a message that was replaced from the store."""
        extra = entry.extra
        if extra is not None and extra.body is not None:
            body, extra.body = extra.body, None
            self._bodies.unnote(node, entry.seq, body, entry.durable)
        if entry.durable:
            self._durability.forget(node, entry)
        if extra is not None and extra.expires_ns:
            entry.data = b""

    def _strip(self, node: Node, entry: Entry) -> None:
        """Give back what an entry has beyond its place in memory."""
        if entry.durable:
            self._durability.forget(node, entry)
        extra = entry.extra
        if extra is None:
            return
        if extra.expires_ns:
            self._expirations.left(node)
            # The heap of expiries may know the entry a while longer; it must not keep the message.
            entry.data = b""
        if extra.body is not None:
            extra.body = None
            self._bodies.let_go(node, entry.seq)

    def leave(self, node: Node, size: int) -> None:
        """Count a message that has left, and wake those that wait for its room; it was in no list."""
        self._leave(node, size)

    def _leave(self, node: Node, size: int) -> None:
        self._depths.leave(node, size)
        if node.bridge_sources:
            self._wake_in_turn(node)
            return
        allocator = node.allocator
        if allocator.line or allocator.rest:
            self._turn.mark_dirty(node)
        if node.topics:
            self._wake_topics(node)

    def _wake_topics(self, node: Node) -> None:
        """Have the topics that send here deal what came free."""
        if len(node.topics) > 1:
            # Whose publishers are first to be dealt what came free changes each time.
            node.topics.append(node.topics.pop(0))
        for topic in node.topics:
            allocator = topic.allocator
            # Where another gate leaves no room this one's makes no difference (bench: subscribers).
            if (
                not node.never_blocks_publishers
                and (allocator.line or allocator.rest)
                and not allocator.is_shut_by_other(node.gate)
            ):
                self._turn.mark_dirty(topic)
            if topic.awaiting is not None:
                topic.awaiting.moved()

    def _wake_in_turn(self, node: Node) -> None:
        """Have nodes whose producers share this room over bridges deal it, each first in its turn."""
        owners = node.owners()
        first = node.queue.next_seq % len(owners)
        for owner in owners[first:] + owners[:first]:
            allocator = owner.allocator
            if allocator.line or allocator.rest:
                self._turn.mark_dirty(owner)
        for topic in node.topics:
            if topic.awaiting is not None:
                topic.awaiting.moved()
