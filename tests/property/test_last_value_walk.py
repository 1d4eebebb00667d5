"""Random verbs over a last-value queue beside a plain model of it; laws of credit after every step.

The model is a list of (number, key, value) that are ready, in order, and those that consumers hold.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker import constants
from broker.engine.transaction import OPEN, Transaction
from broker.queues.last_value import LastValueQueue
from broker.queues.queue import Entry
from broker.store.port import DURABLE
from tests.examples import examples
from tests.property.world import BODY, MS, Producer, Taker, World

pytestmark = pytest.mark.flow
# Key 0 is none.
KEYS = st.integers(0, 6)
WHICH = st.integers(0, 9)


def valued(key: int, number: int, size: int) -> bytes:
    """A message of this key; no two are the same."""
    named = b"" if key == 0 else b"\x00\x53\x74\xc1\x06\x02\xa1\x01k\x54%c" % key
    return named + BODY + number.to_bytes(4, "big") + bytes(size)


def key_of(data: bytes) -> int:
    return data[10] if data[:3] == b"\x00\x53\x74" else 0


class Sender(Producer):
    """A producer of values; a parked one is put in when there is room."""

    world: LastValueWorld

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        assert self.world.engine.intake.put(self.world.node, parked, 0) == constants.ACCEPTED
        self.accepted += 1
        self.world.came(parked)

    def send_value(self, data: bytes, transaction: Transaction | None = None) -> None:
        assert self.sent < self.heard
        self.sent += 1
        engine, node = self.world.engine, self.world.node
        code = engine.intake.arrive(node, self.account, data, 0, False, transaction)
        if code == constants.PARK:
            assert transaction is None, "a walk's posts are within its credit"
            engine.parking.park(node, self.account, data, len(data), False)
        elif transaction is None:
            assert code == constants.ACCEPTED
            self.accepted += 1
            self.world.came(data)


class Owner:
    """The link of a transaction; nothing in it waits."""

    def came_in(self, transaction: Transaction) -> None: ...
    def finish(self, transaction: Transaction) -> None: ...
    def timed_out(self, transaction: Transaction) -> None: ...


class ValueTaker(Taker):
    """A consumer that tells the model which message it was sent."""

    def __init__(self, credit: int, world: LastValueWorld) -> None:
        super().__init__(credit)
        self.world = world

    def send(self, entry: Entry) -> None:
        assert entry.data == self.world.ready.pop(0), "the first that is ready is next"
        self.world.held.append(entry.data)
        super().send(entry)


class LastValueWorld(World):
    """A last-value queue and its model: ``ready`` in order, ``held``, and how many were ``replaced``."""

    def __init__(self, **given: object) -> None:
        self.ready: list[bytes] = []
        self.held: list[bytes] = []
        self.replaced = 0
        self.committed = 0
        # By key the newest one that has come, until it leaves.
        self.newest: dict[int, bytes] = {}
        # By message the order in which they came: a newer one of its key makes it old.
        self.came_at: dict[bytes, int] = {}
        super().__init__(last_value_key="k", **given)

    def came(self, data: bytes) -> None:
        self.came_at[data] = len(self.came_at)
        key = key_of(data)
        if key:
            self.newest[key] = data
        older = [each for each in self.ready if key and key_of(each) == key]
        assert len(older) <= 1
        if older and self.settings.get("last_value_position") == "kept":
            self.ready[self.ready.index(older[0])] = data
        else:
            self.ready = [*(each for each in self.ready if each not in older), data]
        self.replaced += len(older)

    def comes_back(self, data: bytes) -> None:
        """It yields to a newer one that is here, ready or held; else it is in its old place."""
        self.held.remove(data)
        key = key_of(data)
        newest = self.newest.get(key)
        if newest is not None and self.came_at[newest] > self.came_at[data]:
            self.replaced += 1
            return
        if key:
            self.newest[key] = data
        if newest is not None and newest != data and newest in self.ready:
            # One that was older still has come back before it.
            self.ready.remove(newest)
            self.replaced += 1
        if self.settings.get("last_value_position") == "kept":
            # Places are the queue's to know there; the walk checks what is ready, and each place once.
            self.ready = [entry.data for entry in self.node.queue if entry.state == constants.READY]
            assert data in self.ready
            return
        at = sum(self.came_at[each] < self.came_at[data] for each in self.ready)
        self.ready.insert(at, data)

    def settle(self, taker: Taker, count: int) -> None:
        for entry in taker.held[:count]:
            self.held.remove(entry.data)
            self.left(entry.data)
        super().settle(taker, count)

    def left(self, data: bytes) -> None:
        if self.newest.get(key_of(data)) == data:
            del self.newest[key_of(data)]

    def release(self, taker: Taker, count: int) -> None:
        for _ in range(min(count, len(taker.held))):
            entry = taker.held.pop(0)
            taker.in_flight -= 1
            self.engine.settlement.requeue(self.node, entry, False)
            self.comes_back(entry.data)

    def drop(self, taker: Taker) -> None:
        self.release(taker, len(taker.held))
        super().drop(taker)

    def check_conservation_of_credit(self) -> None:
        """What open transactions keep is promised beside the credit of links."""
        allocator, gate = self.node.allocator, self.node.gate
        outstanding = sum(each.outstanding for each in allocator.accounts)
        assert outstanding + allocator.uncommitted_msgs == gate.promised_msgs
        for producer in self.producers:
            account = producer.account
            assert account.outstanding >= 0
            assert account.granted == account.used + account.withdrawn + account.outstanding
            assert account.used == producer.sent

    def check_conservation_of_messages(self) -> None:
        gate, queue = self.node.gate, self.node.queue
        entries = list(queue)
        assert gate.depth_msgs == len(entries) == queue.ready + queue.acquired
        assert gate.depth_bytes == sum(len(entry.data) for entry in entries)
        assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
        accepted = sum(p.accepted for p in self.producers + self.gone) + self.committed
        assert accepted == self.acknowledged + gate.depth_msgs + self.node.dropped + self.node.replaced
        assert queue.acquired == sum(len(taker.held) for taker in self.takers)

    def check_values(self) -> None:
        """The queue is as the model says, one ready message a key, and the index is exact."""
        queue = self.node.queue
        assert isinstance(queue, LastValueQueue)
        ready = [entry.data for entry in queue if entry.state == constants.READY]
        assert ready == self.ready
        assert sorted(entry.data for entry in queue if entry.state == constants.ACQUIRED) == sorted(self.held)
        keys = [key_of(data) for data in ready if key_of(data)]
        assert len(keys) == len(set(keys)), "one ready message a key"
        assert self.node.replaced == self.replaced
        assert sorted(entry.data for entry in queue.newest.values()) == sorted(self.newest.values())
        assert set(keys) <= set(self.newest), "each ready value is in the index"
        assert all(entry.state != constants.GONE for entry in queue.newest.values())


class LastValueWalk(RuleBasedStateMachine):
    """The model, conservation, zero overshoot."""

    @initialize(stop=st.integers(3, 40), position=st.sampled_from(["renewed", "kept"]))
    def begin(self, stop: int, position: str) -> None:
        self.numbers = 0
        self.open: list[tuple[Transaction, Sender, list[bytes]]] = []
        self.world = LastValueWorld(
            flow_stop_count=stop, flow_stop_size=0, last_value_position=position, producer_window=20
        )
        for _ in range(2):
            self.enter()
        self.world.turn()

    def enter(self) -> None:
        world = self.world
        sender = Sender(world, f"p{len(world.producers) + len(world.gone)}")
        sender.account = world.engine.producers.open(world.node, sender, True)
        world.producers.append(sender)

    @rule()
    def another(self) -> None:
        if len(self.world.producers) < 6:
            self.enter()

    def message(self, key: int, size: int) -> bytes:
        self.numbers += 1
        return valued(key, self.numbers, size)

    @rule(which=WHICH, keys=st.lists(KEYS, min_size=1, max_size=30), size=st.integers(0, 30))
    def send(self, which: int, keys: list[int], size: int) -> None:
        producer = self.world.producers[which % len(self.world.producers)]
        assert isinstance(producer, Sender)
        producer.hear()
        for key in keys[: producer.heard - producer.sent]:
            producer.send_value(self.message(key, size))

    @rule(which=WHICH, keys=st.lists(KEYS, min_size=1, max_size=8))
    def post(self, which: int, keys: list[int]) -> None:
        producer = self.world.producers[which % len(self.world.producers)]
        assert isinstance(producer, Sender)
        producer.hear()
        if len(self.open) > 3 or producer.heard - producer.sent < len(keys):
            return
        made = self.world.engine.transactions.declare(b"t", Owner(), 0, 1 << 20)
        posted = [self.message(key, 0) for key in keys]
        for data in posted:
            producer.send_value(data, made)
        self.open.append((made, producer, posted))

    @precondition(lambda self: self.open)
    @rule(which=WHICH, commits=st.booleans())
    def discharge(self, which: int, commits: bool) -> None:
        made, _, posted = self.open.pop(which % len(self.open))
        assert made.state == OPEN
        transactions = self.world.engine.transactions
        if commits:
            assert transactions.commit(made) == constants.ACCEPTED
            self.world.committed += len(posted)
            for data in posted:
                self.world.came(data)
        else:
            transactions.roll_back(made)

    @rule(credit=st.integers(1, 10))
    def attach(self, credit: int) -> None:
        if len(self.world.takers) < 3:
            taker = ValueTaker(credit, self.world)
            self.world.takers.append(taker)
            self.world.engine.delivery.add_consumer(self.world.node, taker)

    @precondition(lambda self: self.world.takers)
    @rule(which=WHICH, count=st.integers(1, 10))
    def settle(self, which: int, count: int) -> None:
        self.world.settle(self.world.takers[which % len(self.world.takers)], count)

    @precondition(lambda self: self.world.takers)
    @rule(which=WHICH, count=st.integers(1, 10))
    def release(self, which: int, count: int) -> None:
        self.world.release(self.world.takers[which % len(self.world.takers)], count)

    @precondition(lambda self: self.world.takers)
    @rule(which=WHICH)
    def lose(self, which: int) -> None:
        self.world.drop(self.world.takers[which % len(self.world.takers)])

    @rule()
    def purge(self) -> None:
        self.world.engine.actions.purge(self.world.node)
        assert not any(entry.state == constants.READY for entry in self.world.node.queue)
        for data in self.world.ready:
            self.world.left(data)
        self.world.ready.clear()

    @rule()
    def restart(self) -> None:
        """Another broker reads what a log has: the messages in order, held ones too."""
        before = list(self.world.node.queue)
        if self.world.settings["last_value_position"] == "kept":
            return
        other = LastValueWorld(flow_stop_count=1000, flow_stop_size=0)
        other.engine.lifecycle.restore(
            other.node, [(entry.seq, DURABLE, 0, 0, entry.data) for entry in before]
        )
        newest = {key_of(entry.data): entry.data for entry in before if key_of(entry.data)}
        wanted = [each.data for each in before if newest.get(key_of(each.data), each.data) == each.data]
        assert [entry.data for entry in other.node.queue] == wanted
        assert other.node.gate.depth_msgs == len(wanted) == other.node.stored_msgs
        assert other.node.kept_bytes == sum(map(len, wanted)) == other.node.gate.depth_bytes

    @rule(ms=st.sampled_from([0, 1, 20, 110]))
    def turn(self, ms: int) -> None:
        self.world.turn(ms * MS)

    @invariant()
    def laws(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.check_values()


def test_the_model_and_the_laws_hold_on_random_walks() -> None:
    run_state_machine_as_test(
        LastValueWalk,
        settings=settings(
            max_examples=examples(150),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_producer_that_only_replaces_is_never_stopped() -> None:
    """The twin of "never more than": with room for one message more than there are keys it gets on."""
    world = LastValueWorld(flow_stop_count=6, flow_resume_count=1, flow_stop_size=0)
    sender = Sender(world, "p")
    sender.account = world.engine.producers.open(world.node, sender, True)
    world.producers.append(sender)
    for number in range(500):
        world.turn(110 * MS)
        sender.hear()
        assert sender.heard > sender.sent, "it has credit"
        sender.send_value(valued(1 + number % 5, number, 0))
        world.check()
        world.check_values()
    assert world.node.gate.closed_count == 0
    assert world.node.replaced == 495
