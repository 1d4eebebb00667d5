"""The pure last-value queue: index, places, readers; the caller takes out what is replaced."""

from __future__ import annotations

import pytest

from broker import constants
from broker.codec.lastvalue import ValueKey
from broker.queues.last_value import LastValueQueue
from broker.queues.queue import MOST_RETURNED, Entry, Filter, Reader

KEY = "k"


def message(value: str) -> bytes:
    """Make a message such as ``a1``, whose key is its first letter; ``-1`` has none."""
    body = b"\x00\x53\x77\xa1%c%b" % (len(value), value.encode())
    if value[0] == "-":
        return body
    pairs = b"\xa1\x01k\xa1\x01" + value[0].encode()
    return b"\x00\x53\x74\xc1%c\x02%b" % (len(pairs) + 1, pairs) + body


def made(*, kept: bool = False) -> LastValueQueue:
    queue = LastValueQueue(ValueKey(KEY))
    queue.keeps_place = kept
    return queue


def put(queue: LastValueQueue, *values: str) -> list[Entry]:
    """Put in messages as the engine does; their entries."""
    entries = []
    for value in values:
        data = message(value)
        older = queue.replaceable(data)
        if older is not None:
            queue.vacate(older)
        entries.append(queue.append(data))
    return entries


def shown(queue: LastValueQueue) -> list[str]:
    return [text(entry) for entry in queue]


def text(entry: Entry) -> str:
    return entry.data[-2:].decode()


def test_a_newer_value_goes_to_the_end() -> None:
    queue = made()
    put(queue, "a1", "b1", "-1", "a2", "-2")
    assert shown(queue) == ["b1", "-1", "a2", "-2"]
    assert queue.ready == 4
    assert len(queue.newest) == 2


def test_a_newer_value_takes_the_place_of_the_older_one() -> None:
    queue = made(kept=True)
    put(queue, "a1", "b1", "c1", "b2", "c2", "a2")
    assert shown(queue) == ["a2", "b2", "c2"]
    numbers = [entry.seq for entry in queue]
    assert numbers == sorted(set(numbers))
    found = [queue.acquire() for _ in range(4)]
    assert [entry and text(entry) for entry in found] == ["a2", "b2", "c2", None]


def test_a_place_is_taken_behind_what_is_held() -> None:
    queue = made(kept=True)
    put(queue, "a1", "b1", "c1")
    first = queue.acquire()
    assert first is not None
    put(queue, "b2", "c2")
    assert shown(queue) == ["a1", "b2", "c2"]
    queue.release(first)
    found = [queue.acquire() for _ in range(3)]
    assert [entry and text(entry) for entry in found] == ["a1", "b2", "c2"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_held_value_is_not_replaced(kept: bool) -> None:
    queue = made(kept=kept)
    put(queue, "a1", "b1")
    held = queue.acquire()
    assert held is not None
    put(queue, "a2", "a3")
    assert shown(queue) == ["a1", "b1", "a3"]
    assert held.state == constants.ACQUIRED
    assert queue.has_after(held.data, held.seq)
    queue.settle(held)
    assert shown(queue) == ["b1", "a3"]
    assert len(queue.newest) == 2


def test_a_held_value_is_the_newest_again_when_the_newer_one_has_left() -> None:
    queue = made()
    put(queue, "a1")
    older = queue.acquire()
    (newer,) = put(queue, "a2")
    assert queue.acquire() is newer
    queue.settle(newer)
    assert older is not None
    assert not queue.has_after(older.data, older.seq)
    queue.release(older)
    put(queue, "a3")
    assert shown(queue) == ["a3"]


def test_the_index_has_no_key_that_has_left() -> None:
    queue = made()
    put(queue, "a1", "b1", "c1", "-1")
    for _ in range(2):
        entry = queue.acquire()
        assert entry is not None
        queue.settle(entry)
    (last,) = [entry for entry in queue if text(entry) == "c1"]
    queue.drop(last)
    assert queue.newest == {}
    put(queue, "a1")
    queue.clear()
    assert queue.newest == {}
    assert put(queue, "a2")[0].state == constants.READY


def test_pending_values_are_replaced_too() -> None:
    queue = made()
    entries = []
    for value in ("a1", "b1", "a2"):
        data = message(value)
        older = queue.replaceable(data)
        if older is not None:
            queue.vacate(older)
        entries.append(queue.append(data, True))
    assert shown(queue) == ["b1", "a2"]
    assert (queue.ready, queue.pending) == (0, 2)
    queue.stored(entries[-1].seq)
    assert (queue.ready, queue.pending) == (2, 0)


@pytest.mark.parametrize("kept", [False, True])
def test_browsers_see_each_newer_value_once(kept: bool) -> None:
    queue = made(kept=kept)
    reader = Reader("browser", None, True)
    queue.open_reader(reader)

    def seen() -> list[str]:
        found = []
        while (entry := queue.look(reader)) is not None:
            found.append(text(entry))
        return found

    put(queue, "a1", "b1", "c1")
    assert seen() == ["a1", "b1", "c1"]
    put(queue, "b2", "b3", "a2")
    assert sorted(seen()) == ["a2", "b3"]
    put(queue, "c2")
    first = queue.look(reader)
    assert first is not None
    assert text(first) == "c2"
    put(queue, "c3", "d1")
    assert seen() == ["c3", "d1"]
    assert seen() == []


class OfB(Filter):
    """Wants values of b."""

    def matches(self, data: bytes) -> bool:
        return data[-2:-1] == b"b"


def test_a_consumer_with_a_selector_gets_a_value_in_a_place_that_it_has_passed() -> None:
    queue = made(kept=True)
    reader = Reader("picky", OfB())
    queue.open_reader(reader)
    put(queue, "a1", "b1", "c1")
    first = queue.acquire_next(reader)
    assert first is not None
    assert queue.acquire_next(reader) is None
    queue.release(first)
    put(queue, "b2", "a2")
    found = queue.acquire_next(reader)
    assert found is not None
    assert text(found) == "b2"
    assert queue.acquire_next(reader) is None


def test_a_reader_that_does_not_keep_up_with_places_looks_again_from_the_first() -> None:
    queue = LastValueQueue(ValueKey(KEY))
    queue.keeps_place = True
    reader = Reader("browser", None, True)
    queue.open_reader(reader)

    def value(key: int) -> bytes:
        pairs = b"\xa1\x01k\xa1\x04%04d" % key
        return b"\x00\x53\x74\xc1%c\x02%b\x00\x53\x77\xa1\x01x" % (len(pairs) + 1, pairs)

    def renew(key: int) -> None:
        data = value(key)
        older = queue.replaceable(data)
        if older is not None:
            queue.vacate(older)
        queue.append(data)

    def seen() -> int:
        found = 0
        while queue.look(reader) is not None:
            found += 1
        return found

    count = MOST_RETURNED + 500
    for key in range(count):
        renew(key)
    while seen():
        pass
    for key in range(count):
        renew(key)
        assert len(reader.returned) <= MOST_RETURNED
    shown_again = 0
    while more := seen():
        shown_again += more
    assert shown_again >= count
    assert queue.ready == count
