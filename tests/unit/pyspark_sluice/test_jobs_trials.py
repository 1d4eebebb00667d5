"""The jobs' pure parts: candidates within bounds, sums over stretches, prefetch, tables, pages."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pyarrow as pa
import pytest

from broker.config.policy_files import parse_policies
from broker.manage.advise.candidates import Candidate, Grid
from broker.manage.advise.replay import Clients
from pyspark_sluice.jobs import page, program, tables, trials
from pyspark_sluice.jobs.connector import options_of
from pyspark_sluice.jobs.trials import Bounds

pytestmark = pytest.mark.flow

BASE = Candidate(1000, 700)


def load(window: int, **more: object) -> dict[str, object]:
    """What a candidate's choice depends on, of one load."""
    row: dict[str, object] = dict.fromkeys(Candidate.__slots__, 0) | {
        "node": "orders",
        "window": window,
        "flow_stop_count": 1000,
        "flow_resume_count": 700,
        "deepest_msgs": 5000,
        "deepest_bytes": 5_000_000,
    }
    return row | more


def trial(candidate: Candidate, window: int = 0, **more: object) -> dict[str, object]:
    """A row of the table of trials."""
    outcome = replace(trials.NOTHING, seconds=10.0, settled=1000, throughput=100.0)
    row = {
        **asdict(candidate),
        **asdict(outcome),
        "node": "orders",
        "window": window,
        "kind": "queue",
        "observed": candidate == BASE,
        "by_size": False,
        "endless": False,
        "clients": json.dumps(asdict(Clients())),
        "out_p99": 1000.0,
        "consumers": 2,
        "recorded_stop_seconds": 1.0,
        "recorded_stops": 2,
    }
    return row | more


def test_bounds_lower_a_stop_and_its_resume_alike() -> None:
    assert Bounds().within(BASE) is BASE
    assert Bounds(count=500).within(BASE) == replace(BASE, flow_stop_count=500, flow_resume_count=350)
    by_size = Candidate(flow_stop_size=8 << 20, flow_resume_size=4 << 20)
    lowered = Bounds(size=1 << 20).within(by_size)
    assert (lowered.flow_stop_size, lowered.flow_resume_size) == (1 << 20, 512 << 10)


def test_candidates_are_those_any_stretch_asks_for() -> None:
    rows = pa.Table.from_pylist([load(0), load(1, deepest_msgs=12_000)])
    found = trials.to_try(rows, Grid(), Bounds()).to_pylist()
    assert any(row["observed"] for row in found)
    assert max(row["flow_stop_count"] for row in found) > 12_000
    bounded = trials.to_try(rows, Grid(), Bounds(count=1500)).to_pylist()
    assert max(row["flow_stop_count"] for row in bounded) == 1500
    assert len({tuple(row.values()) for row in bounded}) == len(bounded)


def test_a_bound_in_messages_is_kept_where_only_bytes_were_limited() -> None:
    seen = {"flow_stop_count": 0, "flow_resume_count": 0, "flow_stop_size": 80 << 20}
    rows = pa.Table.from_pylist([load(0, **seen)])
    assert all(row["by_size"] for row in trials.to_try(rows, Grid(), Bounds()).to_pylist())
    bounded = trials.to_try(rows, Grid(), Bounds(count=1500)).to_pylist()
    assert not any(row["by_size"] for row in bounded)
    assert max(row["flow_stop_count"] for row in bounded) == 1500


def test_several_stretches_are_chosen_for_by_their_sums() -> None:
    """The wide one stops longer in the first stretch and far less in the second."""
    wide = replace(BASE, flow_stop_count=4000, flow_resume_count=2800)
    rows = [
        trial(BASE, 0, stop_seconds=0.0, worst_msgs=1000),
        trial(BASE, 1, stop_seconds=9.0, worst_msgs=1000, recorded_stops=5),
        trial(wide, 0, stop_seconds=0.5, worst_msgs=3000),
        trial(wide, 1, stop_seconds=1.0, worst_msgs=4000, recorded_stops=5),
    ]
    best, endless = trials.best_of(rows)
    assert best.candidate == wide
    assert not endless
    assert (best.outcome.stop_seconds, best.outcome.worst_msgs) == (1.5, 4000)
    (chosen,) = trials.choose(pa.Table.from_pylist(rows)).to_pylist()
    assert (chosen["recorded_stop_seconds"], chosen["recorded_stops"]) == (2.0, 7)
    assert chosen["policy"].splitlines() == [
        '  - match: "orders"',
        "    flow_stop_count: 4000",
        "    flow_resume_count: 2800",
    ]


def test_a_subscription_has_a_policy_of_its_kind() -> None:
    row = trial(BASE, node="news/dash.s", kind="subscription")
    (chosen,) = trials.choose(pa.Table.from_pylist([row])).to_pylist()
    (found,) = parse_policies(f"policies:\n{chosen['policy']}", "policy.yaml").policies
    assert found.of_subscriptions


def test_the_prefetch_is_what_a_consumer_takes_in_two_round_trips() -> None:
    (chosen,) = trials.choose(pa.Table.from_pylist([trial(BASE)])).to_pylist()
    # 500 a second for each of two consumers, twice (1 ms and a turn of 5 ms): less than the least.
    assert chosen["prefetch"] == 10
    (chosen,) = trials.choose(pa.Table.from_pylist([trial(BASE, out_p99=100_000.0)])).to_pylist()
    assert chosen["prefetch"] == 600
    (chosen,) = trials.choose(pa.Table.from_pylist([trial(BASE, out_p99=10e6)])).to_pylist()
    assert chosen["prefetch"] == BASE.consumer_flow_limit


def test_a_table_is_one_list_of_columns() -> None:
    columns = {"name": "string", "parts": "array<double>"}
    assert tables.ddl(columns) == "`name` string, `parts` array<double>"
    found = tables.table(columns, [{"name": "a", "parts": (0.5,), "more": 1}])
    assert found.to_pylist() == [{"name": "a", "parts": [0.5]}]
    assert tables.table(columns, []).num_rows == 0


def test_a_page_escapes_what_it_is_given() -> None:
    text = page.document("<b>", [page.paragraph("<i>"), page.source("<u>"), page.grid(("<h>",), [["1"]])])
    assert not any(mark in text for mark in ("<b>", "<i>", "<u>", "<h>"))


def test_an_error_is_told_without_its_stack() -> None:
    assert program.reason("what is wrong\n\nJVM stacktrace:\n at java") == "what is wrong"
    assert program.reason("\tat x") == "\tat x"


def test_options_come_after_what_a_job_says() -> None:
    from argparse import ArgumentParser

    from pyspark_sluice.jobs.connector import add_broker

    parser = ArgumentParser()
    add_broker(parser)
    args = parser.parse_args(["-b", "amqp://b", "-o", "user=ana", "-o", "passwordEnv=X"])
    assert options_of(args, address="q") == {
        "url": "amqp://b",
        "address": "q",
        "user": "ana",
        "passwordEnv": "X",
    }
    with pytest.raises(SystemExit):
        parser.parse_args(["-o", "user"])


def test_work_that_is_refused_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as wrong:
        program.run("flow_capacity", "", lambda parser: None, lambda spark, args: 0, ["--nothing"])
    assert wrong.value.code == 2
    assert "spark-submit jobs/flow_capacity.py" in capsys.readouterr().err
