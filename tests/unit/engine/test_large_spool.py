"""Large messages in the engine: what is counted where, and that every way out lets go of the file."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proton import Message

from broker import constants
from broker.codec import message
from broker.codec.bodyscan import body_start
from broker.engine.large import PIECE_BYTES, Body, BodyRelease, LargeMessages, note_key, noted
from broker.engine.node import Node
from tests.unit.engine.test_paging import MB, Taker, World, paged

HELD = constants.HELD_BYTES


class FakeWriting:
    """A file whose disk does what it is told to."""

    def __init__(self, files: FakeFiles, written: Callable, finished: Callable) -> None:  # type: ignore[type-arg]
        self.files = files
        self.written = written
        self.finished = finished
        self.pieces: list[bytes] = []
        self.ended = False
        self.dropped = False

    def write(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def finish(self) -> None:
        self.ended = True

    def drop(self) -> None:
        self.dropped = True


class FakeFiles:
    """Files that are not there: what was asked for, and what was removed."""

    def __init__(self) -> None:
        self.writings: list[FakeWriting] = []
        self.removed: list[int] = []

    def begin(self, durable: bool, written: Callable, finished: Callable) -> FakeWriting:  # type: ignore[type-arg]
        self.writings.append(FakeWriting(self, written, finished))
        return self.writings[-1]

    def read(self, *_: object) -> FakeReading:
        return FakeReading()

    def remove(self, number: int) -> None:
        self.removed.append(number)


class FakeReading:
    """Nothing ever arrives."""

    def more(self) -> None:
        pass

    def close(self) -> None:
        pass


class LargeWorld(World):
    """A world in which some messages have a body of 10 MB."""

    size = 10 * MB

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = FakeFiles()
        self.large: LargeMessages = self.engine.large
        self.large.use(self.files, MB)
        self.number = 0

    def put_large(self, node: Node, durable: bool = False, **fields: object) -> int:
        """A large message; its file's number."""
        self.number += 1
        data = bytes(Message(body=b"x", inferred=True, durable=durable, id=self.number, **fields).encode())
        head = data[: body_start(data)]
        self.large.gate(durable).depth_bytes += self.size
        body = self.large.embody(self.number, self.size, 0, durable)
        bits = self.large.bits_of(head, body)
        assert self.engine.intake.put(node, head, bits) in (constants.ACCEPTED, constants.STORING)
        del body
        self.turn()
        return self.number

    def is_clean(self) -> None:
        """Nothing is held and nothing is counted."""
        self.turn()
        self.turn()
        assert sorted(self.files.removed) == list(range(1, self.number + 1))
        engine = self.engine
        assert (engine.depths.memory.depth_bytes, engine.depths.memory.depth_msgs) == (0, 0)
        assert engine.depths.disk.depth_bytes == 0
        assert all(not node.bodies and node.file_bytes == 0 for node in engine.topology.nodes.values())
        assert not [key for key in self.store.notes if key.startswith("large/")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LargeWorld]:
    made = LargeWorld(tmp_path)
    # References alone must do it.
    gc.disable()
    yield made
    gc.enable()
    made.pager.close()


def take_all(world: LargeWorld, node: Node, wanted: int) -> list[int]:
    """Acknowledge so many; the sizes of their bodies."""
    taker = Taker(100)
    world.engine.delivery.add_consumer(node, taker)
    sizes: list[int] = []
    while len(sizes) < wanted:
        world.until(lambda: bool(taker.got))
        entry = taker.got.pop(0)
        sizes.append(entry.extra.body.size if entry.extra is not None and entry.extra.body is not None else 0)
        world.engine.settlement.acknowledge(node, entry)
        world.engine.turn.mark_dirty(node)
    world.engine.delivery.remove_consumer(node, taker)
    return sizes


def test_depth_counts_all_of_it_and_memory_the_head(world: LargeWorld) -> None:
    node = world.create("q", overflow="reject", max_size=100 * MB)
    world.put_large(node)
    assert world.size < node.gate.depth_bytes < world.size + 100
    assert world.engine.depths.memory.depth_bytes == node.gate.depth_bytes - world.size + HELD
    assert world.engine.depths.temp.depth_bytes == world.size
    assert take_all(world, node, 1) == [world.size]
    assert node.gate.depth_bytes == 0
    world.is_clean()


