"""Passing messages on: at least once, never more than the target would take."""

from __future__ import annotations

import random
from collections import deque

import pytest

from broker.forwarding.routes.backoff import Backoff
from broker.forwarding.routes.pump import MS, Pump, RouteCounts

pytestmark = pytest.mark.flow


class FakeSource:
    """A broker that sends what it is asked for, and takes back what is released."""

    def __init__(self, count: int) -> None:
        self.waiting = deque(range(1, count + 1))
        self.out: set[int] = set()
        self.asked = 0
        self.settled: dict[int, str] = {}

    def grant(self, msgs: int) -> None:
        self.asked += msgs
        assert self.asked >= 0

    def hand_over(self) -> list[tuple[int, bytes]]:
        found = []
        while self.asked and self.waiting:
            number = self.waiting.popleft()
            self.asked -= 1
            self.out.add(number)
            found.append((number, str(number).encode()))
        return found

    def settle(
        self,
        delivery: int,
        outcome: str,
        failed: bool = False,
        undeliverable: bool = False,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        self.out.remove(delivery)
        if outcome in ("released", "modified"):
            self.waiting.appendleft(delivery)
        else:
            assert delivery not in self.settled
            self.settled[delivery] = outcome


class FakeTarget:
    """A broker with so much credit, which says what a test wants of each message."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.sent = 0
        self.here: deque[tuple[int, bytes]] = deque()
        self.told: list[tuple[int, str, bool, bool, str, str]] = []
        self.taken: list[int] = []

    def may_send(self) -> bool:
        return self.credit > 0

    def send(self, message: bytes, timeout_s: float | None = None) -> None:
        assert self.credit > 0
        self.credit -= 1
        self.sent += 1
        self.here.append((self.sent, message))

    def outcomes(self) -> list[tuple[int, str, bool, bool, str, str]]:
        found, self.told = self.told, []
        return found

    def answer(self, outcome: str = "accepted", undeliverable: bool = False) -> None:
        number, message = self.here.popleft()
        if outcome == "accepted":
            self.taken.append(int(message))
        self.told.append((number, outcome, outcome == "modified", undeliverable, "", ""))


def made(
    count: int, credit: int, window: int = 100, last_taker: bool = False
) -> tuple[Pump, FakeSource, FakeTarget]:
    source, target = FakeSource(count), FakeTarget(credit)
    return Pump(source, target, window, RouteCounts(), last_taker), source, target


def settle_down(pump: Pump, now_ns: int = 0) -> None:
    for _ in range(1000):
        if not pump.step(now_ns):
            return
    raise AssertionError("it never comes to rest")


def test_a_target_without_credit_is_sent_nothing_and_nothing_is_fetched_for_it() -> None:
    pump, source, _ = made(10, 0)
    settle_down(pump)
    assert (len(source.waiting), pump.unsettled, source.asked) == (10, 0, 0)


def test_exactly_the_targets_credit_leaves_the_source() -> None:
    pump, source, target = made(10, 4)
    settle_down(pump)
    assert (target.sent, len(source.waiting), pump.unsettled) == (4, 6, 4)


def test_the_window_bounds_what_has_no_outcome() -> None:
    pump, _, target = made(50, 1000, window=7)
    settle_down(pump)
    assert target.sent == 7
    target.answer()
    target.answer()
    settle_down(pump)
    assert target.sent >= 8


def test_credit_that_is_taken_back_is_taken_back_at_the_source() -> None:
    pump, source, target = made(0, 10)
    settle_down(pump)
    assert source.asked == 10
    target.credit = 0
    settle_down(pump)
    assert source.asked == 0


def test_outcomes_are_handed_back() -> None:
    pump, source, target = made(3, 3)
    settle_down(pump)
    target.answer("accepted")
    target.answer("rejected")
    target.answer("accepted")
    settle_down(pump)
    assert source.settled == {1: "accepted", 2: "rejected", 3: "accepted"}
    assert (pump.counts.forwarded, pump.counts.rejected) == (2, 1)


@pytest.mark.parametrize("outcome", ["released", "modified"])
def test_what_comes_back_is_tried_again_after_a_pause_that_grows(outcome: str) -> None:
    pump, source, target = made(1, 100)
    now_ns, pauses = 0, []
    for _ in range(4):
        settle_down(pump, now_ns)
        target.answer(outcome)
        pump.step(now_ns)
        assert source.settled == {}
        settle_down(pump, now_ns)
        assert not target.here
        pauses.append((pump.resume_ns - now_ns) // MS)
        now_ns = pump.resume_ns
    assert pauses == [10, 20, 40, 80]
    settle_down(pump, now_ns)
    target.answer()
    settle_down(pump, now_ns)
    assert source.settled == {1: "accepted"}


def test_what_nobody_else_would_take_is_rejected() -> None:
    pump, source, target = made(1, 10, last_taker=True)
    settle_down(pump)
    target.answer("modified", undeliverable=True)
    settle_down(pump)
    assert source.settled == {1: "rejected"}


@pytest.mark.parametrize("seed", range(6))
def test_every_message_arrives_whatever_happens(seed: int) -> None:
    walk = random.Random(seed)
    pump, source, target = made(200, 0, window=walk.randint(1, 30))
    now_ns = 0
    for _ in range(5000):
        verb = walk.randrange(6)
        if verb == 0:
            target.credit += walk.randint(1, 20)
        elif verb == 1:
            target.credit = 0
        elif verb == 2 and target.here:
            target.answer(walk.choice(["accepted", "accepted", "released", "modified"]))
        elif verb == 3 and walk.random() < 0.05:
            pump.give_back()
            target = FakeTarget(0)
            source.asked = 0
            pump = Pump(source, target, pump.window, pump.counts)
        pump.step(now_ns)
        assert pump.unsettled == len(source.out) <= pump.window
        assert len(source.settled) + len(source.out) + len(source.waiting) == 200
        now_ns += walk.randrange(20) * MS
    for _ in range(2000):
        target.credit = 50
        settle_down(pump, now_ns)
        while target.here:
            target.answer()
        now_ns += 1000 * MS
        if len(source.settled) == 200:
            break
    assert set(source.settled.values()) == {"accepted"}
    assert len(source.settled) == 200


def test_pauses_double_with_jitter_up_to_the_longest() -> None:
    highest, lowest = Backoff(100, 1000, lambda: 0.0), Backoff(100, 1000, lambda: 1.0)
    assert [highest.next_ms() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert [lowest.next_ms() for _ in range(6)] == [50, 100, 200, 400, 500, 500]
    highest.reset()
    assert highest.next_ms() == 100
