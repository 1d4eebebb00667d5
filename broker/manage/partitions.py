"""Partitioned streams: a topic `flights` whose streams `flights/0`, `flights/1` … each take their part of it.

The topic is what senders know. Each stream is a queue that is bound to it, with a filter that wants what
belongs to its partition; so order, room and credit are those of any topic with bound queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.queues.partitions import PartitionFilter, Partitioning

log = logging.getLogger("sluice.store")


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition's stream."""
    return f"{topic}/{partition}"


def partitions_of(topic: Node) -> list[Node]:
    """Return the streams of a partitioned topic, in order; none where it isn't partitioned."""
    bound = {each.name: each for each in topic.subscriptions if each.stream is not None}
    names = [partition_name(topic.name, at) for at in range(topic.settings.partitions)]
    return [bound[name] for name in names if name in bound]


def topic_of(queue: Node) -> Node | None:
    """Return the topic of which a stream is a partition; None for any other node."""
    return next((topic for topic in queue.topics if queue in partitions_of(topic)), None)


def topic_lacking(engine: Engine, name: str) -> Node | None:
    """Return the topic that has a box in the place of a partition of that name; None where none has."""
    address, _, number = name.rpartition("/")
    topic = engine.topology.nodes.get(address)
    if topic is None or not number.isdecimal() or any(each.name == name for each in partitions_of(topic)):
        return None
    at = int(number)
    is_one = at < topic.settings.partitions and partition_name(address, at) == name
    return topic if is_one else None


def share_out(topic: Node) -> None:
    """Have each partition of a topic want its own messages, and no other."""
    partitioning = Partitioning(topic.settings.partitions)
    for at, part in enumerate(partitions_of(topic)):
        part.filter = PartitionFilter(partitioning, at)


def restore(engine: Engine, box: Callable[[str], Node]) -> None:
    """After a restart, bindings included: partitions take their parts again.

    One that is set aside has a box in its place, which has no room: producers of the whole topic wait, for
    nothing may go to another partition.
    """
    for topic in list(engine.topology.nodes.values()):
        if not topic.settings.partitions:
            continue
        partitioning = Partitioning(topic.settings.partitions)
        bound = {each.name: each for each in topic.subscriptions}
        for at in range(topic.settings.partitions):
            name = partition_name(topic.name, at)
            part = bound.get(name)
            if part is None:
                log.error(
                    "'%s' lacks its partition '%s': its producers wait until a start can restore that, or"
                    " 'sluice store discard %s' has it made anew",
                    *(topic.name, name, name),
                )
                part = box(name)
                engine.topology.bind(topic, part)
            part.filter = PartitionFilter(partitioning, at)