def test_a_hard_limit_counts_all_of_it(world: LargeWorld) -> None:
    node = world.create("q", overflow="ring", max_size=25 * MB)
    for _ in range(4):
        world.put_large(node)
    assert (node.gate.depth_msgs, node.dropped) == (2, 2)
    assert world.files.removed == [1, 2]
    world.engine.actions.purge(node)
    world.is_clean()


def test_subscriptions_share_it(world: LargeWorld) -> None:
    topic = world.create("news", kind="topic", overflow="reject")
    assert topic.settings is not None
    first, second = (
        world.engine.lifecycle.subscribe(f"news/{each}", "news", topic.settings) for each in (1, 2)
    )
    for each in (first, second):
        world.engine.topology.bind(topic, each)
    world.put_large(topic)
    assert world.engine.depths.temp.depth_bytes == world.size
    assert take_all(world, first, 1) == [world.size]
    assert world.files.removed == []
    world.engine.lifecycle.unsubscribe(second)
    world.is_clean()


def test_nobody_subscribed_nobody_needs_it(world: LargeWorld) -> None:
    world.put_large(world.create("news", kind="topic", overflow="reject"))
    world.is_clean()


def test_a_duplicate_needs_no_second_file(world: LargeWorld) -> None:
    node = world.create("q", overflow="reject", duplicate_window=10)
    world.put_large(node)
    world.number -= 1
    world.large.temp.depth_bytes += world.size
    data = bytes(Message(body=b"x", inferred=True, id=1).encode())
    head = data[: body_start(data)]
    body = world.large.embody(2, world.size, 0, False)
    assert world.engine.intake.put(node, head, world.large.bits_of(head, body)) == constants.ACCEPTED
    del body
    assert (node.gate.depth_msgs, node.duplicated, world.files.removed) == (1, 1, [2])


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("end", ["drain", "purge", "delete", "expire"])
def test_paged_ones_let_go_too(world: LargeWorld, durable: bool, end: str) -> None:
    node = world.create("q", memory_limit=MB, durable=durable)
    fields: dict[str, object] = {"ttl": 60} if end == "expire" else {}
    for _ in range(6):
        world.put(node, 500, 1000, durable=durable, **fields)
        world.put_large(node, durable, **fields)
    world.until(lambda: paged(node) > 1000)
    assert node.gate.depth_bytes > 6 * world.size
    assert world.held(node) < 4 * MB
    assert len([key for key in world.store.notes if key.startswith("large/")]) == 6 * durable
    if end == "drain":
        sizes = take_all(world, node, 3006)
        assert [at for at, size in enumerate(sizes) if size] == [501 * each + 500 for each in range(6)]
    elif end == "purge":
        assert world.engine.actions.purge(node) == 3006
    elif end == "delete":
        world.engine.lifecycle.delete("q")
    else:
        world.turn(61_000)
        world.until(lambda: _looked(world, node))
    if end != "delete":
        world.until(lambda: node.gate.depth_msgs == 0)
        assert node.gate.depth_bytes == 0
    world.until(lambda: world.engine.paging.passing_bytes == 0)
    world.is_clean()


def _looked(world: LargeWorld, node: Node) -> bool:
    world.second()
    return node.gate.depth_msgs == 0


def test_what_comes_back_still_has_it(world: LargeWorld) -> None:
    node = world.create("q", overflow="reject")
    world.put_large(node)
    taker = Taker(1)
    world.engine.delivery.add_consumer(node, taker)
    world.turn()
    world.engine.settlement.requeue(node, taker.got.pop(), True)
    world.turn()
    [entry] = taker.got
    assert entry.extra is not None
    assert entry.extra.body.size == world.size
    assert entry.delivery_count == 1
    world.engine.settlement.acknowledge(node, entry)
    del entry
    taker.got.clear()
    world.is_clean()


def test_a_dead_letter_takes_it_along(world: LargeWorld) -> None:
    node = world.create("q", overflow="reject", dead_letter_address="dead")
    dead = world.create("dead", overflow="reject")
    world.put_large(node, ttl=1)
    world.turn(1100)
    assert (node.gate.depth_bytes, dead.gate.depth_msgs) == (0, 1)
    assert dead.gate.depth_bytes > world.size
    assert world.files.removed == []
    assert take_all(world, dead, 1) == [world.size]
    world.is_clean()


