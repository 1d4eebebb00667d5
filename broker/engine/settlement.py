"""Outcomes: a message that was acquired is gone, is back in its place, or becomes a dead letter."""

from __future__ import annotations

from broker import constants
from broker.codec import message
from broker.engine.departure import Departure
from broker.engine.durability import Durability
from broker.engine.expirations import Expirations
from broker.engine.last_values import LastValues
from broker.engine.letters import WRITTEN_BYTES, Letters
from broker.engine.node import Node
from broker.engine.schedules import Schedules
from broker.engine.transfer import BODY_LOST, EXPIRED, REJECTED, UNDELIVERABLE
from broker.engine.turn import Turn
from broker.queues.queue import Entry


class Settlement:
    """Applies outcomes to messages of nodes.

    ``overdue`` messages are to be dead letters at the next turn, each with why: it expired while it was on
    its way to another node that didn't take it, or survived without its body.
    """

    def __init__(
        self,
        turn: Turn,
        durability: Durability,
        expirations: Expirations,
        departure: Departure,
        letters: Letters,
        schedules: Schedules,
        last_values: LastValues,
    ) -> None:
        self._turn = turn
        self._durability = durability
        self._expirations = expirations
        self._departure = departure
        self._letters = letters
        self._schedules = schedules
        self._last_values = last_values
        self.overdue: list[tuple[Node, Entry, str]] = []

    def acknowledge(self, node: Node, entry: Entry) -> None:
        """Remove a message that a consumer took responsibility for."""
        node.accepted += 1
        self._departure.remove(node, entry)

    def reject(self, node: Node, entry: Entry) -> None:
        """Make a dead letter of a message that a consumer refused for good."""
        node.rejected += 1
        self.dead_letter(node, entry, REJECTED)

    def requeue(self, node: Node, entry: Entry, failed: bool) -> None:
        """Put a message back in its place; ``failed`` counts a delivery attempt (§3.4.4, §3.4.5, connection
        loss).
        """
        if failed:
            entry.delivery_count += 1
        self._take_back(node, entry, failed)

    def spare(self, node: Node, entry: Entry) -> None:
        """Put a message back from a link that is gone, and that had begun on another message for all we know.

        Its receiver may have seen it, so that it reads a delivery-count of 1 at least; but however often this
        happens to it, it is no failed delivery that makes it a dead letter.
        """
        if entry.delivery_count == 0:
            entry.delivery_count = 1
            entry.spared = True
        self._take_back(node, entry, False)

    def _take_back(self, node: Node, entry: Entry, failed: bool) -> None:
        if node.deleted:
            return
        if node.last_values is not None and self._last_values.yields(node, entry):
            return
        entry.redelivered = True
        if 0 < node.settings.max_delivery_count <= entry.delivery_count - entry.spared:
            self.dead_letter(node, entry, UNDELIVERABLE)
            return
        if self._expirations.is_expired(entry):
            self.dead_letter(node, entry, EXPIRED)
            return
        if (failed and node.redelivery is not None) or (entry.extra is not None and entry.extra.annotations):
            time_ms = self._retry_ms(node, entry, failed)
            if time_ms:
                self._schedules.put_back(node, entry, time_ms)
                return
        self._durability.update(node, entry)
        node.queue.release(entry)
        self._turn.mark_dirty(node)

    def _retry_ms(self, node: Node, entry: Entry, failed: bool) -> int:
        """Return when a message that came back is tried again, in wall-clock milliseconds; 0 for at once.

        A time that its receiver gave goes before the node's settings.
        """
        now_ms = self._turn.wall_ms()
        extra = entry.extra
        if extra is not None and extra.annotations:
            time_ms = message.delivery_time_in(extra.annotations, now_ms)
            if time_ms > 0:
                # A delay would begin anew each time it came back.
                extra.annotations = message.annotations_until(extra.annotations, time_ms)
                return time_ms
        if failed and node.redelivery is not None:
            return now_ms + node.redelivery.delay_ms(entry.delivery_count - entry.spared, entry.seq)
        return 0

    def put_back(self, node: Node, entry: Entry) -> None:
        """Put a message that was on its way to another node in its place again, as it was."""
        if node.deleted or (node.last_values is not None and self._last_values.yields(node, entry)):
            return
        if self._expirations.is_expired(entry):
            # Its letter may need a node made for it, which is no matter for whoever is deleting one.
            self.overdue.append((node, entry, EXPIRED))
            return
        if entry.redelivered:
            self._durability.update(node, entry)
        node.queue.release(entry)
        self._turn.mark_dirty(node)

    def give_up(self, node: Node, entry: Entry) -> None:
        """Drop an acquired message that can go nowhere, and count it."""
        if not node.deleted:
            node.dropped += 1
            self._departure.remove(node, entry)

    def pass_over(self, node: Node, entry: Entry) -> bool:
        """Make a dead letter of a message that a stream's reader has failed too often, which the stream
        keeps; return False while there is no room for that.
        """
        way = self._letters.way(node)
        data = entry.data
        if way is None or len(data) + WRITTEN_BYTES > way.target.hard_bytes:
            node.dropped += 1
            return True
        return self._letters.take(node, data, message.scan(data), UNDELIVERABLE) != constants.REFUSED

    def passed_on(self, node: Node, entry: Entry, way: object) -> None:
        """Remove a message that was on its way to another node and is there."""
        if way is node.letters:
            node.dead_lettered += 1
        self._departure.remove(node, entry)

    def dead_letter(self, node: Node, entry: Entry, reason: str) -> None:
        """Send an acquired message that can't be delivered to the dead-letter node, or remove it."""
        if node.deleted:
            return
        if node.queue.order is not None:
            # It may wait for room elsewhere; its group doesn't.
            node.queue.order.let_go(entry)
        if reason == EXPIRED:
            node.expired += 1
        way = None
        if reason != EXPIRED or node.settings.dead_letter_expired:
            way = self._letters.way(node)
        if way is None:
            if reason in (UNDELIVERABLE, BODY_LOST):
                node.dropped += 1
            self._departure.remove(node, entry)
            return
        data = entry.data
        if entry.extra is not None and entry.extra.annotations:
            data = message.with_annotations(data, entry.extra.annotations)
        way.send(entry, self._letters.write(node, data, reason), reason)

    def expire(self) -> None:
        """Make dead letters of all messages whose time has come, and of those that are overdue."""
        if self._expirations.has_any():
            for node in self._expirations.nodes():
                for entry in self._expirations.due(node):
                    node.queue.take(entry)
                    self.dead_letter(node, entry, EXPIRED)
                self._expirations.tidy(node)
        if self.overdue:
            overdue, self.overdue = self.overdue, []
            for node, entry, reason in overdue:
                self.dead_letter(node, entry, reason)
