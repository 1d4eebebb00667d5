"""The operators' verbs about messages: purge, move, browse, those that are delayed, and message groups."""

from __future__ import annotations

from collections.abc import Callable

from broker.codec.grouping import shown
from broker.engine.engine import Engine
from broker.engine.grouping import groups_of
from broker.engine.node import Node
from broker.errors import NotFoundError, OperatorError
from broker.manage.browsing import BROWSE_BYTES, Browsing
from broker.manage.grouped import GroupView, view_of
from broker.manage.nodes import Nodes, check_not_own
from broker.manage.ordering import matcher
from broker.manage.stats import delayed_msgs, waiting_msgs
from broker.manage.views import DelayedMessage, DelayedMessages
from broker.queues.groups import MessageGroups
from broker.queues.schedule import Delayed


class QueuedMessages:
    """The messages of all nodes, as far as an operator handles them."""

    def __init__(self, engine: Engine, nodes: Nodes) -> None:
        self._engine = engine
        self._nodes = nodes

    def purge(self, name: str, dry_run: bool = False) -> int:
        """Drop every message of a queue, or of a topic's subscriptions, that no consumer holds; how many.

        With ``dry_run`` they are only counted.
        """
        node = self._nodes.find(name)
        _check_not_stream(node)
        self._nodes.check_stays(name)
        holders = [node, *(each for each in node.subscriptions if each.is_subscription)]
        if dry_run:
            return sum(waiting_msgs(each) + delayed_msgs(each) for each in holders)
        return sum(self._engine.actions.purge(each) for each in holders)

    def move(self, source: str, target: str, count: int = 0, dry_run: bool = False, user: str = "") -> int:
        """Move the oldest messages of a queue to another as that has room; how many will go. 0 is all.

        Those that wait for their time go last, and wait on in the other queue.
        """
        here = self._nodes.find(source)
        self._nodes.check_stays(source)
        # Only what is to be done may make its target.
        check_not_own(target, "sent to")
        there = (
            self._engine.topology.nodes.get(target) if dry_run else self._nodes.destination(target, user=user)
        )
        _check_not_stream(here)
        if here is there:
            raise OperatorError(f"'{source}' is both source and target")
        if here.is_topic:
            raise OperatorError(f"'{source}' is a topic: move the messages of one of its subscriptions")
        most = waiting_msgs(here) + delayed_msgs(here)
        count = min(count or most, most)
        return count if dry_run or there is None else self._engine.actions.move(here, there, count)

    def groups(self, name: str, offset: int = 0, count: int = 100, wanted: str = "") -> list[GroupView]:
        """Return the message groups of a queue, those with most waiting messages first; of those whose id has
        ``wanted`` in it, or matches it as a pattern with `*`.
        """
        groups = self._groups_of(name)
        matches = matcher(wanted)
        views = [view_of(groups, each) for each in groups if not wanted or matches(shown(each.key))]
        views.sort(key=lambda each: (-each.waiting, -each.unsettled, each.group))
        return views[offset : offset + count]

    def reset_group(self, name: str, group: str) -> bool:
        """Take a message group from its consumer; false if that is only once what it holds is settled."""
        groups = self._groups_of(name)
        for each in groups:
            if shown(each.key) == group:
                free = groups.reset(each.key)
                self._engine.turn.mark_dirty(self._nodes.find(name))
                return free
        raise NotFoundError(f"'{name}' has no message group '{group}'")

    def _groups_of(self, name: str) -> MessageGroups:
        groups = groups_of(self._nodes.find(name))
        if groups is None:
            raise OperatorError(f"'{name}' has no message groups: see its setting message_groups")
        return groups

    def browse(
        self, name: str, offset: int = 0, count: int = 20, told: Callable[[], None] = lambda: None
    ) -> Browsing:
        """Look at the oldest messages of a queue, as they are. ``told`` is called, on the reactor's thread,
        when it can go on where something has to be read from disk first.
        """
        return Browsing(self._nodes.find(name), offset, count, told)

    def delayed(self, name: str, offset: int = 0, count: int = 20) -> DelayedMessages:
        """Look at the messages of a queue that wait for their time, the next first, as they are."""
        node = self._nodes.find(name)
        if node.schedule is None:
            return DelayedMessages((), 0)
        found: list[DelayedMessage] = []
        nbytes = 0
        for each in node.schedule.first(offset, count):
            nbytes += len(each.data)
            if found and nbytes > BROWSE_BYTES:
                break
            found.append(self._shown(each))
        return DelayedMessages(tuple(found), node.schedule.count)

    def cancel(self, name: str, number: int) -> None:
        """Drop a message that waits for its time; NotFoundError where none has that number any more."""
        node = self._nodes.find(name)
        self._nodes.check_stays(name)
        delayed = None if node.schedule is None else node.schedule.find(number)
        if delayed is None:
            raise NotFoundError(f"no message {number} of '{name}' waits for its time")
        self._engine.schedules.cancel(node, delayed)

    def _shown(self, delayed: Delayed) -> DelayedMessage:
        body = None if delayed.extra is None else delayed.extra.body
        return DelayedMessage(
            number=delayed.seq,
            due_ms=(delayed.due_ns + self._engine.turn.epoch_ns) // 1_000_000,
            bytes=len(delayed.data) + (0 if body is None else body.size),
            durable=bool(delayed.durable),
            delivery_count=delayed.delivery_count,
            message=delayed.data,
        )


def _check_not_stream(node: Node) -> None:
    """OperatorError where an operator can't take messages out: those of a stream go by retention alone."""
    if node.stream is not None:
        raise OperatorError(f"'{node.name}' is a stream: its messages go by max_size, max_count and max_age")
