"""Named readers in the engine: what is committed when, and producers that wait for the slowest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from proton import Message

from broker import constants
from broker.codec import message
from broker.constants import HELD_BYTES
from broker.engine.node import Node
from broker.engine.reader_commits import reader_key, reader_of
from broker.errors import ConflictError, LimitError, NotFoundError
from broker.manage.audit import audit
from broker.queues.named_readers import MOST_READERS, NamedReader
from broker.queues.queue import Entry, Filter, Reader
from tests.unit.engine.parts_world import Link, Window
from tests.unit.engine.test_streams import World


class Reading(Window):
    """A link that reads for a name, as the wire's do; ``settle`` tells outcomes of the first messages."""

    def __init__(
        self,
        world: World,
        node: Node,
        name: str,
        start: str = "first",
        wanted: Filter | None = None,
        value: int = 0,
        presettled: bool = False,
    ) -> None:
        Window.__init__(self, 1 << 30)
        self.world, self.node = world, node
        self.named: NamedReader | None = None
        self.has_moved = False
        self.presettled = presettled
        reads = self.reader = Reader(self, wanted, True)
        commits = world.engine.streams.commits
        commits.check(node, name)
        known = commits.join(node, name, self)
        world.engine.streams.begin(
            self.reader, *((start, value) if known is None else ("offset", known.committed))
        )
        world.engine.delivery.add_browser(node, self)
        if known is None:
            commits.begin(node, name, self, reads.passed)

    @property
    def offsets(self) -> list[int]:
        return [each.seq - 1 for each in self.got]

    def settle(self, count: int) -> None:
        del self.got[:count]
        if not self.has_moved:
            self.has_moved = True
            self.world.engine.streams.commits.moved.append(self)

    def send(self, entry: Entry) -> None:
        super().send(entry)
        if self.presettled:
            self.settle(1)

    def dealt_offset(self) -> int:
        assert self.reader is not None
        return self.got[0].seq - 1 if self.got else self.reader.passed

    def leave(self) -> None:
        self.world.engine.streams.commits.leave(self)
        self.world.engine.delivery.remove_browser(self.node, self)


@pytest.fixture
def world() -> World:
    return World()


def filled(world: World, msgs: int = 10, **given: object) -> Node:
    node = world.stream(**given)
    for _ in range(msgs):
        world.put(node)
    world.settle()
    return node


def test_a_key_names_the_stream_and_the_reader() -> None:
    assert reader_of(reader_key("a/b", "c/d")) == ("a/b", "c/d")


def test_a_reader_comes_back_where_it_was(world: World) -> None:
    node = filled(world)
    reading = Reading(world, node, "billing")
    world.settle()
    assert reading.offsets == list(range(10))
    reading.settle(4)
    world.settle()
    assert reading.named is not None
    assert (reading.named.committed, reading.named.stored) == (4, 4)
    reading.settle(1)
    reading.leave()
    again = Reading(world, node, "billing", "next")
    world.turn()
    assert again.offsets == list(range(5, 10)), "what it held comes again, what it settled doesn't"


def test_what_is_committed_counts_once_it_is_on_disk(world: World) -> None:
    node = filled(world)
    reading = Reading(world, node, "billing")
    world.settle()
    assert node.gate.depth_msgs == 10
    reading.settle(3)
    world.turn()
    assert reading.named is not None
    assert (reading.named.committed, reading.named.stored) == (3, 0)
    assert node.gate.depth_msgs == 10
    world.settle()
    assert (reading.named.stored, node.gate.depth_msgs) == (3, 7)
    assert audit(world.engine).breaches == ()


def test_without_a_store_it_counts_at_once() -> None:
    world = World()
    node = world.create("flights", kind="stream", max_count=100)
    for _ in range(5):
        world.put(node)
    reading = Reading(world, node, "billing")
    world.turn()
    reading.settle(2)
    world.turn()
    assert reading.named is not None
    assert (reading.named.stored, node.gate.depth_msgs) == (2, 3)


def test_producers_wait_for_the_slowest_reader_and_no_credit_overshoots(world: World) -> None:
    node = filled(world, 0, flow_stop_count=10, flow_resume_count=5)
    link = Link()
    account = world.engine.producers.open(node, link, True)
    slow, fast = Reading(world, node, "slow"), Reading(world, node, "fast")
    world.settle()
    data = bytes(Message(body="x").encode())
    sent = 0
    for _ in range(200):
        while link.credit > 0:
            link.credit -= 1
            code = world.engine.intake.arrive(node, account, data, message.scan(data), False)
            assert code == constants.ACCEPTED
            sent += 1
        assert node.gate.depth_msgs <= 10
        world.settle()
        fast.settle(len(fast.got))
        slow.settle(1)
        world.settle()
        assert audit(world.engine).breaches == ()
    # One a round is dealt with, and the threshold besides.
    assert 190 <= sent <= 210


class Nothing:
    """A selector that no message fits."""

    def matches(self, data: bytes) -> bool:
        return False


