"""Streams: what comes is appended, and what readers want is read from disk for them.

Nothing here waits for a disk: the pager's thread reads, and its answers come in a later turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker import constants
from broker.engine.depths import Depths
from broker.engine.durability import Durability
from broker.engine.node import Node
from broker.engine.reader_commits import ReaderCommits
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.queues.queue import Reader
from broker.queues.stream import StreamCursor, StreamQueue
from broker.store.port import OffsetGone, QueueLog, StreamLog

# What is read from disk for one reader at a time.
LOAD_BYTES = 1 << 18
# The same where the broker holds much in memory.
SHORT_BYTES = 1 << 14
# What is kept on disk is counted anew after so many messages: retention lets go of some meanwhile.
RECOUNT = 1024
# Memory that the broker may hold before streams let go of what is on disk, and how long until they do again.
ROOM_PERCENT = 70
ROOM_PAUSE_NS = 10_000_000


class StreamPager(Protocol):
    """Who reads from disk (``store.pager.Pager``)."""

    def run(self, job: Callable[[], object], done: Callable[[object], None]) -> None: ...


class Streams:
    """Begins streams, appends to them and reads from disk; ``pager`` reads, None without a data directory.

    ``nodes`` are those that are streams, ``commits`` keeps how far their named readers have come.
    """

    def __init__(self, turn: Turn, depths: Depths, durability: Durability, commits: ReaderCommits) -> None:
        self._turn = turn
        self._depths = depths
        self._durability = durability
        self.commits = commits
        self.pager: StreamPager | None = None
        self.nodes: set[Node] = set()
        # Those whose readers have had something read from disk.
        self._loading: set[Node] = set()
        self._pause_ns = 0
        self._newest_id = 0
        commits.counts.run = self._run

    def _run(self, job: Callable[[], object], done: Callable[[object], None]) -> None:
        if self.pager is not None:
            self.pager.run(job, done)

    def new_id(self) -> int:
        """Return what tells a new stream from those before it: the time, in ms since the epoch, and never the
        same one twice.
        """
        self._newest_id = max(self._turn.stamp_ms(), self._newest_id + 1)
        return self._newest_id

    def open(
        self, node: Node, durable: bool, definition: bytes, shelf: QueueLog | None, stream_id: int
    ) -> StreamLog | None:
        """Make a stream of a node, of what its shelf has or of nothing; return its log, None without one.

        A new one without a ``stream_id`` gets one. OperatorError where the store can't keep it.
        """
        found = shelf
        if found is None and durable and self._durability.is_on():
            found = self._durability.open_stream(node, definition)
        if found is not None and not isinstance(found, StreamLog):
            raise OperatorError(f"'{node.name}' has messages of a queue, and can't become a stream")
        next_offset = 0 if found is None else found.next_offset

        def ask(reader: Reader) -> None:
            self._load(node, reader)

        node.queue = node.stream = StreamQueue(found, next_offset, ask)
        node.stream.id = stream_id or (self.new_id() if shelf is None else 0)
        self.nodes.add(node)
        if found is not None:
            self._depths.count_kept(node, node.stream.count, found.nbytes)
        return found

    def put(self, node: Node, data: bytes, bits: int) -> int:
        """Append a message; ACCEPTED, STORING (not on disk yet), or REFUSED where its body is in a file."""
        stream = node.stream
        assert stream is not None, "it is a stream"
        if bits >> constants.LARGE_SHIFT:
            node.refused += 1
            return constants.REFUSED
        keep = node.shelf is not None
        now_ms = max(self._turn.stamp_ms(), stream.latest_ms)
        entry = stream.arrive(data, now_ms, keep)
        node.received += 1
        node.received_bytes += len(data)
        self._depths.memory.depth_bytes += stream.take_memory()
        if keep:
            self._durability.keep(node, entry, now_ms)
        if stream.named.by_name:
            self.commits.arrived(node, len(data))
        if not keep:
            self._turn.mark_dirty(node)
            return constants.ACCEPTED
        if stream.next_offset % RECOUNT == 0:
            self._recount(node, stream)
        return constants.STORING if bits & constants.IS_DURABLE else constants.ACCEPTED

    def recount(self) -> None:
        """Look after what all keep, once a second: retention gives room where nobody may send."""
        now_ms = self._turn.stamp_ms()
        self.commits.counts.retry()
        for node in self.nodes:
            stream = node.stream
            if stream is None:
                continue
            if node.gate.stop_bytes > 0:
                # What couldn't be read may be by now.
                self.commits.follow(node)
            if node.shelf is not None:
                self._recount(node, stream)
                _leave_removed(stream)
            else:
                stream.grow_old(now_ms)
                self._depths.memory.depth_bytes += stream.take_memory()

    def make_room(self) -> None:
        """Where the broker holds much in memory: let go of all that can be read from disk."""
        memory = self._depths.memory
        if self._loading:
            self._count_loaded()
        if memory.stop_bytes == 0 or self._turn.now_ns < self._pause_ns:
            return
        if memory.depth_bytes <= memory.stop_bytes * ROOM_PERCENT // 100:
            return
        for node in self.nodes:
            if node.stream is not None:
                node.stream.trim(0)
                memory.depth_bytes += node.stream.take_memory()
        self._give_way(memory.depth_bytes - memory.stop_bytes * ROOM_PERCENT // 100)
        self._pause_ns = self._turn.now_ns + ROOM_PAUSE_NS

    def _give_way(self, nbytes: int) -> None:
        """Let streams without a disk lose so many bytes of their oldest messages, each in proportion to what
        it has: nobody takes a message of theirs away, and producers of all nodes would wait for ever.
        """
        streams = [node.stream for node in self.nodes if node.stream is not None and node.shelf is None]
        held = sum(stream.tail_bytes for stream in streams)
        if nbytes <= 0 or held == 0:
            return
        for stream in streams:
            stream.give_way(stream.tail_bytes - stream.tail_bytes * min(nbytes, held) // held)
            self._depths.memory.depth_bytes += stream.take_memory()

    def _count_loaded(self) -> None:
        """Count what readers still have of what was read for them."""
        for node in list(self._loading):
            stream = node.stream
            if stream is not None:
                self._depths.memory.depth_bytes += stream.take_memory()
            if stream is None or stream.loaded_bytes == 0:
                self._loading.discard(node)

    def begin(self, reader: Reader, start: str, value: int) -> None:
        """Say where a reader begins, before it is shown anything (``StreamCursor``)."""
        reader.run = StreamCursor(start, value)

    def forget(self, node: Node) -> None:
        """Give back the memory of a stream that is gone."""
        self.nodes.discard(node)
        self._loading.discard(node)
        self.commits.forget(node)
        if node.stream is not None:
            node.stream.clear()
            self._depths.memory.depth_bytes += node.stream.take_memory()

    def _recount(self, node: Node, stream: StreamQueue) -> None:
        assert isinstance(node.shelf, StreamLog), "it is durable"
        self._depths.count_kept(node, stream.count - node.stored_msgs, node.shelf.nbytes - node.kept_bytes)

    def _load(self, node: Node, reader: Reader) -> None:
        """Have what a reader wants next read from disk."""
        stream, source, pager, cursor = node.stream, node.shelf, self.pager, reader.run
        if stream is None or not isinstance(source, StreamLog) or pager is None:
            return
        offset = stream.wanted_offset(reader)
        cursor.loading = True
        memory = self._depths.memory
        is_short = memory.stop_bytes > 0 and memory.depth_bytes > memory.stop_bytes * ROOM_PERCENT // 100
        most_bytes = SHORT_BYTES if is_short else LOAD_BYTES

        def read() -> object:
            if cursor.seeks:
                upto = source.next_offset
                return source.find(cursor.value), upto
            if cursor.disk is None:
                cursor.disk = source.reader(offset)
            elif cursor.disk.offset != offset:
                cursor.disk.seek(offset)
            try:
                return cursor.disk.read(most_bytes)
            except OffsetGone as gone:
                return gone

        pager.run(read, lambda answer: self._loaded(node, reader, cursor, answer))

    def _loaded(self, node: Node, reader: Reader, cursor: StreamCursor, answer: object) -> None:
        cursor.loading = False
        if cursor.closed:
            if cursor.disk is not None:
                cursor.disk.close()
            return
        if isinstance(answer, OffsetGone):
            reader.passed = max(reader.passed, answer.first_offset)
        elif isinstance(answer, Exception):
            unreadable = getattr(reader.owner, "unreadable", None)
            if unreadable is not None:
                unreadable(str(answer))
            return
        elif isinstance(answer, tuple):
            assert node.stream is not None, "it is a stream"
            node.stream.found(reader, *answer)
            if not cursor.seeks:
                self.commits.found(node, reader)
        elif isinstance(answer, list):
            assert node.stream is not None, "it is a stream"
            node.stream.load(reader, answer)
            self._loading.add(node)
        self._turn.mark_dirty(node)


def _leave_removed(stream: StreamQueue) -> None:
    """Let readers go of files that retention has removed: one that gives no credit would keep their room."""
    assert stream.source is not None, "it is durable"
    first_offset = stream.source.first_offset
    for reader in stream.readers:
        cursor = reader.run
        if cursor is None or cursor.disk is None or cursor.loading:
            continue
        if cursor.disk.offset < first_offset:
            cursor.disk.close()
            cursor.disk = None
