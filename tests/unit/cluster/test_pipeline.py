"""The append pipeline, in the cases where what came of a record isn't plain."""

from __future__ import annotations

import pytest

from broker.cluster.log import Acked, AppendRefused, EngineFault, LogEntry, Unknown
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import GROUPS, MARK, START, TAKEOVER, encode

CELL = 3
EPOCH = 5
BEHIND = 10


def chain(*kinds: int, epoch: int = EPOCH, group: int = 100) -> list[bytes]:
    """Return records, each chained to the one before; every one of groups is a group."""
    found, digest = [], START
    for at, kind in enumerate(kinds):
        group += kind == GROUPS
        data, digest = encode(kind, CELL, epoch, group, digest, b"%d" % at)
        found.append(data)
    return found


def pipeline_of(records: list[bytes], window: int = 16) -> AppendPipeline:
    """Return a pipeline at position 10, group 100, with these records as groups 101, 102 …"""
    pipeline = AppendPipeline(EPOCH, BEHIND, 100, window)
    for at, data in enumerate(records):
        pipeline.submit(data, 101 + at)
    return pipeline


def afters(pipeline: AppendPipeline) -> list[int]:
    return [after for _, after in pipeline.to_send()]


def test_records_are_sent_each_behind_the_one_before_and_acknowledged_in_order() -> None:
    pipeline = pipeline_of(chain(GROUPS, GROUPS, GROUPS), window=2)
    assert afters(pipeline) == [10, 11]
    assert afters(pipeline) == []
    assert pipeline.outcome(Acked(10, 11))
    assert (pipeline.acked_group, pipeline.acked_position) == (101, 11)
    assert afters(pipeline) == [12]
    assert pipeline.outcome(Acked(11, 12))
    assert pipeline.outcome(Acked(12, 13))
    assert pipeline.is_empty
    assert (pipeline.acked_group, pipeline.pending_bytes) == (103, 0)


def test_acknowledgements_out_of_order_wait_for_those_before_and_renew_no_lease() -> None:
    pipeline = pipeline_of(chain(GROUPS, GROUPS))
    pipeline.to_send()
    assert not pipeline.outcome(Acked(11, 12))
    assert pipeline.acked_group == 100
    assert pipeline.outcome(Acked(10, 11))
    assert pipeline.acked_group == 102


def test_an_acknowledgement_at_another_position_is_a_fault_of_the_engine() -> None:
    pipeline = pipeline_of(chain(GROUPS))
    pipeline.to_send()
    with pytest.raises(EngineFault, match="position 12"):
        pipeline.outcome(Acked(10, 12))
    assert pipeline.acked_group == 100


def test_nothing_is_sent_or_looked_at_until_all_outcomes_are_there() -> None:
    pipeline = pipeline_of(chain(GROUPS, GROUPS))
    pipeline.to_send()
    assert not pipeline.outcome(Unknown(10))
    pipeline.submit(b"third", 103)
    assert (afters(pipeline), pipeline.look_from) == ([], 0)
    pipeline.outcome(Unknown(11))
    assert pipeline.look_from == 11


def test_an_unknown_record_that_is_there_is_acknowledged() -> None:
    records = chain(GROUPS, GROUPS)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    pipeline.outcome(Unknown(11))
    pipeline.looked([LogEntry(11, records[0])], is_tail=True)
    assert pipeline.acked_group == 101
    assert pipeline.to_send() == [(records[1], 11)]


def test_a_copy_that_lands_after_the_end_was_seen_and_all_was_sent_again_is_found() -> None:
    records = chain(GROUPS, GROUPS)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    pipeline.outcome(Unknown(11))
    pipeline.looked([], is_tail=True)
    assert afters(pipeline) == [10, 11]
    # The first copy of the first record was in time, the second copies come behind it.
    pipeline.outcome(AppendRefused(10))
    assert not pipeline.outcome(Acked(11, 12))
    assert pipeline.acked_group == 100
    pipeline.looked([LogEntry(11, records[0]), LogEntry(12, records[1])], is_tail=True)
    assert (pipeline.acked_group, pipeline.acked_position) == (102, 12)
    assert afters(pipeline) == []


def test_a_replica_that_is_behind_says_nothing_of_the_end() -> None:
    records = chain(GROUPS)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    pipeline.looked([], is_tail=False)
    assert (pipeline.look_from, afters(pipeline)) == (11, [])
    pipeline.looked([LogEntry(11, records[0])], is_tail=False)
    assert (pipeline.acked_group, pipeline.look_from) == (101, 12)
    pipeline.looked([], is_tail=True)
    assert pipeline.look_from == 0


