"""The bytes that the slowest reader of a stream lacks, beside a list: never too few, and exact in the end.

A stream whose memory holds a few messages, a disk that answers late and in parts; readers begin anywhere,
go on, stop being the slowest and leave; retention where nothing is held.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Message

from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
from broker.manage.audit import audit
from broker.queues import stream
from broker.queues.named_readers import NamedReader
from tests.unit.engine.parts_world import Link
from tests.unit.engine.test_streams import World

STOP = 4000
LARGEST = 400
HELD: dict[str, object] = {
    "flow_stop_size": STOP,
    "flow_resume_size": STOP // 2,
    "max_message_size": LARGEST,
    "byte_reservation": "strict",
}


class Reads:
    """A link that reads for a name, as far as ``offset``."""

    reader = None
    named: NamedReader | None = None
    has_moved = False

    def __init__(self, node: Node, offset: int) -> None:
        self.node = node
        self.offset = offset

    def dealt_offset(self) -> int:
        return self.offset


class Walk:
    """The model: the size of every message as it was sent, and where each reader stands."""

    def __init__(self) -> None:
        self.world = World()
        self.node = self.world.stream(
            flow_stop_size=STOP,
            flow_resume_size=STOP // 2,
            max_message_size=LARGEST,
            byte_reservation="strict",
        )
        self.link = Link()
        self.account = self.world.engine.producers.open(self.node, self.link, True)
        self.sizes: list[int] = []
        self.links: dict[str, Reads] = {}
        self.names = 0
        # No reader comes that lacks more than the threshold: credit that stood is taken back in time.
        self.is_steady = False
        self.world.settle()

    @property
    def commits(self) -> Any:
        return self.world.engine.streams.commits

    @property
    def log(self) -> Any:
        return self.world.streams_store.log

    def put(self, msgs: int, size: int) -> None:
        """As many as there is credit for."""
        for _ in range(msgs):
            if self.link.credit <= 0:
                break
            self.link.credit -= 1
            data = bytes(Message(body="x" * size).encode())
            self.world.engine.intake.arrive(self.node, self.account, data, message.scan(data), False)
            self.sizes.append(len(data))
            self.check()
        self.world.settle()

    def append(self) -> None:
        self.world.append()
        assert self.node.stream is not None
        self.node.stream.trim(stream.TAIL_BYTES)

    def retain(self, part: int) -> None:
        held = self.log.held_from if self.log.held_from >= 0 else self.log.appended
        first = self.log.first + (self.log.appended - self.log.first) * part // 4
        self.log.first = max(min(first, held), self.log.first)

    def begin(self, part: int) -> None:
        """A reader at any place."""
        self.names += 1
        offset = self.log.first + (len(self.sizes) - self.log.first) * part // 8
        link = self.links[f"r{self.names}"] = Reads(self.node, offset)
        self.commits.begin(self.node, f"r{self.names}", link, offset)
        self.world.settle()

    def chosen(self, at: int) -> str:
        return sorted(self.links)[at % len(self.links)] if self.links else ""

    def go_on(self, at: int, part: int) -> None:
        link = self.links.get(self.chosen(at))
        if link is not None:
            link.offset += (len(self.sizes) - link.offset) * part // 4
            self.commits.moved.append(link)
        # Once for its place to be noted, and once for that to be on disk.
        self.world.settle()
        self.world.settle()

    def leave(self, at: int) -> None:
        name = self.chosen(at)
        if name:
            self.commits.leave(self.links.pop(name))
            self.commits.remove(self.node, name)
            self.world.settle()

    def threshold(self, is_there: bool) -> None:
        given = {"kind": "stream", "durable": True, **HELD}
        if not is_there:
            del given["flow_stop_size"], given["flow_resume_size"]
        self.world.engine.configurator.change(self.node, resolve(given, BrokerDefaults()))
        self.world.settle()

    def answer(self) -> None:
        """The disk answers one question."""
        if self.world.pager.jobs:
            self.world.pager.work()
            self.world.settle()

    def lacking(self) -> int:
        if not self.links or not self.node.gate.stop_bytes:
            return 0
        slowest = min(each.offset for each in self.links.values())
        return sum(self.sizes[max(slowest, self.log.first) :])

    def check(self) -> None:
        gate = self.node.gate
        assert gate.depth_bytes >= self.lacking()
        if not self.world.pager.jobs:
            assert gate.depth_bytes == self.lacking()
            if gate.stop_bytes and self.is_steady:
                assert gate.depth_bytes + gate.promised_bytes <= STOP
        assert audit(self.world.engine).breaches == ()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 12), st.integers(1, 300)),
        st.tuples(st.just("append")),
        st.tuples(st.just("retain"), st.integers(1, 4)),
        st.tuples(st.just("begin"), st.integers(0, 8)),
        st.tuples(st.just("go_on"), st.integers(0, 5), st.integers(1, 4)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("threshold"), st.booleans()),
        st.tuples(st.just("answer")),
        st.tuples(st.just("answer")),
    ),
    max_size=60,
)


@given(STEPS)
@example(
    [("begin", 0), ("put", 9, 300), ("append",), ("threshold", False), ("retain", 4), ("threshold", True)]
)
@settings(max_examples=300, deadline=None)
def test_the_depth_is_never_too_small_and_exact_once_the_disk_has_told(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "TAIL_BYTES", 700)
        walk = Walk()
        for name, *values in steps:
            getattr(walk, name)(*values)
            walk.check()
        while walk.world.pager.jobs:
            walk.answer()
        walk.check()


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_no_credit_passes_the_threshold(steps: list[tuple[Any, ...]]) -> None:
    """With a reader from the beginning on, which stays, whatever others do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "TAIL_BYTES", 700)
        walk = Walk()
        walk.begin(0)
        walk.is_steady = True
        for name, *values in steps:
            if name in ("put", "append", "retain", "go_on", "answer"):
                getattr(walk, name)(*values)
                walk.check()
        for _ in range(5):
            # Everybody gets on once the reader does.
            walk.append()
            walk.go_on(0, 4)
            while walk.world.pager.jobs:
                walk.answer()
            walk.world.settle()
            assert walk.link.credit > 0
            walk.put(100, 300)
