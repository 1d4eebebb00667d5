"""Who waits for the disk: queues whose messages become ready, links whose outcomes may leave.

Only this file knows which group of the store's holds what. It decides nothing about room or order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker.engine.node import Node
from broker.queues.queue import Entry
from broker.store.port import DURABLE, LARGE, WRITING, Store

# Bytes handed over and not on disk yet, beyond which no more credit is granted to durable nodes: what
# a slow disk writes in about a second. Pre-settled producers are held back by nothing else.
BEHIND_BYTES = 64 << 20


class Waiter(Protocol):
    """A link with outcomes that may leave only once a group is on disk."""

    def stored(self, group: int) -> None:
        """Every group up to this one is on disk."""


class Answer:
    """What is told somebody once it is on disk."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def stored(self, group: int) -> None:
        """So it is."""
        self._tell()


class GroupCommit:
    """The groups that are not on disk yet, oldest first, and who waits for each of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.nodes: list[Node] = []
        self.waiters: list[Waiter] = []
        self.groups: deque[tuple[int, list[tuple[Node, int]], list[Waiter]]] = deque()

    def keep(self, node: Node, entry: Entry, expires_ms: int) -> None:
        """Put a pending entry on its node's shelf; it is ready once the open group is on disk."""
        shelf = node.shelf
        if shelf is not None:
            flags = DURABLE
            if entry.extra is not None and entry.extra.body is not None:
                flags |= LARGE
            shelf.append(entry.seq, flags, entry.delivery_count, expires_ms, entry.data)
        self.delay(node, entry)

    def delay(self, node: Node, entry: Entry) -> None:
        """A pending entry is ready once the open group is on disk."""
        node.kept_seq = entry.seq
        self.watch(node)

    def watch(self, node: Node) -> None:
        """Look at the node again once the open group is on disk."""
        group = self.last_group()
        if node.group != group:
            node.group = group
            self.nodes.append(node)

    def last_group(self) -> int:
        """The group of what was stored last: the one before, where a full file has just closed it."""
        return self.store.group if self.store.open_records else self.store.group - 1

    def wait(self, waiter: Waiter) -> None:
        """Tell the link when the open group is on disk; it asks once a group."""
        self.waiters.append(waiter)

    def mark(self) -> tuple[int, int]:
        """How much was stored until now, for ``after``."""
        return self.store.group, self.store.open_records

    def after(self, mark: tuple[int, int], tell: Callable[[], object]) -> None:
        """Call it once all that was stored since then is on disk, at once where nothing was or can be."""
        if self.mark() == mark or self.store.state != WRITING:
            tell()
        else:
            self.wait(Answer(tell))

    def known(self, node: Node, tell: Callable[[], object]) -> None:
        """Call it once a node itself is on disk, at once where it is, or can't be."""
        if node.group <= self.store.synced or self.store.state != WRITING:
            tell()
        else:
            self.wait(Answer(tell))

    def seal(self) -> bool:
        """Close the open group and have it written. True if what waited is on disk already: ``attend``."""
        late = False
        if self.nodes or self.waiters:
            late = self.last_group() <= self.store.synced
            kept = [(node, node.kept_seq) for node in self.nodes]
            self.groups.append((self.last_group(), kept, self.waiters))
            self.nodes = []
            self.waiters = []
        self.store.seal()
        return late

    def attend(self) -> list[Node]:
        """Let go on who waited for what is on disk now: the nodes that have messages ready."""
        synced = self.store.attend()
        served: list[Node] = []
        while self.groups and self.groups[0][0] <= synced:
            group, kept, waiters = self.groups.popleft()
            for node, seq in kept:
                if not node.deleted:
                    node.queue.stored(seq)
                    served.append(node)
            for waiter in waiters:
                waiter.stored(group)
        return served

    @property
    def behind(self) -> bool:
        """True while more waits for the disk than should."""
        return self.store.behind_bytes > BEHIND_BYTES
