"""The operators' verbs about messages: purge, move, browse, and message groups."""

from __future__ import annotations

from collections.abc import Callable

from broker.codec.grouping import shown
from broker.engine.engine import Engine
from broker.engine.grouping import groups_of
from broker.errors import NotFoundError, OperatorError
from broker.manage.browsing import Browsing
from broker.manage.grouped import GroupView, view_of
from broker.manage.nodes import Nodes, check_not_own
from broker.manage.stats import waiting_msgs
from broker.queues.groups import MessageGroups


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
        holders = [node, *(each for each in node.subscriptions if each.is_subscription)]
        if dry_run:
            return sum(waiting_msgs(each) for each in holders)
        return sum(self._engine.actions.purge(each) for each in holders)

    def move(self, source: str, target: str, count: int = 0, dry_run: bool = False, user: str = "") -> int:
        """Move the oldest messages of a queue to another as that has room; how many will go. 0 is all."""
        here = self._nodes.find(source)
        # Only what is to be done may make its target.
        check_not_own(target, "sent to")
        there = (
            self._engine.topology.nodes.get(target) if dry_run else self._nodes.destination(target, user=user)
        )
        if here is there:
            raise OperatorError(f"'{source}' is both source and target")
        if here.is_topic:
            raise OperatorError(f"'{source}' is a topic: move the messages of one of its subscriptions")
        count = min(count or waiting_msgs(here), waiting_msgs(here))
        return count if dry_run or there is None else self._engine.actions.move(here, there, count)

    def groups(self, name: str, offset: int = 0, count: int = 100) -> list[GroupView]:
        """Return the message groups of a queue, those with most waiting messages first."""
        groups = self._groups_of(name)
        views = [view_of(groups, each) for each in groups]
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
