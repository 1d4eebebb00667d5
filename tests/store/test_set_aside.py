"""No start ends because of one node: one that can't be restored is set aside, and may come back.

A whole broker is made of each directory, but for its ports.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.config.broker import Settings
from broker.engine.durability import SEEN, SENT
from broker.errors import ConflictError, NotFoundError
from broker.manage.bindings import BINDINGS, every_binding
from broker.manage.bridges import BRIDGE_NOTE
from broker.manage.definitions import Definition
from broker.manage.model import Model
from broker.manage.operators import HOLDS
from broker.manage.subscriptions import SubscriptionKey
from broker.server.server import Server
from broker.store.disk import DiskStore
from broker.store.largefiles import name_of
from broker.store.logs import DiskQueueLog
from broker.store.port import DURABLE, LARGE_FILE, LARGE_NOTE
from broker.store.records import crc32c
from broker.store.streamlog import DiskStreamLog

QUEUE = Definition("queue").encode()
TOPIC = Definition("topic", capability="topic").encode()
# What a durable subscription of the link "d" of the container "reader" is called.
NAME = "news/reader.d"


def lasting(topic: str, container: str = "reader", link: str = "d") -> bytes:
    """The definition of a durable subscription."""
    return SubscriptionKey(topic, container, link, lasts=True, durable=True, stays=True).encode()


def message(body: str) -> bytes:
    """A durable message as it is stored, with a string for its body."""
    raw = body.encode()
    return b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x77\xa1" + bytes([len(raw)]) + raw


@contextmanager
def store_of(data: Path) -> Iterator[DiskStore]:
    """The store of a directory that no broker has."""
    store = DiskStore.open(data, file_bytes=1 << 20)
    try:
        yield store
    finally:
        store.close()


def open_log(data: Path, name: str, definition: bytes, *bodies: str) -> None:
    """Put a node with these messages into a data directory."""
    put(data, name, definition, {seq: message(body) for seq, body in enumerate(bodies, 1)})


def put(data: Path, name: str, definition: bytes, messages: dict[int, bytes]) -> None:
    """The same, with numbers of their own."""
    with store_of(data) as store:
        shelf = store.open_log(name, definition)
        for seq, each in messages.items():
            shelf.append(seq, DURABLE, 0, 0, each)


def note(data: Path, key: str, value: bytes) -> None:
    with store_of(data) as store:
        store.note(key, value)


def notes(data: Path) -> dict[str, bytes]:
    with store_of(data) as store:
        return dict(store.recovered.notes)


def shelves(data: Path) -> list[str]:
    with store_of(data) as store:
        return sorted(each.name for each in store.recovered.shelves)


def redefine(data: Path, name: str, definition: bytes) -> None:
    """As a version that knows how would understand it."""
    with store_of(data) as store:
        logs: list[DiskQueueLog | DiskStreamLog] = []
        logs += [each.shelf for each in store.recovered.shelves if each.name == name]
        logs += [each.shelf for each in store.recovered.streams if each.name == name]
        (shelf,) = logs
        store.redefine(shelf, definition)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a queue as it should be."""
    open_log(tmp_path / "data", "good", QUEUE, "here")
    return tmp_path / "data"


@contextmanager
def started(data: Path, crash: bool = False) -> Iterator[Model]:
    """A broker that was made of a directory, and is stopped in order or not."""
    server = Server(Settings(data=data, policies=()))
    try:
        assert depth(server.model, "good") > 0
        yield server.model
        server.engine.end_turn()
        server.engine.seal()
    finally:
        if crash:
            server.store.seal()
        server.close()


def depth(model: Model, name: str) -> int:
    return int(model.nodes.find(name).gate.depth_msgs)


def aside(model: Model) -> dict[str, int]:
    """How many messages each of those has that were set aside."""
    found = {each.name: each.depth_msgs for each in model.queries.broker().set_aside}
    assert all(each.reason for each in model.queries.broker().set_aside)
    return found


def bodies(model: Model, name: str) -> list[str]:
    return [bytes(entry.data)[12:].decode() for entry in model.nodes.find(name).queue]


FILTER = lasting("news").replace(b'"filters":[]', b'"filters":[["apache.org:selector-filter:string","a ="]]')
STRANGE = {
    "nothing": b"",
    "no JSON": b"\xff\x00",
    "a list": b"[1]",
    "a deep one": b"[" * 100_000,
    "arguments that are none": b'{"kind":"queue","arguments":7,"capability":""}',
    "an unknown kind": b'{"kind":"stream","arguments":{},"capability":""}',
    "half a subscription": b'{"kind":"subscription","address":"news"}',
    "a subscription that is none": b'{"kind":"subscription","filters":3}',
    "a filter that is none": FILTER,
}


