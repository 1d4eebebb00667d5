"""Random walks over each kind of queue with everything at once, beside a plain model.

Messages with priorities, groups and delays are sent, on their own and in transactions; consumers accept,
reject, release, fail and refuse them, on their own and in transactions; links are lost, operators purge,
cancel, move and change the kind, and the broker is restarted on what its store has. After each step the
audit finds nothing, each place has exactly the messages that the model says, and none was sent before its
turn or its time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from proton import Message, symbol

from broker import constants
from broker.codec import message
from broker.codec.grouping import group_id
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.engine.priorities import classify
from broker.engine.schedules import LOG_NAME
from broker.engine.transaction import Retirement, Transaction
from broker.flow.producer_credit import Port, ProducerCredit
from broker.manage.audit import audit
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry
from broker.store.memory import MemoryStore

pytestmark = pytest.mark.flow

MS = 1_000_000
EPOCH_NS = 1_700_000_000_000 * MS
STEPS = 700
ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27
FAILURES = 3
RETRY_MS = 300
MOST_REJECTING = 14
DEFAULTS = BrokerDefaults(max_message_size=300)
ROOM: dict[str, object] = {"flow_stop_count": 12, "flow_resume_count": 6}
KINDS: dict[str, dict[str, object]] = {
    "plain": ROOM,
    "strict": {"priority": "strict"} | ROOM,
    "fair": {"priority": "fair"} | ROOM,
    "reserve": {"priority": "strict", "priority_reserve": 30} | ROOM,
    "groups": {"message_groups": "sticky"} | ROOM,
    "shared": {"message_groups": "shared"} | ROOM,
    "rebalanced": {"message_groups": "sticky", "group_rebalance": True} | ROOM,
    "retry": {"redelivery_delay": RETRY_MS} | ROOM,
    "strict retry": {"redelivery_delay": RETRY_MS, "priority": "strict"} | ROOM,
    "groups retry": {"redelivery_delay": RETRY_MS, "message_groups": "sticky"} | ROOM,
    "reject": {
        "when_full": "reject",
        "max_count": MOST_REJECTING,
        "flow_stop_count": 6,
        "flow_resume_count": 3,
    },
    "unlimited": {"flow_control": False, "max_count": MOST_REJECTING, "overflow": "reject"},
    "fill": {"dispatch": "fill"} | ROOM,
    "single": {"consumers": "single_active", "priority": "strict"} | ROOM,
    "bytes": {"flow_stop_size": 2000, "flow_resume_size": 1000, "byte_reservation": "strict"},
}
# Of these a message may be refused, and a commit.
REJECTING = ("reject", "unlimited")


@dataclass(slots=True)
class Sent:
    """One message as the model has it; ``due_ms`` since the epoch, 0 for at once."""

    body: int
    level: int
    group: bytes
    due_ms: int
    durable: bool
    letter: bool = False
    failures: int = 0
    spared: bool = False
    not_for: set[Taker] = field(default_factory=set)


@dataclass(slots=True)
class Told:
    """An outcome as the model has it; ``settled``: its delivery is its link's no more."""

    body: int
    taker: Taker
    outcome: int
    failed: bool
    forbids: bool
    settled: bool


class Parked:
    """A message outside its node."""

    def __init__(self, data: bytes, transaction: Transaction | None) -> None:
        self.data = data
        self.transaction = transaction


