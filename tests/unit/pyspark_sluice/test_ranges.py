"""Which offsets a batch and its tasks read: every one once, in order, and as many as the limits say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_sluice.ranges import (
    EARLIEST,
    LATEST,
    Extent,
    Range,
    ahead,
    between,
    chosen,
    limited,
    shown,
    split,
)

EXTENTS = {0: Extent(10, 40), 1: Extent(0, 0), 2: Extent(7, 8)}
numbers = st.integers(0, 300)


@st.composite
def extents(draw: st.DrawFn) -> dict[int, Extent]:
    pairs = draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6))
    return {at: Extent(first, first + count) for at, (first, count) in enumerate(pairs)}


def offsets(ranges: list[Range]) -> list[tuple[int, int]]:
    """Every offset, with its partition, in the order in which it is read."""
    return [(each.partition, offset) for each in ranges for offset in range(each.start, each.end)]


def test_words_and_offsets_of_each_partition() -> None:
    assert chosen("x", EARLIEST, EXTENTS) == {0: 10, 1: 0, 2: 7}
    assert chosen("x", LATEST, EXTENTS) == {0: 40, 1: 0, 2: 8}
    assert chosen("x", {0: 20, 1: -1, 2: -2}, EXTENTS) == {0: 20, 1: 0, 2: 7}


def test_offsets_that_make_no_sense_are_named_all_at_once() -> None:
    with pytest.raises(ValueError, match="startingOffsets: ") as refused:
        chosen("startingOffsets", {0: 41, 1: 0, 3: 0}, EXTENTS)
    assert str(refused.value).removeprefix("startingOffsets: ").split("; ") == [
        "partition 2 is missing",
        "there is no partition 3",
        "partition 0 ends at 40, before 41",
    ]


def test_a_run_ends_at_its_target_and_never_goes_back() -> None:
    start = {0: 15, 1: 0, 2: 8}
    assert ahead(start, EXTENTS) == ({0: 40, 1: 0, 2: 8}, 25)
    assert ahead(start, EXTENTS, {0: 30, 1: 0, 2: 5}) == ({0: 30, 1: 0, 2: 8}, 15)


def test_a_partition_that_is_new_or_was_made_anew_is_read_from_its_beginning() -> None:
    found = {0: Extent(0, 3), 1: Extent(5, 9)}
    end, count = ahead({0: 100}, found)
    assert (end, count) == ({0: 3, 1: 9}, 7)
    assert between({0: 100}, end) == [Range(0, 0, 3, True), Range(1, 0, 9, True)]
    assert limited({0: 100}, found, end, 2) == {0: 3, 1: 7}


@given(extents(), st.data())
def test_a_batch_is_as_large_as_it_may_be_and_fair(found: dict[int, Extent], data: st.DataObject) -> None:
    start = {each: data.draw(st.integers(extent.first, extent.next)) for each, extent in found.items()}
    most = data.draw(st.integers(1, 400))
    end, count = ahead(start, found)
    until = limited(start, found, end, most)
    taken = {each: until[each] - start[each] for each in found}
    assert sum(taken.values()) == min(count, most)
    have = {each: extent.next - start[each] for each, extent in found.items()}
    full = sum(each > 0 for each in have.values())
    least = 1 if most >= full else 0
    for each in found:
        assert min(least, have[each]) <= taken[each] <= have[each]
        # A share differs from its exact part by less than one message, and by one for each that has less than
        # one and gets it.
        off = abs(taken[each] * count - min(most, count) * have[each])
        assert off < max(count, 1) * (1 + least * full)


def test_a_few_messages_do_not_wait_for_a_long_backlog() -> None:
    found = {0: Extent(0, 50_000_000), 1: Extent(0, 20), 2: Extent(3, 3)}
    start = {0: 0, 1: 0, 2: 3}
    until = limited(start, found, ahead(start, found).end, 100_000)
    assert until == {0: 99_999, 1: 1, 2: 3}
    # Fewer than there are partitions go to those that have most.
    assert limited(start, found, ahead(start, found).end, 1) == {0: 1, 1: 0, 2: 3}


@given(extents(), st.integers(1, 400))
def test_batches_one_after_the_other_read_every_offset_once(found: dict[int, Extent], most: int) -> None:
    position = {each: extent.first for each, extent in found.items()}
    seen: list[tuple[int, int]] = []
    while True:
        end, count = ahead(position, found)
        if not count:
            break
        until = limited(position, found, end, most)
        ranges = between(position, until)
        assert between(position, until) == ranges, "a batch that is done again"
        seen += offsets(ranges)
        position = until
    assert sorted(seen) == [
        (each, at) for each in sorted(found) for at in range(found[each].first, found[each].next)
    ]
    for each in found:
        of_one = [at for partition, at in seen if partition == each]
        assert of_one == sorted(of_one)


@given(extents(), st.integers(1, 50))
def test_parts_have_the_same_offsets_in_the_same_order(found: dict[int, Extent], least: int) -> None:
    ranges = [Range(at, each.first, each.next) for at, each in found.items() if each.next > each.first]
    parts = split(ranges, least)
    total = sum(each.msgs for each in ranges)
    assert offsets(parts) == offsets(ranges)
    assert len(parts) == max(len(ranges), min(least, total))
    for each in ranges:
        sizes = [part.msgs for part in parts if part.partition == each.partition]
        assert max(sizes) - min(sizes) <= 1


def test_the_longest_range_is_cut_first() -> None:
    assert split([Range(0, 0, 100), Range(1, 5, 15)], 4) == [
        *(Range(0, 0, 33), Range(0, 33, 66), Range(0, 66, 100)),
        Range(1, 5, 15),
    ]


def test_offsets_are_named_by_the_first_and_the_last() -> None:
    assert shown(0, "flights", 5, 10) == "partition 0 ('flights'), offsets 5 to 9"
    assert shown(1, "flights/1", 5, 6) == "partition 1 ('flights/1'), offset 5"
