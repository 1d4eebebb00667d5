"""The window of message-ids: bounded by a count and by time, and the same again from what was noted."""

from __future__ import annotations

import pytest

from broker.queues.duplicates import MOST_IDS, Duplicates

pytestmark = pytest.mark.flow


def window(count: int, span_ms: int, *ids: bytes) -> Duplicates:
    found = Duplicates(count, span_ms)
    for now_ms, message_id in enumerate(ids):
        found.remember(message_id, now_ms)
    return found


def test_an_id_is_known_until_as_many_others_have_come() -> None:
    seen = window(2, 0, b"a", b"b", b"c")
    assert [seen.knows(each, 10**9) for each in (b"a", b"b", b"c", b"d")] == [False, True, True, False]
    assert len(seen) == 2


def test_an_id_that_comes_again_is_the_newest() -> None:
    seen = window(2, 0, b"a", b"b", b"a", b"c")
    assert [seen.knows(each, 0) for each in (b"a", b"b", b"c")] == [True, False, True]


def test_an_id_is_forgotten_after_its_time() -> None:
    seen = window(0, 100, b"a")
    assert (seen.knows(b"a", 100), seen.knows(b"a", 101)) == (True, False)
    seen.remember(b"b", 101)
    assert len(seen) == 1
    assert seen.count == MOST_IDS


def test_fewer_places_keep_the_newest() -> None:
    seen = window(3, 0, b"a", b"b", b"c")
    seen.resize(1, 50)
    assert [seen.knows(each, 2) for each in (b"a", b"b", b"c")] == [False, False, True]
    assert (seen.count, seen.span_ms) == (1, 50)


def test_places_are_used_in_turn() -> None:
    seen = Duplicates(3, 0)
    assert [seen.remember(b"%d" % n, 0)[0] for n in range(5)] == [0, 1, 2, 0, 1]
    assert sorted(seen.places()) == [0, 1, 2]


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
def test_the_window_is_restored_from_its_notes_in_any_order(order: int) -> None:
    before, notes = Duplicates(3, 100), dict[int, bytes]()
    for number in range(7):
        place, note, _ = before.remember(b"%d" % number, number)
        notes[place] = note
    after = Duplicates(3, 100)
    after.restore([*notes.items()][::order])
    assert sorted(after.places()) == sorted(before.places())
    for now_ms in (6, 105, 200):
        known = [[each.knows(b"%d" % number, now_ms) for number in range(7)] for each in (before, after)]
        assert known[0] == known[1]
    # The next one takes the place it would have taken.
    assert after.remember(b"next", 7) == before.remember(b"next", 7)


def test_a_smaller_window_restores_the_newest_notes() -> None:
    before = Duplicates(3, 0)
    notes = [before.remember(each, 0)[:2] for each in (b"a", b"b", b"c")]
    after = Duplicates(1, 0)
    assert after.restore(notes) == [0, 1]
    assert [after.knows(each, 0) for each in (b"a", b"b", b"c")] == [False, False, True]


def test_an_id_whose_time_is_over_leaves_its_place() -> None:
    seen, notes = Duplicates(0, 1000), dict[int, bytes]()
    for number in range(100):
        place, note, gone = seen.remember(b"%d" % number, 100 * number)
        notes[place] = note
        for each in gone:
            del notes[each]
    assert len(notes) == len(seen) == 11
    assert sorted(notes) == sorted(seen.places())


def test_an_id_that_comes_again_keeps_one_place() -> None:
    seen = window(3, 0, b"a", b"b")
    assert seen.remember(b"a", 5)[0] == 0
    assert sorted(seen.places()) == [0, 1]


def test_ids_beyond_a_smaller_window_leave_their_places() -> None:
    seen = window(3, 0, b"a", b"b", b"c")
    assert seen.resize(1, 0) == [0, 1]
    assert seen.places() == [2]
