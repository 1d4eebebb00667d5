"""Stored before ready: what waits for the disk, who is told, and what that does to credit."""

from __future__ import annotations

import pytest
from proton import Message

from broker import constants
from broker.codec import message
from broker.codec.owned import owned
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.durability import BEHIND_BYTES
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.allocator import CreditAllocator
from broker.flow.level import Level
from broker.flow.producer_credit import IDLE_NS, Port
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry
from broker.store.memory import MemoryStore
from broker.store.port import FAILED, FULL, WRITING

MS = 1_000_000


class Sender(Port):
    """A link that counts its credit."""

    def __init__(self) -> None:
        self.credit = 0

    def grant(self, msgs: int) -> None:
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs


class Taker(Consumer):
    """A consumer that holds what it got."""

    def __init__(self) -> None:
        Consumer.__init__(self)
        self.got: list[Entry] = []

    def capacity(self) -> int:
        return 100 - len(self.got)

    def send(self, entry: Entry) -> None:
        self.got.append(entry)
        self.in_flight += 1


class Told:
    """A link that waits for a group."""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def stored(self, group: int) -> None:
        self.groups.append(group)


class World:
    """An engine with a store that syncs when it is told to."""

    def __init__(self, **given: object) -> None:
        self.store = MemoryStore()
        self.engine = Engine(True, self.store)
        self.engine.turn.epoch_ns = 1_700_000_000_000 * MS
        self.node = self.create("orders", durable=True, **given)
        self.settle()

    def create(self, name: str, **given: object) -> Node:
        return self.engine.lifecycle.create(name, resolve(given, BrokerDefaults()), b"{}")

    def put(self, body: str = "x", durable: bool = True, **fields: object) -> int:
        data = bytes(Message(body=body, durable=durable, **fields).encode())
        return int(self.engine.intake.put(self.node, data, message.scan(data)))

    def turn(self, ms: int = 0) -> None:
        self.engine.begin_turn(self.engine.turn.now_ns + ms * MS)
        self.engine.seal()
        self.engine.end_turn()
        self.engine.seal()

    def settle(self) -> None:
        """All that was handed over is on disk."""
        self.turn()
        self.engine.attend_store()
        self.turn()

    def consumer(self) -> Taker:
        taker = Taker()
        self.engine.delivery.add_consumer(self.node, taker)
        self.settle()
        return taker


def bodies(entries: list[Entry]) -> list[object]:
    found: list[object] = []
    for entry in entries:
        decoded = Message()
        decoded.decode(entry.data)
        found.append(owned(decoded.body))
    return found


def test_nobody_sees_a_durable_message_before_it_is_on_disk() -> None:
    world = World()
    taker = world.consumer()
    told = Told()
    assert world.put() == constants.STORING
    group = world.engine.durability.wait_for_disk(told)
    world.turn()
    assert (taker.got, told.groups, world.node.queue.pending) == ([], [], 1)
    assert world.node.gate.depth_msgs == 1, "it has its place"
    world.settle()
    assert bodies(taker.got) == ["x"]
    assert told.groups == [group]


def test_nothing_overtakes_what_waits_for_the_disk() -> None:
    world = World()
    taker = world.consumer()
    assert world.put("durable") == constants.STORING
    assert world.put("not durable", durable=False) == constants.ACCEPTED
    world.turn()
    assert taker.got == []
    world.settle()
    assert bodies(taker.got) == ["durable", "not durable"]
    assert [entry.durable for entry in taker.got] == [1, 0]


def test_what_changed_something_is_answered_once_that_is_on_disk() -> None:
    world = World()
    storing = world.engine.durability.commit
    assert storing is not None
    told: list[str] = []
    storing.after(storing.mark(), lambda: told.append("nothing changed"))
    assert told == ["nothing changed"]
    mark = storing.mark()
    world.create("more", durable=True)
    storing.after(mark, lambda: told.append("made"))
    world.turn()
    assert told == ["nothing changed"]
    world.settle()
    assert told == ["nothing changed", "made"]
    mark = storing.mark()
    world.create("last", durable=True)
    world.store.state = FAILED
    storing.after(mark, lambda: told.append("made, and lost when the broker ends"))
    assert len(told) == 3


