"""Which queues take the messages of which topics, beside subscriptions: made and ended by operators.

A binding lasts until it is ended or one of its nodes goes; where both are durable, over a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from broker.engine import Engine
from broker.errors import ConflictError, NotFoundError, OperatorError
from broker.node import Node

# The store's note of them.
BINDINGS = "bindings"


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue that takes what is sent to a topic."""

    source: str
    target: str

    @property
    def name(self) -> str:
        """What it is found by."""
        return f"{self.source}/{self.target}"


def every_binding(engine: Engine) -> list[Binding]:
    """All there are."""
    nodes = engine.nodes.values()
    return [Binding(topic.name, queue.name) for queue in nodes for topic in queue.topics if topic.is_topic]


class Bindings:
    """All of them, in the order they were made; the engine's nodes know the rest."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def bind(self, topic: Node, queue: Node) -> None:
        """From now on the queue takes what is sent to the topic."""
        check(topic, queue)
        self._engine.bind(topic, queue)
        self.keep()

    def unbind(self, topic: Node, queue: Node) -> None:
        """Not any more; what it took stays in it."""
        if topic not in queue.topics:
            raise NotFoundError(f"'{queue.name}' is not bound to '{topic.name}'")
        self._engine.unbind(topic, queue)
        self.keep()

    def restore(self, noted: bytes) -> list[Node]:
        """Those that survived, between nodes that did; the queues that are bound again."""
        nodes = self._engine.nodes
        queues: dict[str, Node] = {}
        for topic, queue in json.loads(noted) if noted else []:
            if topic in nodes and queue in nodes and nodes[topic] not in nodes[queue].topics:
                self._engine.bind(nodes[topic], nodes[queue])
                queues[queue] = nodes[queue]
        return list(queues.values())

    def keep(self) -> None:
        """Note those that are to be there after a restart."""
        pairs = [
            (topic.name, node.name)
            for node in self._engine.nodes.values()
            for topic in node.topics
            if topic.is_topic
            if node.shelf is not None and topic.shelf is not None
        ]
        self._engine.note(BINDINGS, json.dumps(pairs).encode() if pairs else b"")


def check_ends(topic: Node | None, queue: Node | None) -> None:
    """OperatorError if one that is there can't be that end of a binding."""
    if topic is not None and not topic.is_topic:
        raise OperatorError(f"'{topic.name}' is a queue: only topics have bindings")
    if queue is not None and queue.is_topic:
        raise OperatorError(f"'{queue.name}' is a topic: only queues can be bound")


def check(topic: Node, queue: Node) -> None:
    """OperatorError, or ConflictError, if the queue can't be bound to the topic."""
    check_ends(topic, queue)
    if topic in queue.topics:
        raise ConflictError(f"'{queue.name}' is bound to '{topic.name}' already")


def parents_of(queue: Node) -> Mapping[str, Mapping[str, object]]:
    """The topics a queue is bound to, first bound first, and what each was declared with."""
    return {topic.name: topic.arguments for topic in queue.topics if topic.is_topic}
