"""Which queues take the messages of which topics, beside subscriptions: made and ended by operators.

A binding lasts until it is ended or one of its nodes goes; where both are durable, over a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ConflictError, NotFoundError, OperatorError

# The store's note of them.
BINDINGS = "bindings"


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue that takes what is sent to a topic."""

    source: str
    target: str

    @property
    def name(self) -> str:
        """Return both ends, in which a slash is `%2F`: no other binding has this name."""
        return "/".join(end.replace("%", "%25").replace("/", "%2F") for end in (self.source, self.target))


def every_binding(engine: Engine) -> list[Binding]:
    """All there are."""
    nodes = engine.topology.nodes.values()
    return [Binding(topic.name, queue.name) for queue in nodes for topic in queue.topics if topic.is_topic]


class Bindings:
    """All of them, in the order they were made; the engine's nodes know the rest."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Of nodes that were set aside, as (topic, queue): they are there again when those are.
        self._absent: list[tuple[str, str]] = []

    def bind(self, topic: Node, queue: Node) -> None:
        """From now on the queue takes what is sent to the topic."""
        check(topic, queue)
        self._engine.topology.bind(topic, queue)
        self.keep()

    def unbind(self, topic: Node, queue: Node) -> None:
        """Not any more; what it took stays in it."""
        if topic not in queue.topics:
            raise NotFoundError(f"'{queue.name}' is not bound to '{topic.name}'")
        self._engine.topology.unbind(topic, queue)
        self.keep()

    def restore(
        self, noted: Mapping[str, Sequence[str]], is_aside: Callable[[str], bool] = lambda name: False
    ) -> None:
        """Those that survived, between nodes that did; the topics of each queue. Where an end was set aside,
        the binding stays noted.
        """
        nodes = self._engine.topology.nodes
        for name, topics in noted.items():
            queue = nodes.get(name)
            self._absent += [(each, name) for each in topics if is_aside(each) or is_aside(name)]
            for topic in (nodes[each] for each in topics if each in nodes):
                if queue is not None and not queue.is_topic and topic.is_topic and topic not in queue.topics:
                    self._engine.topology.bind(topic, queue)

    def discard(self, name: str) -> None:
        """A node that was set aside is gone, and its bindings with it."""
        self._absent = [pair for pair in self._absent if name not in pair]
        self.keep()

    def keep(self) -> None:
        """Note those that are to be there after a restart."""
        pairs = [
            (topic.name, node.name)
            for node in self._engine.topology.nodes.values()
            for topic in node.topics
            if topic.is_topic
            if node.shelf is not None and topic.shelf is not None
        ]
        pairs += self._absent
        self._engine.durability.note(BINDINGS, json.dumps(pairs).encode() if pairs else b"")


def bound_in(noted: bytes) -> dict[str, list[str]]:
    """By queue the topics it was bound to, first bound first, as ``keep`` noted them."""
    found: dict[str, list[str]] = {}
    for topic, queue in json.loads(noted) if noted else []:
        found.setdefault(queue, []).append(topic)
    return found


def check_ends(topic: Node | None, queue: Node | None) -> None:
    """OperatorError if one that is there can't be that end of a binding."""
    if topic is not None:
        check_kind(topic.name, topic.kind, "topic")
    if queue is not None:
        check_kind(queue.name, queue.kind, "queue")


def check_kind(name: str, kind: str, wanted: str) -> None:
    """OperatorError if a node of that kind can't be that end, the topic's or the queue's."""
    if kind != wanted:
        which = "only topics have bindings" if wanted == "topic" else "only queues can be bound"
        raise OperatorError(f"'{name}' is a {kind}: {which}")


def check(topic: Node, queue: Node) -> None:
    """OperatorError, or ConflictError, if the queue can't be bound to the topic."""
    check_ends(topic, queue)
    if topic in queue.topics:
        raise ConflictError(f"'{queue.name}' is bound to '{topic.name}' already")


def parents_of(queue: Node) -> Mapping[str, Mapping[str, object]]:
    """The topics a queue is bound to, first bound first, and what each was declared with."""
    return {topic.name: topic.arguments for topic in queue.topics if topic.is_topic}