def test_while_a_replicated_store_is_full_answers_wait_for_its_log() -> None:
    """Nobody is told of a change that the log may never have: another member may own the cell by then."""
    world = World()
    storing = world.engine.durability.commit
    assert storing is not None
    told: list[str] = []
    world.store.syncs_when_full = True
    world.store.state = FULL
    mark = storing.mark()
    topic = world.create("news", kind="topic", durable=True)
    storing.after(mark, lambda: told.append("made"))
    storing.known(topic, lambda: told.append("known"))
    world.turn()
    assert told == []
    storing.after(storing.mark(), lambda: told.append("nothing changed"))
    assert told == ["nothing changed"]
    world.settle()
    assert told == ["nothing changed", "made", "known"]


def test_a_full_disk_of_one_broker_lets_answers_leave() -> None:
    world = World()
    storing = world.engine.durability.commit
    assert storing is not None
    told: list[str] = []
    world.store.state = FULL
    mark = storing.mark()
    world.create("more", durable=True)
    storing.after(mark, lambda: told.append("made, and kept once there is room"))
    assert len(told) == 1


def test_a_new_topic_answers_nothing_before_it_is_on_disk_itself() -> None:
    world = World()
    world.node = world.create("news", kind="topic", durable=True)
    told = Told()
    assert world.put(durable=False) == constants.ACCEPTED
    assert world.put() == constants.STORING, "nobody subscribes, so no copy waits"
    group = world.engine.durability.wait_for_disk(told)
    world.turn()
    assert (world.put(), told.groups) == (constants.STORING, [])
    world.settle()
    assert told.groups == [group]
    assert world.put() == constants.ACCEPTED


def test_a_topic_s_publishers_wait_until_all_copies_have_room_on_disk() -> None:
    world = World()
    engine = world.engine
    data = bytes(Message(body="x" * 100, durable=True).encode())
    size = len(data)
    settings = resolve({"kind": "topic"}, BrokerDefaults())
    topic = engine.lifecycle.create("news", settings)
    kept = [engine.lifecycle.subscribe(f"news/{n}", "news", settings, b"{}") for n in range(4)]
    for each in kept:
        engine.topology.bind(topic, each)
        each.gate.typical_bytes = size
    topic.gate.typical_bytes = size
    engine.limit(0, 10 * size)
    sender = Sender()
    account = engine.producers.open(topic, sender, True)
    world.settle()
    assert sender.credit == 2, "four copies each"
    for _ in range(2):
        assert engine.intake.arrive(topic, account, data, message.scan(data), False) == constants.STORING
    sender.credit = 0
    world.settle()
    assert (engine.depths.disk.depth_bytes, sender.credit) == (8 * size, 0)

    takers = []
    for each in kept:
        takers.append(Taker())
        engine.delivery.add_consumer(each, takers[-1])
    world.settle()
    for each, taker in zip(kept[:2], takers, strict=False):
        engine.settlement.acknowledge(each, taker.got[0])
        world.turn(100)
    assert sender.credit == 1, "room for four copies, though two stayed where they were"


def test_a_topic_s_publishers_hear_of_room_in_memory_for_all_copies() -> None:
    world = World()
    engine = world.engine
    data = bytes(Message(body="x" * 100).encode())
    settings = resolve({"kind": "topic"}, BrokerDefaults())
    topic = engine.lifecycle.create("news", settings)
    for n in range(4):
        engine.topology.bind(topic, engine.lifecycle.subscribe(f"news/{n}", "news", settings))
    topic.gate.typical_bytes = len(data)
    engine.limit(10 * (len(data) + constants.HELD_BYTES), 0)
    taker = world.consumer()
    for _ in range(8):
        assert engine.intake.put(world.node, data, message.scan(data)) == constants.ACCEPTED
    sender = Sender()
    engine.producers.open(topic, sender, True)
    world.settle()
    assert sender.credit == 0, "there is room for two of four copies"
    for entry in taker.got[:2]:
        engine.settlement.acknowledge(world.node, entry)
    world.turn(100)
    assert sender.credit == 1, "what left was another's"


