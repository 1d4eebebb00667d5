"""What an address is said to be, by the options and by the broker's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from pyspark_sluice.discovery import Node, find, told
from pyspark_sluice.errors import OptionError
from pyspark_sluice.management import Attributes
from pyspark_sluice.options import Options, check_source, parse
from pyspark_sluice.position import (
    counted,
    ids_of,
    is_of_queue,
    offsets_of,
    position,
    remade,
    stream_position,
)

STREAM: Attributes = {"queue_type": "stream", "first_offset": 3, "next_offset": 9}
CLASSIC: Attributes = {"queue_type": "classic", "depth_msgs": 1}


def options(**given: str) -> Options:
    return parse({"url": "amqp://broker.example.org", "address": "flights", **given}, "source")


class World:
    """A broker's nodes, and the questions that it was asked."""

    def __init__(
        self, queues: Mapping[str, Attributes], topics: Mapping[str, Attributes] | None = None
    ) -> None:
        self.nodes = {"org.sluice.queue": queues, "org.sluice.topic": topics or {}}
        self.asked: list[str] = []

    def ask(self, questions: Sequence[tuple[str, str]]) -> list[Attributes | None]:
        self.asked += [name for _, name in questions]
        return [self.nodes[kind].get(name) for kind, name in questions]


def test_the_options_are_taken_at_their_word() -> None:
    world = World({"flights": STREAM})
    assert find(options(sourceType="queue"), world.ask) == Node("queue")
    assert find(options(subscription="nightly"), world.ask) == Node("queue")
    assert find(options(partitions="2"), world.ask) == Node("stream", ("flights/0", "flights/1"))
    assert world.asked == []
    assert (told(options()), told(options(sourceType="stream"))) == (None, "stream")
    assert told(options(startingOffsets="earliest")) == told(options(startingTimestamp="0")) == "stream"
    # What nobody can say of itself is made first: a policy may have it be a stream.
    made: dict[str, Attributes] = {}
    node = find(options(), World(made).ask, lambda address: made.update({address: STREAM}))
    assert node == Node("stream", ("flights",))


@pytest.mark.parametrize(
    ("queues", "topics", "expected"),
    [
        ({"flights": STREAM}, {}, Node("stream", ("flights",))),
        ({"flights": CLASSIC}, {}, Node("queue")),
        ({}, {}, Node("queue")),
        ({}, {"flights": {"partitions": 2}, "other": {}}, Node("queue")),
        ({"flights/0": STREAM}, {"flights": {"partitions": 2}}, Node("stream", ("flights/0", "flights/1"))),
        ({"flights": {"partitions": 1}, "flights/0": STREAM}, {}, Node("stream", ("flights/0",))),
        ({"flights": STREAM | {"partitions": 1}}, {}, Node("stream", ("flights",))),
        ({"flights": STREAM | {"partitions": 0}}, {}, Node("stream", ("flights",))),
    ],
    ids=range(8),
)
def test_the_broker_is_asked(
    queues: Mapping[str, Attributes], topics: Mapping[str, Attributes], expected: Node
) -> None:
    assert find(options(), World(queues, topics).ask) == expected


def test_a_stream_that_the_broker_does_not_show_is_still_one_where_the_options_say_so() -> None:
    assert find(options(sourceType="stream"), World({}).ask) == Node("stream", ("flights",))


def test_options_of_the_other_type_are_refused_by_name() -> None:
    check_source({"startingoffsets": "latest", "selector": "x"}, "stream", "flights")
    with pytest.raises(OptionError) as refused:
        check_source({"maxrowspertrigger": "5", "links": "2", "url": "x"}, "stream", "flights")
    assert str(refused.value).split("; ") == [
        "maxRowsPerTrigger is an option of a queue, and 'flights' is read as a stream",
        "links is an option of a queue, and 'flights' is read as a stream",
    ]


def test_neither_position_is_read_as_the_other() -> None:
    assert offsets_of(stream_position({1: 4, 0: 17})) == {0: 17, 1: 4}
    assert list(stream_position({1: 4, 0: 17})) == ["0", "1"]
    assert is_of_queue(position(5))
    assert not is_of_queue(stream_position({0: 5}))
    with pytest.raises(ValueError, match="not one of a stream"):
        offsets_of(position(5))
    with pytest.raises(ValueError, match="not one of a queue"):
        counted(stream_position({0: 5}))


def test_a_position_says_which_streams_it_is_of_and_older_ones_do_not() -> None:
    found = stream_position({1: 4, 0: 17}, {0: 1_764_222_747_001, 2: 5})
    assert found == {"0": 17, "1": 4, "stream_id": {"0": 1_764_222_747_001}}
    assert offsets_of(found) == {0: 17, 1: 4}
    assert ids_of(json.loads(json.dumps(found))) == {0: 1_764_222_747_001}
    assert stream_position({0: 5}, {}) == {"0": 5}
    assert ids_of({"0": 5}) == {}
    assert remade({0: 7, 1: 8, 2: 0, 3: 9}, {0: 7, 1: 9, 2: 8, 4: 1}) == {1, 2}
    for odd in ({"stream_id": 5}, {"stream_id": {"x": 1}}, {"stream_id": {"0": None}}):
        with pytest.raises(ValueError, match="not one of a stream"):
            ids_of(odd)
