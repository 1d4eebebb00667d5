"""Where a standby begins in a log that has records which count for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.log import LogUnavailable
from broker.cluster.places import SNAPSHOT_OF, LogPlaces
from broker.cluster.records import (
    GROUPS,
    MARK,
    SNAPSHOT_BEGIN,
    SNAPSHOT_END,
    SNAPSHOT_PIECE,
    TAKEOVER,
    BrokenRecord,
    joined,
)
from tests.cluster.memory_log import MemoryEngine, MemoryLog
from tests.unit.cluster.written import CELL, Chain, SoundLog


def places(records: list[bytes]) -> LogPlaces:
    return LogPlaces(SoundLog(*records), CELL, lambda: False)


def resumed(records: list[bytes], epoch: int, group: int) -> LogFold | None:
    return places(records).resumed(1, len(records), epoch, group)


def one_group(chain: Chain) -> bytes:
    return chain.write(GROUPS, joined([b"%d of %d" % (chain.group + 1, chain.epoch)]))


@pytest.fixture(params=[0, 3, 200], ids=["short", "some", "long"])
def history(request: pytest.FixtureRequest) -> tuple[list[bytes], int, Chain]:
    """Return a log of two epochs, the last group of the first, and the owner of the second.

    Behind that are a group that the deposed owner appended in vain, and another with the same number.
    """
    old = Chain(1)
    records = [old.write(TAKEOVER, b"a")]
    for _ in range(request.param):
        records += [one_group(old), old.write(MARK)]
    before = old.group
    new = Chain(2, old.group, old.digest)
    records.append(new.write(TAKEOVER, b"b"))
    records.append(one_group(old))
    for _ in range(request.param):
        records.append(new.write(MARK))
    payload = joined([b"whole"])
    records += [new.write(GROUPS, payload[:4], 0, 2), new.write(GROUPS, payload[4:], 1, 2)]
    for _ in range(request.param):
        records += [new.write(MARK), one_group(new)]
    return records, before, new


def counted(records: list[bytes]) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield of each record that completes a group: position, epoch, group, digest."""
    fold = LogFold(CELL)
    for position, data in enumerate(records, 1):
        if fold.feed(position, data).groups:
            yield position, fold.epoch, fold.group, fold.digest


def test_a_directory_resumes_behind_the_record_that_counts(
    history: tuple[list[bytes], int, Chain], tmp_path: Path
) -> None:
    records, _, _ = history
    for position, epoch, group, digest in counted(records):
        fold = resumed(records, epoch, group)
        assert fold is not None
        assert (fold.position, fold.epoch, fold.group, fold.digest) == (position, epoch, group, digest)
        for at in range(position + 1, min(len(records), position + 100) + 1):
            fold.feed(at, records[at - 1])


def test_a_deposed_owners_directory_does_not_resume(
    history: tuple[list[bytes], int, Chain], tmp_path: Path
) -> None:
    records, before, _ = history
    # Its journal has a group that the log has from another owner.
    assert resumed(records, 1, before + 1) is None
    # And one that the log doesn't have at all.
    assert resumed(records, 1, before + 1000) is None


def test_a_directory_within_a_record_of_several_groups_resumes_before_it(tmp_path: Path) -> None:
    chain = Chain(1)
    records = [chain.write(TAKEOVER), one_group(chain)]
    chain.group += 2
    records += [chain.write(GROUPS, joined([b"2", b"3", b"4"])), chain.write(MARK)]
    fold = resumed(records, 1, 3)
    assert fold is not None
    assert fold.position == 2
    assert fold.feed(3, records[2]).groups == [b"2", b"3", b"4"]
    assert fold.feed(4, records[3]).counts


def trimmed(records: list[bytes], first: int, epoch: int, group: int) -> LogFold | None:
    """The fold of a directory at a log that begins with one of its positions."""
    engine = MemoryEngine()
    engine.records = list(records)
    log = MemoryLog(engine)
    log.trim(first)
    found = LogPlaces(log, CELL, lambda: False).resumed(first, len(records), epoch, group)
    log.close()
    return found