class Sender(Port):
    """A producer's link, which hears late of its credit."""

    def __init__(self, walk: Walk, stated: int) -> None:
        self.walk = walk
        self.credit = 0
        self.stated = stated
        promised = walk.kind not in REJECTING
        self.account: ProducerCredit = walk.engine.producers.open(walk.node, self, promised)
        self.account.stated = stated
        classify(walk.node, self.account)

    def grant(self, msgs: int) -> None: ...

    def revoke(self, msgs: int) -> None: ...

    def hear(self) -> None:
        self.credit = self.account.outstanding if self.account.window_max else 5

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, Parked)
        engine, bits = self.walk.engine, message.scan(parked.data)
        if parked.transaction is None:
            if engine.intake.put(self.walk.node, parked.data, bits) != constants.REFUSED:
                self.walk.arrived(parked.data)
            return
        engine.intake.hold(parked.transaction, self.walk.node, self.account, parked.data, bits)
        self.walk.posts[parked.transaction].append(parked.data)
        parked.transaction.unpark(parked)

    def refuse(self, parked: object) -> None:
        assert isinstance(parked, Parked)
        if parked.transaction is not None:
            parked.transaction.unpark(parked)

    def send(self, data: bytes, transaction: Transaction | None, settled: bool) -> None:
        walk, bits = self.walk, message.scan(data)
        self.credit -= 1
        code = walk.engine.intake.arrive(walk.node, self.account, data, bits, settled, transaction)
        if code == constants.PARK:
            parked = Parked(data, transaction)
            walk.engine.parking.park(walk.node, self.account, parked, len(data), settled)
            if transaction is not None:
                transaction.park(parked, self.account)
        elif code == constants.REFUSED:
            assert walk.kind in REJECTING
            if transaction is not None:
                transaction.fault = "refused"
        elif transaction is not None:
            walk.posts[transaction].append(data)
        else:
            assert code != constants.OVERSENT
            walk.arrived(data)

    def close(self) -> None:
        for item in list(self.account.parked):
            assert isinstance(item[0], Parked)
            if self.account.unpark(item[0]) and item[0].transaction is not None:
                item[0].transaction.lose(item[0])
        self.walk.engine.producers.close(self.walk.node, self.account)


class Taker(Consumer):
    """A consumer with a window. ``retired`` deliveries are unsettled until their transaction ends."""

    def __init__(self, walk: Walk, most: int) -> None:
        super().__init__()
        self.walk = walk
        self.most = most
        self.held: list[Entry] = []
        self.retired: dict[int, Entry] = {}

    def capacity(self) -> int:
        return self.most - len(self.held) - len(self.retired)

    def send(self, entry: Entry) -> None:
        self.walk.sent_to(self, entry)
        self.held.append(entry)
        self.in_flight += 1

    def let_go(self, entry: Entry) -> None:
        self.held.remove(entry)
        self.has_room()

    def has_room(self) -> None:
        """Its window has room for one more, as a link finds."""
        self.in_flight -= 1
        self.walk.engine.turn.mark_dirty(self.walk.node)

    def discharged(self, number: int, committed: bool) -> None:
        entry = self.retired.pop(number)
        if committed:
            self.has_room()
        else:
            self.held.append(entry)