def test_what_is_consumed_leaves_the_shelf() -> None:
    world = World()
    taker = world.consumer()
    world.put()
    world.settle()
    assert len(world.store.shelves["orders"].messages) == 1
    world.engine.settlement.acknowledge(world.node, taker.got[0])
    assert world.store.shelves["orders"].messages == {}
    assert (world.engine.depths.disk.depth_msgs, world.engine.depths.disk.depth_bytes) == (0, 0)
    assert (world.node.stored_msgs, world.node.kept_bytes) == (0, 0)


def test_a_failed_delivery_is_noted() -> None:
    world = World()
    taker = world.consumer()
    world.put()
    world.settle()
    world.engine.settlement.requeue(world.node, taker.got[0], True)
    [(flags, count, _, _)] = world.store.shelves["orders"].messages.values()
    assert (flags & 2, count) == (2, 1)


def test_that_messages_may_be_sent_is_on_disk_before_one_is() -> None:
    world = World()
    world.put()
    world.settle()
    taker = Taker()
    world.engine.delivery.add_consumer(world.node, taker)
    world.turn()
    assert taker.got == []
    assert world.store.notes["sent/orders"] == b"*"
    world.settle()
    assert len(taker.got) == 1
    world.engine.delivery.remove_consumer(world.node, taker)
    assert "sent/orders" not in world.store.notes


def test_a_duplicate_is_answered_after_the_first_copy_is_on_disk() -> None:
    world = World(duplicate_window=100)
    first, second = Told(), Told()
    assert world.put(id="a") == constants.STORING
    world.engine.durability.wait_for_disk(first)
    world.turn()
    assert world.put(id="a") == constants.STORING
    world.engine.durability.wait_for_disk(second)
    world.turn()
    assert (first.groups, second.groups) == ([], [])
    world.settle()
    assert len(first.groups) == len(second.groups) == 1
    assert (world.node.queue.ready, world.node.duplicated) == (1, 1)
    assert world.put(id="a") == constants.ACCEPTED, "all is on disk"


def test_deleting_a_node_takes_its_window_of_duplicates_along() -> None:
    world = World(duplicate_window=100)
    world.put(id="a")
    world.settle()
    assert any(key.startswith("seen/orders/") for key in world.store.notes)
    world.engine.lifecycle.delete("orders")
    assert not any(key.startswith("seen/orders/") for key in world.store.notes)
    assert world.engine.depths.disk.depth_bytes == 0


def test_a_dead_letter_is_in_one_place_only() -> None:
    world = World(dead_letter_address="dead")
    dead = world.create("dead", durable=True, flow_stop_count=1)
    world.settle()
    taker = world.consumer()
    for body in "ab":
        world.put(body)
    world.settle()
    for entry in taker.got:
        world.engine.settlement.reject(world.node, entry)
    world.settle()
    # One has room there; the other stays where it was until there is.
    assert (dead.gate.depth_msgs, world.node.gate.depth_msgs) == (1, 1)
    shelves = world.store.shelves
    assert (len(shelves["dead"].messages), len(shelves["orders"].messages)) == (1, 1)
    reader = Taker()
    world.engine.delivery.add_consumer(dead, reader)
    world.settle()
    world.engine.settlement.acknowledge(dead, reader.got[0])
    world.settle()
    assert world.node.gate.depth_msgs == 0
    assert bodies(reader.got) == ["a", "b"]


def test_what_expires_goes_even_if_nobody_looks() -> None:
    world = World()
    world.put(ttl=5.0)
    world.put()
    world.settle()
    world.turn(4_999)
    assert world.node.queue.ready == 2
    assert world.engine.next_deadline() > 0
    world.turn(2)
    assert (world.node.queue.ready, world.node.expired) == (1, 1)


def test_what_was_given_back_expires_once() -> None:
    world = World()
    world.put(ttl=5.0)
    world.settle()
    entry = world.node.queue.acquire()
    assert entry is not None
    world.engine.settlement.requeue(world.node, entry, False)
    world.turn(4_999)
    assert world.node.queue.ready == 1
    world.turn(2)
    world.turn(5_000)
    assert (world.node.queue.ready, world.node.expired) == (0, 1)


