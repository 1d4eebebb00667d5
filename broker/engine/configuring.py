"""A node's settings take effect: at its gate, its allocator, and whatever else acts on one of them."""

from __future__ import annotations

from broker import constants
from broker.config.node import HotSettings, NodeSettings
from broker.engine.changes import Changes
from broker.engine.durability import Durability
from broker.engine.grouping import set_groups
from broker.engine.hot import hot_numbers
from broker.engine.last_values import LastValues
from broker.engine.node import Node
from broker.engine.paging import Paging
from broker.engine.parking import Parking
from broker.engine.priorities import UNORDERED, Priorities
from broker.engine.reader_commits import ReaderCommits
from broker.engine.topology import Topology
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.queues.duplicates import Duplicates
from broker.queues.redelivery import MOST_TIMES, RedeliveryDelay


class Configurator:
    """Applies settings to nodes, new ones or those at work."""

    def __init__(
        self,
        turn: Turn,
        changes: Changes,
        durability: Durability,
        topology: Topology,
        paging: Paging,
        parking: Parking,
        last_values: LastValues,
        commits: ReaderCommits,
    ) -> None:
        self._turn = turn
        self._changes = changes
        self._durability = durability
        self._topology = topology
        self._paging = paging
        self._parking = parking
        self._priorities = Priorities(turn)
        self._last_values = last_values
        self._commits = commits

    def change(self, node: Node, settings: NodeSettings) -> None:
        """Apply new settings; OperatorError where they would make another kind of node of it."""
        if settings.kind != node.kind and not node.is_subscription:
            raise OperatorError(f"'{node.name}' is a {node.kind} and can't become a {settings.kind}")
        if (settings.queue_type == "stream") != (node.stream is not None) and not node.is_subscription:
            was, wanted = ("a stream", "a queue") if node.stream is not None else ("a queue", "a stream")
            raise OperatorError(f"'{node.name}' is {was} and can't become {wanted}")
        if settings.partitions != node.settings.partitions:
            was = f"{node.settings.partitions or 'no'} partitions"
            raise OperatorError(f"'{node.name}' has {was} and keeps them: groups would change their places")
        if settings.priority != UNORDERED or node.ordered:
            self._priorities.check(node, settings)
        if settings.last_value_key or node.last_values is not None:
            self._last_values.check(node, settings)
        self.apply(node, settings)

    def apply(self, node: Node, settings: NodeSettings) -> None:
        """Apply settings: credit beyond them is withdrawn, who waits is let in."""
        node.settings = settings
        node.hot = hot_numbers(HotSettings(settings))
        if node.last_values is not None:
            # A queue is of one kind: it ceases to be this one before it becomes another, and the other way.
            self._last_values.follow(node, settings)
        if settings.priority != UNORDERED or node.ordered:
            self._priorities.order(node, settings)
        self._limit_depth(node, settings)
        self._parking.set_timeout(node)
        node.never_blocks_publishers = node.is_subscription and not settings.blocks_publishers
        node.redelivery = _redelivery_of(settings)
        self._watch_duplicates(node, settings)
        if settings.message_groups != "none" or node.queue.order is not None:
            set_groups(node)
        if settings.last_value_key and node.last_values is None:
            self._last_values.follow(node, settings)
        self._limit_lives(node, settings)
        self._set_thresholds(node, settings)
        if settings.priority_reserve or node.reserves_room:
            self._priorities.reserve(node, settings)
        for account in node.allocator.accounts:
            account.resize(settings.producer_window)
        self._topology.settings_changed(node)
        self._changes.overpromise(node)
        if node.awaiting is not None:
            node.awaiting.heed()
        self._topology.look_at_bridges(node)

    def _watch_duplicates(self, node: Node, settings: NodeSettings) -> None:
        """Set the window of duplicates; nothing stays noted of ids that it doesn't have any more."""
        count, span_ms = settings.duplicate_window_count, settings.duplicate_window_ms
        gone: list[int] = []
        if not count and not span_ms:
            if node.duplicates is not None:
                gone = node.duplicates.places()
            node.duplicates = None
        elif node.duplicates is None:
            node.duplicates = Duplicates(count, span_ms)
        else:
            gone = node.duplicates.resize(count, span_ms)
        if node.shelf is not None:
            self._durability.forget_seen(node.name, gone)
        node.takes_as_is = node.duplicates is None and node.last_values is None and node.stream is None

    def _limit_depth(self, node: Node, settings: NodeSettings) -> None:
        """Set the hard limits, or the memory beyond which a node pages; of a stream, what it keeps."""
        if node.stream is not None:
            node.stream.limit(settings.max_size, settings.max_count, settings.max_age_ms)
            return
        node.hard_msgs = settings.max_count or constants.UNBOUNDED
        node.hard_bytes = settings.max_size or constants.UNBOUNDED
        pages = node.hot.overflow == constants.OVERFLOW_PAGE
        if pages:
            node.page_bytes = settings.memory_limit or node.hard_bytes
            node.hard_msgs = node.hard_bytes = constants.UNBOUNDED
        if not node.is_topic:
            self._paging.set(node, pages)

    def _set_thresholds(self, node: Node, settings: NodeSettings) -> None:
        strict = settings.max_message_size if settings.byte_reservation == "strict" else 0
        if node.is_topic:
            # It has no depth of its own, but its publishers' credit reserves as it says.
            node.gate.configure(0, 0, 0, 0, strict, self._turn.now_ns)
            return
        changed = node.gate.configure(
            settings.flow_stop_count,
            settings.flow_resume_count,
            settings.flow_stop_size,
            settings.flow_resume_size,
            strict,
            self._turn.now_ns,
        )
        if changed:
            self._changes.gate_changed(node)
        if node.stream is not None:
            # What its readers lack counts by other thresholds, and is kept for them, or not any more.
            self._commits.follow(node)

    def _limit_lives(self, node: Node, settings: NodeSettings) -> None:
        """Set how long messages that come from now on are kept, and the node itself while it is idle.

        The time of idleness begins anew where another one holds.
        """
        node.limits_ttl = settings.message_ttl_ms > 0 or settings.max_ttl_ms > 0
        expire_ns = settings.expire_after_ms * 1_000_000
        if expire_ns != node.expire_ns:
            node.expire_ns = expire_ns
            node.used_ns = self._turn.now_ns
        if expire_ns and not node.is_topic:
            self._topology.fading.add(node)
        else:
            self._topology.fading.discard(node)


def _redelivery_of(settings: NodeSettings) -> RedeliveryDelay | None:
    """Return what holds for deliveries that fail from now on; None for no delay."""
    first_ms = settings.redelivery_delay_ms
    if not first_ms:
        return None
    most_ms = settings.max_redelivery_delay_ms or first_ms * MOST_TIMES
    return RedeliveryDelay(
        first_ms, settings.redelivery_multiplier, max(most_ms, first_ms), settings.redelivery_jitter
    )
