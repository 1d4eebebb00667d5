"""What the benchmark says of its figures, and the measuring sticks it holds beside them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench import barelog, port, slowdisk
from bench.__main__ import arguments, pace_of
from bench.report import lines
from bench.scenarios import FULL, QUICK, SCENARIOS, TARGETS

DURABLE = {"rate": 90_000.0, "bare_rate": 150_000.0, "filled_rate": 300_000.0, "cpu_us": 2.0}
SYNCED = {"sync_ms": 5.0, "filled_ms": 4.0, "group": 500.0}


def test_the_pace_is_what_was_asked_for() -> None:
    assert pace_of(arguments([])) == FULL
    pace = pace_of(arguments(["--quick", "--seconds", "0.5", "--backlog", "1234"]))
    assert (pace.seconds, pace.paged, pace.warmup) == (0.5, 1234, QUICK.warmup)


@pytest.mark.parametrize(
    "words",
    [
        ["--backlog", "0"],
        ["--rounds", "0"],
        ["--only", "durble"],
        ["--sync-ms", "slow"],
        ["--json", "--markdown"],
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        arguments(words)
    assert refused.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_a_durable_figure_is_judged_by_the_bare_loop_of_its_own_round() -> None:
    judged = {line.title: line for line in lines({"ours": {"durable": [DURABLE | SYNCED]}})}
    rate = judged["durable 100 B, msg/s"]
    assert (rate.ours, rate.beside, rate.ratio, rate.passed) == (90_000, 150_000, 0.6, True)
    assert judged["beside a preallocated file"].ratio == 0.3
    slower = DURABLE | SYNCED | {"bare_rate": 200_000.0}
    assert lines({"ours": {"durable": [slower]}})[0].passed is False


def test_every_scenario_has_a_line_and_every_line_a_scenario() -> None:
    assert {target.scenario for target in TARGETS} == set(SCENARIOS)


@pytest.fixture
def small_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barelog, "FILE_BYTES", 1 << 18)


@pytest.mark.usefixtures("small_file")
def test_a_bare_write_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    begun = time.perf_counter()
    bare = barelog.measured(tmp_path, 5000, 0.02)
    took_s = time.perf_counter() - begun
    assert 0 < bare.growing_s < took_s
    assert 0 < bare.filled_s < took_s
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_file")
def test_a_write_larger_than_the_file_still_fits(tmp_path: Path) -> None:
    assert barelog.measured(tmp_path, barelog.FILE_BYTES + 1, 0.001).filled_s > 0


def test_syncs_take_longer_on_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "SLOW_SYNC_US"):
        monkeypatch.setenv(name, "")  # put back afterwards
    slowdisk.slow(20)
    bare = barelog.beside(tmp_path, 100, 0.2)
    assert min(bare.growing_s, bare.filled_s) >= 0.02


def test_the_store_alone_is_measured(tmp_path: Path) -> None:
    figures = port.measured(tmp_path, body_bytes=100, group=50, seconds=0.05)
    assert set(figures) == {*port.Spent(1, 1.0).told(), "sync_ms"}
    assert all(figure > 0 for figure in figures.values())
