"""A recommendation applied and measured: ``python -m bench.capacity``.

On one real broker, with nothing between but what a user would type:

1. flights are replayed as they were scheduled (departures.py), and the broker writes its history: under
   thresholds nobody reaches, or under narrow ones (``--recorded 500``), which hide when producers wanted to
   send what they could not;
2. jobs/flow_capacity.py recommends thresholds from it that hold no more than ``--max-count`` messages;
3. ``sluice config apply`` puts them in force;
4. the same flights are replayed again, and what the broker counts as stopped is compared with what was
   predicted. Exit status 1 if it is off by more than 15 % of the prediction.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile
from typing import Any

from bench.contenders import OURS, BenchError, Contender, free_port
from bench.departures import Replay, running
from bench.submit import SUBMIT, surroundings
from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import SluiceError

ADDRESS = "departures"
QUEUE = "org.sluice.queue"
ROOT = Path(__file__).parent.parent
RECORDED = 10_000
SAMPLES = "events:\n  sample_interval: 250 ms\n"
MOST = 1500
BOUND = 0.15
HISTORY_S = 15.0
SPARK = (
    "--master",
    "local[2]",
    "--conf",
    "spark.log.level=ERROR",
    "--conf",
    "spark.sql.shuffle.partitions=4",
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a broker counts of one queue."""

    seconds: float
    stops: int
    received: int
    settled: int


@dataclass(frozen=True, slots=True)
class Verified:
    """One prediction beside what came of it; ``settings`` are those recommended."""

    seconds: float
    recorded: Stopped
    settings: dict[str, int]
    predicted_s: float
    predicted_stops: int
    measured: Stopped

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of itself; of a hundredth of the time where it is less."""
        return abs(self.measured.seconds - self.predicted_s) / max(self.predicted_s, self.seconds / 100)

    def told(self) -> str:
        """A line for each of the two replays."""
        stop, resume = (self.settings[f"flow_{name}_count"] for name in ("stop", "resume"))
        return (
            f"recorded: stopped {self.recorded.seconds:.2f} s of"
            f" {self.seconds:.1f} s, {self.recorded.stops:,} times,"
            f" {self.recorded.settled:,} messages settled\n"
            f"recommended {stop:,}/{resume:,}: predicted {self.predicted_s:.2f} s in {self.predicted_stops:,}"
            f" times, measured {self.measured.seconds:.2f} s in {self.measured.stops:,} times,"
            f" {self.measured.settled:,} messages settled: off by {self.error:.1%}"
        )


def policies(stop: int) -> str:
    """Thresholds to record under; the resume is 70 % of the stop."""
    thresholds = f"    flow_stop_count: {stop}\n    flow_resume_count: {stop * 7 // 10}\n"
    return f"policies:\n  - match: {ADDRESS}\n{thresholds}"


def broker(stop: int) -> Contender:
    """A broker whose queue of departures has these thresholds; a day is seconds, so it samples often."""

    def command(port: int, directory: Path) -> list[str]:
        (directory / "policy.yaml").write_text(policies(stop))
        (directory / "broker.yaml").write_text(SAMPLES)
        return [
            *(sys.executable, "-m", "broker.cli.main", "serve", "--listen", f"amqp://127.0.0.1:{port}"),
            *("--http", f"127.0.0.1:{free_port()}", "--policies", str(directory / "policy.yaml")),
            *("--data", str(directory / "data"), "--config", str(directory / "broker.yaml")),
        ]

    return replace(OURS, command=command)


def verify(url: str, data: Path, work: Path, what: Replay, arguments: Sequence[str]) -> Verified:
    """Both replays on the broker at ``url``, whose data directory is ``data``."""
    recorded = measured(url, what)
    history = work / "events.jsonl"
    copyfile(told_of(data / "events.jsonl", recorded), history)
    chosen = recommend(history, work / "capacity", arguments)
    sluice("purge", ADDRESS, "-b", url)
    sluice("config", "apply", str(work / "capacity/policy.yaml"), "-b", url)
    after = measured(url, what)
    names = ("flow_stop_count", "flow_resume_count", "producer_window", "consumer_flow_limit")
    return Verified(
        seconds=what.seconds,
        recorded=recorded,
        settings={name: chosen[name] for name in names},
        predicted_s=chosen["stop_seconds"],
        predicted_stops=chosen["stops"],
        measured=after,
    )


def measured(url: str, what: Replay) -> Stopped:
    """One replay, and what the broker counted meanwhile."""
    with Connection(url) as connection:
        connection.sender(what.address)
    before = _stopped(url, what.address)
    with running(what):
        time.sleep(what.seconds + 0.1)
        after = _stopped(url, what.address)
    return Stopped(
        after.seconds - before.seconds,
        after.stops - before.stops,
        after.received - before.received,
        after.settled - before.settled,
    )


def _stopped(url: str, address: str) -> Stopped:
    with Management(url) as management:
        found = management.call("READ", QUEUE, address).body
    assert isinstance(found, dict)
    return Stopped(
        float(found["flowStoppedSeconds"]),
        int(found["flowStoppedCount"]),
        int(found["received"]),
        int(found["accepted"]),
    )


def told_of(file: Path, recorded: Stopped) -> Path:
    """The history, once it tells of everything that was received. BenchError if it doesn't."""
    deadline = time.monotonic() + HISTORY_S
    while not file.exists() or _received(file) < recorded.received:
        if time.monotonic() > deadline:
            raise BenchError(f"the broker's history does not tell of {recorded.received:,} messages: {file}")
        time.sleep(0.1)
    return file


