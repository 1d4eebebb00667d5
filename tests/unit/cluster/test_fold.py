"""What counts in a log, and what is damage."""

from __future__ import annotations

import pytest

from broker.cluster.fold import MOST_VOID, LogFold
from broker.cluster.records import GROUPS, HANDOVER, MARK, START, TAKEOVER, BrokenRecord, encode, joined

CELL = 3


class Writer:
    """An owner's records, each chained to the one before."""

    def __init__(self, epoch: int, group: int = 0, digest: bytes = START) -> None:
        self.epoch, self.group, self.digest = epoch, group, digest

    def write(self, kind: int, payload: bytes = b"", part: int = 0, parts: int = 1) -> bytes:
        self.group += kind == GROUPS and part == parts - 1
        data, self.digest = encode(kind, CELL, self.epoch, self.group, self.digest, payload, part, parts)
        return data


def begun() -> tuple[LogFold, Writer]:
    """Return a fold with the first epoch's take-over, and its owner."""
    fold, owner = LogFold(CELL), Writer(1)
    assert fold.feed(1, owner.write(TAKEOVER, b"a")).counts
    return fold, owner


def deposed() -> tuple[LogFold, Writer, Writer]:
    """Return a fold in the second epoch, its owner, and the one of the first."""
    fold, old = begun()
    new = Writer(2, 0, fold.digest)
    fold.feed(2, new.write(TAKEOVER, b"b"))
    return fold, new, old


def test_groups_come_in_order_with_marks_between() -> None:
    fold, owner = begun()
    assert fold.feed(2, owner.write(GROUPS, joined([b"one"]))).groups == [b"one"]
    assert fold.feed(3, owner.write(MARK, b"a")).groups == []
    assert fold.feed(4, owner.write(GROUPS, joined([b"two"]))).groups == [b"two"]
    assert (fold.position, fold.epoch, fold.group, fold.owner) == (4, 1, 2, b"a")


def test_a_group_of_parts_counts_with_its_last_part() -> None:
    fold, owner = begun()
    payload = joined([b"abcdef"])
    assert fold.feed(2, owner.write(GROUPS, payload[:4], 0, 2)).groups == []
    assert fold.group == 0
    assert fold.feed(3, owner.write(GROUPS, payload[4:], 1, 2)).groups == [b"abcdef"]
    assert fold.group == 1


def test_a_take_over_drops_a_group_that_has_not_all_parts() -> None:
    fold, old = begun()
    fold.feed(2, old.write(GROUPS, b"half", 0, 2))
    new = Writer(2, 0, fold.digest)
    assert fold.feed(3, new.write(TAKEOVER, b"b")).counts
    assert not fold.feed(4, old.write(GROUPS, b"rest", 1, 2)).counts
    assert fold.feed(5, new.write(GROUPS, joined([b"whole"]))).groups == [b"whole"]


def test_a_deposed_owners_records_count_for_nobody() -> None:
    fold, new, old = deposed()
    assert not fold.feed(3, old.write(GROUPS, joined([b"old"]))).counts
    assert fold.feed(4, new.write(GROUPS, joined([b"new"]))).groups == [b"new"]
    assert (fold.epoch, fold.group) == (2, 1)


def test_records_behind_one_whose_place_was_taken_count_when_they_are_sent_again() -> None:
    fold, new, old = deposed()
    one, two = new.write(GROUPS, joined([b"one"])), new.write(GROUPS, joined([b"two"]))
    assert not fold.feed(3, old.write(GROUPS, joined([b"old"]))).counts
    assert not fold.feed(4, two).counts
    assert fold.feed(5, one).groups == [b"one"]
    assert fold.feed(6, two).groups == [b"two"]


def test_a_missing_record_is_damage_and_changes_nothing() -> None:
    fold, owner = begun()
    owner.write(GROUPS, joined([b"one"]))
    with pytest.raises(BrokenRecord, match="position 2: records before it are missing"):
        fold.feed(2, owner.write(GROUPS, joined([b"two"])))
    assert (fold.position, fold.group) == (1, 0)


def test_a_missing_mark_is_damage() -> None:
    fold, owner = begun()
    owner.write(MARK)
    with pytest.raises(BrokenRecord):
        fold.feed(2, owner.write(MARK))


def test_records_that_never_follow_are_damage_in_the_end() -> None:
    fold, new, old = deposed()
    fold.feed(3, old.write(MARK))
    new.write(GROUPS, joined([b"lost"]))
    for position in range(4, 4 + MOST_VOID):
        assert not fold.feed(position, new.write(MARK)).counts
    with pytest.raises(BrokenRecord):
        fold.feed(4 + MOST_VOID, new.write(MARK))


def test_a_record_of_an_epoch_that_never_began_is_damage() -> None:
    fold, _ = begun()
    with pytest.raises(BrokenRecord, match="take-over that began epoch 2 is missing"):
        fold.feed(2, Writer(2, 0, fold.digest).write(MARK))


def test_a_take_over_that_does_not_follow_begins_nothing() -> None:
    fold, owner = begun()
    late = Writer(2, 0, fold.digest)
    fold.feed(2, owner.write(GROUPS, joined([b"one"])))
    assert not fold.feed(3, late.write(TAKEOVER, b"b")).counts
    assert (fold.epoch, fold.owner) == (1, b"a")


def test_a_hand_over_names_the_successor_until_the_next_take_over() -> None:
    fold, owner = begun()
    fold.feed(2, owner.write(HANDOVER, b"b"))
    assert fold.successor == b"b"
    fold.feed(3, Writer(2, 0, fold.digest).write(TAKEOVER, b"b"))
    assert fold.successor is None


@pytest.mark.parametrize("position", [1, 3])
def test_a_position_that_is_not_the_next_is_damage(position: int) -> None:
    fold, owner = begun()
    with pytest.raises(BrokenRecord):
        fold.feed(position, owner.write(MARK))


def test_another_cells_record_is_damage() -> None:
    fold, _ = begun()
    data, _ = encode(MARK, CELL + 1, 1, 0, fold.digest)
    with pytest.raises(BrokenRecord, match="another cell"):
        fold.feed(2, data)


def test_a_fold_begins_behind_a_record_or_before_it() -> None:
    fold, owner = begun()
    first, second = owner.write(GROUPS, joined([b"one"])), owner.write(GROUPS, joined([b"two"]))
    fold.feed(2, first)
    assert LogFold.behind(CELL, 2, first).feed(3, second).groups == [b"two"]
    assert LogFold.before(CELL, 2, first).feed(2, first).groups == [b"one"]
