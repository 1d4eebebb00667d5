"""A transaction commits as a whole or not at all, and keeps the room of its messages until then."""

from __future__ import annotations

import pytest

from broker import constants
from broker.engine.node import Node
from broker.engine.transaction import COMMITTED, ROLLED_BACK, Transaction
from broker.errors import NotFoundError
from broker.flow.producer_credit import ProducerCredit
from broker.manage.audit import audit
from broker.queues.selector.selector import compile_selector
from tests.unit.engine.parts_world import MS, Link, PartsWorld
from tests.unit.engine.test_transaction import BODY, Controller

MODIFIED = 0x27
REJECTED = 0x25
ACCEPTED = 0x24
RELEASED = 0x26


class World(PartsWorld):
    """A producer and a consumer that work in transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions = self.engine.transactions
        self.owner = Controller()

    def declare(self, timeout_ms: int = 0) -> Transaction:
        return self.transactions.declare(b"t", self.owner, timeout_ms * MS, 1 << 20)

    def producer(self, node: Node) -> tuple[Link, ProducerCredit]:
        link = Link()
        account = self.engine.producers.open(node, link, True)
        self.turn()
        return link, account

    def post(
        self, begun: Transaction, node: Node, account: ProducerCredit, msgs: int = 1, durable: bool = False
    ) -> None:
        for _ in range(msgs):
            bits = constants.IS_DURABLE if durable else 0
            code = self.engine.intake.arrive(node, account, BODY, bits, False, begun)
            assert code == constants.ACCEPTED

    def flood(self, node: Node, msgs: int) -> None:
        """Fill a node with copies that have no promise there: from a queue without flow control."""
        source = self.create("flood", flow_control=False)
        self.engine.topology.bridging.add(source, node)
        for _ in range(msgs):
            self.put(source)
        self.turn()

    def check(self) -> None:
        assert audit(self.engine).breaches == ()


@pytest.fixture
def world() -> World:
    return World()


def test_posts_are_seen_when_they_are_committed(world: World) -> None:
    node = world.create()
    window = world.consumer(node)
    _, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 3)
    world.turn()
    assert (node.gate.depth_msgs, node.received, window.got) == (0, 0, [])
    world.check()
    assert world.transactions.commit(begun) == constants.ACCEPTED
    world.turn()
    assert (node.gate.depth_msgs, node.received, len(window.got)) == (3, 3, 3)
    assert (begun.state, world.transactions.committed, world.transactions.open) == (COMMITTED, 1, set())
    world.check()


def test_posts_keep_the_room_their_credit_had_reserved(world: World) -> None:
    node = world.create(flow_stop_count=10, flow_resume_count=5)
    first, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 10)
    world.turn()
    assert first.credit - account.used == 0, "ten are there, as good as"
    assert node.allocator.uncommitted_msgs == 10
    world.check()
    world.transactions.roll_back(begun)
    world.turn()
    assert first.credit - account.used > 0, "the room is free again"
    assert (node.allocator.uncommitted_msgs, node.gate.depth_msgs) == (0, 0)
    world.check()


def test_a_commit_leaves_no_more_room_than_before(world: World) -> None:
    node = world.create(flow_stop_count=10, flow_resume_count=5)
    link, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 10)
    world.transactions.commit(begun)
    world.turn()
    assert (node.gate.depth_msgs, node.gate.closed, link.credit - account.used) == (10, True, 0)
    world.check()


def test_durable_posts_count_once_their_group_is_on_disk(world: World) -> None:
    node = world.create(durable=True)
    window = world.consumer(node)
    _, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 2, durable=True)
    group = world.store.group
    assert world.transactions.commit(begun) == constants.STORING
    assert world.store.group == group, "all of it is in one group"
    world.turn()
    assert window.got == []
    world.settle()
    assert len(window.got) == 2


def test_retired_messages_are_gone_when_it_commits(world: World) -> None:
    node = world.create()
    world.put(node)
    window = world.consumer(node)
    begun = world.declare()
    begun.retire(node, window.got[0], ACCEPTED)
    world.turn()
    assert (node.gate.depth_msgs, node.accepted) == (1, 0)
    world.transactions.commit(begun)
    assert (node.gate.depth_msgs, node.accepted) == (0, 1)
    world.check()


def test_retired_messages_come_back_when_it_rolls_back(world: World) -> None:
    node = world.create()
    for body in "abc":
        world.put(node, body)
    window = world.consumer(node)
    first, second, _ = window.got
    begun = world.declare()
    begun.retire(node, second, ACCEPTED)
    begun.retire(node, first, ACCEPTED)
    del window.got[:2]
    world.transactions.roll_back(begun)
    world.turn()
    assert [entry.seq for entry in window.got[1:]] == [first.seq, second.seq], "in their old order"
    assert (first.delivery_count, first.redelivered) == (1, True)
    assert (begun.state, world.transactions.rolled_back) == (ROLLED_BACK, 1)
    world.check()


def test_rolled_back_too_often_it_is_a_dead_letter(world: World) -> None:
    letters = world.create("letters")
    node = world.create(dead_letter_address="letters", max_delivery_count=2)
    world.put(node)
    window = world.consumer(node)
    for _ in range(2):
        begun = world.declare()
        begun.retire(node, window.got.pop(), ACCEPTED)
        world.transactions.roll_back(begun)
        world.turn()
    assert (node.gate.depth_msgs, letters.gate.depth_msgs) == (0, 1)


@pytest.mark.parametrize(
    ("outcome", "failed", "left", "count"),
    [(REJECTED, False, 0, 0), (RELEASED, False, 1, 0), (MODIFIED, True, 1, 1), (MODIFIED, False, 1, 0)],
)
def test_each_outcome_counts_at_the_commit(
    world: World, outcome: int, failed: bool, left: int, count: int
) -> None:
    node = world.create()
    world.put(node)
    window = world.consumer(node, 1)
    entry = window.got[0]
    begun = world.declare()
    retired = begun.retire(node, entry, outcome)
    retired.failed = failed
    world.transactions.commit(begun)
    assert (node.gate.depth_msgs, entry.delivery_count) == (left, count)
    world.check()


def test_one_that_would_pass_a_hard_limit_does_nothing(world: World) -> None:
    node = world.create(max_count=3, flow_stop_count=3, overflow="reject")
    source = world.create("source")
    world.put(source)
    window = world.consumer(source)
    world.put(node)
    _, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 2)
    begun.retire(source, window.got.pop(), ACCEPTED)
    world.put(node)
    assert world.transactions.commit(begun) == constants.REFUSED
    assert "'orders' is at its hard limit" in begun.fault
    assert (node.gate.depth_msgs, source.gate.depth_msgs, source.accepted) == (2, 1, 0)
    world.check()


@pytest.mark.parametrize(("room", "committed"), [(10, True), (4, False), (0, False)])
def test_what_overflows_at_a_commit_becomes_dead_letters_or_nothing_is_done(
    world: World, room: int, committed: bool
) -> None:
    letters = world.create("letters", max_count=max(room, 1), flow_control=False, overflow="reject")

    def find(name: str) -> Node:
        if not room:
            raise NotFoundError(name)
        return letters

    world.engine.letters.find = find
    node = world.create(
        max_count=2, flow_control=False, overflow="dead_letter", dead_letter_address="letters"
    )
    _, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 6)
    code = world.transactions.commit(begun)
    assert (code != constants.REFUSED) == committed
    assert (node.gate.depth_msgs, letters.gate.depth_msgs) == ((2, 4) if committed else (0, 0))
    assert node.dropped == 0
    world.check()


@pytest.mark.parametrize("source", ["queue", "topic"])
@pytest.mark.parametrize("target", ["queue", "topic"])
def test_one_whose_copies_would_pass_the_hard_limit_of_a_bridge_s_target_does_nothing(
    world: World, source: str, target: str
) -> None:
    full: dict[str, object] = {"max_count": 4, "flow_stop_count": 3, "overflow": "reject"}
    node = world.create("orders", kind=source, flow_stop_count=100, enforce_flow="always")
    here = world.subscribe(node, "here", flow_stop_count=100) if source == "topic" else node
    there = world.create("copies", kind=target, enforce_flow="always", **(full if target == "queue" else {}))
    taker = world.subscribe(there, "there", **full) if target == "topic" else there
    bridge = world.engine.topology.bridging.add(node, there)
    assert bridge.crosses
    world.turn()
    _, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 2)
    world.flood(there, 3)
    assert world.transactions.commit(begun) == constants.REFUSED
    assert f"'{taker.name}' is at its hard limit" in begun.fault
    assert (here.gate.depth_msgs, taker.gate.depth_msgs, bridge.refused, taker.refused) == (0, 3, 0, 0)
    world.check()
    again = world.declare()
    world.engine.actions.purge(taker)
    world.turn()
    world.post(again, node, account, 2)
    assert world.transactions.commit(again) == constants.ACCEPTED
    assert (here.gate.depth_msgs, taker.gate.depth_msgs, bridge.copied) == (2, 2, 2)
    world.check()


@pytest.mark.parametrize("way", ["no flow control", "selector", "overflow"])
def test_copies_that_no_sender_waits_for_are_in_the_way_of_no_commit(world: World, way: str) -> None:
    node = world.create("orders", flow_stop_count=100, flow_control=way != "no flow control")
    overflow = "ring" if way == "overflow" else "reject"
    target = world.create("copies", max_count=4, flow_stop_count=3, overflow=overflow)
    keep = compile_selector("amqp.subject = 'x'") if way == "selector" else None
    bridge = world.engine.topology.bridging.add(node, target, keep)
    world.turn()
    _, account = world.producer(node)
    begun = world.declare()
    world.post(begun, node, account, 2)
    world.flood(target, 3)
    assert world.transactions.commit(begun) == constants.ACCEPTED
    depth, refused, passed = {"no flow control": (4, 1, 0), "selector": (3, 0, 2), "overflow": (4, 0, 0)}[way]
    assert (node.gate.depth_msgs, target.gate.depth_msgs) == (2, depth)
    assert (bridge.refused, bridge.passed_by) == (refused, passed)
    world.check()


def test_one_that_posted_to_a_queue_that_is_gone_does_nothing(world: World) -> None:
    node = world.create()
    other = world.create("other")
    _, account = world.producer(node)
    _, others = world.producer(other)
    begun = world.declare()
    world.post(begun, node, account)
    world.post(begun, other, others)
    world.engine.lifecycle.delete("orders")
    assert world.transactions.commit(begun) == constants.REFUSED
    assert "'orders' was deleted" in begun.fault
    assert other.gate.depth_msgs == 0
    world.check()


def test_a_topics_subscriptions_keep_room_and_get_it_all_at_once(world: World) -> None:
    topic = world.create("news", kind="topic", enforce_flow="always")
    first = world.subscribe(topic, "a", flow_stop_count=10, flow_resume_count=5)
    _, account = world.producer(topic)
    begun = world.declare()
    world.post(begun, topic, account, 4)
    world.check()
    second = world.subscribe(topic, "b", flow_stop_count=10, flow_resume_count=5)
    world.turn()
    world.check()
    world.transactions.commit(begun)
    world.turn()
    assert (first.gate.depth_msgs, second.gate.depth_msgs) == (4, 4)
    world.check()


def test_one_whose_time_is_over_is_its_owners_to_roll_back(world: World) -> None:
    told: list[Transaction] = []
    world.owner.timed_out = told.append  # type: ignore[assignment]
    node = world.create()
    _, account = world.producer(node)
    begun = world.declare(timeout_ms=100)
    lasting = world.declare()
    world.post(begun, node, account)
    now_ns = world.engine.turn.now_ns
    world.transactions.end_overdue(now_ns + 99 * MS)
    assert told == []
    world.transactions.end_overdue(now_ns + 100 * MS)
    assert told == [begun]
    assert lasting in world.transactions.open
    assert world.transactions.timed_out == 1


def test_the_time_of_an_empty_one_has_not_begun(world: World) -> None:
    told: list[Transaction] = []
    world.owner.timed_out = told.append  # type: ignore[assignment]
    node = world.create()
    _, account = world.producer(node)
    begun = world.declare(timeout_ms=100)
    now_ns = world.engine.turn.now_ns
    world.transactions.end_overdue(now_ns + 1000 * MS)
    world.post(begun, node, account)
    world.transactions.end_overdue(now_ns + 1099 * MS)
    assert told == []
    world.transactions.end_overdue(now_ns + 1100 * MS)
    assert told == [begun]


def declare_as(world: World, user: str) -> Transaction:
    return world.transactions.declare(b"t", world.owner, 0, 1 << 20, user)


def test_a_users_share_is_there_as_long_as_it_is_used(world: World) -> None:
    node = world.create()
    _, account = world.producer(node)
    world.transactions.limits.most_per_user = 2
    one, two = declare_as(world, "ann"), declare_as(world, "ann")
    world.post(one, node, account, 3)
    share = world.transactions.users["ann"]
    assert (share.count, share.nbytes) == (2, one.nbytes)
    assert not world.transactions.may_declare("ann")
    assert world.transactions.may_declare("bob")
    world.transactions.commit(one)
    assert (share.count, share.nbytes) == (1, 0)
    assert world.transactions.may_declare("ann")
    world.transactions.roll_back(two)
    assert world.transactions.users == {}


def test_messages_that_wait_for_room_count_against_the_bytes(world: World) -> None:
    node = world.create()
    _, account = world.producer(node)
    need = len(BODY) + constants.HELD_BYTES
    world.transactions.limits.most_bytes_per_user = 2 * need
    one, two = declare_as(world, "ann"), declare_as(world, "ann")
    one.park("waits", account, len(BODY))
    world.post(two, node, account)
    assert not one.has_room(len(BODY))
    assert not two.has_room(len(BODY))
    assert one.refusal(len(BODY))[0] == "max_transaction_size_per_user"
    assert declare_as(world, "bob").has_room(len(BODY))
    one.unpark("waits")
    assert two.has_room(len(BODY))
    world.transactions.roll_back(two)
    assert world.transactions.users["ann"].nbytes == 0


def test_a_node_knows_the_transactions_that_are_open_there(world: World) -> None:
    node, other = world.create(), world.create("other")
    _, account = world.producer(node)
    one, two = declare_as(world, ""), declare_as(world, "")
    world.post(one, node, account, 2)
    world.post(two, node, account)
    assert (node.transactions, other.transactions) == ({one, two}, None)
    assert (node.allocator.uncommitted_msgs, node.allocator.uncommitted_bytes) == (3, 3 * len(BODY))
    world.transactions.commit(one)
    world.transactions.roll_back(two)
    assert node.transactions is None
    assert (node.allocator.uncommitted_msgs, node.allocator.uncommitted_bytes) == (0, 0)


def test_an_empty_ones_time_has_not_begun_though_there_is_no_end_to_it(world: World) -> None:
    begun = declare_as(world, "")
    later_ns = begun.began_ns + 5000 * MS
    world.transactions.end_overdue(later_ns)
    assert begun.began_ns == later_ns


def test_room_that_a_parked_message_waited_for_is_dealt_when_it_rolls_back(world: World) -> None:
    node = world.create(max_size="10KB", flow_control=False, overflow="reject")
    _, account = world.producer(node)
    transaction = world.declare()
    transaction.park("waits", account, 20_000)
    account.park("waits", 20_000, world.engine.turn.now_ns)
    world.turn()
    assert not node.dirty
    world.transactions.roll_back(transaction)
    assert node.dirty


def test_a_group_that_a_commit_sets_free_goes_to_the_next_consumer(world: World) -> None:
    node = world.create(message_groups="shared")
    for group in ("one", "one", "two"):
        world.put(node, group, group_id=group)
    first = world.consumer(node, 1)
    assert [entry.seq for entry in first.got] == [1]
    begun = world.declare()
    begun.retire(node, first.got[0], ACCEPTED)
    other = world.consumer(node, 10)
    assert [entry.seq for entry in other.got] == [3]
    assert world.transactions.commit(begun) == constants.ACCEPTED
    first.in_flight -= 1
    world.turn()
    assert [entry.seq for entry in other.got] == [3, 2]
