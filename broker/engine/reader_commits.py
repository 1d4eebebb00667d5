"""Named readers of streams: what they have dealt with is committed once a turn and outlives restarts.

A stream's gate goes by the slowest: its depth is what that one lacks, so `flow_stop_count` and
`flow_stop_size` hold producers, by credit, instead of letting retention outrun a reader.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from broker.engine.changes import Changes
from broker.engine.durability import Answer, Durability
from broker.engine.node import Node
from broker.engine.stream_bytes import StreamBytes
from broker.engine.turn import Turn
from broker.errors import ConflictError, LimitError, NotFoundError
from broker.queues.named_readers import MOST_READERS, NamedReader, NamedReaders
from broker.queues.queue import Reader

# Before a stream's name and a reader's in the key of a note; neither has the character between them.
READER = "reader/"
_BETWEEN = "\x1f"


def reader_key(stream: str, name: str) -> str:
    """Return the key under which a reader's offset is noted."""
    return f"{READER}{stream}{_BETWEEN}{name}"


def reader_of(key: str) -> tuple[str, str]:
    """Return the stream and the reader of such a key."""
    stream, _, name = key.removeprefix(READER).partition(_BETWEEN)
    return stream, name


class ReadingLink(Protocol):
    """A link that reads for a named reader (``amqp.links.consumer``); ``has_moved`` since the last commit."""

    node: Node
    reader: Reader | None
    named: NamedReader | None
    has_moved: bool

    def dealt_offset(self) -> int: ...


