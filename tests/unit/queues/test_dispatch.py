"""Who gets the next message: fair to the difference of one, fill in full batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.flow.window import Window
from broker.queues.dispatch import DISCIPLINES, Consumer, by_priority, fair, fill, only
from broker.queues.queue import Entry, Queue

pytestmark = pytest.mark.flow


class Taker(Consumer):
    """Takes what it is sent and keeps it."""

    def __init__(self, capacity: int, in_flight: int = 0) -> None:
        super().__init__()
        self.in_flight = in_flight
        self.room = capacity
        self.got: list[int] = []

    def capacity(self) -> int:
        return self.room

    def send(self, entry: Entry) -> None:
        assert self.room > 0, "sent more than its capacity"
        self.room -= 1
        self.in_flight += 1
        self.got.append(entry.seq)


def queue_of(count: int) -> Queue:
    queue = Queue()
    for _ in range(count):
        queue.append(b"x")
    return queue


def test_a_small_backlog_is_dealt_out_evenly() -> None:
    takers = [Taker(1000) for _ in range(4)]
    fair(queue_of(10), list(takers), 0)
    assert sorted(taker.in_flight for taker in takers) == [2, 2, 3, 3]


def test_what_comes_at_once_is_halved_by_two_with_credit_for_all_of_it() -> None:
    takers = [Taker(100), Taker(100)]
    fair(queue_of(100), list(takers), 0)
    assert [len(taker.got) for taker in takers] == [50, 50]


def test_what_is_sent_pre_settled_is_dealt_out_evenly_too() -> None:
    class Presettled(Taker):
        def send(self, entry: Entry) -> None:
            super().send(entry)
            self.in_flight -= 1

    takers = [Presettled(100), Presettled(100)]
    fair(queue_of(100), list(takers), 0)
    assert [len(taker.got) for taker in takers] == [50, 50]


def test_who_holds_less_is_served_first() -> None:
    rich, poor = Taker(1000, in_flight=8), Taker(1000)
    fair(queue_of(10), [rich, poor], 0)
    assert (len(rich.got), len(poor.got)) == (1, 9)


def test_the_turn_breaks_ties() -> None:
    firsts = []
    for turn in range(3):
        takers = [Taker(10) for _ in range(3)]
        fair(queue_of(1), list(takers), turn)
        firsts.append([len(taker.got) for taker in takers])
    assert firsts == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_consumers_that_share_a_window_never_pass_it_together() -> None:
    window = Window(10, 100, None)

    class Sharer(Taker):
        def capacity(self) -> int:
            return min(self.room, window.room())

        def send(self, entry: Entry) -> None:
            super().send(entry)
            window.sent()

    for discipline in DISCIPLINES.values():
        window = Window(10, 100, None)
        sharers = [Sharer(100), Sharer(100)]
        for sharer in sharers:
            sharer.shares = True
        discipline(queue_of(50), list(sharers), 0)
        assert sum(len(sharer.got) for sharer in sharers) == 10


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize("turn", range(3))
def test_a_full_window_of_a_connection_stops_its_own_consumers_only(discipline: str, turn: int) -> None:
    """Two share a window of 3, which fills while messages are dealt; a third, elsewhere, goes on."""
    window = Window(3, 100, None)

    class Sharer(Taker):
        def capacity(self) -> int:
            return min(self.room, window.room())

        def send(self, entry: Entry) -> None:
            super().send(entry)
            window.sent()

    sharers, free = [Sharer(100), Sharer(100)], Taker(100)
    for sharer in sharers:
        sharer.shares = True
    queue = queue_of(50)
    DISCIPLINES[discipline](queue, [*sharers, free], turn)
    shared = sum(len(sharer.got) for sharer in sharers)
    assert shared <= 3
    assert (len(free.got), queue.ready) == (50 - shared, 0)


def test_fill_gives_the_next_in_turn_all_it_may_take() -> None:
    takers = [Taker(7), Taker(7), Taker(7)]
    fill(queue_of(10), list(takers), 1)
    assert [len(taker.got) for taker in takers] == [0, 7, 3]


def test_only_stops_at_the_capacity_and_at_the_end() -> None:
    queue, taker = queue_of(10), Taker(4)
    only(queue, taker)
    assert (taker.got, queue.ready) == ([1, 2, 3, 4], 6)
    taker.room = 100
    only(queue, taker)
    assert (len(taker.got), queue.ready) == (10, 0)


TAKERS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8)


@pytest.mark.parametrize("discipline", DISCIPLINES)
@given(backlog=st.integers(0, 60), shapes=TAKERS, turn=st.integers(0, 10))
def test_all_is_sent_in_order_for_as_long_as_there_is_capacity(
    discipline: str, backlog: int, shapes: list[tuple[int, int]], turn: int
) -> None:
    queue = queue_of(backlog)
    takers = [Taker(*shape) for shape in shapes]
    capacity = sum(taker.room for taker in takers)
    DISCIPLINES[discipline](queue, list(takers), turn)
    got = [seq for taker in takers for seq in taker.got]
    assert sorted(got) == list(range(1, min(backlog, capacity) + 1))
    assert all(taker.got == sorted(taker.got) for taker in takers)


@given(backlog=st.integers(0, 60), shapes=TAKERS, turn=st.integers(0, 10))
def test_fair_leaves_nobody_two_behind(backlog: int, shapes: list[tuple[int, int]], turn: int) -> None:
    """Max − min ≤ 1 among those that were served and those that could have been."""
    takers = [Taker(*shape) for shape in shapes]
    fair(queue_of(backlog), list(takers), turn)
    served = [taker.in_flight for taker in takers if taker.got]
    could = [taker.in_flight for taker in takers if taker.room > 0]
    if served and could:
        assert max(served) - min(could) <= 1


def test_a_message_forbidden_to_one_reaches_the_other() -> None:
    for discipline in DISCIPLINES.values():
        queue = Queue()
        entry = queue.append(b"x")
        one, other = Taker(5), Taker(5)
        queue.forbid(entry, one)
        discipline(queue, [one, other], 0)
        assert (one.got, other.got) == ([], [1])


def of_priority(priority: int, capacity: int) -> Taker:
    taker = Taker(capacity)
    taker.priority = priority
    return taker


@pytest.mark.parametrize("by_turn", [False, True])
def test_consumers_of_the_highest_priority_with_capacity_come_first(by_turn: bool) -> None:
    high, other, middle, low = (of_priority(9, 3), of_priority(9, 2), of_priority(0, 4), of_priority(-1, 9))
    queue = queue_of(12)
    by_priority(queue, [high, other, middle, low], 0, by_turn)
    assert sorted(high.got + other.got) == [1, 2, 3, 4, 5]
    assert middle.got == [6, 7, 8, 9]
    assert low.got == [10, 11, 12]
    assert queue.ready == 0
