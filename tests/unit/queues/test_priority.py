"""Ten levels: which message is next, where one that comes back stands, and what `fair` promises."""

from __future__ import annotations

import random

import pytest
from proton import Message

from broker import constants
from broker.codec.message import priority
from broker.queues.priority import WEIGHTS, PriorityQueue, rearrange
from broker.queues.queue import Entry, Queue, Reader


def of(level: int | None, number: int = 0) -> bytes:
    """An encoded message of this priority; None says none."""
    made = Message(body=number)
    if level is not None:
        made.priority = level
    return bytes(made.encode())


def filled(queue: PriorityQueue, *levels: int) -> list[Entry]:
    return [queue.append(of(level, number)) for number, level in enumerate(levels)]


def drained(queue: Queue) -> list[int]:
    found = []
    while (entry := queue.acquire()) is not None:
        found.append(entry.seq)
        queue.settle(entry)
    return found


@pytest.mark.parametrize(
    ("data", "level"),
    [
        (b"\x00\x53\x77\x40", 4),  # no header
        (b"\x00\x53\x70\x45\x00\x53\x77\x40", 4),  # an empty one
        (b"\x00\x53\x70\xc0\x04\x02\x41\x50\x07\x00\x53\x77\x40", 7),
        (b"\x00\x53\x70\xc0\x03\x02\x41\x40\x00\x53\x77\x40", 4),  # null
        (b"\x00\x53\x70\xc0\x04\x02\x41\x50\xff\x00\x53\x77\x40", 9),
        (b"\x00\x53\x70\xd0\x00\x00\x00\x07\x00\x00\x00\x02\x41\x50\x00\x00\x53\x77\x40", 0),
        (b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\xc0\x04\x02\x56\x50", 4),  # cut short
    ],
)
def test_the_priority_is_the_headers(data: bytes, level: int) -> None:
    assert priority(data) == level


def test_protons_messages_say_their_priority() -> None:
    assert [priority(of(level)) for level in range(10)] == list(range(10))
    assert priority(of(None)) == 4


def test_the_highest_level_goes_first_and_order_within_a_level_is_kept() -> None:
    queue = PriorityQueue()
    filled(queue, 4, 0, 9, 4, 9, 5)
    assert drained(queue) == [3, 5, 6, 1, 4, 2]
    assert queue.ready == queue.acquired == 0


def test_one_that_comes_back_is_in_its_old_place() -> None:
    queue = PriorityQueue()
    filled(queue, 4, 4, 4)
    first, second = queue.acquire(), queue.acquire()
    assert first is not None
    assert second is not None
    queue.release(second)
    queue.append(of(7))
    queue.release(first)
    assert drained(queue) == [4, 1, 2, 3]


def test_fair_lets_every_level_go_within_its_bound() -> None:
    queue = PriorityQueue(fair=True)
    chance = random.Random(3)
    since = dict.fromkeys(range(10), 0)
    served = dict.fromkeys(range(10), 0)
    bound = 2 * sum(WEIGHTS)
    for _ in range(5000):
        # Levels below 3 always have messages, the others by chance.
        for level in range(10):
            if queue.levels[level].ready == 0 and (level < 3 or chance.random() < 0.5):
                for number in range(chance.randint(1, 80)):
                    queue.append(of(level, number))
        waiting = [level for level in range(10) if queue.levels[level].ready > 0]
        entry = queue.acquire()
        assert entry is not None
        sent = priority(entry.data)
        served[sent] += 1
        for level in waiting:
            since[level] = 0 if level == sent else since[level] + 1
            assert since[level] < bound
        queue.settle(entry)
    assert served[9] > 5 * served[0] > 0


def test_fair_serves_by_weight_while_all_have_messages() -> None:
    queue = PriorityQueue(fair=True)
    for level in range(10):
        for number in range(2 * WEIGHTS[level]):
            queue.append(of(level, number))
    for _ in range(2):
        sent = []
        for _ in range(sum(WEIGHTS)):
            entry = queue.acquire()
            assert entry is not None
            sent.append(priority(entry.data))
        assert [sent.count(level) for level in range(10)] == list(WEIGHTS)


def test_what_waits_for_the_disk_holds_up_its_own_level_only() -> None:
    queue = PriorityQueue()
    queue.append(of(7), True)
    queue.append(of(7))
    queue.append(of(4))
    assert (queue.ready, queue.pending) == (1, 2)
    queue.stored(1)
    assert (queue.ready, queue.pending) == (3, 0)
    assert drained(queue) == [1, 2, 3]


def test_a_browser_sees_the_order_of_delivery_and_takes_nothing() -> None:
    queue = PriorityQueue()
    filled(queue, 4, 9, 0, 4)
    reader = Reader(None, None, True)
    queue.open_reader(reader)
    seen = []
    while (entry := queue.look(reader)) is not None:
        seen.append(entry.seq)
    assert seen == [2, 1, 4, 3]
    queue.append(of(5))
    found = queue.look(reader)
    assert found is not None
    assert found.seq == 5
    assert queue.look(reader) is None
    assert queue.ready == 5


class Wanted:
    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def matches(self, data: bytes) -> bool:
        found = Message()
        found.decode(data)
        return found.body in self.numbers


def test_a_consumer_with_a_filter_gets_the_highest_it_wants() -> None:
    queue = PriorityQueue()
    filled(queue, 4, 9, 7, 7)
    reader = Reader("me", Wanted(0, 2, 3))
    queue.open_reader(reader)
    taken = [queue.acquire_next(reader) for _ in range(2)]
    assert [entry and entry.seq for entry in taken] == [3, 4]
    assert taken[0] is not None
    queue.release(taken[0])
    again = queue.acquire_next(reader)
    assert again is not None
    assert again.seq == 3
    queue.close_reader(reader)
    assert drained(queue) == [2, 1]


def test_one_that_a_consumer_could_not_take_goes_to_others() -> None:
    queue = PriorityQueue()
    entries = filled(queue, 9, 4)
    queue.take(entries[0])
    queue.forbid(entries[0], "me")
    queue.release(entries[0])
    mine = queue.acquire_for("me")
    assert mine is not None
    assert mine.seq == 2
    assert queue.acquire_for("me") is None
    other = queue.acquire_for("you")
    assert other is not None
    assert other.seq == 1
    queue.settle(other)
    assert queue.picky == 0


def test_the_oldest_of_the_lowest_level_makes_room_but_no_higher_one() -> None:
    queue = PriorityQueue()
    entries = filled(queue, 5, 2, 2, 9)
    assert queue.oldest() is entries[1]
    assert queue.oldest_below(of(9)) is entries[1]
    assert queue.oldest_below(of(1)) is None
    assert queue.least_ready() is entries[1]
    queue.drop(entries[1])
    assert queue.oldest_below(of(2)) is entries[2]


@pytest.mark.parametrize("seed", range(5))
def test_messages_change_their_order_with_whoever_holds_them(seed: int) -> None:
    chance = random.Random(seed)
    plain = Queue()
    browser = Reader(None, None, True)
    plain.open_reader(browser)
    entries = [plain.append(of(chance.randrange(10), number)) for number in range(40)]
    held = [entry for entry in (plain.acquire() for _ in range(10)) if entry is not None]
    for entry in chance.sample(held, 3):
        plain.release(entry)
    last = [plain.look(browser) for _ in range(20)][-1]
    assert last is not None
    entries.append(plain.append(of(3), True))
    ordered = PriorityQueue()
    rearrange(plain, ordered)
    assert (ordered.ready, ordered.acquired, ordered.pending) == (33, 7, 1)
    assert ordered.next_seq == 42
    seen = []
    while (found := ordered.look(browser)) is not None:
        seen.append(found.seq)
    assert sorted(seen) == list(range(last.seq + 1, 41))
    back = Queue()
    rearrange(ordered, back)
    assert [entry.seq for entry in back] == list(range(1, 42))
    assert (back.ready, back.acquired, back.pending) == (33, 7, 1)
    assert back.look(browser) is None
    back.stored(41)
    for entry in held:
        if entry.state == constants.ACQUIRED:
            back.release(entry)
    assert drained(back) == list(range(1, 42))
