"""What an address is: a queue, a stream, or a stream of several partitions. Decided here alone.

1. ``sourceType`` is taken at its word. ``partitions``, and options of where reading begins or ends, say that
   it is a stream.
2. Otherwise the broker is asked for the node's attributes, and makes it first if it isn't there: by its
   policies it may be a stream. One whose ``queue_type`` is ``stream`` is one.
3. Where the options don't have a stream's number of ``partitions``, the node's attribute counts, as long as
   the first part is a stream.
4. Anything else is a queue: a node of a broker that doesn't tell, a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .management import QUEUE, TOPIC, Attributes
from .offsets import extent_of
from .options import Options, Source

# Answers questions, each the type and the name of an entity.
Ask = Callable[[Sequence[tuple[str, str]]], list[Attributes | None]]


@dataclass(frozen=True, slots=True)
class Node:
    """``streams``: of a stream, the address of each partition, in the order of their numbers."""

    type: Source
    streams: tuple[str, ...] = ()


def parts_of(address: str, count: int) -> tuple[str, ...]:
    """The addresses of a stream's partitions."""
    return tuple(f"{address}/{number}" for number in range(count))


def told(options: Options) -> Source | None:
    """The type of the source as far as the options say it; None if the broker has to be asked."""
    if options.source_type == "queue" or options.subscription is not None:
        return "queue"
    of_stream = (
        options.partitions,
        options.starting_offsets,
        options.starting_timestamp,
        options.ending_offsets,
    )
    is_stream = options.source_type == "stream" or any(each is not None for each in of_stream)
    return "stream" if is_stream else None


def find(options: Options, ask: Ask, make: Callable[[str], None] | None = None) -> Node:
    """What is read; asks only where the options don't say. ``make`` has the broker make a node."""
    address = options.address or ""
    kind = told(options)
    if kind == "queue":
        return Node("queue")
    if options.partitions is not None:
        return Node("stream", parts_of(address, options.partitions))
    questions = [(QUEUE, address), (TOPIC, address)]
    queue, topic = ask(questions)
    if queue is None and topic is None and make is not None:
        make(address)
        queue, topic = ask(questions)
    for found in (queue, topic):
        count = (found or {}).get("partitions")
        if isinstance(count, int) and count >= 1:
            parts = parts_of(address, count)
            [first] = ask([(QUEUE, parts[0])])
            if extent_of(first) is not None:
                return Node("stream", parts)
    if kind == "stream" or extent_of(queue) is not None:
        return Node("stream", (address,))
    return Node("queue")