@pytest.mark.parametrize("durable", [True, False])
def test_who_wants_nothing_of_it_holds_nobody(world: World, durable: bool) -> None:
    node = world.stream(durable=durable, flow_stop_count=10)
    link = Link()
    account = world.engine.producers.open(node, link, True)
    Reading(world, node, "picky", wanted=Nothing())
    world.settle()
    data = bytes(Message(body="x").encode())
    for _ in range(10):
        assert link.credit > 0, "it has looked at everything, and its producer waits"
        while link.credit > 0:
            link.credit -= 1
            world.engine.intake.arrive(node, account, data, message.scan(data), False)
        # Once for the messages, and once for the place that its reader has come to.
        world.settle()
        world.settle()
    assert node.stream is not None
    assert node.stream.named.by_name["picky"].stored == node.stream.next_offset >= 50


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_sent_settled_is_dealt_with_in_the_same_turn(world: World, durable: bool) -> None:
    """A producer that sends from a timer fills the threshold in one turn, and nothing else happens then."""
    node = world.stream(durable=durable, flow_stop_count=10)
    link = Link()
    account = world.engine.producers.open(node, link, True)
    Reading(world, node, "quick", presettled=True)
    world.settle()
    data = bytes(Message(body="x").encode())
    for _ in range(5):
        assert link.credit == 10
        while link.credit > 0:
            link.credit -= 1
            world.engine.intake.arrive(node, account, data, message.scan(data), False)
        world.engine.end_turn()
        if durable:
            # Once the messages are on disk, and once the reader's place is.
            for _ in range(2):
                world.engine.seal()
                world.engine.attend_store()
                world.engine.end_turn()
    assert node.gate.depth_msgs == 0


def test_a_reader_that_begins_by_a_time_holds_nobody_up_for_what_came_before(world: World) -> None:
    node = filled(world, 20, flow_stop_count=10)
    assert node.stream is not None
    world.append()
    node.stream.trim(0)
    link = Link()
    world.engine.producers.open(node, link, True)
    reading = Reading(world, node, "late", "time", value=node.stream.latest_ms + 1)
    reading_named = reading.named
    assert reading_named is not None
    assert reader_key("flights", "late") not in world.store.notes, "nobody knows yet where it begins"
    world.work()
    world.settle()
    world.settle()
    assert (reading_named.committed, reading_named.stored) == (20, 20)
    assert (node.gate.depth_msgs, link.credit) == (0, 10)
    assert world.store.notes[reader_key("flights", "late")] == b"20"


@pytest.mark.parametrize("deleted", [False, True])
def test_a_reader_that_leaves_before_it_is_known_where_it_begins_leaves_nothing(
    world: World, deleted: bool
) -> None:
    node = filled(world, 20)
    assert node.stream is not None
    world.append()
    node.stream.trim(0)
    reading = Reading(world, node, "gone", "time", value=node.stream.latest_ms + 1)
    if deleted:
        world.engine.lifecycle.delete("flights")
    reading.leave()
    world.work()
    world.settle()
    assert node.stream.named.by_name == {}
    assert not world.store.notes.get(reader_key("flights", "gone"))


def test_a_reader_that_begins_far_behind_takes_credit_back(world: World) -> None:
    node = filled(world, 50, flow_stop_count=20)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.turn()
    assert link.credit == 20
    reading = Reading(world, node, "billing")
    world.settle()
    assert (link.credit, node.gate.closed, node.gate.depth_msgs) == (0, True, 50)
    reading.settle(50)
    world.settle()
    assert link.credit == 20


def test_one_link_reads_for_a_name(world: World) -> None:
    node = filled(world)
    Reading(world, node, "billing")
    with pytest.raises(ConflictError, match="has a link already"):
        Reading(world, node, "billing")
    with pytest.raises(ConflictError, match="has a link"):
        world.engine.streams.commits.remove(node, "billing")


def test_a_reader_is_forgotten_and_producers_go_on(world: World) -> None:
    node = filled(world, 30, flow_stop_count=20)
    link = Link()
    world.engine.producers.open(node, link, True)
    reading = Reading(world, node, "billing")
    world.settle()
    assert link.credit == 0
    reading.leave()
    world.engine.streams.commits.remove(node, "billing")
    world.settle()
    assert (link.credit, node.gate.depth_msgs) == (20, 0)
    assert reader_key("flights", "billing") not in world.store.notes
    with pytest.raises(NotFoundError):
        world.engine.streams.commits.remove(node, "billing")


def test_a_reader_is_forgotten_where_the_gate_was_open_and_had_no_room(world: World) -> None:
    """One message is there, and the next one would pass the threshold."""
    node = filled(world, 1, flow_stop_size=2 * SIZE - 1, flow_resume_size=2 * SIZE - 2)
    Reading(world, node, "billing").leave()
    world.settle()
    link = Link()
    world.engine.producers.open(node, link, True)
    for account in node.allocator.accounts:
        account.reserve_bytes = account.learned_bytes = SIZE
    world.settle()
    assert (link.credit, node.gate.closed, node.gate.depth_bytes) == (0, False, SIZE)
    world.engine.streams.commits.remove(node, "billing")
    world.settle()
    assert link.credit > 0


