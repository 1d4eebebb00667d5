"""One of the Spark jobs on real flights, beside a broker of its own, by the commands a user would type.

capacity      flights replayed, thresholds recommended, applied, and measured: python -m bench.capacity
pipeline      files -> broker -> windows in Parquet, compared with the same sums over the files
dead-letters  letters that died in two ways, reported, and a part of them brought back
streams       producers -> stream -> Spark -> queue -> consumer, all restarted: python -m examples.streams

Every command is shown before it is run; what the jobs leave is in build/jobs. Exit status 1 if one failed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.contenders import OURS, BenchError, Running, free_port
from bench.submit import SUBMIT, surroundings
from broker.errors import SluiceError
from examples.jobs import data, letters
from examples.streams.__main__ import main as run_streams

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build/jobs"
SPARK = (
    *("spark-submit", "--master", "local[2]", "--driver-memory", "2g"),
    *("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.sql.shuffle.partitions=4"),
)
POLICIES = """policies:
  - match: "flights"
    flow_stop_count: 50000
    flow_resume_count: 25000
    duplicate_window: 100000
  - match: "orders.*"
    dead_letter_address: orders.dead
    max_delivery_count: 1
"""
NYC = (
    *("--null", "NA", "--schema"),
    "time_hour timestamp, origin string, carrier string, dest string, dep_delay int, distance int",
)
NYC_TIME, NYC_SUMS = "time_hour", ("--by", "origin,carrier", "--measure", "dep_delay,distance")
US = ("--schema", "date timestamp, origin string, destination string, delay int, distance int")
US_TIME, US_SUMS = "date", ("--by", "origin", "--measure", "delay,distance")


@contextmanager
def broker() -> Iterator[Running]:
    """One on a free port, with the policies of the examples."""

    def command(port: int, directory: Path) -> list[str]:
        (directory / "policies.yaml").write_text(POLICIES)
        return [
            *(sys.executable, "-m", "broker.cli.main", "serve", "--listen", f"amqp://127.0.0.1:{port}"),
            *("--http", f"127.0.0.1:{free_port()}", "--policies", str(directory / "policies.yaml")),
            *("--data", str(directory / "data")),
        ]

    with replace(OURS, command=command).started() as running:
        yield running


def job(name: str, *words: str) -> subprocess.Popen[bytes]:
    """Starts one of the programs in jobs/."""
    command = [*SPARK, f"jobs/{name}.py", *words]
    print(f"$ {shlex.join(command)}", flush=True)
    submitted = [SUBMIT, *command[1:]]
    return subprocess.Popen(submitted, cwd=ROOT, env=surroundings())  # noqa: S603 - its own command


def done(*jobs: subprocess.Popen[bytes]) -> int:
    """Their worst exit status."""
    return max(each.wait() for each in jobs)


def pipeline(args: argparse.Namespace) -> int:
    """Both ends at once: the queue is small, and its credit makes the sender as fast as the reader."""
    file = data.SETS[args.data]()
    shape, time, sums = (NYC, NYC_TIME, NYC_SUMS) if args.data == "nyc" else (US, US_TIME, US_SUMS)
    out = OUT / f"pipeline-{args.data}"
    _empty(out)
    with broker() as running:
        reader = (*("flights", "-b", running.url, "--out", str(out), "--time", time), *sums, *shape)
        limits = ("--window", "1 day", "--lateness", "1 hour")
        sender = job(
            "ingest",
            str(file),
            "flights",
            "-b",
            running.url,
            *shape,
            "--order-by",
            time,
            "--end-mark",
            "3 days",
        )
        # As long as there is something to come it goes on; then the rest is taken, and compared.
        going = job("aggregate", *reader, *limits)
        status = done(sender)
        # In the middle of whatever it does: only one that ended before by itself has a status that counts.
        status = max(status, going.poll() or 0)
        going.terminate()
        going.wait()
        return max(status, done(job("aggregate", *reader, *limits, "--once", "--compare", str(file))))


def dead_letters(args: argparse.Namespace) -> int:
    """Letters made by real clients, then the job: a report, what would be done, and doing it."""
    out = OUT / "dead-letters"
    _empty(out)
    with broker() as running:
        letters.make(running.url)
        common = ("orders.dead", "-b", running.url, "--producer-property", "carrier")
        return max(
            done(job("dead_letters", "report", *common, "--out", str(out))),
            done(job("dead_letters", "redrive", *common, "--reason", "rejected", "--producer", "U%")),
            done(
                job("dead_letters", "redrive", *common, "--reason", "rejected", "--producer", "U%", "--yes")
            ),
            done(job("dead_letters", "report", *common)),
        )


def capacity(args: argparse.Namespace) -> int:
    """The bench does it, and says how far the prediction was off."""
    command = [sys.executable, "-m", "bench.capacity", "--keep", str(OUT / "capacity")]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - likewise


def streams(args: argparse.Namespace) -> int:
    """A package of its own, for its processes are more."""
    return run_streams(["--out", str(OUT / "streams")])


def _empty(folder: Path) -> None:
    """A checkpoint of another broker's queue would be of no use."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


JOBS = {"capacity": capacity, "pipeline": pipeline, "dead-letters": dead_letters, "streams": streams}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.jobs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=JOBS)
    parser.add_argument("--data", choices=data.SETS, default="nyc", help="of the pipeline (%(default)s)")
    args = parser.parse_args(argv)
    try:
        return min(JOBS[args.name](args), 1)
    except (BenchError, SluiceError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
