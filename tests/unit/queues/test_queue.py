"""Order and life cycle: what comes back stands in its old place, what is illegal changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker import constants
from broker.queues.queue import LIFE, Entry, IllegalTransition, Queue
from tests.examples import examples

STATES = {constants.READY: "ready", constants.ACQUIRED: "acquired", constants.GONE: "gone"}
VERBS = ("release", "settle", "drop")


def in_state(state: int) -> tuple[Queue, Entry]:
    """A queue of two whose first entry is in a state."""
    queue = Queue()
    entry = queue.append(b"first")
    queue.append(b"second")
    if state != constants.READY:
        assert queue.acquire() is entry
    if state == constants.GONE:
        queue.settle(entry)
    return queue, entry


def picture(queue: Queue) -> list[tuple[int, int]]:
    return [(queue.ready, queue.acquired), *((entry.seq, entry.state) for entry in queue)]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_every_pair_of_state_and_verb(state: int, verb: str) -> None:
    queue, entry = in_state(state)
    before = picture(queue)
    if (state, verb) in LIFE:
        getattr(queue, verb)(entry)
        assert entry.state == LIFE[state, verb]
        assert picture(queue) != before
        return
    with pytest.raises(IllegalTransition, match=f"cannot {verb} entry 1: it is {STATES[state]}"):
        getattr(queue, verb)(entry)
    assert picture(queue) == before
    assert entry.state == state


@pytest.mark.parametrize("state", [constants.ACQUIRED, constants.GONE])
def test_only_what_is_ready_is_acquired(state: int) -> None:
    queue, entry = in_state(state)
    second = queue.acquire()
    assert second is not entry
    before = picture(queue)
    assert queue.acquire() is None
    assert picture(queue) == before


def test_what_is_released_stands_in_its_old_place() -> None:
    queue = Queue()
    entries = [queue.append(b"%d" % i) for i in range(5)]
    held = [queue.acquire() for _ in range(4)]
    assert held == entries[:4]
    for entry in (entries[2], entries[0], entries[3]):
        queue.release(entry)
    assert [queue.acquire() for _ in range(5)] == [entries[0], entries[2], entries[3], entries[4], None]


def test_an_entry_forbidden_to_one_consumer_goes_to_another() -> None:
    queue = Queue()
    first, second = queue.append(b"first"), queue.append(b"second")
    queue.acquire()
    queue.forbid(first, "one")
    queue.release(first)
    assert queue.acquire_for("one") is second
    assert queue.acquire_for("one") is None
    assert queue.acquire_for("other") is first


def test_clearing_a_long_queue_doesnt_recurse() -> None:
    queue = Queue()
    for _ in range(200_000):
        queue.append(b"x")
    queue.clear()
    assert (queue.ready, queue.acquired, list(queue)) == (0, 0, [])


class QueueWalk(RuleBasedStateMachine):
    """Random verbs beside a plain list that does the same by searching."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.entries: list[Entry] = []

    def having(self, state: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.state == state]

    @rule()
    def append(self) -> None:
        self.entries.append(self.queue.append(b"x"))

    @rule()
    def acquire(self) -> None:
        ready = self.having(constants.READY)
        assert self.queue.acquire() is (ready[0] if ready else None)

    @precondition(lambda self: self.having(constants.ACQUIRED))
    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        held = self.having(constants.ACQUIRED)
        self.queue.release(held[which % len(held)])

    @precondition(lambda self: self.having(constants.ACQUIRED))
    @rule(which=st.integers(0, 50))
    def settle(self, which: int) -> None:
        held = self.having(constants.ACQUIRED)
        entry = held[which % len(held)]
        self.queue.settle(entry)
        self.entries.remove(entry)

    @precondition(lambda self: self.having(constants.READY))
    @rule(which=st.integers(0, 50))
    def drop(self, which: int) -> None:
        ready = self.having(constants.READY)
        entry = ready[which % len(ready)]
        self.queue.drop(entry)
        self.entries.remove(entry)

    @invariant()
    def the_same_entries_in_the_same_order(self) -> None:
        assert list(self.queue) == self.entries
        ready = self.having(constants.READY)
        assert self.queue.ready == len(ready)
        assert self.queue.acquired == len(self.having(constants.ACQUIRED))
        assert self.queue.oldest() is (ready[0] if ready else None)


QueueWalk.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestQueueWalk = QueueWalk.TestCase