def test_what_expires_behind_a_gap_leaves_at_once() -> None:
    world = World()
    world.put("first")
    world.put("second", ttl=1.0)
    world.settle()
    world.node.queue.cut(1, 1000)
    assert (world.node.queue.ready, world.node.queue.behind) == (1, 1)
    world.turn(1_500)
    assert (world.node.queue.ready, world.node.queue.behind, world.node.expired) == (1, 0, 1)


def test_a_failed_store_grants_no_credit_anywhere() -> None:
    world = World()
    plain = world.create("plain")
    senders = [Sender(), Sender()]
    world.engine.producers.open(world.node, senders[0], True)
    world.engine.producers.open(plain, senders[1], True)
    world.settle()
    assert all(sender.credit > 0 for sender in senders)
    world.store.state = FAILED
    world.engine.attend_store()
    world.turn()
    assert [sender.credit for sender in senders] == [0, 0]
    late = Sender()
    world.engine.producers.open(world.create("late"), late, True)
    world.turn()
    assert late.credit == 0


def test_a_full_store_holds_durable_nodes_until_there_is_room() -> None:
    world = World()
    plain = world.create("plain")
    senders = [Sender(), Sender()]
    world.engine.producers.open(world.node, senders[0], True)
    world.engine.producers.open(plain, senders[1], True)
    world.settle()
    world.store.state = "full"
    world.engine.attend_store()
    world.turn()
    assert senders[0].credit == 0
    assert senders[1].credit > 0
    world.store.state = WRITING
    world.engine.attend_store()
    world.turn(200)
    assert senders[0].credit > 0


def test_credit_over_all_nodes_stays_within_the_memory() -> None:
    world = World()
    world.engine.limit(100_000, 0)
    senders = []
    for number in range(20):
        node = world.create(f"n{number}")
        senders.append(Sender())
        world.engine.producers.open(node, senders[-1], True)
    world.turn()
    promised = sum(sender.credit for sender in senders)
    assert 0 < promised * (1024 + constants.HELD_BYTES) <= 100_000
    assert world.engine.depths.memory.promised_bytes <= 100_000
    # Idle links lend theirs: sooner or later every one had some.
    served = {number for number, sender in enumerate(senders) if sender.credit}
    for _ in range(300):
        world.turn(20)
        served |= {number for number, sender in enumerate(senders) if sender.credit}
        assert world.engine.depths.memory.promised_bytes <= 100_000
    assert len(served) == 20


def test_what_a_full_file_closed_is_told_with_its_own_group() -> None:
    """A message that fills a journal file closes its group: nothing need come after it for it to be told."""
    world = World()
    taker = world.consumer()
    told = Told()
    assert world.put() == constants.STORING
    group = world.store.group
    world.store.seal()  # as a full file does while it takes the record
    assert world.engine.durability.wait_for_disk(told) == group
    world.settle()
    assert told.groups == [group]
    assert bodies(taker.got) == ["x"]


def test_what_is_on_disk_before_its_turn_ends_is_told_at_its_end() -> None:
    """The bell of a full file's group may ring, and be answered, before anyone waits for it."""
    world = World()
    taker = world.consumer()
    told = Told()
    assert world.put() == constants.STORING
    group = world.store.group
    world.store.seal()
    world.engine.attend_store()
    assert world.engine.durability.wait_for_disk(told) == group
    world.turn()
    world.turn()
    assert told.groups == [group]
    assert bodies(taker.got) == ["x"]


def test_while_the_disk_is_behind_nobody_is_looked_at_again_and_again() -> None:
    world = World()
    engine = world.engine
    accounts = [engine.producers.open(world.node, Sender(), True) for _ in range(2)]
    world.settle()
    account = accounts[0]
    data = bytes(Message(body="x", durable=True).encode())
    while account.outstanding > account.low:
        engine.intake.arrive(world.node, account, data, message.scan(data), False)
        world.store.behind_bytes = BEHIND_BYTES + 1
    engine.turn.mark_dirty(world.node)
    world.turn(100)
    assert account.waiting
    assert engine.next_deadline() == 0, "the store's bell tells"
    world.settle()
    assert not account.waiting


