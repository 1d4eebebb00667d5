"""The simulator is the broker's flow control with another clock: its laws hold, its answers repeat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import broker.engine.engine
from broker.cli import main as cli
from broker.config.policy_files import parse_policies
from broker.errors import OperatorError
from broker.manage.advise import replay as room
from broker.manage.advise.candidates import Candidate, Grid, advise, explain, observed, recommended, snippet
from broker.manage.advise.demand import recover
from broker.manage.advise.history import read
from broker.manage.advise.picture import chart, spark, svg
from broker.manage.advise.replay import Clients, Replay, replay
from broker.manage.advise.synthetic import make
from broker.manage.advise.trace import Curve, Trace

pytestmark = pytest.mark.flow

S = 1_000_000_000
BURSTS = Path(__file__).parents[2] / "histories" / "bursts.jsonl"
CLIENTS = Clients(200_000)


def bursts() -> Trace:
    return recover(read([str(BURSTS)]).nodes["orders"])


def constant(wanted: float, taken: float, seconds: float, peak: float = 100_000.0) -> Trace:
    ns = round(seconds * S)
    offered, served = Curve([(0, 0.0), (ns, wanted * seconds)]), Curve([(0, 0.0), (ns, taken * seconds)])
    return Trace("orders", ns, offered, served, peak, ((0, 100),))


# --- the same code, the same laws


def test_what_is_replayed_is_the_brokers_own_engine_gate_and_allocator() -> None:
    subject = Replay(constant(10, 10, 1), Candidate(10, 5).settings(), CLIENTS)
    assert type(subject.engine) is broker.engine.engine.Engine
    assert subject.node is subject.engine.topology.nodes["replayed"]
    assert not any(name in vars(room) for name in ("Gate", "CreditAllocator", "deal", "fair"))


@settings(max_examples=30, deadline=None)
@given(
    stop=st.integers(1, 400),
    resume=st.integers(1, 100),
    window=st.integers(1, 500),
    limit=st.integers(1, 500),
    producers=st.integers(1, 8),
    consumers=st.integers(1, 4),
    skew=st.sampled_from([1, 3, 10]),
    burst=st.integers(1, 200),
    seed=st.integers(0, 1000),
)
def test_no_candidate_overshoots_and_no_message_is_lost(
    stop: int,
    resume: int,
    window: int,
    limit: int,
    producers: int,
    consumers: int,
    skew: int,
    burst: int,
    seed: int,
) -> None:
    resume = stop * resume // 100 or 1
    trace = make((900, burst), (700, 1), 1.0, 100, producers=producers, consumers=consumers, seed=seed)
    candidate = Candidate(stop, resume, producer_window=window, consumer_flow_limit=limit)
    subject = Replay(trace, candidate.settings(), Clients(300_000, skew=skew))
    outcome = subject.run()
    assert outcome.overshoot_msgs == 0
    assert outcome.worst_msgs <= stop
    sent = sum(sender.sent for sender in subject.senders)
    # What came on credit that was taken back meanwhile waits outside the queue, as on the wire.
    assert sent == subject.node.received + subject.node.allocator.parked_msgs
    assert subject.node.received == outcome.settled + subject.node.gate.depth_msgs
    assert sent <= trace.offered.total
    assert 0 <= outcome.stop_seconds <= outcome.seconds
    assert all(len(taker.held) <= limit for taker in subject.takers)


@settings(max_examples=20, deadline=None)
@given(stop=st.integers(2_000, 60_000), size=st.integers(50, 1024), seed=st.integers(0, 100))
def test_no_candidate_overshoots_in_bytes(stop: int, size: int, seed: int) -> None:
    """Up to the size a first credit reserves; beyond it the excess is what was misjudged, as on the wire."""
    trace = make((900, 20), (700, 1), 1.0, size, producers=3, seed=seed)
    outcome = replay(trace, Candidate(flow_stop_size=stop, flow_resume_size=stop // 2).settings(), CLIENTS)
    assert outcome.worst_bytes <= max(stop, size)


def test_a_load_of_many_messages_is_played_in_grains_that_still_never_overshoot() -> None:
    trace = constant(400_000, 300_000, 5.0, peak=900_000.0)
    outcome = replay(trace, Candidate(10_000, 5_000).settings(), CLIENTS)
    assert outcome.grain > 1
    assert outcome.overshoot_msgs == 0
    assert outcome.worst_msgs <= 10_000
    assert outcome.throughput == pytest.approx(300_000, rel=0.02)


# --- what can be computed by hand


def test_a_steady_overload_stops_for_the_part_that_cannot_be_taken() -> None:
    """Open (stop - resume) / (send - take), closed (stop - resume) / take: 4,000 against 1,000 is 3/4."""
    outcome = replay(constant(4_000, 1_000, 40.0, peak=4_000.0), Candidate(1000, 500).settings(), CLIENTS)
    assert outcome.stop_seconds == pytest.approx(0.75 * (40 - 1000 / 3000), rel=0.03)
    assert outcome.throughput == pytest.approx(1_000, rel=0.01)


def test_less_than_can_be_taken_never_stops() -> None:
    outcome = replay(constant(900, 1_000, 10.0), Candidate(100, 50).settings(), CLIENTS)
    assert (outcome.stop_seconds, outcome.stops) == (0, 0)
    assert outcome.worst_msgs < 20


def test_a_window_smaller_than_the_round_trip_needs_costs_throughput() -> None:
    """10 messages a round trip of 20 ms are 500 a second."""
    slow = Clients(20_000_000)
    narrow = replay(constant(900, 1000, 10.0), Candidate(1000, 500, consumer_flow_limit=10).settings(), slow)
    wide = replay(constant(900, 1000, 10.0), Candidate(1000, 500).settings(), slow)
    assert narrow.throughput < 510
    assert wide.throughput == pytest.approx(900, rel=0.02)


# --- a recorded history


def test_the_stops_of_a_recorded_history_come_out_again() -> None:
    trace = bursts()
    now = observed(trace)
    assert now is not None
    assert trace.measured is not None
    outcome = replay(trace, now.settings(), explain(trace, CLIENTS.rtt_ns))
    assert outcome.stop_seconds == pytest.approx(trace.measured.stop_seconds, rel=0.05)
    assert outcome.stops == pytest.approx(trace.measured.stops, abs=2)


def test_candidates_of_a_recorded_history_and_the_one_recommended() -> None:
    """Bursts of 5,000 fit below 5,500; half of the stops go with a threshold of 4,000."""
    grid = Grid(stop_counts=(1000, 4000, 5500, 20_000), resume_counts=(0.5,), windows=(1000,))
    advice = advise(bursts(), grid, CLIENTS)
    found = {each.candidate.flow_stop_count: each.outcome for each in advice.trials}
    assert found[1000].stop_seconds > found[4000].stop_seconds > found[5500].stop_seconds == 0
    assert advice.best.candidate.flow_stop_count == 5500
    assert advice.trials[0].observed
    assert not advice.endless
    assert 4_800 < advice.unlimited.worst_msgs <= 5_000


def test_an_overload_without_end_gets_the_smallest_threshold_that_keeps_consumers_busy() -> None:
    advice = advise(constant(3_000, 1_000, 20.0), Grid(stop_counts=(100, 1000, 60_000)), CLIENTS)
    assert advice.endless
    assert advice.best.candidate.flow_stop_count == 100
    assert advice.best.outcome.throughput == pytest.approx(1_000, rel=0.02)


def test_of_equals_the_one_that_changes_least_is_recommended() -> None:
    trace = bursts()
    trials = advise(trace, Grid(stop_counts=(1000,), resume_counts=(0.7,)), CLIENTS).trials
    assert recommended(trials).candidate == observed(trace)


def test_the_same_seed_gives_the_same_answer() -> None:
    def answer(seed: int) -> list[object]:
        trace = make((500, 50), (480, 1), 1.0, 100, producers=2, seed=seed)
        return [
            (each.candidate, each.outcome) for each in advise(trace, Grid((100,), (0.5,)), CLIENTS).trials
        ]

    assert answer(1) == answer(1)
    assert answer(1) != answer(2)


def test_the_snippet_is_a_policy_that_resolves_to_what_was_tried() -> None:
    candidates = [Candidate(900, 500, producer_window=100), Candidate(0, 0, 512 << 10, 256 << 10)]
    for candidate in candidates:
        trial = advise(constant(10, 10, 1.0), Grid((900,)), CLIENTS).trials[0]
        text = snippet('or"ders', type(trial)(candidate, trial.outcome), by_size=candidate.flow_stop_size > 0)
        found = parse_policies(text, "advice").effective('or"ders').settings
        assert (found.flow_stop_count, found.flow_resume_count) == (
            candidate.flow_stop_count,
            candidate.flow_resume_count,
        )
        assert found.producer_window == candidate.producer_window
        if candidate.flow_stop_size:
            assert (found.flow_stop_size, found.flow_resume_size) == (512 << 10, 256 << 10)


# --- pictures and the verb


def test_pictures_show_depth_thresholds_and_the_time_the_gate_was_closed() -> None:
    advice = advise(bursts(), Grid(stop_counts=(1000, 4000), resume_counts=(0.5,)), CLIENTS)
    text = svg(advice)
    assert text.count("<polygon") == len(advice.trials)
    assert text.count("stroke-width") == 1
    assert "stop 4,000, resume 2,000" in text
    lines = chart(advice.best, by_size=False).splitlines()
    assert lines[0].lstrip().startswith("stop 4,000 |")
    assert "█" in lines[-2]
    assert spark([0, 5, 10], 10, 3) == " ▄█"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main(["advise", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_verb_prints_a_table_a_picture_and_a_policy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "depth.svg"
    words = (str(BURSTS), "--stop-count", "1000,5500", "--resume-count", "50%", "--svg", str(file))
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    assert "=>        5,500   2,750" in out
    assert "recorded  1,000     700" in out
    assert out.endswith('match: "orders"\n    flow_stop_count: 5500\n    flow_resume_count: 2750\n')
    assert file.read_text().startswith("<svg ")


def test_the_verb_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--arrivals", "400:20", "--settles", "300", "--seconds", "2s", "--stop-count", "50", "--json")
    status, out, _ = run(capsys, *words)
    found = json.loads(out)
    assert status == 0
    assert found["recommended"]["settings"]["flow_stop_count"] == 50
    assert {each["overshoot_msgs"] for each in found["candidates"]} == {0}
    assert run(capsys, *words)[1] == out


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ((), 2, "name a HISTORY, or --arrivals and --settles"),
        (("--arrivals", "10"), 2, "needs both"),
        (("{empty}",), 1, "the history is empty"),
        (("{bad}",), 2, "bad.jsonl:1: no JSON"),
        (("nowhere.jsonl",), 1, "nowhere.jsonl: No such file"),
        ((str(BURSTS), "--node", "invoices"), 1, "tells nothing of 'invoices'; of: orders"),
        ((str(BURSTS), "--stop-count", "10", "--stop-size", "1 KB"), 2, "not both"),
        (
            (str(BURSTS), "--stop-count", "10", "--resume-count", "20"),
            1,
            "resume of 20 is above the stop of 10",
        ),
        ((str(BURSTS), "--resume-count", "0%"), 2, "no percentage from 1 to 99"),
    ],
)
def test_what_makes_no_sense_is_told(
    words: tuple[str, ...], status: int, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.jsonl").write_text("{\n")
    files = {"empty": tmp_path / "empty.jsonl", "bad": tmp_path / "bad.jsonl"}
    found = run(capsys, *(word.format(**files) for word in words))
    assert (found[0], found[1]) == (status, "")
    assert told in found[2]


def test_several_nodes_need_a_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = BURSTS.read_text()
    file = tmp_path / "both.jsonl"
    file.write_text(text + text.replace('"orders"', '"bills"'))
    status, _, err = run(capsys, str(file))
    assert status == 2
    assert "say --node with one of: bills, orders" in err


def test_a_history_without_length_is_refused() -> None:
    with pytest.raises(OperatorError, match="no length"):
        replay(constant(1, 1, 0.0), Candidate(10, 5).settings(), CLIENTS)
