"""Records of an owner that stand in the log without those before them, and what is told from them."""

from __future__ import annotations

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.log import Acked, AppendRefused, LogEntry, Unknown
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import GROUPS, MARK, MOST_IN_FLIGHT, TAKEOVER, BrokenRecord, joined
from tests.unit.cluster.written import CELL, Chain


def group_of(text: bytes) -> bytes:
    return joined([text])


def deposed() -> tuple[LogFold, Chain, Chain]:
    """Return a fold at position 2, in the second epoch, its owner and the one before."""
    fold, old = LogFold(CELL), Chain(1)
    fold.feed(1, old.write(TAKEOVER, b"a"))
    new = Chain(2, 0, fold.digest)
    fold.feed(2, new.write(TAKEOVER, b"b"))
    return fold, new, old


def test_a_copy_that_comes_late_behind_a_record_that_counts_is_no_damage() -> None:
    fold, new, old = deposed()
    mark, one, two = new.write(MARK), new.write(GROUPS, group_of(b"one")), new.write(GROUPS, group_of(b"two"))
    # mark, one and two were sent behind 2, 3 and 4; two is late. A deposed owner's record took
    # the mark's place.
    assert not fold.feed(3, old.write(MARK)).counts
    # All are sent again, behind 3, 4 and 5; the late copy of two comes before one does.
    assert fold.feed(4, mark).counts
    assert not fold.feed(5, two).counts
    assert fold.feed(6, one).groups == [b"one"]
    assert fold.feed(7, two).groups == [b"two"]
    assert fold.group == 2


def test_the_pipeline_acknowledges_what_the_fold_counts_there() -> None:
    _, new, old = deposed()
    mark, one, two = new.write(MARK), new.write(GROUPS, group_of(b"one")), new.write(GROUPS, group_of(b"two"))
    pipeline = AppendPipeline(2, 2, 0)
    for data, group in ((mark, 0), (one, 1), (two, 2)):
        pipeline.submit(data, group)
    assert [after for _, after in pipeline.to_send()] == [2, 3, 4]
    for outcome in (AppendRefused(2), Unknown(3), Unknown(4)):
        assert not pipeline.outcome(outcome)
    pipeline.looked([LogEntry(3, old.write(MARK))], is_tail=False)
    pipeline.looked([], is_tail=True)
    assert [after for _, after in pipeline.to_send()] == [3, 4, 5]
    assert pipeline.outcome(Acked(3, 4))
    for outcome in (AppendRefused(4), AppendRefused(5)):
        assert not pipeline.outcome(outcome)
    assert pipeline.look_from == 5
    pipeline.looked([LogEntry(5, two)], is_tail=False)
    pipeline.looked([], is_tail=True)
    assert pipeline.acked_group == 0
    assert pipeline.to_send() == [(one, 5), (two, 6)]


@pytest.mark.parametrize("between", [0, 5, MOST_IN_FLIGHT - 2])
def test_a_stray_is_known_close_behind_another(between: int) -> None:
    fold, new, old = deposed()
    fold.feed(3, old.write(MARK))
    for at in range(between):
        assert fold.feed(4 + at, new.write(MARK)).counts
    new.write(GROUPS, group_of(b"late"))
    assert not fold.feed(4 + between, new.write(GROUPS, group_of(b"stray"))).counts


def test_further_behind_records_are_missing() -> None:
    fold, new, old = deposed()
    fold.feed(3, old.write(MARK))
    for at in range(MOST_IN_FLIGHT - 1):
        fold.feed(4 + at, new.write(MARK))
    new.write(GROUPS, group_of(b"lost"))
    with pytest.raises(BrokenRecord, match="records before it are missing"):
        fold.feed(3 + MOST_IN_FLIGHT, new.write(MARK))
    assert fold.position == 2 + MOST_IN_FLIGHT


def test_a_pipeline_sends_no_more_at_once_than_a_fold_expects() -> None:
    with pytest.raises(ValueError, match="in flight"):
        AppendPipeline(1, 0, 0, MOST_IN_FLIGHT + 1)


def test_a_log_can_begin_where_a_group_is_whole_and_the_record_is_ours() -> None:
    _, new, old = deposed()
    pipeline = AppendPipeline(2, 2, 0)
    parts = [new.write(GROUPS, b"part", part, 3) for part in range(3)]
    for part, data in enumerate(parts):
        pipeline.submit(data, part // 2, is_whole=part == 2)
    pipeline.to_send()
    pipeline.outcome(Acked(2, 3))
    pipeline.outcome(Acked(3, 4))
    assert (pipeline.acked_position, pipeline.whole_position) == (4, 2)
    pipeline.outcome(Acked(4, 5))
    assert (pipeline.acked_position, pipeline.whole_position, pipeline.acked_group) == (5, 5, 1)
    pipeline.submit(new.write(MARK), 1)
    pipeline.to_send()
    pipeline.outcome(AppendRefused(5))
    pipeline.looked([LogEntry(6, old.write(MARK))], is_tail=True)
    assert (pipeline.acked_position, pipeline.whole_position) == (6, 5)
