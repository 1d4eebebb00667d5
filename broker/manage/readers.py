"""The operators' verbs about a stream's named readers: how far each has come, and an end of one."""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.manage.nodes import Nodes
from broker.queues.named_readers import NamedReader


@dataclass(frozen=True, slots=True)
class ReaderView:
    """A named reader. Before ``committed_offset``, which is on disk where its stream is, it has dealt with
    every message; ``lag_msgs`` came since. ``link`` is the id of the link that reads for it, '' for none.
    """

    reader: str
    committed_offset: int
    lag_msgs: int
    link: str


class StreamReaders:
    """The named readers of all streams."""

    def __init__(self, engine: Engine, nodes: Nodes) -> None:
        self._engine = engine
        self._nodes = nodes

    def listed(self, name: str, offset: int = 0, count: int = 100) -> list[ReaderView]:
        """Return the named readers of a stream, the furthest behind first. Raises OperatorError."""
        node = self._stream(name)
        stream = node.stream
        assert stream is not None, "it is a stream"
        views = [view_of(stream.next_offset, each) for each in stream.named.by_name.values()]
        views.sort(key=lambda each: (-each.lag_msgs, each.reader))
        return views[offset : offset + count]

    def forget(self, name: str, reader: str) -> None:
        """Forget a reader: producers wait for it no more, and the next link of its name begins anew.

        Raises NotFoundError, ConflictError while a link reads for it.
        """
        self._engine.streams.commits.remove(self._stream(name), reader)

    def _stream(self, name: str) -> Node:
        node = self._nodes.find(name)
        if node.stream is None:
            raise OperatorError(f"'{name}' is no stream: it has no readers with names")
        return node


def view_of(next_offset: int, reader: NamedReader) -> ReaderView:
    """Return how a reader is now."""
    link = "" if reader.link is None else str(getattr(reader.link, "id", ""))
    return ReaderView(reader.name, reader.stored, max(next_offset - reader.stored, 0), link)