@pytest.mark.parametrize("marks", [0, 5, 600])
def test_a_directory_resumes_nowhere_in_a_log_that_lacks_groups_behind_it(marks: int) -> None:
    chain = Chain(1)
    records = [chain.write(TAKEOVER), *(one_group(chain) for _ in range(40))]
    records += [chain.write(MARK) for _ in range(marks)]
    for first in range(2, len(records) + 1):
        whole = min(first - 1, 40)
        for group in range(1, 41):
            fold = trimmed(records, first, 1, group)
            # What the first record has, or says that there was.
            reaches = whole - 1 if first <= 41 else whole
            if group < reaches:
                assert fold is None, (first, group)
            elif fold is not None:
                assert fold.position in (group, group + 1, first - 1, first), (first, group)
                for at in range(fold.position + 1, len(records) + 1):
                    assert fold.feed(at, records[at - 1]).counts
                assert fold.group == 40
        if marks == 600:
            break


def test_what_was_read_of_a_log_until_it_was_given_up_is_taken_by_nobody_for_all_of_it() -> None:
    chain = Chain(1)
    records = [chain.write(TAKEOVER), *(one_group(chain) for _ in range(5))]
    stopped = LogPlaces(SoundLog(*records), CELL, lambda: True)
    with pytest.raises(LogUnavailable, match="given up"):
        list(stopped.entries(1, len(records)))


def snapshot_in(records: list[bytes]) -> tuple[int, int, list[bytes]] | None:
    begun = places(records).snapshot(1, len(records))
    return None if begun is None else (begun[0], begun[1], list(begun[2]))


def test_the_newest_whole_snapshot_is_loaded_for_groups_behind_an_older_one_may_be_gone() -> None:
    chain = Chain(1)
    records = [chain.write(TAKEOVER)]
    for number in (1, 2, 3):
        records.append(chain.write(SNAPSHOT_BEGIN, SNAPSHOT_OF.pack(1, number), of=0))
        records.append(chain.write(SNAPSHOT_PIECE, b"piece %d" % number, of=0))
        if number < 3:
            records.append(chain.write(SNAPSHOT_END, of=0))
    assert snapshot_in(records) == (1, 2, [b"piece 2"])


def test_a_snapshot_is_loaded_without_pieces_that_count_for_nobody(tmp_path: Path) -> None:
    old = Chain(1)
    records = [old.write(TAKEOVER)]
    new = Chain(2, 0, old.digest)
    records.append(new.write(TAKEOVER))
    begin = new.write(SNAPSHOT_BEGIN, SNAPSHOT_OF.pack(2, 0), of=0)
    pieces = [new.write(SNAPSHOT_PIECE, b"piece %d" % number, of=0) for number in range(3)]
    end = new.write(SNAPSHOT_END, of=0)
    # The deposed owner's mark took the first piece's place; the others and the end are sent twice.
    records += [begin, old.write(MARK), *pieces[1:], end, *pieces, end]
    assert snapshot_in(records) == (2, 0, [b"piece 0", b"piece 1", b"piece 2"])


def test_the_parts_of_a_piece_are_put_together_and_a_missing_one_is_found() -> None:
    chain = Chain(1)
    records = [
        chain.write(TAKEOVER),
        chain.write(SNAPSHOT_BEGIN, SNAPSHOT_OF.pack(1, 0), of=0),
        chain.write(SNAPSHOT_PIECE, b"large ", 0, 2, of=0),
        chain.write(MARK),
        chain.write(SNAPSHOT_PIECE, b"piece", 1, 2, of=0),
        chain.write(SNAPSHOT_PIECE, b"small", of=0),
        chain.write(SNAPSHOT_END, of=0),
    ]
    assert snapshot_in(records) == (1, 0, [b"large piece", b"small"])
    with pytest.raises(BrokenRecord, match="part 1 of a piece stands where part 0 is next"):
        list(places(records).pieces(2, len(records), {5, 6}))


def test_the_pieces_of_an_earlier_snapshot_are_not_loaded_with_the_newest(tmp_path: Path) -> None:
    chain = Chain(1)
    records = [chain.write(TAKEOVER)]
    for number in range(2):
        records += [
            chain.write(SNAPSHOT_BEGIN, SNAPSHOT_OF.pack(1, 0), of=0),
            chain.write(SNAPSHOT_PIECE, b"of %d" % number, of=0),
            chain.write(SNAPSHOT_END, of=0),
        ]
    assert snapshot_in(records) == (1, 0, [b"of 1"])