class ReaderCommits:
    """Commits what named readers have dealt with; ``moved`` are the links that have told outcomes since.

    ``selective`` are links that want some messages only: they come further without an outcome. ``counts``
    knows how many bytes readers lack.
    """

    def __init__(self, turn: Turn, changes: Changes, durability: Durability) -> None:
        self._turn = turn
        self._changes = changes
        self._durability = durability
        self.moved: list[ReadingLink] = []
        self.selective: list[ReadingLink] = []
        self.counts = StreamBytes(self._counted)

    # --- links

    def check(self, node: Node, name: str) -> None:
        """Raise ConflictError while a link reads for a reader, LimitError where a new one is too many."""
        readers = _readers(node).by_name
        found = readers.get(name)
        if found is None and len(readers) >= MOST_READERS:
            raise LimitError(f"'{node.name}' has {MOST_READERS:,} named readers, the most there may be")
        if found is not None and found.link is not None:
            raise ConflictError(f"reader '{name}' of '{node.name}' has a link already")

    def join(self, node: Node, name: str, link: ReadingLink) -> NamedReader | None:
        """Let a link read for a reader, after ``check``; None for a new one, which ``begin`` makes."""
        found = _readers(node).by_name.get(name)
        if found is not None:
            self._join(found, link)
        return found

    def begin(self, node: Node, name: str, link: ReadingLink, offset: int) -> None:
        """Make a reader that begins at an offset, for a link."""
        found = _readers(node).add(name, offset)
        self.follow(node)
        self._join(found, link)
        if not _seeks(link):
            self._note(node, found)

    def found(self, node: Node, reader: Reader) -> None:
        """Where a new reader begins, by a time, is known; until then it was the first offset."""
        named = getattr(reader.owner, "named", None)
        if named is not None:
            named.committed = max(named.committed, reader.passed)
            self._note(node, named)

    def leave(self, link: ReadingLink) -> None:
        """A link is at its end: what it has dealt with counts, what it holds comes again."""
        named = link.named
        if named is None:
            return
        if not _seeks(link):
            self._commit(link)
        elif not link.node.deleted:
            self._forget(link.node, named)
        named.link = None
        link.named = None
        if link in self.selective:
            self.selective.remove(link)

    # --- turns

    def commit(self) -> None:
        """Commit what links have dealt with."""
        moved, self.moved = self.moved, []
        for link in moved:
            link.has_moved = False
            self._commit(link)

    def look(self) -> None:
        """Commit what selective links have passed over in this turn: their producers may wait for it."""
        for link in self.selective:
            self._commit(link)

    def arrived(self, node: Node, size: int) -> None:
        """A message of ``size`` bytes more is at the end of a stream that has named readers."""
        if node.gate.stop_bytes > 0:
            node.gate.learn(size)
        self._measure(node)

    # --- operators and restarts

    def restore(self, node: Node, name: str, offset: int) -> NamedReader:
        """Add a reader as a restart finds it; what it lacks is counted before anybody is served."""
        found = _readers(node).add(name, offset)
        if self._measure(node, False, True):
            self._changes.overpromise(node)
        return found

    def remove(self, node: Node, name: str) -> None:
        """Forget a reader that nobody reads for. Raises NotFoundError, ConflictError."""
        named = _readers(node)
        found = named.by_name.get(name)
        if found is None:
            raise NotFoundError(f"'{node.name}' has no reader '{name}'")
        if found.link is not None:
            raise ConflictError(f"reader '{name}' of '{node.name}' has a link")
        self._forget(node, found)

    def forget(self, node: Node) -> None:
        """Forget the readers of a stream that is gone."""
        if node.stream is None:
            return
        for name in node.stream.named.by_name:
            self._durability.note(reader_key(node.name, name), b"")
        node.stream.named = NamedReaders()
        node.gate.depth_msgs = node.gate.depth_bytes = 0
        self.counts.forget(node)

    def follow(self, node: Node) -> None:
        """Take new settings, another reader, or none any more into account."""
        if self._measure(node):
            # A reader that begins far behind may leave less room than is promised.
            self._changes.overpromise(node)
        # One less may leave room, though the gate was open already.
        self._turn.wake(node)

    # --- inside

    def _forget(self, node: Node, reader: NamedReader) -> None:
        _readers(node).remove(reader.name)
        self._durability.note(reader_key(node.name, reader.name), b"")
        self.follow(node)

    def _join(self, named: NamedReader, link: ReadingLink) -> None:
        named.link, link.named = link, named
        if link.reader is not None and link.reader.wanted is not None:
            self.selective.append(link)

    def _commit(self, link: ReadingLink) -> None:
        named, node = link.named, link.node
        if named is None or node.deleted:
            return
        offset = link.dealt_offset()
        if _readers(node).commit(named, offset):
            self._note(node, named)

    def _note(self, node: Node, named: NamedReader) -> None:
        offset = named.committed
        if node.shelf is None or not self._durability.is_on():
            self._stored(node, named, offset)
            return
        self._durability.note(reader_key(node.name, named.name), b"%d" % offset)
        self._durability.wait(Answer(partial(self._stored, node, named, offset)))

    def _stored(self, node: Node, named: NamedReader, offset: int) -> None:
        if not node.deleted and _readers(node).store(named, offset):
            self._measure(node)
            for owner in node.owners():
                self._turn.mark_dirty(owner)

    def _counted(self, node: Node, anew: bool) -> None:
        """The disk has told how many bytes the slowest reader lacks."""
        self._measure(node, anew)
        for owner in node.owners():
            self._turn.mark_dirty(owner)

    def _measure(self, node: Node, anew: bool = False, at_once: bool = False) -> bool:
        """Count what the slowest reader lacks; true if that has grown.

        Bytes are counted only where they may hold producers. ``anew`` is as in ``Gate.measure``, ``at_once``
        as in ``StreamBytes.behind``.
        """
        stream = node.stream
        if stream is None:
            return False
        gate = node.gate
        slowest = stream.named.slowest
        # A reader may begin at an offset that isn't there yet.
        lag = max(stream.next_offset - slowest, 0) if slowest >= 0 else 0
        # Where nobody is held back, nothing may be kept for a reader that never comes.
        waits = gate.enforced and (gate.stop_msgs > 0 or gate.stop_bytes > 0)
        stream.hold(slowest if waits else -1)
        nbytes = 0
        if gate.stop_bytes == 0 or not gate.enforced:
            # Retention may go on, and what is counted later is what there is then.
            stream.counted_offset = -1
        elif 0 <= slowest <= stream.next_offset:
            nbytes = stream.bytes_from(slowest)
            if nbytes < 0:
                nbytes = self.counts.behind(node, slowest, at_once)
                self._changes.overpromise(node)
            else:
                # So it is known still when that message has left memory.
                stream.counted_offset = slowest
                stream.counted_sum = stream.total_bytes - nbytes
        has_grown = lag > gate.depth_msgs or nbytes > gate.depth_bytes
        if (anew or lag != gate.depth_msgs or nbytes != gate.depth_bytes) and gate.measure(
            lag, nbytes, self._turn.now_ns, anew
        ):
            self._changes.gate_changed(node)
        return has_grown


def _seeks(link: ReadingLink) -> bool:
    """Whether a link looks for where it begins, by a time: only a new reader's does."""
    return link.reader is not None and link.reader.run is not None and link.reader.run.seeks


def _readers(node: Node) -> NamedReaders:
    assert node.stream is not None, "only streams have named readers"
    return node.stream.named
