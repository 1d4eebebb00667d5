"""Runs all of it, kills its processes and starts them again, and compares the outcome with the books."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.contenders import START_S, BenchError, free_port
from bench.submit import SUBMIT, surroundings
from broker.client.request import Management
from broker.errors import SluiceError
from examples.flights import table
from examples.streams import books, ends
from examples.streams.picture import Look, drawn
from pyspark_sluice.position import offsets_of

ROOT = Path(__file__).parents[2]
PARTITIONS, STOP, RESUME = 4, 200, 100
POLICIES = f"""policies:
  - {{match: "{ends.STREAM}", kind: stream, partitions: {PARTITIONS}, durable: true}}
  - match: "{ends.QUEUE}"
    durable: true
    flow_stop_count: {STOP}
    flow_resume_count: {RESUME}
    duplicate_window: 100000
    dead_letter_address: {ends.DEAD}
  - {{match: "{ends.DEAD}", durable: true}}
  - {{match: "{ends.AGAIN}", durable: true}}
"""
SPARK = (
    *("--master", "local[2]", "--driver-memory", "1g"),
    *("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
)
LOOK_EVERY_S, STALL_S = 0.2, 240.0
# Spark gives a process of a source ten seconds to start, which a busy machine may not have.
BUSY = "Python worker failed to connect back"


@dataclass
class Part:
    """A process that is started, killed with all that it started, and started again."""

    name: str
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Shows the command, and starts it."""
        print(f"$ {shlex.join(self.command)}", flush=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - its own command
                self.command, cwd=ROOT, env=_environment(), stdout=log, stderr=log, start_new_session=True
            )

    def end(self, how: signal.Signals) -> None:
        """Sends a signal to the process and its children, and waits for its end."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)
            self.process.wait()
            self.process = None

    @property
    def has_failed(self) -> bool:
        """Whether it has ended by itself with anything but success."""
        return self.process is not None and bool(self.process.poll())

    @property
    def is_done(self) -> bool:
        """Whether it has ended, and well."""
        return self.process is not None and self.process.poll() == 0

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-8000:].strip()


def _environment() -> dict[str, str]:
    found = surroundings()
    path = os.pathsep.join(filter(None, (str(ROOT), found.get("PYTHONPATH", ""))))
    return found | {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


@dataclass
class Show:
    """One run over ``rows`` flights, a day of them in ``pace_s``, taken at ``rate`` rows a second."""

    folder: Path
    rows: int
    pace_s: float
    rate: float
    port: int = field(default_factory=free_port)
    looks: list[Look] = field(default_factory=list)
    restarts: list[tuple[float, str]] = field(default_factory=list)
    began_s: float = 0.0

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "policies.yaml").write_text(POLICIES)
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.expected = books.expected(self.rows)
        self.days = sum(1 for _ in books.days(self.rows))
        self.unnamed = {key for key, row in self.expected.items() if row.airport is None}
        own = ("-m", "examples.streams.ends")
        self.broker = self._part(
            "broker",
            *("-m", "broker.cli.main", "serve", "--listen", self.url, "--http", f"127.0.0.1:{free_port()}"),
            *("--policies", str(self.folder / "policies.yaml"), "--data", str(self.folder / "data")),
        )
        paced = (str(self.rows), str(self.pace_s))
        self.producers = [
            self._part(f"producer {each}", *own, "produce", self.url, str(self.folder), str(each), *paced)
            for each in range(ends.PRODUCERS)
        ]
        taking = (*own, "consume", self.url, str(self.folder), str(self.rate))
        self.consumer = self._part("consumer", *taking)
        self.second = self._part("consumer of all", *taking, "all")
        airports = str(table.archive().parent / "airports.csv")
        words = ("examples/streams/delays.py", self.url, str(self.folder), airports)
        self.spark = Part("spark", (SUBMIT, *SPARK, *words), self.folder / "spark.log")
        back = ("jobs/dead_letters.py", "redrive", ends.DEAD, "-b", self.url, "--reason", "rejected")
        command = (SUBMIT, *SPARK, *back, "--to", ends.AGAIN, "--yes")
        self.redrive = Part("redrive", command, self.folder / "redrive.log")
        self.parts = (self.broker, *self.producers, self.spark, self.consumer, self.redrive, self.second)

    def _part(self, name: str, *words: str) -> Part:
        return Part(name, (sys.executable, *words), self.folder / f"{name.replace(' ', '-')}.log")

    # --- what happens

    def run(self) -> list[str]:
        """What didn't come out as it should; BenchError if it doesn't get on."""
        try:
            self._start_broker()
            self.spark.start()
            self._until((self.folder / "checkpoint/metadata").exists, "Spark to begin", looks=False)
            self.began_s = time.monotonic()
            for part in (self.consumer, *self.producers):
                part.start()
            self._go()
            self._bring_back()
        finally:
            for part in reversed(self.parts):
                part.end(signal.SIGKILL if part is self.spark else signal.SIGTERM)
        (self.folder / "flow.svg").write_text(drawn(self.looks, self.restarts, STOP))
        return self._failures()

    def _go(self) -> None:
        """Until all that can be kept is kept: with a restart of each part on the way."""
        plan: dict[str, Callable[[], bool]] = {
            "producer 0": lambda: self._sent(0.2),
            "broker": lambda: self._sent(0.4),
            "spark": lambda: self.looks[-1].read >= self.rows // 2,
            "consumer": lambda: self.looks[-1].kept >= len(self.expected) * 0.3,
            "broker again": lambda: self.looks[-1].kept >= len(self.expected) * 0.6,
        }
        is_marked = False

        def goes_on() -> bool:
            nonlocal is_marked
            for name in [name for name, is_due in plan.items() if is_due()]:
                del plan[name]
                self._restart(name)
            if not is_marked and self._sent(1.0) and self._position() == self._ends():
                # Only behind everything else: flights that are read later would be too late.
                ends.mark(self.url, books.end_mark(self.rows))
                is_marked = True
            look = self.looks[-1]
            return not plan and look.kept + look.dead == len(self.expected)

        self._until(goes_on, "every row to be kept or a dead letter")

    def _restart(self, name: str) -> None:
        """Kills it as a power failure would, and starts it again."""
        part = {each.name: each for each in (*self.producers, self.spark, self.consumer)}.get(
            name, self.broker
        )
        self.restarts.append((time.monotonic() - self.began_s, f"{part.name} killed"))
        print(f"{self.restarts[-1][0]:.1f} s: {part.name} is killed", flush=True)
        part.end(signal.SIGKILL)
        if part is self.broker:
            self._start_broker()
        else:
            part.start()

    def _bring_back(self) -> None:
        """The letters to a consumer of all, by another queue: the window of the first one knows their ids."""
        self.consumer.end(signal.SIGTERM)
        self.spark.end(signal.SIGKILL)
        self.redrive.start()
        self._until(lambda: self.redrive.is_done, "the dead letters to be brought back")
        self.second.start()
        self._until(lambda: self.looks[-1].kept == len(self.expected), "the dead letters to be kept")

    def _start_broker(self) -> None:
        self.broker.log.unlink(missing_ok=True)
        self.broker.start()
        deadline = time.monotonic() + START_S
        while not any(line.endswith("ready") for line in self.broker.last_words.splitlines()):
            if self.broker.has_failed or time.monotonic() > deadline:
                raise BenchError(f"the broker did not start: {self.broker.last_words}")
            time.sleep(0.05)

    # --- what is seen

    def _until(self, condition: Callable[[], bool], what: str, *, looks: bool = True) -> None:
        """Looks at everything until a condition holds; BenchError where nothing has moved for too long."""
        deadline, moved = time.monotonic() + STALL_S, None
        while True:
            # A broker that was killed a moment ago may not answer.
            with suppress(SluiceError):
                if looks:
                    self.looks.append(self._look())
                if condition():
                    return
            now = (
                None if not self.looks else (self.looks[-1].read, self.looks[-1].kept, self.looks[-1].written)
            )
            if now != moved:
                deadline, moved = time.monotonic() + STALL_S, now
            for part in self.parts:
                if part.has_failed and BUSY in part.last_words:
                    part.start()
                elif part.has_failed:
                    raise BenchError(f"{part.name} ended: {part.last_words}")
            if time.monotonic() > deadline:
                raise BenchError(f"nothing has moved for {STALL_S:g} s while waiting for {what}: {now}")
            time.sleep(LOOK_EVERY_S)

    def _look(self) -> Look:
        with Management(self.url) as management:
            queue = self._attributes(management, ends.QUEUE)
            return Look(
                seconds=time.monotonic() - self.began_s,
                written=sum(self._ends(management).values()),
                read=sum(self._position().values()),
                depth=int(str(queue.get("depth_msgs", 0))),
                stopped=bool(queue.get("flowStopped", False)),
                kept=len(ends.kept(self.folder)[0]),
                dead=int(str(self._attributes(management, ends.DEAD).get("depth_msgs", 0))),
            )

    def _ends(self, management: Management | None = None) -> dict[str, int]:
        """The next offset of each partition."""
        if management is None:
            with Management(self.url) as management:
                return self._ends(management)
        found = {
            str(each): self._attributes(management, f"{ends.STREAM}/{each}") for each in range(PARTITIONS)
        }
        return {each: int(str(attributes.get("next_offset", 0))) for each, attributes in found.items()}

    def _attributes(self, management: Management, queue: str) -> dict[str, object]:
        """Those of a queue; none of one that isn't there yet."""
        with suppress(SluiceError):
            found = management.call("READ", "org.sluice.queue", queue).body
            assert isinstance(found, dict)
            return found
        return {}

    def _position(self) -> dict[str, int]:
        """How far Spark is through with each partition, by its checkpoint."""
        folder = self.folder / "checkpoint"
        done = [int(each.name) for each in (folder / "commits").glob("*") if each.name.isdigit()]
        if not done:
            return {}
        found = json.loads((folder / f"offsets/{max(done)}").read_text().splitlines()[-1])
        return {str(partition): offset for partition, offset in offsets_of(found).items()}

    def _sent(self, part: float) -> bool:
        """Whether every producer has brought so much of its days."""
        return all(ends.done(self.folder, each) >= self.days * part for each in range(ends.PRODUCERS))

    # --- the books

    def _failures(self) -> list[str]:
        kept, repeated = ends.kept(self.folder)
        letters = max(look.dead for look in self.looks)
        deepest = max(look.depth for look in self.looks)
        written = max(look.written for look in self.looks)
        wrong = [key for key in self.expected.keys() | kept.keys() if kept.get(key) != self.expected.get(key)]
        print(
            f"{self.rows:,} flights, {written:,} messages in the stream with the mark and those sent again;"
            f" {len(self.expected):,} rows expected, {len(kept):,} kept, {len(wrong):,} wrong,"
            f" {repeated:,} came again to the consumer; {letters:,} dead letters brought back;"
            f" deepest {deepest:,} of {STOP:,}; {len(self.restarts)} restarts in"
            f" {self.looks[-1].seconds:.0f} s; {self.folder}/flow.svg"
        )
        held = {
            f"rows are wrong or missing, the first {sorted(wrong)[:3]}": not wrong,
            "the queue was deeper than its threshold": deepest <= STOP,
            "Spark never had to wait for credit": any(look.stopped for look in self.looks),
            "the dead letters aren't those without a name": letters == len(self.unnamed),
            "not everything was restarted": len(self.restarts) == 5,
        }
        return [failure for failure, right in held.items() if not right]
