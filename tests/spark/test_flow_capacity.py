"""flow_capacity: the same advice as ``sluice advise`` gives, from executors; and what came of applying it."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from bench.capacity import ADDRESS, SAMPLES, policies, verify
from bench.departures import Replay
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.config.policy_files import parse_policies
from broker.manage.advise.candidates import Candidate, Grid, advise, explain, observed
from broker.manage.advise.demand import recover
from broker.manage.advise.history import read
from pyspark_sluice.jobs import events, flow_capacity, loads
from tests.wire.conftest import StartBroker, wait_until

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

HISTORY = Path(__file__).parents[1] / "unit/histories/bursts.jsonl"
# For tests of how a history is read: a few candidates show a difference in the load as well as all of them.
ONE_SHAPE = ("--resume-count", "50%", "--producer-window", "100", "--consumer-limit", "500")
FEW = ("--stop-count", "300,600", *ONE_SHAPE)
NODE, RTT_NS = "orders", 1_000_000
NAMES = Candidate.__slots__


def rows(out: Path, name: str) -> list[dict[str, object]]:
    """One of the job's tables."""
    return list(pq.read_table(out / name).to_pylist())


def settings(row: dict[str, object]) -> dict[str, object]:
    return {name: row[name] for name in NAMES}


def sized(history: Path, out: Path, *more: str) -> list[dict[str, object]]:
    """What the job chose."""
    assert flow_capacity.main([str(history), "--out", str(out), *more]) == 0
    return rows(out, "choices")


