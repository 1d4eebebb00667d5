"""What is killed under a query of a stream, what writes meanwhile, and the books of both.

A driver runs in a session (setsid) of its own, by which its processes are known: Spark's daemon of Python
workers makes a process group of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from proton import Message, symbol

from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import SluiceError
from pyspark_sluice.position import offsets_of
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.relaying import INPUT, SINKS
from tests.wire.conftest import wait_until

PARTITIONS = 4
# A machine with much else to do takes minutes over the start of a driver.
SECONDS = 600.0
# Messages that a writer has without an outcome at most, and its pause behind them.
BURST, PAUSE_S = 100, 0.2
GROUPS = 8
OFFSET = symbol("x-opt-sluice-offset")


class Row(NamedTuple):
    """A message of the input: its place, and what it says."""

    partition: int
    offset: int
    group: str
    body: str


# --- processes


class Process(NamedTuple):
    """One that runs, as the system shows it."""

    pid: int
    parent: int
    command: str


def processes_of(session: int) -> list[Process]:
    """Those that run in a session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # The name, in parentheses, may hold anything.
                state, parent, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state != "Z":
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(Process(int(folder.name), int(parent), command))
    return found


class Driver:
    """The relaying program, started again from its checkpoints whenever it has ended."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        # The last words of those that ended by themselves.
        self.ends: list[str] = []
        self._words = (url, str(folder))
        self._log = folder / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or go on from the checkpoints."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.relaying", *self._words],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | spark_environment(),
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-6000:]

    def processes(self) -> list[Process]:
        """The program's, the JVM's and its Python workers'."""
        assert self._process is not None
        return processes_of(self._process.pid)

    def kill(self, kind: str) -> None:
        """One of KILLS, by SIGKILL; returns at once."""
        if kind == "driver":
            for each in self.processes():
                _kill(each.pid)
        else:
            _kill(self._victim(kind))

    def await_end(self) -> None:
        """Until nothing of it is left."""
        assert self._process is not None
        wait_until(lambda: self.has_ended, SECONDS, "the driver to end")
        wait_until(lambda: not self.processes(), SECONDS, f"its processes to end: {self.processes()}")

    def _victim(self, kind: str) -> int:
        """The process to kill; waits for one, since workers come and go."""
        found: list[int] = []

        def there() -> bool:
            running = self.processes()
            jvms = {each.pid for each in running if "org.apache.spark" in each.command}
            daemons = {
                each.pid for each in running if "pyspark.daemon" in each.command and each.parent in jvms
            }
            found[:] = {
                "jvm": list(jvms),
                "daemon": list(daemons),
                "worker": [each.pid for each in running if each.parent in daemons],
                "planner": [each.pid for each in running if "streaming_source_runner" in each.command],
            }[kind]
            return bool(found)

        wait_until(there, SECONDS, f"a {kind}:\n{self.said}")
        return found[-1]

    # --- its checkpoints

    def planned(self, sink: str) -> int:
        """The number of the last batch that was begun; -1 before the first."""
        return _newest(self.folder / "state" / sink / "offsets")

    def done(self, sink: str) -> int:
        """The number of the last batch that is done with."""
        return _newest(self.folder / "state" / sink / "commits")

    def position(self, sink: str) -> dict[int, int]:
        """Where the last batch that is done with ended."""
        file = self.folder / "state" / sink / "offsets" / str(self.done(sink))
        with suppress(FileNotFoundError):
            return offsets_of(json.loads(file.read_text().splitlines()[-1]))
        return {}

    def read(self) -> int:
        """How many messages of the input every query is through with."""
        return min(sum(self.position(sink).values()) for sink in SINKS)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Until a condition holds; a driver that has ended by itself is started again."""

        def held() -> bool:
            if self.has_ended:
                self.ends.append(self.said)
                self.await_end()
                self.start()
            return condition()

        wait_until(held, SECONDS, what)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _newest(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return max((int(each.name) for each in folder.iterdir() if each.name.isdigit()), default=-1)
    return -1


# --- messages


def partition_of(group: str) -> int:
    """Where docs/streams.md says that a group goes."""
    return zlib.crc32(group.encode()) % PARTITIONS


class Writer:
    """Sends messages of some groups, each numbered, and again those that a lost connection left in doubt.

    ``accepted`` are those that the broker has confirmed, which at the end are all that were sent. Nothing new
    is sent while ``is_ahead`` says so.
    """

    def __init__(self, url: str, name: str, is_ahead: Callable[[], bool]) -> None:
        self.accepted: list[str] = []
        self.fault: Exception | None = None
        self.lost_count = 0
        self._url = url
        self._name = name
        self._is_ahead = is_ahead
        self._numbers = count()
        self._in_doubt: list[tuple[str, str]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def end(self) -> None:
        """Once everything that was sent is accepted."""
        self._ended.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            while self._in_doubt or not self._ended.is_set():
                try:
                    self._write()
                except SluiceError:
                    self.lost_count += 1
                    self._ended.wait(0.05)
        except Exception as fault:  # noqa: BLE001  raised by end
            self.fault = fault

    def _write(self) -> None:
        with Connection(self._url, timeout_s=20) as connection:
            sender = connection.sender(INPUT)
            while self._in_doubt or not self._ended.is_set():
                if not self._in_doubt and self._is_ahead():
                    self._ended.wait(PAUSE_S)
                    continue
                self._in_doubt = self._in_doubt or list(self._burst())
                for group, body in self._in_doubt:
                    message = Message(body=body, id=body, group_id=group, durable=True)
                    sender.send(bytes(message.encode()), 20)
                sender.flush(20)
                assert sender.accepted == sender.sent
                self.accepted += [body for _, body in self._in_doubt]
                self._in_doubt = []
                self._ended.wait(PAUSE_S)

    def _burst(self) -> Iterator[tuple[str, str]]:
        for _ in range(BURST):
            number = next(self._numbers)
            group = f"{self._name}{number % GROUPS}"
            yield group, f"{group}:{number:08d}"


def messages_of(url: str, stream: str) -> list[Message]:
    """All that a stream has, in order."""
    with Management(url) as management:
        body = management.call("READ", "org.sluice.queue", stream).body
    assert isinstance(body, dict)
    wanted = int(body["next_offset"])
    found: list[Message] = []
    with Connection(url, timeout_s=20) as connection:
        receiver = connection.receiver(stream, start="first")
        deadline = time.monotonic() + SECONDS
        while len(found) < wanted:
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} messages of {stream}"
            for encoded in receiver.take(1000, 20):
                message = Message()
                message.decode(encoded)
                found.append(message)
    return found


def input_of(url: str) -> list[list[Row]]:
    """The input's partitions, as a reader without any Spark sees them."""
    found = []
    for partition in range(PARTITIONS):
        rows = []
        for at, message in enumerate(messages_of(url, f"{INPUT}/{partition}")):
            assert message.annotations is not None
            assert message.annotations[OFFSET] == at
            rows.append(Row(partition, at, str(message.group_id), str(message.body)))
        found.append(rows)
    return found


def check_input(found: list[list[Row]], writers: list[Writer]) -> int:
    """Each accepted message is there, in its group's partition and order; how many came more than once."""
    rows = [row for rows in found for row in rows]
    assert {row.body for row in rows} == {body for writer in writers for body in writer.accepted}
    assert all(partition_of(row.group) == row.partition for row in rows)
    check_order([(row.group, row.body) for row in rows])
    return len(rows) - len({row.body for row in rows})


def check_order(found: list[tuple[str, str]]) -> None:
    """A group's messages follow one another, those left out that came before; ``found``: group and body."""
    first_of = dict.fromkeys(found)
    newest: dict[str, str] = {}
    for group, body in first_of:
        assert newest.get(group, "") < body
        newest[group] = body


def row_of(message: Message) -> Row:
    """The row of the input that a message of a sink was made of."""
    properties = message.properties
    assert properties is not None
    place = (int(properties["partition"]), int(properties["offset"]))
    return Row(*place, str(message.group_id), str(message.body))


def has_read_all(driver: Driver, ends: dict[int, int]) -> bool:
    """Whether every query is through with the input."""
    return all(driver.position(sink) == ends for sink in SINKS)