class Walk:
    """The broker's engine, life after life, and what the model says of two queues."""

    def __init__(self, kind: str, seed: int) -> None:
        self.random = random.Random(f"{kind} {seed}")
        self.kind = kind
        self.given = dict(KINDS[kind])
        self.store = MemoryStore()
        self.wall_ns = EPOCH_NS + 1000 * MS
        self.model: dict[int, Sent] = {}
        self.bodies: dict[bytes, int] = {}
        self.numbers = 0
        self.moving = False
        self.start(EPOCH_NS)

    # --- lives

    def start(self, epoch_ns: int) -> None:
        self.engine = Engine(True, self.store)
        self.engine.turn.epoch_ns = epoch_ns
        self.engine.begin_turn(self.wall_ns - epoch_ns)
        self.posts: dict[Transaction, list[bytes]] = {}
        self.told: dict[Transaction, list[Told]] = {}
        self.waiting: set[Transaction] = set()
        self.open: list[Transaction] = []
        self.takers: list[Taker] = []
        self.letters = self.create("letters", {})
        self.node = self.create("orders", self.given)
        self.engine.letters.find = lambda name: self.letters
        states = (-1, 7, 9) if self.given.get("priority_reserve") else (-1, -1, -1)
        self.senders = [Sender(self, stated) for stated in states]
        self.turn()

    def create(self, name: str, given: dict[str, object]) -> Node:
        settings = resolve(self.settings(name, given), DEFAULTS)
        shelf = self.store.shelves.get(name)
        node = self.engine.lifecycle.create(name, settings, b"{}", shelf)
        if shelf is not None:
            kept = sorted((seq, *rest) for seq, rest in shelf.messages.items())
            node.maybe_delivered_upto = max([seq for seq, *_ in kept], default=0)
            self.engine.lifecycle.restore(node, kept)
            log = self.store.shelves.get(LOG_NAME + name)
            if log is not None:
                waiting = [(seq, *rest) for seq, rest in sorted(log.messages.items())]
                self.engine.schedules.restore(node, log, waiting)
        return node

    def settings(self, name: str, given: dict[str, object]) -> dict[str, object]:
        base: dict[str, object] = {"durable": True}
        if name == "orders":
            base |= {"max_delivery_count": FAILURES, "dead_letter_address": "letters"}
        return base | given

    def restart(self) -> None:
        """Kill the broker and start another: transactions that were open are as if they had never been."""
        self.turn()
        self.model = {each.body: each for each in self.model.values() if each.durable}
        for each in self.model.values():
            each.not_for = set()
        self.moving = False
        self.start(EPOCH_NS + self.random.randrange(500) * MS)

    def turn(self, ms: int = 0) -> None:
        for _ in range(2):
            self.engine.end_turn()
            self.engine.seal()
            self.wall_ns += ms * MS
            ms = 0
            self.engine.begin_turn(self.wall_ns - self.engine.turn.epoch_ns)
        self.engine.end_turn()
        self.engine.seal()

    def now_ms(self) -> int:
        return self.wall_ns // MS

    def settle(self) -> None:
        for _ in range(3):
            self.turn()
            self.engine.attend_store()
        self.turn()

    # --- messages

    def new_message(self, floor: int) -> bytes:
        dice = self.random
        self.numbers += 1
        delay_ms = dice.choice((0, 0, 0, 0, 40, 400))
        annotations: dict[Any, Any] = {}
        if delay_ms:
            annotations[symbol("x-opt-delivery-time")] = self.now_ms() + delay_ms
        level = max(dice.choice((0, 2, 4, 4, 5, 9)), floor)
        made = Message(
            body=self.numbers, durable=dice.random() < 0.7, annotations=annotations, priority=level
        )
        group = dice.choice(("", "a", "b", "c"))
        if group:
            made.group_id = group
            made.group_sequence = 0xFFFFFFFF if dice.random() < 0.1 else 1
        return bytes(made.encode())

    def body_of(self, data: bytes) -> int:
        found = self.bodies.get(data)
        if found is None:
            decoded = Message()
            decoded.decode(data)
            assert isinstance(decoded.body, int)
            found = self.bodies[data] = decoded.body
        return found

    def arrived(self, data: bytes) -> None:
        found = Message()
        found.decode(data)
        body = self.body_of(data)
        due_ms = 0 if not found.annotations else int(found.annotations.get("x-opt-delivery-time", 0))
        assert body not in self.model, "it came in twice"
        self.model[body] = Sent(body, found.priority, group_id(data), due_ms, found.durable)

    def sent_to(self, taker: Taker, entry: Entry) -> None:
        """Check that this is the message whose turn it is at that consumer."""
        sent = self.model[self.body_of(entry.data)]
        if sent.letter:
            assert self.moving
            sent.letter = False
        assert self.now_ms() >= sent.due_ms, "before its time"
        assert entry.delivery_count == sent.failures
        assert taker not in sent.not_for, "refused by this one"
        order = self.given.get("priority", "none")
        # A change of its settings waits until no consumer is there.
        is_grouped = self.node.queue.order is not None
        if is_grouped and sent.group:
            self.check_group(taker, sent)
        for other in self.node.queue:
            if other.state != constants.READY:
                continue
            theirs = self.model[self.body_of(other.data)]
            if taker in theirs.not_for or (is_grouped and (theirs.group != sent.group or not sent.group)):
                continue
            if order == "none" or theirs.level == sent.level:
                assert other.seq > entry.seq, "order of arrival"
            elif order == "strict":
                assert theirs.level < sent.level, "a higher one is ready"

    def check_group(self, taker: Taker, sent: Sent) -> None:
        """Nobody else has messages of its group, nor an open transaction in which another took some."""
        for other in self.takers:
            if other is not taker:
                for each in (*other.held, *other.retired.values()):
                    assert group_id(each.data) != sent.group, "a group at two consumers"
        for transaction in self.open:
            for told in self.told[transaction]:
                if told.taker is not taker:
                    assert self.model[told.body].group != sent.group, "a group that may be rolled back"

    # --- outcomes

    def apply(self, told: Told) -> None:
        """Say in the model what an outcome does once it counts."""
        sent = self.model[told.body]
        if told.outcome == ACCEPTED:
            del self.model[told.body]
        elif told.outcome == REJECTED:
            self.make_letter(sent)
        else:
            if told.outcome == MODIFIED and told.forbids:
                sent.not_for.add(told.taker)
            self.comes_back(sent, told.outcome == MODIFIED and told.failed)

    def comes_back(self, sent: Sent, failed: bool) -> None:
        sent.failures += failed
        if failed and sent.failures - sent.spared >= FAILURES:
            self.make_letter(sent)
        elif failed and self.given.get("redelivery_delay"):
            sent.due_ms = self.now_ms() + RETRY_MS

    def make_letter(self, sent: Sent) -> None:
        sent.letter = True
        sent.failures = sent.due_ms = 0
        sent.spared = False
        sent.not_for = set()

    def tell(self, taker: Taker, entry: Entry, settled: bool) -> Told:
        outcome = self.random.choice((ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, MODIFIED, MODIFIED, REJECTED))
        failed, forbids = self.random.random() < 0.6, self.random.random() < 0.3
        return Told(self.body_of(entry.data), taker, outcome, failed, forbids, settled)

    def settle_one(self, taker: Taker) -> None:
        entry = self.random.choice(taker.held)
        told = self.tell(taker, entry, True)
        settlement, node = self.engine.settlement, self.node
        taker.let_go(entry)
        self.apply(told)
        if told.outcome == ACCEPTED:
            settlement.acknowledge(node, entry)
        elif told.outcome == REJECTED:
            settlement.reject(node, entry)
        elif told.outcome == RELEASED:
            settlement.requeue(node, entry, False)
        else:
            if told.forbids:
                node.queue.forbid(entry, taker)
            settlement.requeue(node, entry, told.failed)

    def retire(self, transaction: Transaction, taker: Taker) -> None:
        entry = self.random.choice(taker.held)
        told = self.tell(taker, entry, self.random.random() < 0.5)
        retired: Retirement = transaction.retire(self.node, entry, told.outcome)
        retired.failed = told.failed
        if told.forbids and told.outcome == MODIFIED:
            retired.forbids = taker
        self.told[transaction].append(told)
        if told.settled:
            taker.let_go(entry)
        else:
            taker.held.remove(entry)
            retired.link = taker
            retired.number = entry.seq
            taker.retired[entry.seq] = entry

    def lose(self, taker: Taker) -> None:
        """A consumer's link is gone: what was told in a transaction stays there."""
        for transaction in self.open:
            for retired in transaction.retirements:
                if retired.link is taker:
                    retired.link = None
            for told in self.told[transaction]:
                told.settled = told.settled or told.taker is taker
        taker.retired.clear()
        settlement = self.engine.settlement
        for number, entry in enumerate(taker.held):
            sent = self.model[self.body_of(entry.data)]
            if number == 0:
                self.comes_back(sent, True)
                settlement.requeue(self.node, entry, True)
            else:
                if sent.failures == 0:
                    sent.failures, sent.spared = 1, True
                settlement.spare(self.node, entry)
        taker.held.clear()
        self.takers.remove(taker)
        self.engine.delivery.remove_consumer(self.node, taker)

    # --- transactions; the walk owns them all

    def came_in(self, transaction: Transaction) -> None:
        if transaction in self.waiting:
            self.engine.transactions.finish_later(transaction)

    def finish(self, transaction: Transaction) -> None:
        if transaction in self.waiting:
            self.commit(transaction)

    def timed_out(self, transaction: Transaction) -> None:
        self.roll_back(transaction)

    def declare(self) -> None:
        timeout_ns = self.random.choice((0, 300 * MS))
        begun = self.engine.transactions.declare(b"t", self, timeout_ns, 1 << 20)
        self.open.append(begun)
        self.posts[begun] = []
        self.told[begun] = []

    def commit(self, transaction: Transaction) -> None:
        if transaction.parked and not transaction.fault:
            self.waiting.add(transaction)
            return
        will_fail = bool(transaction.fault)
        posts = len(self.posts[transaction])
        if posts and self.kind in REJECTING:
            will_fail = will_fail or self.node.gate.depth_msgs + posts > self.node.hard_msgs
        if will_fail:
            self.roll_back(transaction, commits=True)
            return
        self.forget(transaction)
        told = self.told[transaction]
        for data in self.posts[transaction]:
            self.arrived(data)
        for each in told:
            self.apply(each)
        assert self.engine.transactions.commit(transaction) != constants.REFUSED

    def roll_back(self, transaction: Transaction, commits: bool = False) -> None:
        self.forget(transaction)
        for told in self.told[transaction]:
            if told.settled:
                self.comes_back(self.model[told.body], True)
        if commits:
            assert self.engine.transactions.commit(transaction) == constants.REFUSED
        else:
            self.engine.transactions.roll_back(transaction)

    def forget(self, transaction: Transaction) -> None:
        self.waiting.discard(transaction)
        self.open.remove(transaction)

    # --- operators

    def held(self) -> set[int]:
        """Return what consumers and transactions hold."""
        taken = {self.body_of(entry.data) for taker in self.takers for entry in taker.held}
        return taken | {told.body for each in self.open for told in self.told[each]}

    def purge(self) -> None:
        self.settle()
        held = self.held()
        self.engine.actions.purge(self.node)
        self.model = {each.body: each for each in self.model.values() if each.letter or each.body in held}

    def purge_letters(self) -> None:
        if not self.moving:
            self.settle()
            self.engine.actions.purge(self.letters)
            self.model = {each.body: each for each in self.model.values() if not each.letter}

    def cancel(self) -> None:
        if self.node.schedule is not None:
            for each in self.node.schedule.first(self.random.randrange(3), 1):
                del self.model[self.body_of(each.data)]
                self.engine.schedules.cancel(self.node, each)

    def move_back(self) -> None:
        """Have letters go to the queue again, as far as it has room."""
        if self.letters.queue.ready and not self.moving:
            self.engine.actions.move(self.letters, self.node, self.random.randint(1, 5))
            self.moving = True

    def change(self) -> None:
        if self.kind in REJECTING:
            self.given["max_count"] = self.random.choice((6, MOST_REJECTING))
        if "priority" in KINDS[self.kind]:
            self.given["priority"] = self.random.choice(
                ("none", "strict", "fair", KINDS[self.kind]["priority"])
            )
        if "message_groups" in KINDS[self.kind]:
            self.given["message_groups"] = self.random.choice(("none", "sticky", "shared"))
        settings = resolve(self.settings("orders", self.given), DEFAULTS)
        self.engine.configurator.change(self.node, settings)

    # --- steps

    def step(self) -> None:
        dice = self.random.random()
        ready = [each for each in self.open if each not in self.waiting]
        holding = [taker for taker in self.takers if taker.held]
        sender = self.random.choice([each for each in self.senders if each.credit > 0] or self.senders)
        if dice < 0.36:
            for _ in range(min(sender.credit, self.random.randint(1, 3))):
                transaction = self.random.choice((None, None, *ready))
                settled = transaction is None and self.random.random() < 0.2
                # It keeps to the priority that it states, but not always.
                floor = max(sender.stated, 0) if self.random.random() < 0.3 else 0
                sender.send(self.new_message(floor), transaction, settled)
        elif dice < 0.52:
            if holding:
                self.settle_one(self.random.choice(holding))
        elif dice < 0.64:
            if holding and ready:
                self.retire(self.random.choice(ready), self.random.choice(holding))
        elif dice < 0.70:
            if len(self.open) < 3:
                self.declare()
        elif dice < 0.75:
            if ready:
                self.commit(self.random.choice(ready))
        elif dice < 0.78:
            if self.open:
                self.roll_back(self.random.choice(self.open))
        elif dice < 0.83:
            if len(self.takers) < 3:
                self.attach(self.random.randint(1, 5))
        elif dice < 0.86:
            if self.takers:
                self.lose(self.random.choice(self.takers))
        elif dice < 0.88:
            self.senders.remove(sender)
            sender.close()
            self.senders.append(Sender(self, sender.stated))
        elif dice < 0.97:
            self.engine.transactions.end_overdue(self.engine.turn.now_ns)
            self.turn(self.random.choice((1, 20, 150)))
        else:
            self.random.choice(
                (self.purge, self.purge_letters, self.cancel, self.move_back, self.change, self.restart)
            )()
        self.turn()
        if self.random.random() < 0.5:
            self.engine.attend_store()
            self.turn()
        for each in self.senders:
            if self.random.random() < 0.4:
                each.hear()
        self.check()

    def attach(self, most: int) -> Taker:
        taker = Taker(self, most)
        self.takers.append(taker)
        self.engine.delivery.add_consumer(self.node, taker)
        return taker

    # --- the laws

    def there(self, node: Node) -> list[int]:
        waiting = [] if node.schedule is None else list(node.schedule)
        return sorted(self.body_of(each.data) for each in (*node.queue, *waiting))

    def check(self) -> None:
        assert audit(self.engine).breaches == ()
        orders, letters = self.there(self.node), self.there(self.letters)
        if self.moving:
            for body in set(orders) & {each.body for each in self.model.values() if each.letter}:
                self.model[body].letter = False
            self.moving = bool(self.engine.moves)
        assert orders == sorted(each.body for each in self.model.values() if not each.letter)
        assert letters == sorted(each.body for each in self.model.values() if each.letter)
        self.check_room()
        kept = sum(len(self.posts[each]) for each in self.open)
        assert self.node.allocator.uncommitted_msgs == kept
        assert set(self.open) == self.engine.transactions.open
        assert self.node.queue.acquired - len(self.engine.moves) <= len(self.held())

    def check_room(self) -> None:
        """Promises, what is uncommitted among them, never pass the threshold; nor do low ones the reserve."""
        gate = self.node.gate
        if gate.enforced and gate.stop_msgs and gate.promised_msgs:
            assert gate.depth_msgs + gate.promised_msgs <= gate.stop_msgs
        if gate.stop_bytes and gate.promised_msgs > 1 and gate.depth_msgs + gate.promised_msgs > 1:
            assert gate.depth_bytes + gate.promised_bytes <= gate.stop_bytes
        if self.kind in REJECTING:
            assert gate.depth_msgs <= MOST_REJECTING
        if gate.reserve_msgs:
            low = sum(1 for each in self.model.values() if not each.letter and each.level < 5)
            bulk = sum(each.outstanding for each in self.node.allocator.accounts if not each.urgent)
            assert low + bulk <= gate.stop_msgs - gate.reserve_msgs

    def everything_comes(self) -> None:
        """However the walk left things, all that is there comes, and every sender gets credit."""
        for taker in list(self.takers):
            self.lose(taker)
        for transaction in list(self.open):
            self.roll_back(transaction)
        self.turn()
        self.check()
        takers = [self.attach(4), self.attach(4)]
        hungry = list(self.senders)
        for _ in range(300):
            for taker in takers:
                for entry in list(taker.held):
                    taker.let_go(entry)
                    del self.model[self.body_of(entry.data)]
                    self.engine.settlement.acknowledge(self.node, entry)
            for sender in self.senders:
                sender.hear()
            hungry = [each for each in hungry if each.credit <= 0]
            self.turn(20)
            self.engine.attend_store()
            self.turn()
            self.check()
            if not hungry and not self.there(self.node):
                break
        assert self.there(self.node) == []
        assert hungry == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_keeps_its_laws(kind: str, seed: int) -> None:
    walk = Walk(kind, seed)
    for _ in range(STEPS):
        walk.step()
    walk.everything_comes()