def test_an_overflowing_one_becomes_a_dead_letter(world: LargeWorld) -> None:
    node = world.create("q", overflow="dead_letter", dead_letter_address="dead", max_size=15 * MB)
    dead = world.create("dead", overflow="reject")
    world.put_large(node)
    world.put_large(node)
    assert (node.gate.depth_msgs, dead.gate.depth_msgs) == (1, 1)
    assert [*take_all(world, node, 1), *take_all(world, dead, 1)] == [world.size] * 2
    world.is_clean()


def test_a_durable_file_goes_once_that_is_on_disk(world: LargeWorld) -> None:
    node = world.create("q", overflow="reject", durable=True)
    world.put_large(node, durable=True)
    [key] = [key for key in world.store.notes if key.startswith("large/")]
    assert noted(key, world.store.notes[key])[:4] == (1, 1, "q", world.size)
    taker = Taker(1)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: bool(taker.got))
    world.engine.settlement.acknowledge(node, taker.got.pop())
    assert key not in world.store.notes
    world.engine.seal()
    assert world.files.removed == []
    world.turn()
    world.is_clean()


def test_a_kept_body_is_removed_by_no_accident(world: LargeWorld) -> None:
    body: Body = world.large.embody(9, 1, 0, True)
    body.kept = 1
    parting = BodyRelease(body)
    parting.stored(1)
    del body, parting
    assert world.files.removed == []


def test_a_queues_name_may_have_any_letter(world: LargeWorld) -> None:
    body = world.large.embody(3, 7, 11, True)
    assert noted(note_key(body, "a/b/c", 5), b"\x07" + bytes(7) + b"\x0b\0\0\0") == (3, 5, "a/b/c", 7, 11)


# --- on the way in

HEAD = b"\x00\x53\x70\xc0\x02\x01\x41"


def test_an_inflow_holds_only_what_is_not_written(world: LargeWorld) -> None:
    told: list[None] = []
    inflow = world.large.begin(HEAD, lambda: told.append(None))
    size = 4 * PIECE_BYTES
    inflow.feed(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big"))
    for _ in range(4):
        inflow.feed(bytes(PIECE_BYTES))
    assert inflow.writing_bytes > 3 * PIECE_BYTES
    assert world.engine.depths.memory.depth_bytes == size + 8 + len(HEAD)
    assert world.engine.depths.disk.depth_bytes == size + 8
    inflow.end()
    [writing] = world.files.writings
    assert writing.ended
    for piece in writing.pieces:
        writing.written(len(piece), None)
    assert (inflow.writing_bytes, inflow.done, len(told)) == (0, False, len(writing.pieces))
    assert world.engine.depths.memory.depth_bytes == len(HEAD)
    writing.finished(1, 99, None)
    assert inflow.done
    assert inflow.bits & constants.IS_DURABLE
    assert world.large.of(inflow.bits).checksum == 99
    inflow.drop()
    assert world.engine.depths.memory.depth_bytes == world.engine.depths.disk.depth_bytes == 0
    assert world.files.removed == [1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dropped_inflow_leaves_nothing(world: LargeWorld, when: str) -> None:
    inflow = world.large.begin(b"", lambda: None)
    inflow.feed(b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(PIECE_BYTES))
    if when == "after":
        inflow.feed(bytes((1 << 20) - PIECE_BYTES))
        inflow.end()
    [writing] = world.files.writings
    inflow.drop()
    inflow.drop()
    assert writing.dropped
    assert world.engine.depths.memory.depth_bytes == world.engine.depths.temp.depth_bytes == 0
    writing.written(PIECE_BYTES, None)
    writing.finished(5, 0, None)
    assert world.engine.depths.memory.depth_bytes == 0
    assert world.files.removed == [5]


def test_a_malformed_one_is_taken_and_thrown_away(world: LargeWorld) -> None:
    inflow = world.large.begin(HEAD, lambda: None)
    inflow.feed(b"\x00\x53\x75\xa0\x01a" + bytes(MB) + b"no section")
    inflow.feed(bytes(MB))
    inflow.end()
    assert (inflow.malformed, inflow.done) == (True, True)
    assert world.engine.depths.memory.depth_bytes == len(HEAD)
    assert world.engine.depths.disk.depth_bytes == 0
    inflow.drop()
    assert world.engine.depths.memory.depth_bytes == 0


def test_a_link_that_sent_large_ones_reserves_little_memory(world: LargeWorld) -> None:
    world.engine.limit(4 * MB, 0, 0)
    node = world.create("q", overflow="reject", max_size=1000 * MB)
    world.put(node, 1)
    allocator = node.allocator
    assert allocator.room(100 * MB) == 3
    assert message.scan(b"") < 0