def test_executors_recommend_what_one_process_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one node and one stretch it is the same advice: the same replays, the same choice."""
    from pyspark.sql.classic.dataframe import DataFrame

    collect = DataFrame.collect

    def one_row(self: DataFrame) -> list[Row]:
        found = collect(self)
        assert len(found) <= 1, "rows were collected to the driver"
        return found

    monkeypatch.setattr(DataFrame, "collect", one_row)
    (chosen,) = sized(HISTORY, tmp_path / "out")
    trace = recover(read([str(HISTORY)]).nodes[NODE])
    expected = advise(trace, Grid(), explain(trace, RTT_NS))
    assert settings(chosen) == {name: getattr(expected.best.candidate, name) for name in NAMES}
    assert chosen["stop_seconds"] == pytest.approx(expected.best.outcome.stop_seconds, rel=0.01, abs=0.01)
    tried = {tuple(settings(row).values()) for row in rows(tmp_path / "out", "trials")}
    assert tried == {tuple(getattr(t.candidate, name) for name in NAMES) for t in expected.trials}
    (load,) = rows(tmp_path / "out", "loads")
    assert trace.measured is not None
    assert (load["stops"], load["settled"]) == (trace.measured.stops, trace.measured.settled)
    assert 0 < float(str(load["stopped_share"])) < 1
    assert float(str(load["in_p50"])) <= float(str(load["in_p95"])) <= float(str(load["in_p99"]))


def test_what_it_leaves_is_a_policy_and_a_page(spark: SparkSession, tmp_path: Path) -> None:
    (chosen,) = sized(HISTORY, tmp_path / "out", "--max-count", "800", *ONE_SHAPE)
    text = (tmp_path / "out/policy.yaml").read_text()
    (policy,) = parse_policies(text, "policy.yaml").policies
    assert policy.pattern.text == NODE
    assert 0 < int(str(chosen["flow_stop_count"])) <= 800
    page = (tmp_path / "out/report.html").read_text()
    assert "<svg" in page
    assert f"flow_stop_count: {chosen['flow_stop_count']}" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_parquet_and_damaged_lines(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(f'no event\n{HISTORY.read_text()}{{"v": 2, "event": "sample"}}\n{{"v": 1, "ev')
    plain = sized(HISTORY, tmp_path / "plain", *FEW)
    capsys.readouterr()
    assert sized(damaged, tmp_path / "a", *FEW) == plain
    assert "3 lines are no events and are passed over" in capsys.readouterr().err
    spark.read.json(str(HISTORY)).write.parquet(str(tmp_path / "events.parquet"))
    assert sized(tmp_path / "events.parquet", tmp_path / "b", *FEW) == plain
    # What comes twice, as after a failure of the stream, counts once.
    twice = tmp_path / "twice.jsonl"
    twice.write_text(HISTORY.read_text() * 2)
    assert sized(twice, tmp_path / "c", *FEW) == plain
    # What goes with a connection is nobody's to size.
    passing = tmp_path / "passing.jsonl"
    passing.write_text(HISTORY.read_text() + HISTORY.read_text().replace(f'"{NODE}"', '"$temporary/a/1"'))
    assert sized(passing, tmp_path / "d", *FEW) == plain


def test_stretches_are_tried_under_the_same_candidates(spark: SparkSession, tmp_path: Path) -> None:
    (chosen,) = sized(HISTORY, tmp_path / "out", "--per", "3s")
    found = sorted(rows(tmp_path / "out", "loads"), key=lambda row: int(str(row["window"])))
    assert len(found) > 1
    told = read([str(HISTORY)]).nodes[NODE]
    assert sum(int(str(row["received"])) for row in found) == sum(each.received for each in told.samples)
    by_window: dict[object, set[tuple[object, ...]]] = {}
    for row in rows(tmp_path / "out", "trials"):
        by_window.setdefault(row["window"], set()).add(tuple(settings(row).values()))
    assert len(by_window) == len(found)
    assert all(tried == by_window[found[0]["window"]] for tried in by_window.values())
    assert tuple(settings(chosen).values()) in by_window[found[0]["window"]]


def test_a_history_of_nothing_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "none.jsonl"
    empty.write_text("nothing\n")
    assert flow_capacity.main([str(empty), "--out", str(tmp_path / "out")]) == 1
    assert "no event of version 1" in capsys.readouterr().err
    assert flow_capacity.main([str(HISTORY), "--out", str(tmp_path / "out"), "--node", "no%"]) == 1
    assert "no sample" in capsys.readouterr().err


def test_a_load_survives_its_bytes() -> None:
    trace = recover(read([str(HISTORY)]).nodes[NODE])
    again = loads.unpacked(loads.packed(trace))
    assert observed(again) == observed(trace)
    assert again.sizes == trace.sizes
    assert again.measured == trace.measured
    at = [trace.duration_ns * part // 10 for part in range(11)]
    assert [again.offered.at(each) for each in at] == pytest.approx([trace.offered.at(each) for each in at])
    assert [again.served.at(each) for each in at] == pytest.approx([trace.served.at(each) for each in at])


@pytest.mark.timeout(600)
def test_what_it_recommends_does_what_it_says(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """A shorter ``python -m bench.capacity``: recorded, recommended by spark-submit, applied, measured.

    How near the prediction is, that says, on a machine where nothing else runs; here it is what is done.
    """
    broker = start_broker(config=SAMPLES, policies=policies(5000))
    what = Replay(broker.url, ADDRESS, days=4, day_s=3.0, copies=5, rate=1600.0)
    data = broker.config_file.parent / "data"
    found = verify(broker.url, data, tmp_path, what, ("--node", ADDRESS, "--max-count", "900"))
    print(found.told())
    with Management(broker.url) as management:
        node = management.call("READ", "org.sluice.queue", ADDRESS).body
    assert isinstance(node, dict)
    assert node["flow_stop_count"] == found.settings["flow_stop_count"] <= 900
    assert node["flow_resume_count"] == found.settings["flow_resume_count"]
    assert found.recorded.stops == 0 < found.measured.stops
    assert found.predicted_s > 0


@pytest.mark.timeout(400)
def test_the_topic_is_followed(spark: SparkSession, start_broker: StartBroker, tmp_path: Path) -> None:
    """The events of a running broker: the history grows by them and is sized, less often than it is read."""
    broker = start_broker(config="events:\n  sample_interval: 100 ms\n")
    out = tmp_path / "out"
    sent: list[int] = []

    def feed() -> None:
        try:
            wait_until(lambda: _has_begun(spark), 120, "the topic to be followed")
            # Again where each batch took so long that each was sized.
            while not sent or not _is_sized_less_often(out):
                assert len(sent) < 8, "the history is sized as often as it is read"
                # Over several samples: of a load that is over within one there is nothing to replay.
                for _ in range(6):
                    exchange(broker.url, 50)
                    time.sleep(0.25)
                sent.append(300)
                wait_until(
                    lambda: _received(out) == sum(sent) and _is_whole(out), 120, "all messages to be sized"
                )
        finally:
            for query in spark.streams.active:
                query.stop()

    with ThreadPoolExecutor(1) as feeder:
        fed = feeder.submit(feed)
        assert flow_capacity.main([broker.url, "--out", str(out), "--every", "4s"]) == 0
        fed.result()
    assert list((out / "arrived").glob("*.parquet")) == []
    told = events.read(spark, str(out / "history"), "parquet")
    heads = [json.loads(row["line"]) for row in told.collect()]
    assert {head["event"] for head in heads} <= set(events.EVENTS)
    of_orders = [(head["seq"], head.get("received", 0)) for head in heads if head["node"] == "orders"]
    assert sum(count for _, count in of_orders) == sum(sent)
    assert len(dict(of_orders)) == len(of_orders), "each event is in the history once"
    assert [row["node"] for row in rows(out, "choices")] == ["orders"]


def _received(out: Path) -> int:
    """How many messages the last loads tell of; 0 while they are being written."""
    try:
        return sum(int(str(row["received"])) for row in rows(out, "loads"))
    except (OSError, ValueError):
        return 0


def _is_whole(out: Path) -> bool:
    """Whether the page, which is written last, is of these loads."""
    try:
        return (out / "report.html").stat().st_mtime_ns > (out / "loads/_SUCCESS").stat().st_mtime_ns
    except OSError:
        return False


def _is_sized_less_often(out: Path) -> bool:
    """Whether the history has fewer files, one for each time that it was sized, than batches were read."""
    sized, read_ = (out / "history").glob("*.parquet"), (out / "checkpoint/commits").glob("[0-9]*")
    return len(list(sized)) < len(list(read_))


def _has_begun(spark: SparkSession) -> bool:
    return any(query.lastProgress is not None for query in spark.streams.active)


def exchange(url: str, count: int) -> None:
    """So many messages through a queue."""
    with Connection(url) as connection:
        sender, receiver = connection.sender("orders"), connection.receiver("orders")
        for _ in range(count):
            sender.send(sections.text_body("something"))
        taken = 0
        while taken < count:
            taken += len(receiver.take(count, 20.0))