def test_a_full_store_that_fails_stops_everybody() -> None:
    world = World()
    fleeting = world.create("fleeting")
    sender = Sender()
    world.engine.producers.open(fleeting, sender, True)
    world.settle()
    world.store.state = FULL
    world.settle()
    assert sender.credit > 0, "nothing of this is kept"
    world.store.state = FAILED
    world.settle()
    assert sender.credit == 0


def test_what_a_channel_held_back_waits_for_a_new_topic_too() -> None:
    world = World()
    topic = world.create("news", kind="topic", durable=True)
    bits = message.scan(bytes(Message(body="x", durable=True).encode()))
    assert world.engine.intake.confirmed(topic, bits) == constants.STORING
    assert world.engine.intake.confirmed(topic, 0) == constants.ACCEPTED
    world.settle()
    assert world.engine.intake.confirmed(topic, bits) == constants.ACCEPTED


def test_a_large_message_s_file_is_reserved_once_for_all_copies() -> None:
    """Four copies of a message have four heads and one file."""
    world = World()
    engine = world.engine
    engine.large.most = 1000
    settings = resolve(
        {"kind": "topic", "byte_reservation": "strict", "max_message_size": 50_000}, BrokerDefaults()
    )
    topic = engine.lifecycle.create("news", settings)
    for n in range(4):
        engine.topology.bind(topic, engine.lifecycle.subscribe(f"news/{n}", "news", settings, b"{}"))
    engine.limit(0, 110_000)
    sender = Sender()
    account = engine.producers.open(topic, sender, True)
    world.settle()
    assert (sender.credit, engine.depths.disk.promised_bytes) == (2, 2 * 53_000)
    account.close()
    assert (engine.depths.disk.promised_msgs, engine.depths.disk.promised_bytes) == (0, 0)


class Way(Sender):
    """A link that reserves nothing: what it parks is let in here."""

    def __init__(self, engine: Engine, node: Node) -> None:
        Sender.__init__(self)
        self.engine = engine
        self.node = node
        self.admitted = 0

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        assert self.engine.intake.put(self.node, parked, 0) == constants.ACCEPTED
        self.admitted += 1


@pytest.mark.parametrize(("parked", "left"), [(6, 5), (12, 0)])
def test_what_is_parked_goes_in_once_what_others_hold_leaves_room(parked: int, left: int) -> None:
    """Its own bytes may be all that memory has room for, and more: it doesn't wait for itself."""
    world = World()
    engine = world.engine
    data = bytes(Message(body="x" * 100).encode())
    size = len(data)
    target = world.create("target")
    engine.limit(10 * (size + constants.HELD_BYTES), 0)
    taker = world.consumer()
    for _ in range(10):
        engine.intake.put(world.node, data, 0)
    world.settle()
    way = Way(engine, target)
    account = engine.producers.open(target, way, False)
    for _ in range(parked):
        assert engine.intake.arrive(target, account, data, 0, False) == constants.PARK
        engine.parking.park(target, account, data, size, False)
    world.settle()
    assert way.admitted == 0
    for entry in taker.got[left:]:
        engine.settlement.acknowledge(world.node, entry)
    world.turn()
    assert way.admitted == min(10 - left, parked)
    assert engine.next_deadline() == 0 or engine.next_deadline() > engine.turn.now_ns


def lent(allocator: CreditAllocator, now_ns: int) -> int:
    """The credit that its links give others, who wait for room that they share."""
    return allocator.lend(now_ns, Level(allocator.accounts, 0, 0, now_ns))


def test_who_is_asked_again_has_time_to_answer() -> None:
    """Credit that was just granted is not idle, however long ago its link sent something."""
    world = World()
    engine, allocator = world.engine, world.node.allocator
    sender = Sender()
    engine.producers.open(world.node, sender, True)
    world.turn()
    world.turn(1000)
    assert lent(allocator, engine.turn.now_ns) > 0
    assert sender.credit == 0
    engine.turn.mark_dirty(world.node)
    world.turn(200)
    assert sender.credit > 0, "it rests, and is asked whether it wants to send"
    assert lent(allocator, engine.turn.now_ns + IDLE_NS - 1) == 0
    assert lent(allocator, engine.turn.now_ns + IDLE_NS) > 0
