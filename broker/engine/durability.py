"""Who waits for the disk: queues whose messages become ready, links whose outcomes may leave.

Only this file knows which group of the store's holds what. It decides nothing about room or order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker import constants
from broker.engine.depths import Depths
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.queues.queue import Entry
from broker.store.port import DURABLE, FAILED, FULL, LARGE, WRITING, QueueLog, Store, StreamLog

# Bytes handed over and not on disk yet, beyond which no more credit is granted to durable nodes: what
# a slow disk writes in about a second. Pre-settled producers are held back by nothing else.
BEHIND_BYTES = 64 << 20
# The store's note of a node whose messages may have been sent: any of them, or those up to a number.
SENT = "sent/"
SENT_ANY = b"*"
# The store's notes of message-ids, by node and place in its window of duplicates.
SEEN = "seen/"


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
        if self.mark() == mark or not self.waits_for_disk():
            tell()
        else:
            self.wait(Answer(tell))

    def known(self, node: Node, tell: Callable[[], object]) -> None:
        """Call it once a node itself is on disk, at once where it is, or can't be."""
        if node.group <= self.store.synced or not self.waits_for_disk():
            tell()
        else:
            self.wait(Answer(tell))

    def waits_for_disk(self) -> bool:
        """Return whether the store will know sooner or later what became of the open group."""
        state = self.store.state
        return state == WRITING or (state == FULL and self.store.syncs_when_full)

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


class Durability:
    """What nodes leave to the store: their messages, notes of them, and answers that wait for both.

    Without a store nothing is durable. ``commit`` has the groups on their way to disk, None without a store.
    """

    def __init__(self, store: Store | None, turn: Turn, depths: Depths) -> None:
        self._turn = turn
        self._depths = depths
        self.commit = None if store is None else GroupCommit(store)

    def is_on(self) -> bool:
        """Return whether there is a store."""
        return self.commit is not None

    def is_behind(self) -> bool:
        """Return whether more waits for the disk than should."""
        return self.commit is not None and self.commit.behind

    def has_failed(self) -> bool:
        """Return whether the store has failed: nothing more is kept in this life of the broker."""
        return self.commit is not None and self.commit.store.state == FAILED

    def note(self, key: str, value: bytes) -> None:
        """Keep a small fact across restarts; empty bytes take it away."""
        if self.commit is not None:
            self.commit.store.note(key, value)

    def forget_seen(self, name: str, places: list[int]) -> None:
        """Take away what is noted in these places of a node's window of duplicates."""
        for place in places:
            self.note(f"{SEEN}{name}/{place}", b"")

    def wait(self, waiter: Waiter) -> None:
        """Tell ``waiter`` when the open group is on disk."""
        if self.commit is not None:
            self.commit.wait(waiter)

    def wait_for_disk(self, waiter: Waiter) -> int:
        """Return the open group, whose writing the link will be told of."""
        if self.commit is None:
            raise RuntimeError("nothing is stored without a store")
        self.commit.wait(waiter)
        return self.commit.last_group()

    def keep(self, node: Node, entry: Entry, expires_ms: int) -> None:
        """Put a message on its node's shelf."""
        self._depths.count_kept(node, 1, len(entry.data))
        if self.commit is not None:
            self.commit.keep(node, entry, expires_ms)

    def forget(self, node: Node, entry: Entry) -> None:
        """Take a message that has left from its node's shelf."""
        size = len(entry.data)
        self._depths.count_kept(node, -1, -size)
        if node.shelf is not None:
            node.shelf.forget(entry.seq, size)

    def update(self, node: Node, entry: Entry) -> None:
        """Keep a message's delivery count and that it was delivered before."""
        if entry.durable and node.shelf is not None:
            node.shelf.update(entry.seq, entry.delivery_count, entry.spared)

    def answer_behind(self, node: Node, bits: int) -> int:
        """Return the answer for a message that is kept already, perhaps in a group that isn't on disk yet:
        ACCEPTED or STORING.
        """
        if not bits & constants.IS_DURABLE or node.shelf is None or self.commit is None:
            return constants.ACCEPTED
        store = self.commit.store
        if store.synced >= store.group - 1 and not store.open_records:
            return constants.ACCEPTED
        if not store.open_records:
            # A group of nothing new, so that the answer has one to wait for.
            self.note(SEEN, b"%d" % self._turn.now_ns)
        return constants.STORING

    def is_unstored(self, topic: Node, bits: int) -> bool:
        """Return whether a topic isn't on disk itself yet, as an answer to a durable message says."""
        return (
            bits & constants.IS_DURABLE != 0
            and topic.shelf is not None
            and self.commit is not None
            and topic.group > self.commit.store.synced
        )

    def is_mark_stored(self, node: Node) -> bool:
        """Return whether what ``mark_sent`` noted last is on disk."""
        if node.shelf is None:
            return True
        return self.commit is not None and node.attended_group <= self.commit.store.synced

    def mark_sent(self, node: Node, mark: bytes) -> None:
        """Note that this node's messages may be sent, before one is; after a crash they are flagged."""
        if self.commit is not None:
            self.commit.store.note(SENT + node.name, mark)
            store = self.commit.store
            # Where it was noted before, nothing is in the open group for it.
            node.attended_group = store.group if store.open_records else store.group - 1
            self.commit.watch(node)
            self._turn.mark_dirty(node)

    def open_log(self, node: Node, definition: bytes) -> QueueLog | None:
        """Return a new log for a node of this definition; None without a store."""
        if self.commit is None:
            return None
        log = self.commit.store.open_log(node.name, definition)
        self.commit.watch(node)
        return log

    def open_stream(self, node: Node, definition: bytes) -> StreamLog:
        """Return a new log for a stream. OperatorError where the store can't keep it."""
        if self.commit is None:
            raise OperatorError("nothing is stored without a store")
        log = self.commit.store.open_stream(node.name, definition)
        self.commit.watch(node)
        return log

    def open_named(self, name: str, definition: bytes) -> QueueLog | None:
        """Return a new log that belongs to a node beside its own; None without a store."""
        return None if self.commit is None else self.commit.store.open_log(name, definition)

    def remove_log(self, log: QueueLog) -> None:
        """Take a log with all its messages from the store."""
        if self.commit is not None:
            self.commit.store.remove(log)

    def redefine(self, log: QueueLog, definition: bytes) -> None:
        """Have the store know a node by another definition."""
        if self.commit is not None:
            self.commit.store.redefine(log, definition)

    def remove(self, node: Node) -> None:
        """Take a node that is gone, with all its messages, from the store."""
        if node.shelf is None or self.commit is None:
            return
        self._depths.count_kept(node, -node.stored_msgs, -node.kept_bytes)
        if node.duplicates is not None:
            self.forget_seen(node.name, node.duplicates.places())
        self.commit.store.remove(node.shelf)
        self.commit.store.note(SENT + node.name, b"")
        node.shelf = None
