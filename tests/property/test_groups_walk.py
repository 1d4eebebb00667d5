"""Message groups at random, beside a plain model: order, no group at two consumers, nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import constants
from broker.codec.grouping import closes_group, group_id
from broker.engine import spool as spool_room
from broker.engine.spool import Run, Spool, put_back
from broker.queues import groups as groups_room
from broker.queues.dispatch import Consumer
from broker.queues.groups import MessageGroups
from broker.queues.queue import Entry, Queue, Reader
from tests.examples import examples
from tests.grouped import LAST, body_of, grouped
from tests.property.test_spool_walk import SlowPager

pytestmark = pytest.mark.flow


class Divisible:
    """Wants messages whose number is a multiple of this."""

    def __init__(self, by: int) -> None:
        self.by = by

    def matches(self, data: bytes) -> bool:
        return int(body_of(data)) % self.by == 0


class Taker(Consumer):
    """A consumer with so much credit; what it was sent stays unsettled until it is told to settle."""

    def __init__(self, walk: Walk, by: int) -> None:
        super().__init__()
        self.walk = walk
        self.credit = 0
        self.held: list[Entry] = []
        if by > 1:
            self.reader = Reader(self, Divisible(by))

    def capacity(self) -> int:
        return self.credit

    def wants(self, entry: Entry) -> bool:
        if entry.extra is not None and self in entry.extra.not_for:
            return False
        return self.reader is None or (self.reader.wanted is None or self.reader.wanted.matches(entry.data))

    def send(self, entry: Entry) -> None:
        self.walk.on_sent(self, entry)


class Walk:
    """A queue with groups, and what a plain model says of it."""

    def __init__(self, selectors: bool, shared: bool, rebalance: bool) -> None:
        self.queue = Queue()
        self.groups = MessageGroups(self.queue)
        self.groups.shared = shared
        self.groups.rebalance = rebalance
        self.selectors = selectors
        self.consumers: list[Taker] = []
        self.owner: dict[bytes, Taker] = {}
        self.closing: set[bytes] = set()
        self.refused: set[tuple[bytes, Taker | None]] = set()
        self.elsewhere: list[Entry] = []
        self.number = 0
        self.sent = 0
        self.settled = 0
        self.turn = 0
        self.by_turn = False

    # --- the model

    def on_sent(self, taker: Taker, entry: Entry) -> None:
        assert taker.credit > 0, "never beyond its credit"
        assert taker.wants(entry)
        taker.credit -= 1
        taker.in_flight += 1
        key = group_id(entry.data)
        if key:
            earlier = [
                each
                for each in self.queue
                if each.state == constants.READY and each.seq < entry.seq and group_id(each.data) == key
            ]
            assert not any(taker.wants(each) for each in earlier), "in order within the group"
            for other in self.consumers:
                assert other is taker or not self.held_of(other, key), "one consumer at a time"
            assert key not in self.closing, "nothing while what was sent before the end is unsettled"
            owner = self.owner.get(key)
            if owner is not taker:
                moves = self.groups.rebalance or (key, owner) in self.refused
                assert owner is None or moves, "it sticks to its consumer"
                self.owner[key] = taker
            if closes_group(entry.data):
                self.closing.add(key)
        taker.held.append(entry)
        self.sent += 1

    def held_of(self, taker: Taker, key: bytes) -> list[Entry]:
        return [each for each in taker.held if group_id(each.data) == key]

    def let_go(self, taker: Taker, entry: Entry) -> None:
        key = group_id(entry.data)
        taker.in_flight -= 1
        if key and not self.held_of(taker, key) and (key in self.closing or self.groups.shared):
            self.closing.discard(key)
            self.owner.pop(key, None)

    # --- verbs

    def do(self, verb: str, number: int) -> None:
        queue = self.queue
        taker = self.consumers[number % len(self.consumers)] if self.consumers else None
        held = taker.held if taker is not None else []
        if verb == "append":
            for i in range(number % 7 + 1):
                self.append(number + i)
        elif verb == "store":
            queue.stored(queue.next_seq)
        elif verb == "credit" and taker is not None:
            taker.credit += number % 5 + 1
        elif verb == "take credit" and taker is not None:
            taker.credit = 0
        elif verb == "settle" and taker is not None and held:
            entry = held.pop(number % len(held))
            self.let_go(taker, entry)
            queue.settle(entry)
            self.settled += 1
        elif verb == "release" and taker is not None and held:
            self.release(taker, held[number % len(held)])
        elif verb == "forbid" and taker is not None and held:
            entry = held[number % len(held)]
            queue.forbid(entry, taker)
            self.refused.add((group_id(entry.data), taker))
            if group_id(entry.data):
                self.closing.add(group_id(entry.data))
            self.release(taker, entry)
        elif verb == "bury" and taker is not None and held:
            entry = held.pop(number % len(held))
            self.groups.let_go(entry)
            self.let_go(taker, entry)
            self.elsewhere.append(entry)
        elif verb == "attach" and len(self.consumers) < 4:
            taker = Taker(self, (1, 2, 3)[number % 3] if self.selectors else 1)
            self.consumers.append(taker)
            self.groups.join(taker)
        elif verb == "detach" and taker is not None:
            for entry in sorted(held, key=lambda each: (each.seq * 7 + number) % 11):
                self.release(taker, entry)
            self.consumers.remove(taker)
            self.groups.leave(taker)
            for key in [key for key, owner in self.owner.items() if owner is taker]:
                del self.owner[key]
                self.closing.discard(key)
        elif verb == "drop" and queue.cursor is not None:
            queue.drop(queue.cursor)
            self.settled += 1
        elif verb == "expire":
            free = (constants.READY, constants.BEHIND)
            ready = [each for each in queue if each.state in free]
            if ready:
                entry = ready[number % len(ready)]
                queue.take(entry)
                self.elsewhere.append(entry)
        elif verb == "come back" and self.elsewhere:
            queue.release(self.elsewhere.pop(number % len(self.elsewhere)))
        elif verb == "go" and self.elsewhere:
            queue.settle(self.elsewhere.pop(number % len(self.elsewhere)))
            self.settled += 1
        elif verb == "reset":
            key = b"abc"[number % 3 :][:1]
            if key in self.groups.groups:
                if self.groups.reset(key):
                    self.owner.pop(key, None)
                    self.closing.discard(key)
                else:
                    self.closing.add(key)
        elif verb == "restart":
            self.groups.restart()
        elif verb == "by turn":
            self.by_turn = not self.by_turn
        self.dispatch()
        self.check()

    def append(self, number: int) -> None:
        self.number += 1
        group = ("", "a", "b", "c")[number % 4]
        data = grouped(group, LAST if group and number % 13 == 0 else None, b"%d" % self.number)
        self.queue.append(data, number % 5 == 0)

    def release(self, taker: Taker, entry: Entry) -> None:
        taker.held.remove(entry)
        self.let_go(taker, entry)
        self.queue.release(entry)

    def dispatch(self) -> None:
        while self.consumers:
            self.turn += 1
            before = self.sent
            self.groups.dispatch(list(self.consumers), False, self.by_turn, self.turn)
            if self.sent == before and not self.groups.reader.unfinished:
                break

    # --- the laws

    def check(self) -> None:
        ready = [each for each in self.queue if each.state == constants.READY]
        assert len(ready) == self.queue.ready
        assert self.number == self.settled + sum(1 for _ in self.queue) + self.outside(), "nothing is lost"
        assert self.groups.stuck == sum(each.seq <= self.groups.reader.passed for each in ready)
        out = [each for taker in self.consumers for each in taker.held if group_id(each.data)]
        assert {id(each) for each in out} == {id(each) for each in self.groups.held}
        assert self.groups.owned() <= len(self.groups.groups)
        for taker in self.consumers:
            if taker.credit > 0 and not self.queue.gap:
                assert not self.groups.has_more(taker), "it was sent all there is for it"
        self.check_liveness(ready)

    def outside(self) -> int:
        """How many messages are on disk only."""
        return 0

    def check_liveness(self, ready: list[Entry]) -> None:
        keys = {group_id(each.data) for each in ready}
        with_credit = [taker for taker in self.consumers if taker.credit > 0]
        for entry in ready:
            if not group_id(entry.data):
                assert not any(taker.wants(entry) for taker in with_credit), "it was for one with credit"
        for key in keys - {b""}:
            if key in self.closing or (key in self.groups.groups and self.groups.groups[key].closing):
                # It ends, or its consumer refused a message that another may have.
                assert any(self.held_of(taker, key) for taker in self.consumers)
                continue
            mine = [each for each in ready if group_id(each.data) == key]
            owner = self.groups.groups[key].owner if key in self.groups.groups else None
            if owner is not None and not owner.gone:
                assert isinstance(owner.consumer, Taker)
                assert self.owner[key] is owner.consumer
                assert owner.consumer.credit == 0 or not any(owner.consumer.wants(each) for each in mine)
            elif self.owner.get(key) is None or self.groups.rebalance:
                first = next((e for e in mine if any(t.wants(e) for t in self.consumers)), None)
                assert first is None or not any(taker.wants(first) for taker in with_credit)


class PagedWalk(Walk):
    """The same where part of the queue is on disk."""

    def __init__(self, shared: bool, rebalance: bool) -> None:
        super().__init__(False, shared, rebalance)
        self.pager = SlowPager()
        self.spool = Spool(self.queue, self.pager, self.loaded, self.ignore, self.ignore)

    def loaded(self, run: Run, messages: list[tuple[int, int, int, int, bytes]]) -> None:
        for message in messages:
            put_back(self.queue, *message)

    def ignore(self, nbytes: int) -> None:
        """Memory and disk are counted elsewhere."""

    def on_sent(self, taker: Taker, entry: Entry) -> None:
        assert not self.queue.gap or entry.seq < self.queue.gap_first or not self.spool.runs
        super().on_sent(taker, entry)

    def do(self, verb: str, number: int) -> None:
        if verb == "page out":
            self.spool.page_out(number * 40)
        elif verb == "read ahead":
            self.spool.read_ahead()
        elif verb in ("answer", "fail") and self.pager.jobs:
            self.pager.jobs.pop(number % len(self.pager.jobs))(verb == "answer")
        elif verb == "retry":
            self.spool.retry()
        super().do(verb, number)

    def outside(self) -> int:
        return self.spool.count

    def go_on(self) -> None:
        """Read what is needed, for as long as the disk has something to do."""
        self.spool.retry()
        self.spool.read_ahead()
        while self.pager.jobs:
            self.pager.jobs.pop(0)(True)
            self.spool.read_ahead()
        self.dispatch()


VERBS = st.sampled_from(
    [
        *("append",) * 6,
        *("credit",) * 5,
        *("settle",) * 5,
        *("attach",) * 3,
        *("store", "release", "release", "detach", "forbid", "bury", "drop", "expire", "come back", "go"),
        *("reset", "restart", "by turn", "take credit"),
    ]
)


@given(
    st.lists(st.tuples(VERBS, st.integers(0, 1000)), max_size=80),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=examples(400))
def test_groups_keep_their_laws(
    verbs: list[tuple[str, int]], selectors: bool, shared: bool, rebalance: bool
) -> None:
    walk = Walk(selectors, shared, rebalance)
    for verb, number in verbs:
        walk.do(verb, number)
    # Everybody gets on: with credit, and messages settled, all go out.
    if not walk.consumers or selectors:
        walk.do("attach", 0)
    walk.queue.stored(walk.queue.next_seq)
    for entry in walk.elsewhere:
        walk.queue.release(entry)
    walk.elsewhere.clear()
    for _ in range(600):
        if not walk.queue.ready and not walk.queue.acquired:
            break
        for taker in walk.consumers:
            taker.credit += 3
            while taker.held:
                walk.do("settle", walk.consumers.index(taker))
            walk.dispatch()
            walk.check()
    left = [each for each in walk.queue if any(taker.wants(each) for taker in walk.consumers)]
    if not selectors:
        assert not left


PAGED = st.sampled_from(
    [
        *("append",) * 8,
        *("credit",) * 4,
        *("settle",) * 4,
        *("attach", "page out", "page out", "read ahead", "read ahead", "answer", "answer", "answer") * 2,
        *("store", "release", "release", "detach", "forbid", "bury", "drop", "expire", "come back", "go"),
        *("reset", "fail", "retry", "take credit"),
    ]
)


@given(st.lists(st.tuples(PAGED, st.integers(0, 1000)), max_size=100), st.booleans(), st.booleans())
@settings(max_examples=examples(300))
def test_groups_keep_their_laws_in_a_deep_queue(
    verbs: list[tuple[str, int]], shared: bool, rebalance: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_room, "READ_AHEAD", 6)
        patch.setattr(spool_room, "RUN_BYTES", 300)
        walk = PagedWalk(shared, rebalance)
        for verb, number in verbs:
            walk.do(verb, number)
        if not walk.consumers:
            walk.do("attach", 0)
        walk.do("attach", 0)
        walk.queue.stored(walk.queue.next_seq)
        for entry in walk.elsewhere:
            walk.queue.release(entry)
        walk.elsewhere.clear()
        for _ in range(2000):
            walk.go_on()
            if walk.queue.head is None and not walk.spool.count:
                break
            for taker in walk.consumers:
                taker.credit += 3
                while taker.held:
                    walk.do("settle", walk.consumers.index(taker))
        left = [each for each in walk.queue if any(taker.wants(each) for taker in walk.consumers)]
        assert (left, walk.spool.count, walk.pager.disk) == ([], 0, {})


def test_the_look_is_bounded_in_a_turn() -> None:
    """Many messages of a stuck group are looked at in parts, once each; behind them is one for another."""
    queue = Queue()
    groups = MessageGroups(queue)
    walk = Walk(False, False, False)
    walk.queue, walk.groups = queue, groups
    stuck, free = Taker(walk, 1), Taker(walk, 1)
    walk.consumers = [stuck, free]
    groups.join(stuck)
    data = grouped("a", body=b"1")
    queue.append(data)
    stuck.credit = 1
    groups.dispatch([stuck], False, False, 0)
    assert len(stuck.held) == 1
    groups.join(free)
    most = 10 * groups_room.MOST_LOOKS
    for _ in range(most):
        queue.append(data)
    queue.append(grouped("b", body=b"2"))
    free.credit = 5
    turns = 0
    while not free.held:
        groups.dispatch([stuck, free], False, False, turns)
        turns += 1
        assert turns < 20
    assert turns >= 10
    assert groups.stuck == most
    assert (len(free.held), len(stuck.held)) == (1, 1)
    # Another message for the free one costs one look.
    queue.append(grouped("b", body=b"3"))
    groups.dispatch([stuck, free], False, False, 0)
    assert len(free.held) == 2
    assert groups.looks == groups_room.MOST_LOOKS