def test_there_may_be_so_many(world: World) -> None:
    node = filled(world, 1)
    for number in range(MOST_READERS):
        world.engine.streams.commits.restore(node, str(number), 0)
    with pytest.raises(LimitError):
        world.engine.streams.commits.check(node, "one more")
    world.engine.streams.commits.check(node, "7")


def test_a_stream_that_is_deleted_forgets_them(world: World) -> None:
    node = filled(world)
    Reading(world, node, "billing")
    world.settle()
    assert world.store.notes[reader_key("flights", "billing")] == b"0"
    memory = world.engine.depths.memory
    world.engine.lifecycle.delete("flights")
    world.settle()
    assert reader_key("flights", "billing") not in world.store.notes
    assert (memory.depth_msgs, memory.depth_bytes) == (0, 0)


def test_retention_keeps_what_a_reader_lacks_where_producers_wait_for_it(world: World) -> None:
    kept = {"max_size": 5 * (HELD_BYTES + 60)}
    node = world.create("flights", kind="stream", flow_stop_count=20, **kept)
    reading = Reading(world, node, "billing")
    for _ in range(12):
        world.put(node)
    world.turn()
    assert node.stream is not None
    assert node.stream.first_offset == 0
    reading.settle(9)
    world.turn()
    world.put(node)
    assert 4 < node.stream.first_offset <= 9
    # Without the threshold retention is faster than a reader that doesn't settle.
    free = world.create("free", kind="stream", **kept)
    Reading(world, free, "billing")
    for _ in range(12):
        world.put(free)
    assert free.stream is not None
    assert free.stream.first_offset > 4


def test_the_log_is_told_from_where_on_nothing_goes(world: World) -> None:
    node = filled(world, 10, flow_stop_count=20)
    assert world.streams_store.log.held_from == -1
    reading = Reading(world, node, "billing")
    world.settle()
    reading.settle(6)
    world.settle()
    assert world.streams_store.log.held_from == 6
    world.engine.configurator.change(node, replace(node.settings, flow_stop_count=0, flow_resume_count=0))
    assert world.streams_store.log.held_from == -1


# What `put` sends, as it is encoded.
SIZE = 14


def far_behind(world: World) -> Node:
    """A stream all of which is on disk, with a new reader at its beginning."""
    strict = {"byte_reservation": "strict", "max_message_size": 100}
    node = filled(world, 20, flow_stop_size=1000, flow_resume_size=500, **strict)
    assert node.stream is not None
    world.append()
    node.stream.trim(0)
    return node


def test_until_the_disk_has_told_all_that_there_is_counts(world: World) -> None:
    node = far_behind(world)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.settle()
    assert link.credit > 0
    Reading(world, node, "far", "offset", value=5)
    world.turn()
    stored = world.streams_store.log.nbytes
    assert (node.gate.depth_bytes, node.gate.state, link.credit) == (stored, "stopped", 0)
    world.work()
    assert (node.gate.depth_bytes, node.gate.state) == (15 * SIZE, "open")
    assert link.credit > 0
    assert audit(world.engine).breaches == ()


def test_a_reader_of_before_a_restart_is_counted_at_once(world: World) -> None:
    node = far_behind(world)
    world.engine.streams.commits.restore(node, "far", 3)
    assert (node.gate.depth_bytes, world.pager.jobs) == (17 * SIZE, [])
    world.engine.streams.commits.restore(node, "farther", 1)
    assert (node.gate.depth_bytes, node.gate.closed_count) == (19 * SIZE, 0)


def test_what_can_not_be_counted_is_tried_again_and_holds_producers_meanwhile(world: World) -> None:
    node = far_behind(world)
    world.streams_store.log.fault = OSError("broken")
    world.engine.streams.commits.restore(node, "far", 3)
    assert node.gate.state == "stopped"
    for _ in range(3):
        world.put(node)
        world.settle()
    assert world.pager.jobs == [], "nobody asks a broken disk with every message"
    world.engine.sampler.sample(world.engine.turn.now_ns)
    world.work()
    assert node.gate.state == "stopped"
    world.streams_store.log.fault = None
    world.engine.sampler.sample(world.engine.turn.now_ns)
    world.work()
    # Three came, and three of the twenty it had dealt with before.
    assert (node.gate.depth_bytes, node.gate.state) == (20 * SIZE, "open")


def test_a_stream_that_goes_leaves_no_bytes_behind(world: World) -> None:
    node = far_behind(world)
    world.engine.streams.commits.restore(node, "far", 3)
    Reading(world, node, "near", "next")
    world.engine.lifecycle.delete("flights")
    world.work()
    assert (node.gate.depth_bytes, world.engine.depths.memory.depth_bytes) == (0, 0)
