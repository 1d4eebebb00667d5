"""The reader of histories: order, restarts, what breaks off, and faults by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.errors import OperatorError
from broker.manage.advise.demand import recover
from broker.manage.advise.history import HistoryError, read

pytestmark = pytest.mark.flow

S = 1_000_000_000
BURSTS = Path(__file__).parents[2] / "histories" / "bursts.jsonl"


def sample(seq: int, at_s: float, **fields: object) -> str:
    line: dict[str, object] = {
        "v": 1,
        "seq": seq,
        "time": f"2026-01-01T00:{int(at_s) // 60:02d}:{at_s % 60:06.3f}Z",
        "mono_ns": round(at_s * S),
        "event": "sample",
        "node": "orders",
        "interval_ms": 1000.0,
        "received": 100,
        "received_bytes": 10_000,
        "settled": 100,
        "depth_msgs": 0,
        "depth_bytes": 0,
        "state": "open",
        "stopped_count": 0,
        "stopped_total_ms": 0.0,
        "producers": 1,
        "consumers": 1,
    }
    return json.dumps(line | fields) + "\n"


def test_rotated_files_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    for name, seq in (("events.jsonl.2", 1), ("events.jsonl.1", 2), ("events.jsonl", 3)):
        (tmp_path / name).write_text(sample(seq, float(seq), received=seq))
    history = read([str(tmp_path)]).nodes["orders"]
    assert [each.received for each in history.samples] == [1, 2, 3]
    assert [each.at_ns for each in history.samples] == [0, S, 2 * S]


def test_a_life_of_the_broker_follows_the_one_before_by_the_wall_clock(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    again = sample(1, 5.0, mono_ns=7)  # the machine was started anew: its clock begins at 0
    file.write_text(sample(1, 1.0) + sample(2, 2.0) + again)
    assert [each.at_ns for each in read([str(file)]).nodes["orders"].samples] == [0, S, 4 * S]


def test_faults_are_told_by_file_and_line_and_all_at_once(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    lines = [
        sample(1, 1.0),
        "{not json\n",
        sample(2, 2.0, received=-1),
        sample(3, 3.0, v=2),
        sample(4, 4.0, interval_ms="1 s"),
        "[]\n",
        sample(5, 5.0, node=7),
        "\xff\n",
    ]
    file.write_bytes("".join(lines).encode("latin-1"))
    with pytest.raises(HistoryError) as caught:
        read([str(file)])
    assert list(caught.value.problems) == [
        f"{file}:2: no JSON: Expecting property name enclosed in double quotes at column 2",
        f"{file}:3: sample: received is -1, not a whole number of 0 or more",
        f"{file}:4: this reads version 1 of the schema, not 2",
        f'{file}:5: sample: interval_ms is "1 s", not a number of 0 or more',
        f"{file}:6: expected an object",
        f"{file}:7: sample: no node",
        f"{file}:8: no JSON: not UTF-8 text, or nested too deep",
    ]


def test_a_last_line_that_breaks_off_is_passed_over_and_told(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(sample(1, 1.0) + sample(2, 2.0)[:50])
    archive = read([str(file)])
    assert len(archive.nodes["orders"].samples) == 1
    assert archive.notes == [f"{file}:2: the last line breaks off and is passed over"]


def test_other_events_and_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    other = json.dumps({"v": 1, "seq": 2, "time": "", "mono_ns": 5, "event": "revoked", "node": "orders"})
    file.write_text(sample(1, 1.0, colour="blue") + other + "\n\n")
    assert list(read([str(file)]).nodes) == ["orders"]


def test_a_stop_by_a_budget_is_of_no_node_and_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    budget = {"event": "stopped", "node": None, "reason": "budget", "budget": "memory_limit"}
    file.write_text(sample(1, 1.0) + sample(2, 2.0, **budget) + sample(3, 3.0, **budget))
    archive = read([str(file)])
    assert archive.nodes["orders"].turns == []
    assert archive.notes == ["a budget of the whole broker stopped producers: that is in no prediction"]


def test_a_file_or_a_history_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"nowhere\.jsonl: No such file"):
        read([str(tmp_path / "nowhere.jsonl")])
    with pytest.raises(OperatorError, match=r"no events\.jsonl in this folder"):
        read([str(tmp_path)])


# --- the load behind it


def test_bursts_are_found_though_they_began_between_two_samples() -> None:
    """5,000 messages every 4 s, as fast as they were let in; the consumer took 2,000 a second."""
    trace = recover(read([str(BURSTS)]).nodes["orders"])
    assert trace.offered.total == pytest.approx(10_000, rel=0.02)
    # All of a burst was wanted at once, though 2 s passed before all of it was received.
    first = [trace.offered.at(round(s * S)) for s in (0.5, 2.0, 4.0)]
    assert max(first) - min(first) < 5_200
    begin_ns = next(at_ns for at_ns in range(0, 8 * S, S // 100) if trace.offered.at(at_ns) > 50)
    assert trace.offered.at(begin_ns + S // 10) == pytest.approx(5_000, rel=0.02)
    busy = trace.served.at(begin_ns + 2 * S) - trace.served.at(begin_ns)
    assert busy / 2 == pytest.approx(2_000, rel=0.03)
    assert trace.measured is not None
    assert trace.measured.stops == 28


def steady(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(lines))
    return file


def test_what_producers_wanted_goes_on_while_they_are_stopped_and_ends_with_what_they_sent(
    tmp_path: Path,
) -> None:
    """1,000 a second come; nothing is taken from 2 s to 4 s; stopped at 1,000 from 3 s to 4 s."""

    def gate(seq: int, at_s: float, event: str, depth: int) -> str:
        return sample(seq, at_s, event=event, depth_msgs=depth, depth_bytes=depth * 100, reason="count")

    limits: dict[str, object] = {"stop_msgs": 1000, "resume_msgs": 500}
    stopped: dict[str, object] = {"state": "stopped", "stopped_count": 1, "stopped_total_ms": 1000.0}
    file = steady(
        tmp_path,
        sample(1, 1.0, received=1000, settled=1000, **limits),
        sample(2, 2.0, received=1000, settled=1000, **limits),
        gate(3, 3.0, "stopped", 1000),
        sample(4, 3.0, received=1000, settled=0, depth_msgs=1000, state="stopped", stopped_count=1, **limits),
        sample(5, 4.0, received=0, settled=0, depth_msgs=1000, blocked_producers=1, **stopped, **limits),
        gate(6, 4.25, "opened", 499),
        sample(
            7, 5.0, received=2000, settled=2000, depth_msgs=1000, stopped_count=1, stopped_total_ms=1250.0
        ),
    )
    trace = recover(read([str(file)]).nodes["orders"])
    wanted = [round(trace.offered.at(s * S)) for s in (1, 2, 3, 4, 5)]
    assert wanted[:4] == [1000, 2000, 3000, 4000]
    assert wanted[4] == 5000
    taken = trace.served.at(3 * S) - trace.served.at(2 * S)
    assert taken == 0


def test_without_a_sample_there_is_nothing_to_replay(tmp_path: Path) -> None:
    line = {"v": 1, "seq": 1, "time": "", "mono_ns": 1, "event": "stopped", "node": "orders"}
    file = steady(tmp_path, json.dumps(line | {"depth_msgs": 1, "depth_bytes": 1}) + "\n")
    with pytest.raises(OperatorError, match="no sample"):
        recover(read([str(file)]).nodes["orders"])
