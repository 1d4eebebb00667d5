"""Nodes that were made for a link: which connection's they are, and the link that comes back to one."""

from __future__ import annotations

from collections.abc import Container as Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.engine.node import Node

if TYPE_CHECKING:
    from broker.amqp.control.connection import ConnectionControl
    from broker.amqp.control.lifetimes import Kept

# User, container-id (or the connection, where it gave none), link name, and whether the peer sends.
Key = tuple[str, str, str, bool]


@dataclass(slots=True, eq=False)
class TemporaryNode:
    """One of them. ``kept`` is its end, None for a node that only answers management requests."""

    node: Node
    peer: ConnectionControl
    kept: Kept | None = None
    key: Key | None = None


class TemporaryNodes:
    """All of them, until they are deleted. ``peers`` are the connections that are alive."""

    def __init__(self, peers: Collection[ConnectionControl]) -> None:
        self._peers = peers
        self._made: dict[Node, TemporaryNode] = {}
        self._kept: dict[Kept, TemporaryNode] = {}
        self._detached: dict[Key, TemporaryNode] = {}

    def add(self, node: Node, peer: ConnectionControl) -> None:
        """A node was made for a link of this connection."""
        self._made[node] = TemporaryNode(node, peer)

    def keep(self, node: Node, kept: Kept) -> None:
        """It outlives its link until ``kept``, in place of any before, is over."""
        made = self._made[node]
        if made.kept is not None:
            del self._kept[made.kept]
        made.kept = kept
        self._kept[kept] = made

    def replace(self, kept: Kept, other: Kept) -> None:
        """More goes with the node: ``other`` is the end of both."""
        made = self._kept.get(kept)
        if made is not None:
            self.keep(made.node, other)

    def is_anothers(self, node: Node, peer: ConnectionControl) -> bool:
        """Whether another connection, which is alive, had it made."""
        made = self._made.get(node)
        return made is not None and made.peer is not peer and made.peer in self._peers

    def detached(self, kept: Kept, key: Key) -> None:
        """The link that a node was made for, if one was, is detached and may come back."""
        made = self._kept.get(kept)
        if made is not None:
            made.key = key
            self._detached[key] = made

    def come_back(self, key: Key, peer: ConnectionControl) -> tuple[Node, Kept] | None:
        """The node of a link that is attached again, and what was to end it; it is this connection's now.
        None if there is none.
        """
        made = self._detached.get(key)
        if made is None or made.kept is None or made.kept.is_ended or self.is_anothers(made.node, peer):
            return None
        del self._detached[key]
        made.key = None
        made.peer = peer
        return made.node, made.kept

    def gone(self, node: Node) -> None:
        """It was deleted, if it is one of these."""
        made = self._made.pop(node, None)
        if made is not None and made.kept is not None:
            del self._kept[made.kept]
        if made is not None and made.key is not None and self._detached.get(made.key) is made:
            del self._detached[made.key]
