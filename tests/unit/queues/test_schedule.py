"""Messages that wait for their time: the next one first, each found by its number, taken out once."""

from __future__ import annotations

import random

from broker.queues.schedule import PAGE_MSGS, SWEEP_MSGS, Delayed, Schedule, wake_ns


def delayed(seq: int, due_ns: int, expires_ns: int = 0, data: bytes = b"x") -> Delayed:
    return Delayed(data, seq, due_ns, expires_ns)


def taken(schedule: Schedule, now_ns: int) -> list[int]:
    found: list[int] = []
    while (each := schedule.take_due(now_ns)) is not None:
        found.append(each.seq)
    return found


def test_they_come_by_time_and_those_of_one_time_as_they_came() -> None:
    schedule = Schedule()
    for seq, due_ns in enumerate((30, 10, 20, 10), 1):
        schedule.add(delayed(seq, due_ns))
    assert (schedule.next_ns(), schedule.count, schedule.nbytes) == (10, 4, 4)
    assert taken(schedule, 9) == []
    assert taken(schedule, 20) == [2, 4, 3]
    assert (schedule.next_ns(), len(schedule)) == (30, 1)


def test_one_that_expires_before_it_is_due_wakes_then() -> None:
    schedule = Schedule()
    schedule.add(delayed(1, 100, 50))
    schedule.add(delayed(2, 60, 100))
    assert schedule.next_ns() == 50
    assert taken(schedule, 50) == [1]
    assert schedule.next_ns() == 60


def test_one_is_found_by_its_number_until_it_is_taken_out() -> None:
    schedule = Schedule()
    for seq in range(1, 3 * PAGE_MSGS):
        schedule.add(delayed(seq, 1000 - seq))
    middle = schedule.find(PAGE_MSGS)
    assert middle is not None
    schedule.remove(middle)
    assert schedule.find(PAGE_MSGS) is None
    assert schedule.find(10_000) is None
    assert PAGE_MSGS not in taken(schedule, 1000)
    assert (schedule.count, schedule.nbytes, schedule.next_ns()) == (0, 0, 0)


def test_the_first_of_many_are_listed_in_order() -> None:
    schedule = Schedule()
    times = list(range(500))
    random.Random(7).shuffle(times)
    for seq, due_ns in enumerate(times, 1):
        schedule.add(delayed(seq, due_ns))
    for each in schedule.first(0, 500):
        if each.due_ns % 3 == 0:
            schedule.remove(each)
    assert [each.due_ns for each in schedule.first(2, 4)] == [4, 5, 7, 8]
    assert schedule.count_due(8, 100) == 6
    assert schedule.count_due(400, 10) == 10
    assert sorted(each.due_ns for each in schedule) == [each for each in range(500) if each % 3]


def test_husks_are_swept_where_they_are_most() -> None:
    schedule = Schedule()
    entries = [delayed(seq, seq) for seq in range(1, 3 * SWEEP_MSGS)]
    for each in entries:
        schedule.add(each)
    for each in entries[:-1]:
        schedule.remove(each)
    assert schedule.next_ns() == wake_ns(entries[-1])
    assert taken(schedule, 10**9) == [entries[-1].seq]


def test_clearing_forgets_all() -> None:
    schedule = Schedule()
    schedule.add(delayed(1, 5))
    schedule.clear()
    assert (schedule.count, schedule.nbytes, schedule.next_ns(), list(schedule)) == (0, 0, 0, [])