def test_nodes_that_can_t_be_restored_are_set_aside_and_the_others_are_served(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, definition in STRANGE.items():
        open_log(data, name, definition, "one", "two")
        note(data, f"{SENT}{name}", b"*")
    for crash in (False, True, False):
        caplog.clear()
        with started(data, crash) as model:
            assert aside(model) == dict.fromkeys(STRANGE, 2)
            assert depth(model, "good") == 1
            # They take room on disk all the same.
            assert model.engine.depths.disk.depth_msgs == 1 + 2 * len(STRANGE)
            for name in STRANGE:
                assert f"'{name}' can't be restored and is set aside with its 2 messages" in caplog.text
                # What is accepted under its name would be another node's.
                with pytest.raises(ConflictError, match="set aside"):
                    model.nodes.resolve(name)
                with pytest.raises(ConflictError, match="set aside"):
                    model.nodes.create("queue", name)
            assert model.diagnostics.audit().breaches == ()
    for name in STRANGE:
        assert notes(data)[f"{SENT}{name}"] == b"*"
        redefine(data, name, QUEUE)
    with started(data) as model:
        assert aside(model) == {}
        assert all(bodies(model, name) == ["one", "two"] for name in STRANGE)


def test_an_operator_discards_one_of_them(data: Path) -> None:
    open_log(data, "odd/one", b"?", "one", "two")
    note(data, f"{SENT}odd/one", b"7")
    note(data, f"{SEEN}odd/one/3", bytes(16) + b"id")
    note(data, f"{SEEN}odd/3", bytes(16) + b"another's")
    with started(data) as model:
        with pytest.raises(NotFoundError):
            model.nodes.discard("odd")
        with pytest.raises(NotFoundError):
            model.nodes.discard("good")
        assert model.nodes.discard("odd/one") == 2
        assert aside(model) == {}
        assert model.engine.depths.disk.depth_msgs == 1
    with started(data) as model:
        assert aside(model) == {}
        model.nodes.create("queue", "odd/one", durable=True)
    assert shelves(data) == ["good", "odd/one"]
    assert {key for key in notes(data) if "odd" in key} == {f"{SEEN}odd/3"}


def test_marks_that_are_none_set_their_nodes_aside(data: Path) -> None:
    marks = {"a": b"?", "b": b"\xff", "c": b"1.5"}
    for name, mark in marks.items():
        open_log(data, name, QUEUE, "one")
        note(data, f"{SENT}{name}", mark)
    with started(data) as model:
        assert aside(model) == dict.fromkeys(marks, 1)
    for name in marks:
        note(data, f"{SENT}{name}", b"")
    with started(data) as model:
        assert [bodies(model, name) for name in marks] == [["one"]] * 3


def test_a_window_of_duplicates_that_can_t_be_read_is_its_own_node_s_matter(data: Path) -> None:
    windowed = Definition("queue", {"duplicate_window": 10}).encode()
    open_log(data, "odd", windowed, "one")
    open_log(data, "odd/3", windowed, "two")
    note(data, f"{SEEN}odd/3", b"short")
    note(data, f"{SEEN}odd/3/1", bytes(16) + b"id")
    with started(data) as model:
        assert aside(model) == {"odd": 1}
        duplicates = model.nodes.find("odd/3").duplicates
        assert duplicates is not None
        assert len(duplicates) == 1


def test_of_two_queues_of_one_name_the_first_is_served_and_the_other_kept(data: Path) -> None:
    open_log(data, "twice", QUEUE, "first")
    open_log(data, "twice", QUEUE, "second", "too")
    for crash in (False, True):
        with started(data, crash) as model:
            assert bodies(model, "twice") == ["first"]
            assert aside(model) == {"twice": 2}
    with started(data) as model:
        model.nodes.delete("twice")
    with started(data) as model:
        assert bodies(model, "twice") == ["second", "too"]


def test_of_two_subscriptions_of_one_receiver_the_first_is_served(data: Path) -> None:
    open_log(data, "news", TOPIC)
    open_log(data, NAME, lasting("news"), "one")
    open_log(data, "news/other", lasting("news"), "two")
    with started(data) as model:
        assert aside(model) == {"news/other": 1}
        known = model.subscriptions.join(
            SubscriptionKey("news", "reader", "d", lasts=True, durable=True, stays=True)
        )
        assert known.node.name == NAME


def test_nobody_takes_the_place_of_a_subscription_that_is_set_aside(data: Path) -> None:
    open_log(data, "news", TOPIC)
    open_log(data, NAME, FILTER, "one")
    wanted = SubscriptionKey("news", "reader", "d", lasts=True, durable=True, stays=True)
    with started(data) as model:
        with pytest.raises(ConflictError, match="set aside"):
            model.subscriptions.join(wanted)
        model.nodes.discard(NAME)
        assert model.subscriptions.join(wanted).node.name == NAME


def test_a_subscription_waits_for_its_topic_that_is_set_aside(data: Path) -> None:
    open_log(data, "news", b"?")
    open_log(data, NAME, lasting("news"), "one")
    with started(data) as model:
        assert aside(model) == {"news": 0}
        assert bodies(model, NAME) == ["one"]
    redefine(data, "news", TOPIC)
    with started(data) as model:
        assert model.nodes.find(NAME).topics == [model.nodes.find("news")]


@pytest.mark.parametrize("end", ["t", "q"])
def test_a_binding_is_there_again_with_its_end(data: Path, end: str) -> None:
    kinds = {"t": TOPIC, "q": QUEUE}
    for name, definition in kinds.items():
        open_log(data, name, b"?" if name == end else definition)
    note(data, BINDINGS, json.dumps([["t", "q"]]).encode())
    with started(data) as model:
        assert aside(model) == {end: 0}
        # Other bindings are noted meanwhile.
        model.nodes.create("topic", "t2", durable=True)
        model.nodes.bind("t2", "good")
    redefine(data, end, kinds[end])
    with started(data) as model:
        found = {(each.source, each.target) for each in every_binding(model.engine)}
        assert found == {("t", "q"), ("t2", "good")}
        assert aside(model) == {}


@pytest.mark.parametrize("key", [HOLDS, BINDINGS])
@pytest.mark.parametrize("value", [b"?", b"[1]", b"\xff"])
def test_a_note_of_the_broker_s_that_can_t_be_read_is_kept(data: Path, key: str, value: bytes) -> None:
    open_log(data, "t", TOPIC)
    open_log(data, "q", QUEUE)
    note(data, key, value)
    for _ in range(2):
        with started(data) as model:
            assert aside(model) == {key: 0}
            model.operators.hold("good", True)
            if not every_binding(model.engine):
                model.nodes.bind("t", "good")
    assert notes(data)[f"unread/{key}"] == value
    note(data, f"unread/{key}", json.dumps({HOLDS: [["x.y", True]], BINDINGS: [["t", "q"]]}[key]).encode())
    for _ in range(2):
        with started(data) as model:
            assert aside(model) == {}
            assert set(model.holds.patterns) == ({"x.y", "good"} if key == HOLDS else {"good"})
            bound = {(each.source, each.target) for each in every_binding(model.engine)}
            assert bound == ({("t", "good")} if key == HOLDS else {("t", "q"), ("t", "good")})
    assert f"unread/{key}" not in notes(data)


@pytest.mark.parametrize("value", [b"?", b"[]", b'{"source":"good"}', b'{"source":1,"target":2,"x":3}'])
def test_a_bridge_that_can_t_be_read_is_set_aside(data: Path, value: bytes) -> None:
    note(data, f"{BRIDGE_NOTE}good->far", value)
    with started(data) as model:
        assert aside(model) == {"good->far": 0}
        model.nodes.discard("good->far")
    with started(data) as model:
        assert aside(model) == {}


def test_a_bridge_from_a_node_that_is_set_aside_waits_for_it(data: Path) -> None:
    open_log(data, "odd", b"?")
    definition = {"source": "odd", "target": "good", "selector": "", "durable": True}
    note(data, f"{BRIDGE_NOTE}odd->good", json.dumps(definition).encode())
    with started(data) as model:
        (bridge,) = model.bridges.views()
        assert (bridge.state, "set aside" in bridge.reason) == ("waiting", True)
    redefine(data, "odd", QUEUE)
    with started(data) as model:
        assert [each.state for each in model.bridges.views()] == ["open"]


# --- names that an earlier version let two nodes have


@pytest.mark.parametrize("definition", [QUEUE, TOPIC], ids=["queue", "topic"])
@pytest.mark.parametrize("first", ["node", "subscription"])
def test_a_node_and_a_subscription_of_one_name_are_both_restored(
    data: Path, definition: bytes, first: str
) -> None:
    open_log(data, "news", TOPIC)
    note(data, f"{SENT}{NAME}", b"1")
    both = [(definition, ("queued",) if definition == QUEUE else ()), (lasting("news"), ("one", "two"))]
    for said, found in both if first == "node" else reversed(both):
        open_log(data, NAME, said, *found)
    called = set()
    for crash in (False, True, False):
        with started(data, crash) as model:
            assert aside(model) == {}
            assert depth(model, NAME) == (definition == QUEUE)
            (subscription,) = model.engine.topology.subscriptions.values()
            called.add(subscription.name)
            # What may have been sent before is told so still.
            assert [entry.redelivered for entry in subscription.queue] == [True, False]
            assert bodies(model, subscription.name) == ["one", "two"]
            assert model.diagnostics.why(subscription.name)[0].node == subscription.name
    (name,) = called
    assert name.startswith(f"{NAME}/s")
    with started(data) as model:
        assert model.messages.purge(name) == 2
        model.nodes.delete(name)
    with started(data) as model:
        assert not model.engine.topology.subscriptions
        assert depth(model, NAME) == (definition == QUEUE)


def test_two_subscriptions_of_one_name_are_both_restored(data: Path) -> None:
    open_log(data, "news", TOPIC)
    open_log(data, NAME, lasting("news"), "one")
    open_log(data, NAME, lasting("news", "reader.d", ""), "two")
    with started(data) as model:
        assert bodies(model, NAME) == ["one"]
        assert sorted(bodies(model, each)[0] for each in model.engine.topology.subscriptions) == [
            "one",
            "two",
        ]


def test_a_topic_that_did_not_survive_takes_no_subscription_s_name(data: Path) -> None:
    open_log(data, "a", TOPIC)
    open_log(data, "a/b.c", lasting("a", "b", "c"), "one")
    open_log(data, "a/b.c/x.y", lasting("a/b.c", "x", "y"), "two")
    with started(data) as model:
        assert aside(model) == {}
        assert {
            each.address: each.gate.depth_msgs for each in model.engine.topology.subscriptions.values()
        } == {
            "a": 1,
            "a/b.c": 1,
        }
        assert not set(model.engine.topology.subscriptions) & set(model.engine.topology.nodes)


# --- large messages

SIZE = 100_000
HEAD = b"\x00\x53\x70\xc0\x02\x01\x41"


def large(data: Path, number: int, *refers: tuple[str, int]) -> Path:
    """A large message's file, and a note for each message that refers to it."""
    folder = data / "large"
    folder.mkdir(exist_ok=True)
    file = folder / name_of(number)
    body = b"\x00\x53\x75\xb0" + struct.pack(">I", SIZE) + bytes([number]) * SIZE
    file.write_bytes(body)
    for name, seq in refers:
        note(data, f"{LARGE_NOTE}{number}/{seq}/{name}", LARGE_FILE.pack(len(body), crc32c(body)))
    return file


def files(model: Model, name: str) -> dict[int, int]:
    """By message, the number of its file."""
    return {seq: body.number for seq, (body, _) in model.nodes.find(name).bodies.items()}


def test_a_large_message_that_others_had_too_stays_for_a_node_that_is_set_aside(data: Path) -> None:
    put(data, "q", QUEUE, {1: HEAD})
    put(data, "odd", b"?", {1: HEAD})
    file = large(data, 1, ("q", 1), ("odd", 1))
    with started(data) as model:
        assert model.messages.purge("q") == 1
    with started(data):
        pass
    assert file.exists()
    redefine(data, "odd", QUEUE)
    with started(data) as model:
        assert files(model, "odd") == {1: 1}
        model.messages.purge("odd")
    with started(data):
        pass
    assert not file.exists()


def test_a_large_message_goes_with_the_node_that_is_discarded(data: Path) -> None:
    put(data, "odd", b"?", {1: HEAD})
    file = large(data, 1, ("odd", 1))
    with started(data) as model:
        model.nodes.discard("odd")
    with started(data):
        pass
    assert not file.exists()


def test_large_messages_of_two_of_a_name_are_told_apart_by_their_numbers(data: Path) -> None:
    open_log(data, "news", TOPIC)
    put(data, NAME, lasting("news"), {1: HEAD, 3: HEAD})
    put(data, NAME, QUEUE, {2: HEAD})
    for number in (1, 2, 3):
        large(data, number, (NAME, number))
    for crash in (False, True, False):
        with started(data, crash) as model:
            (subscription,) = model.engine.topology.subscriptions
            assert files(model, NAME) == {2: 2}
            assert files(model, subscription) == {1: 1, 3: 3}


def test_large_messages_that_can_t_be_told_apart_are_given_to_nobody(data: Path) -> None:
    open_log(data, "news", TOPIC)
    put(data, NAME, lasting("news"), {1: HEAD})
    put(data, NAME, QUEUE, {1: HEAD})
    found = [large(data, number, (NAME, 1)) for number in (1, 2)]
    for _ in range(2):
        with started(data) as model:
            assert [each.name for each in model.queries.broker().set_aside] == [NAME, NAME]
    assert all(file.exists() for file in found)


def test_a_note_of_a_large_message_that_can_t_be_read_is_set_aside(data: Path) -> None:
    large(data, 1)
    note(data, f"{LARGE_NOTE}1/x", LARGE_FILE.pack(SIZE + 8, 0))
    with started(data) as model:
        assert aside(model) == {f"{LARGE_NOTE}1/x": 0}