def _received(file: Path) -> int:
    lines = (json.loads(line) for line in file.read_text().splitlines() if '"sample"' in line)
    return max((line["received_total"] for line in lines if line["node"] == ADDRESS), default=0)


def recommend(history: Path, out: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """What jobs/flow_capacity.py recommends for the queue."""
    _done([SUBMIT, *SPARK, str(ROOT / "jobs/flow_capacity.py"), str(history), "--out", str(out), *arguments])
    import pyarrow.parquet as pq

    rows = pq.read_table(out / "choices").to_pylist()
    return dict(next(row for row in rows if row["node"] == ADDRESS))


def sluice(*words: str) -> None:
    """One command of the command line. BenchError with what it said if it fails."""
    _done([sys.executable, "-m", "broker.cli.main", *words])


def _done(command: Sequence[str]) -> None:
    environment = surroundings()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-4000:]}")
    for line in done.stderr.splitlines():
        if re.match(r"\d/\d ", line):
            print(f"  {line}", file=sys.stderr)


def main() -> int:
    """Runs it on a broker of its own and prints what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    usual = Replay("", ADDRESS)
    parser.add_argument("--days", type=int, default=usual.days, help="of flights (%(default)s)")
    parser.add_argument(
        "--day", type=float, default=usual.day_s, metavar="S", help="seconds each (%(default)g)"
    )
    parser.add_argument(
        "--rate", type=float, default=usual.rate, help="of the consumer, a second (%(default)g)"
    )
    parser.add_argument("--max-count", type=int, default=MOST, help="what the queue may hold (%(default)s)")
    parser.add_argument(
        "--recorded", type=int, default=RECORDED, metavar="N", help="flow_stop_count at first (%(default)s)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep history, tables and report there")
    args = parser.parse_args()
    try:
        with broker(args.recorded).started() as running_broker, tempfile.TemporaryDirectory() as folder:
            work = args.keep or Path(folder)
            work.mkdir(parents=True, exist_ok=True)
            what = Replay(running_broker.url, ADDRESS, args.days, args.day, rate=args.rate)
            found = verify(
                running_broker.url,
                running_broker.directory / "data",
                work,
                what,
                ("--node", ADDRESS, "--max-count", str(args.max_count)),
            )
    except (BenchError, SluiceError) as error:
        print(error, file=sys.stderr)
        return 1
    print(found.told())
    return 0 if found.error <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
