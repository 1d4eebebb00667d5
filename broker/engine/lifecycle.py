"""Nodes are made, defined anew, restored from the store, and deleted."""

from __future__ import annotations

from collections.abc import Iterable

from broker.config.node import NodeSettings
from broker.engine.bodies import NodeBodies
from broker.engine.changes import Changes
from broker.engine.configuring import Configurator
from broker.engine.credit import CreditDealer
from broker.engine.depths import Depths
from broker.engine.durability import SENT_ANY, Durability
from broker.engine.expirations import Expirations
from broker.engine.large import LargeMessages, dress
from broker.engine.last_values import LastValues
from broker.engine.letters import Letters
from broker.engine.node import Node
from broker.engine.schedules import Schedules
from broker.engine.settlement import Settlement
from broker.engine.streams import Streams
from broker.engine.topology import Topology
from broker.engine.transfer import BODY_LOST, MoveTransfer, Transfer
from broker.engine.turn import Turn
from broker.errors import ConflictError
from broker.store.port import LARGE, REDELIVERED, SPARED, QueueLog


class Lifecycle:
    """Makes nodes and takes them away; ``moves`` are operators' moves under way."""

    def __init__(
        self,
        turn: Turn,
        changes: Changes,
        depths: Depths,
        durability: Durability,
        bodies: NodeBodies,
        expirations: Expirations,
        topology: Topology,
        credit: CreditDealer,
        large: LargeMessages,
        letters: Letters,
        settlement: Settlement,
        configurator: Configurator,
        moves: list[MoveTransfer],
        schedules: Schedules,
        last_values: LastValues,
        streams: Streams,
    ) -> None:
        self._turn = turn
        self._changes = changes
        self._depths = depths
        self._durability = durability
        self._bodies = bodies
        self._expirations = expirations
        self._topology = topology
        self._credit = credit
        self._large = large
        self._letters = letters
        self._settlement = settlement
        self._configurator = configurator
        self._moves = moves
        self._schedules = schedules
        self._last_values = last_values
        self._streams = streams

    def create(
        self,
        name: str,
        settings: NodeSettings,
        definition: bytes = b"",
        shelf: QueueLog | None = None,
        stream_id: int = 0,
    ) -> Node:
        """Make a node; ConflictError if the name is taken, by a subscription too.

        ``definition`` is what the store keeps of a durable one; ``shelf`` is where a recovered one stands.
        ``stream_id`` is the identity of a stream that has one already.
        """
        self._require_free(name)
        node = Node(name, settings.kind)
        if settings.queue_type == "stream":
            shelf = self._streams.open(node, settings.durable, definition, shelf, stream_id)
        node.allocator.budget(self._depths.memory, self._large.most)
        self._configurator.apply(node, settings)
        if shelf is not None:
            self._set_on(node, shelf)
        else:
            self.define(node, definition)
        self._topology.update_claims(node)
        self._topology.nodes[name] = node
        return node

    def subscribe(
        self,
        name: str,
        address: str,
        settings: NodeSettings,
        definition: bytes = b"",
        shelf: QueueLog | None = None,
    ) -> Node:
        """Make an empty subscription, to be bound to topics. With a ``definition`` it is durable.

        ``address`` is the topic's, or a pattern. ConflictError if there is one of that name.
        """
        self._require_free(name)
        subscription = Node(name, "subscription", address)
        self._configurator.apply(subscription, settings)
        if shelf is not None:
            subscription.shelf = shelf
        elif definition:
            subscription.shelf = self._durability.open_log(subscription, definition)
        self._topology.subscriptions[name] = subscription
        return subscription

    def _require_free(self, name: str) -> None:
        if self._topology.has(name):
            raise ConflictError(f"'{name}' exists already")

    def define(self, node: Node, definition: bytes) -> None:
        """Have the store know of a durable node after a restart."""
        if not self._durability.is_on():
            return
        if node.shelf is not None:
            self._durability.redefine(node.shelf, definition)
        elif node.settings.durable and node.stream is None:
            log = self._durability.open_log(node, definition)
            if log is not None:
                self._set_on(node, log)
            if node.consumers:
                self._durability.mark_sent(node, SENT_ANY)

    def _set_on(self, node: Node, shelf: QueueLog) -> None:
        node.shelf = shelf
        for owner in node.owners():
            self._topology.update_claims(owner)
        self._topology.look_at_bridges(node)

    def restore(self, node: Node, messages: Iterable[tuple[int, int, int, int, bytes]]) -> None:
        """Put in messages that survived, in order, each (seq, flags, delivery count, expiry, data).

        Before any link is there; a gate may close by it. Of two of one key in a last-value queue, of which
        one was held when the broker ended or was being replaced, the newer stays.
        """
        queue = node.queue
        values = node.last_values
        following = queue.next_seq
        redelivered, spared, large = REDELIVERED, SPARED, LARGE
        for seq, flags, delivery_count, expires_ms, data in messages:
            queue.next_seq = seq
            older = None if values is None else values.replaceable(data)
            entry = queue.append(data)
            entry.durable = True
            entry.delivery_count = delivery_count
            entry.redelivered = flags & redelivered != 0 or seq <= node.maybe_delivered_upto
            entry.spared = flags & spared != 0
            if node.bodies and seq in node.bodies:
                dress(entry, node.bodies[seq][0])
            if flags & large and self._letters.is_without_body(node, seq, flags, data):
                queue.take(entry)
                self._settlement.overdue.append((node, entry, BODY_LOST))
            elif expires_ms:
                self._expirations.set_deadline_ms(node, entry, expires_ms)
            self._depths.restore(node, len(data))
            if older is not None:
                self._last_values.put_out(node, older)
        queue.next_seq = max(following, queue.next_seq)

    def stand_in(self, node: Node, settings: NodeSettings) -> None:
        """Have a node that nobody finds take nothing: whatever is sent to it waits."""
        node.allocator.budget(self._depths.memory, self._large.most)
        self._configurator.apply(node, settings)
        self._changes.hold(node, True)

    def withdraw(self, node: Node) -> None:
        """Take out a node that was being restored and can't be served: what the store has of it stays.

        Whoever withdraws it holds on to the files of its large messages (``NodeBodies.keep_aside``).
        """
        self._depths.count_kept(node, -node.stored_msgs, -node.kept_bytes)
        node.shelf = None
        self._bodies.abandon(node)
        if node.is_subscription:
            self.unsubscribe(node)
        else:
            self.delete(node.name)

    def delete(self, name: str) -> Node:
        """Forget a node and its messages; the caller detaches its links."""
        topology = self._topology
        node = topology.node(name)
        del topology.nodes[name]
        node.deleted = True
        self._close_accounts(node)
        for subscription in list(node.subscriptions):
            if subscription.is_subscription and subscription.address == node.name:
                self.unsubscribe(subscription)
            else:
                topology.unbind(node, subscription)
        for topic in list(node.topics):
            topology.unbind(topic, node)
        topology.bridging.drop(node)
        self._clear(node)
        self._credit.timed_nodes.pop(node, None)
        self._changes.links_changed(node)
        return node

    def unsubscribe(self, subscription: Node) -> None:
        """Forget a subscription and its backlog."""
        if subscription.deleted:
            return
        subscription.deleted = True
        del self._topology.subscriptions[subscription.name]
        for topic in list(subscription.topics):
            self._topology.unbind(topic, subscription)
        self._clear(subscription)

    def _close_accounts(self, node: Node) -> None:
        """What was parked here has its answer, or is where it came from; so has what channels hold back."""
        for account in list(node.allocator.accounts):
            if isinstance(account.port, Transfer):
                account.port.close(f"'{node.name}' was deleted")
                continue
            while account.parked:
                parked, _ = account.next_parked()
                account.port.refuse(parked)
            account.close()
        node.timed_parked.clear()
        if node.awaiting is not None:
            node.awaiting.end()
            node.awaiting = None

    def _clear(self, node: Node) -> None:
        """Give back all that a node had."""
        self._durability.remove(node)
        self._streams.forget(node)
        self._depths.release(node)
        self._bodies.clear(node)
        self._expirations.forget(node)
        self._schedules.forget(node)
        self._topology.fading.discard(node)
        self._topology.paging.discard(node)
        reason = f"'{node.name}' was deleted"
        if node.letters is not None:
            node.letters.close(reason)
        for move in [each for each in self._moves if each.source is node]:
            move.close(reason)
        node.queue.clear()