def test_a_mark_of_our_own_that_was_refused_for_a_group_that_is_there() -> None:
    records = chain(MARK, GROUPS)
    pipeline = AppendPipeline(EPOCH, BEHIND, 100)
    pipeline.submit(records[0], 100)
    pipeline.submit(records[1], 101)
    pipeline.to_send()
    # The mark's answer was lost, and the engine's client sent it twice.
    pipeline.outcome(AppendRefused(10))
    pipeline.outcome(Acked(11, 12))
    pipeline.looked([LogEntry(11, records[0]), LogEntry(12, records[1])], is_tail=True)
    assert (pipeline.acked_group, pipeline.fenced) == (101, 0)


def test_two_equal_copies_count_as_one() -> None:
    records = chain(GROUPS, GROUPS)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    pipeline.outcome(Unknown(11))
    pipeline.looked([LogEntry(11, records[0]), LogEntry(12, records[0])], is_tail=True)
    assert (pipeline.acked_group, pipeline.acked_position) == (101, 12)
    assert pipeline.to_send() == [(records[1], 12)]


def test_a_take_over_fences_and_acknowledges_nothing_behind_it() -> None:
    records = chain(GROUPS, GROUPS)
    takeover, _ = encode(TAKEOVER, CELL, EPOCH + 1, 100, START)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(AppendRefused(10))
    assert not pipeline.outcome(Acked(11, 12))
    pipeline.looked([LogEntry(11, takeover), LogEntry(12, records[1])], is_tail=True)
    assert (pipeline.fenced, pipeline.acked_group, pipeline.look_from) == (EPOCH + 1, 100, 0)
    pipeline.submit(b"more", 103)
    assert afters(pipeline) == []


def test_a_record_before_the_take_over_is_acknowledged_still() -> None:
    records = chain(GROUPS, GROUPS)
    takeover, _ = encode(TAKEOVER, CELL, EPOCH + 1, 101, START)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    pipeline.outcome(AppendRefused(11))
    pipeline.looked([LogEntry(11, records[0]), LogEntry(12, takeover)], is_tail=True)
    assert (pipeline.fenced, pipeline.acked_group) == (EPOCH + 1, 101)


def test_a_deposed_owners_record_in_our_place_moves_ours_and_those_behind_count_again() -> None:
    records = chain(GROUPS, GROUPS)
    (theirs,) = chain(GROUPS, epoch=EPOCH - 1)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(AppendRefused(10))
    # The second stands behind theirs, not behind the first.
    assert not pipeline.outcome(Acked(11, 12))
    pipeline.looked([LogEntry(11, theirs), LogEntry(12, records[1])], is_tail=True)
    assert (pipeline.acked_group, pipeline.acked_position) == (100, 12)
    assert pipeline.to_send() == [(records[0], 12), (records[1], 13)]
    assert pipeline.outcome(Acked(12, 13))
    assert pipeline.acked_group == 101


def test_a_group_of_parts_is_durable_with_its_last_part() -> None:
    pipeline = AppendPipeline(EPOCH, BEHIND, 100)
    for part, group in enumerate((100, 100, 101)):
        data, _ = encode(GROUPS, CELL, EPOCH, group, START, b"x", part, 3)
        pipeline.submit(data, group)
    pipeline.to_send()
    pipeline.outcome(Acked(12, 13))
    pipeline.outcome(Acked(10, 11))
    assert pipeline.acked_group == 100
    pipeline.outcome(Acked(11, 12))
    assert pipeline.acked_group == 101


@pytest.mark.parametrize("position", [12, 10])
def test_positions_that_are_missing_are_a_fault_of_the_engine(position: int) -> None:
    records = chain(GROUPS)
    pipeline = pipeline_of(records)
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    with pytest.raises(EngineFault):
        pipeline.looked([LogEntry(position, records[0])], is_tail=False)


def test_a_record_that_nobody_wrote_is_a_fault_of_the_engine() -> None:
    pipeline = pipeline_of(chain(GROUPS))
    pipeline.to_send()
    pipeline.outcome(Unknown(10))
    with pytest.raises(EngineFault, match="damaged at position 11"):
        pipeline.looked([LogEntry(11, b"nonsense")], is_tail=False)
