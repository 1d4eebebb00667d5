"""Which nodes hand out their messages by groups, as their settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.codec.grouping import PropertyKey
from broker.queues.groups import MessageGroups

if TYPE_CHECKING:
    from broker.config.node import NodeSettings
    from broker.engine.node import Node


def is_regrouped(node: Node, settings: NodeSettings) -> bool:
    """Return whether by these settings other messages are a group than those that are one at the node."""
    groups = groups_of(node)
    if groups is None or settings.message_groups == "none":
        return (groups is not None) != (settings.message_groups != "none")
    key = "" if groups.property_key is None else groups.property_key.name
    return key != settings.group_key


def set_groups(node: Node) -> None:
    """Have a node follow its settings about groups.

    Which messages are a group changes only while no consumer is there and none of the messages is held, by an
    open transaction or a move, for nobody knows of which group those are: it is done when the last consumer
    has left, else when the next one comes.
    """
    settings = node.settings
    if node.is_topic:
        return
    if is_regrouped(node, settings) and not has_members(node) and node.queue.acquired == 0:
        groups = groups_of(node)
        if groups is not None:
            groups.close()
        if settings.message_groups != "none":
            groups = MessageGroups(node.queue)
            groups.property_key = PropertyKey(settings.group_key) if settings.group_key else None
    groups = groups_of(node)
    if groups is not None:
        groups.shared = settings.message_groups == "shared"
        groups.first_key = settings.group_first_key
        groups.rebalance = settings.group_rebalance
        groups.most_idle = settings.group_max_idle


def groups_of(node: Node) -> MessageGroups | None:
    """Return a node's groups; None for a node without."""
    order = node.queue.order
    return order if isinstance(order, MessageGroups) else None


def has_members(node: Node) -> bool:
    """Return whether consumers are there to whom groups belong, or would."""
    return any(each.joins_groups for each in node.consumers)
