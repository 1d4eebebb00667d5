"""Message groups as operators see them."""

from __future__ import annotations

from dataclasses import dataclass

from broker.codec.grouping import shown
from broker.queues.groups import MessageGroups
from broker.queues.message_group import MessageGroup


@dataclass(frozen=True, slots=True)
class GroupView:
    """A message group. ``link`` is the id of the consumer link that has it, empty for none.

    ``waiting``: ready messages that were looked at and wait for that consumer, or for any; ``unsettled``:
    those that it holds. ``ending``: it is free once those are settled.
    """

    group: str
    link: str
    waiting: int
    unsettled: int
    ending: bool


def view_of(groups: MessageGroups, group: MessageGroup) -> GroupView:
    """Return how a group is now."""
    owner = group.owner
    link = "" if owner is None or owner.gone else str(getattr(owner.consumer, "id", ""))
    return GroupView(shown(group.key), link, groups.waiting_in(group), group.held, group.closing)


def most_stuck(groups: MessageGroups, link: str) -> GroupView | None:
    """Return the group with most messages that wait for another consumer than ``link``; None for none."""
    found = (view_of(groups, each) for each in groups if each.waiting is not None or each.skipped is not None)
    return max((each for each in found if each.link != link), key=lambda each: each.waiting, default=None)
