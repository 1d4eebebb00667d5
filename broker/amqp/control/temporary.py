"""Nodes that were made for a link: which connection's they are, and the link that comes back to one."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from broker.amqp.control.client import LinkKey
from broker.amqp.control.lifetimes import (
    ON_NO_LINKS,
    ON_NO_LINKS_OR_MESSAGES,
    ON_NO_MESSAGES,
    Kept,
)
from broker.config.flow import BrokerDefaults
from broker.config.synonyms import from_arguments
from broker.config.thresholds import resolve
from broker.engine.node import Node, is_empty
from broker.manage.access import TEMPORARY
from broker.manage.idle import is_attached
from broker.manage.model import Model
from broker.manage.policies import NOTHING

# Random bytes in the name of a node that is made for a link.
NAME_BYTES = 18


@dataclass(slots=True, eq=False)
class TemporaryNode:
    """One of them. ``kept`` is its end, None for a node that only answers management requests."""

    node: Node
    peer: object
    kept: Kept | None = None
    key: LinkKey | None = None


class TemporaryNodes:
    """All nodes made for links, until they are deleted; ``peers`` are the connections that are alive.

    ``orphans`` are those whose link is gone and whose lifetime policy, their value, lets them stay for now.
    """

    def __init__(self, model: Model, defaults: BrokerDefaults, peers: Collection[object]) -> None:
        self._model = model
        self._defaults = defaults
        self._peers = peers
        # Begins the names, behind what all of them begin with.
        self.prefix = ""
        self.orphans: dict[Node, int] = {}
        self._made: dict[Node, TemporaryNode] = {}
        self._kept: dict[Kept, TemporaryNode] = {}
        self._detached: dict[LinkKey, TemporaryNode] = {}

    def make(
        self, peer: object, kind: str = "queue", *, user: str = "", asked: Mapping[str, object] = NOTHING
    ) -> Node:
        """Make a node for a link of this connection; its lifetime policy says when it goes.

        Its name can't be guessed: a sender has to be told it. SettingError where what is ``asked`` for
        contradicts itself, LimitError where the user has made too many.
        """
        self._model.ownership.check(user, for_a_link=True)
        arguments = from_arguments(asked)
        settings = replace(resolve(arguments, self._defaults), kind=kind, durable=False)
        name = f"{TEMPORARY}/{self.prefix}{secrets.token_urlsafe(NAME_BYTES)}"
        node = self._model.engine.lifecycle.create(name, settings)
        node.arguments = arguments
        self._model.ownership.made(node, user)
        self._made[node] = TemporaryNode(node, peer)
        return node

    def keep(self, node: Node, kept: Kept) -> None:
        """Let a node outlive its link until ``kept``, in place of any before, is over."""
        made = self._made[node]
        if made.kept is not None:
            del self._kept[made.kept]
        made.kept = kept
        self._kept[kept] = made

    def replace(self, kept: Kept, other: Kept) -> None:
        """Take ``other``, the end of a node and of more, in place of the node's own."""
        made = self._kept.get(kept)
        if made is not None:
            self.keep(made.node, other)

    def is_anothers(self, node: Node, peer: object) -> bool:
        """Whether another connection, which is alive, had it made."""
        made = self._made.get(node)
        return made is not None and made.peer is not peer and made.peer in self._peers

    def detached(self, kept: Kept, key: LinkKey) -> None:
        """Note that the link a node was made for, if one was, is detached and may come back."""
        made = self._kept.get(kept)
        if made is not None:
            made.key = key
            self._detached[key] = made

    def come_back(self, key: LinkKey, peer: object) -> tuple[Node, Kept] | None:
        """Return the node of a link that is attached again, and what was to end it; None if there is none.

        The node is this connection's from then on.
        """
        made = self._detached.get(key)
        if made is None or made.kept is None or made.kept.is_ended or self.is_anothers(made.node, peer):
            return None
        del self._detached[key]
        made.key = None
        made.peer = peer
        return made.node, made.kept

    # --- their end

    def abandon(self, node: Node, policy: int) -> None:
        """Delete a node whose link is gone, as soon as its lifetime policy allows it."""
        self.orphans[node] = policy
        self.look_after_orphans()

    def look_after_orphans(self) -> None:
        """Delete those whose policy allows it now; called when a link goes, and once a second."""
        for node, policy in list(self.orphans.items()):
            if node.deleted:
                del self.orphans[node]
            elif _may_go(node, policy):
                del self.orphans[node]
                self.delete(node)

    def delete(self, node: Node) -> None:
        """Delete a node with its links, unless it is gone already."""
        if node.name in self._model.engine.topology.nodes:
            self._model.nodes.delete(node.name, anyway=True)

    def gone(self, node: Node) -> None:
        """Forget a node that was deleted, if it is one of these."""
        made = self._made.pop(node, None)
        if made is not None and made.kept is not None:
            del self._kept[made.kept]
        if made is not None and made.key is not None and self._detached.get(made.key) is made:
            del self._detached[made.key]


def _may_go(node: Node, policy: int) -> bool:
    """Whether a node whose link is gone goes too, by its lifetime policy (AMQP 1.0 §3.5.10)."""
    senders = sum(is_attached(each, node) for each in node.allocator.accounts)
    links = len(node.consumers) + len(node.browsers) + len(node.subscriptions) + senders
    if policy == ON_NO_LINKS:
        return links == 0
    if policy == ON_NO_MESSAGES:
        return is_empty(node)
    if policy == ON_NO_LINKS_OR_MESSAGES:
        return links == 0 and is_empty(node)
    return True
