"""Which offsets of a stream's partitions are read: by a batch, by a trigger, by a task.

Plain arithmetic: no broker, no Spark, no clock. Offsets are by the partition's number, and an end is the
offset behind the last one that is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

EARLIEST, LATEST = "earliest", "latest"
# Kafka's numbers for the two words, where offsets are given for each partition.
WORDS = {-2: EARLIEST, -1: LATEST}

Offsets = Mapping[int, int]


class Range(NamedTuple):
    """The offsets of one partition from ``start`` up to, and without, ``end``.

    ``anew``: from the partition's beginning, which may be later than ``start``.
    """

    partition: int
    start: int
    end: int
    anew: bool = False

    @property
    def msgs(self) -> int:
        """How many offsets these are."""
        return self.end - self.start


class Extent(NamedTuple):
    """What a partition has now: the offset of its first message, and the one that the next will have.

    ``stream_id`` says which stream it is: one that is made anew has another. None where the broker doesn't
    say.
    """

    first: int
    next: int
    stream_id: int | None = None


def ids_in(extents: Mapping[int, Extent]) -> dict[int, int]:
    """Return which stream each partition is, of those of which the broker says it."""
    return {at: each.stream_id for at, each in extents.items() if each.stream_id is not None}


def chosen(name: str, wanted: str | Offsets, extents: Mapping[int, Extent]) -> dict[int, int]:
    """Return the offsets that an option's value means now.

    ``wanted`` is EARLIEST, LATEST, or an offset for each partition, where -2 and -1 stand for the two words.
    ValueError, which begins with the option's ``name``, where a partition is missing, unknown, or hasn't come
    to the offset yet.
    """
    if isinstance(wanted, str):
        wanted = dict.fromkeys(extents, -2 if wanted == EARLIEST else -1)
    faults = [f"partition {each} is missing" for each in sorted(extents.keys() - wanted.keys())]
    faults += [f"there is no partition {each}" for each in sorted(wanted.keys() - extents.keys())]
    found = {}
    for partition, offset in sorted(wanted.items()):
        if partition not in extents:
            continue
        extent = extents[partition]
        if offset > extent.next:
            faults.append(f"partition {partition} ends at {extent.next}, before {offset}")
        found[partition] = {-2: extent.first, -1: extent.next}.get(offset, offset)
    if faults:
        raise ValueError(f"{name}: {'; '.join(faults)}")
    return found


class Ahead(NamedTuple):
    """What a stream has for a query: how far a batch may read, and how many messages that is."""

    end: dict[int, int]
    msgs: int


def ahead(start: Offsets, extents: Mapping[int, Extent], target: Offsets | None = None) -> Ahead:
    """Return what there is behind a position, up to ``target`` where a run has one.

    A partition that ends before the position was begun anew, and all it has is ahead.
    """
    end, count = {}, 0
    for each, extent in extents.items():
        begin, until = start.get(each, extent.first), extent.next
        if until < begin:
            begin = extent.first
        elif target is not None:
            until = max(min(until, target.get(each, until)), begin)
        end[each] = until
        count += until - begin
    return Ahead(end, count)


def limited(start: Offsets, extents: Mapping[int, Extent], end: Offsets, most: int) -> dict[int, int]:
    """Return the offsets at which a batch of at most ``most`` messages ends, none behind ``end``.

    Each partition that has messages gets one, if ``most`` is enough for that: else a few would wait beside a
    long backlog until it is read. Of the rest each has a share, in proportion to what it has; what is lost by
    rounding down goes to those that lose most. A partition that was begun anew isn't limited.
    """
    have = {each: max(last - start.get(each, extents[each].first), 0) for each, last in end.items()}
    if sum(have.values()) <= most:
        return dict(end)
    least = 1 if sum(count > 0 for count in have.values()) <= most else 0
    rest = {each: count - least for each, count in have.items() if count}
    total, shared = sum(rest.values()), most - least * len(rest)
    taken = {each: least + shared * count // total for each, count in rest.items()}
    by_loss = sorted(rest, key=lambda each: (-(shared * rest[each] % total), each))
    for each in by_loss[: most - sum(taken.values())]:
        taken[each] += 1
    return {each: last - have[each] + taken.get(each, 0) for each, last in end.items()}


def between(start: Offsets, end: Offsets) -> list[Range]:
    """Return what a batch reads, by partition; partitions that have nothing for it are left out.

    A partition that ``start`` doesn't know is new and read from its beginning. One that ends before it starts
    was begun anew meanwhile, and is read from its beginning as well.
    """
    found = []
    for partition in sorted(end):
        last = end[partition]
        anew = last < start.get(partition, last + 1)
        first = 0 if anew else start[partition]
        if first < last:
            found.append(Range(partition, first, last, anew))
    return found


def split(ranges: list[Range], least: int) -> list[Range]:
    """Return at least ``least`` ranges, as far as there are offsets, with the same offsets in the same order.

    The range with the longest parts is cut into one more until there are enough; parts of a range differ by
    one offset at most.
    """
    parts = dict.fromkeys(ranges, 1)
    longest = [(float(-each.msgs), at, each) for at, each in enumerate(ranges) if each.msgs > 1]
    heapq.heapify(longest)
    for _ in range(least - len(ranges)):
        if not longest:
            break
        _, at, each = heapq.heappop(longest)
        parts[each] += 1
        if parts[each] < each.msgs:
            heapq.heappush(longest, (-each.msgs / parts[each], at, each))
    return [piece for each in ranges for piece in _cut(each, parts[each])]


def _cut(whole: Range, parts: int) -> list[Range]:
    edges = [whole.start + whole.msgs * at // parts for at in range(parts + 1)]
    return [Range(whole.partition, *pair, whole.anew) for pair in pairwise(edges)]


def shown(partition: int, stream: str, start: int, end: int) -> str:
    """Return offsets as messages name them: ``partition 0 ('flights'), offsets 5 to 9``."""
    offsets = f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
    return f"partition {partition} ('{stream}'), {offsets}"
