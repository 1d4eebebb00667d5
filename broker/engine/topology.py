"""The nodes there are, what is bound to what, and whose credit needs room where because of it."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.bridges import Bridges
from broker.engine.changes import Changes
from broker.engine.depths import Depths
from broker.engine.durability import Durability
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.errors import NotFoundError


class Topology:
    """Finds nodes by name and ties them together.

    ``nodes`` are the queues and topics, ``subscriptions`` those of topics; ``paging`` those whose messages
    need room in the temporary store. ``fading`` are queues and subscriptions that are deleted once nobody has
    used them for so long. ``flow_control`` is the broker's own switch.
    """

    def __init__(
        self, turn: Turn, changes: Changes, depths: Depths, durability: Durability, flow_control: bool
    ) -> None:
        self._turn = turn
        self._changes = changes
        self._depths = depths
        self._durability = durability
        self.nodes: dict[str, Node] = {}
        self.subscriptions: dict[str, Node] = {}
        self.paging: set[Node] = set()
        self.fading: set[Node] = set()
        self.flow_control = flow_control
        self.bridging = Bridges(turn, self.update_claims)

    def has(self, name: str) -> bool:
        """Return whether a queue, a topic or a subscription has that name: no two of them do."""
        return name in self.nodes or name in self.subscriptions

    def node(self, name: str) -> Node:
        """Return the queue or topic of that name; NotFoundError if there is none."""
        node = self.nodes.get(name)
        if node is None:
            raise NotFoundError(f"no queue or topic named '{name}'")
        return node

    def every_node(self) -> Iterator[Node]:
        """Yield queues, topics and subscriptions."""
        yield from list(self.nodes.values())
        yield from list(self.subscriptions.values())

    def bind(self, topic: Node, node: Node) -> None:
        """Send what is published to the topic to this node too: publishing needs room there as well."""
        topic.subscriptions.append(node)
        node.topics.append(topic)
        _count_shared(node, topic, 1)
        topic.allocator.copy(len(topic.subscriptions))
        self._update_enforcement(topic)
        self.attach_gates(node)
        self._bound(topic, node)

    def unbind(self, topic: Node, node: Node) -> None:
        """End a binding; publishers that the node held back go on."""
        _count_shared(node, topic, -1)
        topic.subscriptions.remove(node)
        node.topics.remove(topic)
        topic.allocator.copy(len(topic.subscriptions))
        if _is_attached(topic, node):
            topic.allocator.detach_gate(node.gate)
        self._update_enforcement(topic)
        self._bound(topic, node)

    def _bound(self, topic: Node, node: Node) -> None:
        self.update_claims(topic)
        self._turn.mark_dirty(topic)
        self._changes.links_changed(node)
        self.look_at_bridges(topic, node)

    def look_at_bridges(self, *nodes: Node) -> None:
        """Have bridges reserve room anew: something about these nodes has changed."""
        if self.bridging.all:
            for node in nodes:
                self.bridging.look(node)

    def consumers_changed(self, node: Node) -> None:
        """Apply flow control, or lift it: a consumer came, went or started."""
        self.enforce(node)
        for topic in node.topics:
            if not topic.hot.always_enforced:
                self._update_enforcement(topic)
                if node.is_subscription:
                    # It holds its publishers from now on, or does no more, beside others that do as before.
                    self.attach_gates(node)
        self._turn.mark_dirty(node)
        self._changes.links_changed(node)

    def settings_changed(self, node: Node) -> None:
        """Apply what a node's settings say of enforcement, at it and between it and its topics."""
        self._update_enforcement(node)
        self.attach_gates(node)

    def enforce(self, node: Node) -> None:
        """Open or close a node's gate as flow control holds there or not."""
        enforced = self.flow_control and node.settings.enforces(node.is_subscription, has_takers(node))
        if node.gate.enforced != enforced:
            if node.gate.enforce(enforced, self._turn.now_ns):
                self._changes.gate_changed(node)
            self._changes.overpromise(node)

    def switch_flow(self, enabled: bool) -> None:
        """Set the broker's switch: with ``False`` no threshold is enforced anywhere."""
        self.flow_control = enabled
        for node in self.every_node():
            self.enforce(node)
            if node.awaiting is not None:
                node.awaiting.heed()

    def _update_enforcement(self, topic: Node) -> None:
        """Decide whether a topic's publishers need room where its messages go: not where that is to hold only
        while somebody receives, and nobody does (`enforce_flow`). At which subscriptions, `heeds` says.
        """
        reserves_at_subscriptions = topic.hot.always_enforced or topic.is_active()
        if reserves_at_subscriptions != topic.reserves_at_subscriptions:
            topic.reserves_at_subscriptions = reserves_at_subscriptions
            self.enforce(topic)
            for each in topic.subscriptions:
                self.attach_gates(each)

    def attach_gates(self, node: Node) -> None:
        """Decide which topics' publishers need room at a node that takes messages from them."""
        self.enforce(node)
        for topic in node.topics:
            wanted = topic.heeds(node)
            attached = _is_attached(topic, node)
            if wanted and not attached:
                topic.allocator.attach_gate(node.gate, self._turn.now_ns)
            elif attached and not wanted:
                topic.allocator.detach_gate(node.gate)
            if wanted != attached:
                self._turn.mark_dirty(topic)

    def update_claims(self, node: Node) -> None:
        """Have a message to this address need room on disk too where it, or who gets it, is kept there."""
        bridging = self.bridging
        takers = list(bridging.takers(node)) if bridging.all else [node, *node.subscriptions]
        stored = sum(each.shelf is not None and not each.is_topic for each in takers)
        failed = self._durability.has_failed()
        if stored == 0 and (failed or any(each.shelf is not None for each in takers)):
            # Nothing is kept, yet what is sent here is to wait while nothing can be.
            stored = 1
        node.allocator.claim(self._depths.disk, stored)
        node.allocator.claim(self._depths.temp, sum(each in self.paging for each in takers))
        if node.allocator.overpromised:
            self._turn.mark_dirty(node)

    def hold_disk(self, held: bool) -> None:
        """Let no durable node grant credit while nothing can be kept; no node once the store has failed."""
        disk = self._depths.disk
        if disk.hold(held, self._turn.now_ns):
            self._changes.budget_changed(disk)
        for node in self.nodes.values():
            self.update_claims(node)
            if node.allocator.takes(disk, 1) > 0:
                node.allocator.overpromised = True
                self._turn.mark_dirty(node)


def has_takers(node: Node) -> bool:
    """Return whether flow control that holds for active consumers only holds at a node, as it is linked now.

    At a subscription the word of its topics holds.
    """
    if node.is_subscription:
        return not node.topics or node.is_active() or any(topic.hot.always_enforced for topic in node.topics)
    return node.is_active()


def _is_attached(topic: Node, node: Node) -> bool:
    """Return whether the topic's publishers need room at the node as it is bound, whatever bridges do."""
    return topic.allocator.ways_to(node.gate) > node.bridge_sources.count(topic)


def _count_shared(node: Node, topic: Node, change: int) -> None:
    """Count that a topic is the newest of the node's, or is about to be none of them."""
    if not node.is_subscription:
        # A queue's own producers share it with the first topic already.
        topic.shared += change
    elif len(node.topics) == 2:
        for each in node.topics:
            each.shared += change
    elif len(node.topics) > 2:
        topic.shared += change
