"""The JVM of a query killed between batches and inside one, and started again from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from pyarrow.parquet import read_table

from tests.spark.conftest import ROOT, Fault, spark_environment
from tests.spark.draining import BATCH
from tests.spark.feeding import feed, names
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.seeing import await_number, number_of

ROWS = 4 * BATCH
SECONDS = 180.0


class Program:
    """The draining program, in a JVM of its own."""

    def __init__(self, broker: RunningBroker, folder: Path, how: str) -> None:
        self.output = folder / "output"
        words = (broker.url, "q", str(self.output), str(folder / "checkpoint"), how)
        self._log = (folder / f"{how}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.draining", *words],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=os.environ | spark_environment(),
        )

    def await_line(self, word: str) -> str:
        """The next line, which begins with ``word``."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(word), line + Path(self._log.name).read_text()
        return line.removeprefix(word).strip()

    def end(self) -> int:
        """Its exit status, once it has ended."""
        status = self.process.wait(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return status

    def kill(self, jvm: int) -> None:
        """The JVM first, then the program that talks to it."""
        os.kill(jvm, signal.SIGKILL)
        self.process.kill()
        self.end()


def test_a_jvm_killed_between_and_inside_batches_loses_nothing(
    java: str, broker: RunningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    feed(broker.url, "q", names(ROWS))
    # One batch, done with in every way but for its settlement.
    program = Program(broker, tmp_path, "between")
    jvm = int(program.await_line("jvm"))
    wait_until((tmp_path / "checkpoint" / "commits" / "0").exists, SECONDS, "the first batch")
    assert number_of(broker, "q", "ready_msgs") == ROWS - BATCH
    program.kill(jvm)
    # The reader's process sees its JVM gone, and gives back what it holds.
    await_number(broker, "q", "ready_msgs", ROWS)
    # Its first batch is the one that came before; the second is written when it is killed.
    program = Program(broker, tmp_path, "inside")
    jvm = int(program.await_line("jvm"))
    program.await_line("written")
    program.kill(jvm)
    await_number(broker, "q", "ready_msgs", ROWS - BATCH)
    program = Program(broker, tmp_path, "once")
    program.await_line("jvm")
    assert int(program.await_line("distinct")) == ROWS
    assert program.end() == 0
    # The process that reads is another one, which settles the last batch and may outlive the program.
    await_number(broker, "q", "depth_msgs", 0)

    written = read_table(program.output)
    rows = list(zip(written["run"].to_pylist(), written["message_id"].to_pylist(), strict=True))
    seen = {how: [name for run, name in rows if run == how] for how in ("between", "inside", "once")}
    distinct = {name for _, name in rows}
    assert distinct == set(names(ROWS))
    later = Counter(seen["inside"] + seen["once"])
    twice = {
        "between": sum(1 for name in seen["between"] if later[name]),
        "inside": len(set(seen["inside"]) & set(seen["once"])),
    }
    for how, count in twice.items():
        remark = f"1 batch = {BATCH:,}; after dropDuplicates 0"
        lost = ROWS - len(distinct)
        faults.append(
            Fault(f"JVM killed -9 {how} batches", "source", ROWS, ROWS + count, lost, count, remark)
        )
        assert count <= BATCH
    assert len(rows) == ROWS + sum(twice.values())
