"""Flights sent when they were scheduled to depart, a day in seconds: ``python -m bench.departures JSON``.

The year's first days of the flights table come with their mornings, evenings and nights, so that a consumer
of constant pace falls behind by day and catches up by night. Each client is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from bench.contenders import BenchError
from broker.client.errors import ClientError
from broker.client.link import Connection
from broker.codec import sections
from examples.flights import table

MINUTES = 1440
PUMP_EVERY = 64
DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@dataclass(frozen=True, slots=True)
class Replay:
    """``days`` of ``day_s`` seconds, each flight ``copies`` times, taken at ``rate`` a second."""

    url: str
    address: str
    days: int = 6
    day_s: float = 5.0
    copies: int = 10
    rate: float = 2000.0
    role: str = ""

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.days * self.day_s


@contextmanager
def running(what: Replay) -> Iterator[None]:
    """Both clients while the block runs; they begin together. BenchError if one does not start."""
    processes = []
    try:
        for role in ("consumer", "producer"):
            command = [sys.executable, "-m", "bench.departures", json.dumps(asdict(replace(what, role=role)))]
            processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise BenchError("a client of the flights did not start")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _begin() -> float:
    print("ready", flush=True)
    sys.stdin.readline()
    return time.monotonic()


def schedule(what: Replay) -> tuple[list[float], list[bytes]]:
    """When each message is due, in seconds, in order, and what it is."""
    due = []
    for row in table.rows():
        flight = json.loads(row)
        day = DAYS_BEFORE[flight["month"] - 1] + flight["day"] - 1
        if day >= what.days:
            break
        at = flight["sched_dep_time"]
        minute = day * MINUTES + at // 100 * 60 + at % 100
        due.append((minute / MINUTES * what.day_s, sections.text_body(row)))
    due.sort()
    times = [at_s for at_s, _ in due for _ in range(what.copies)]
    return times, [body for _, body in due for _ in range(what.copies)]


def produce(connection: Connection, what: Replay) -> None:
    """What is due by now, as far as there is credit; what could not be sent is sent later."""
    times, bodies = schedule(what)
    sender = connection.sender(what.address)
    begin_s, sent = _begin(), 0
    while (passed_s := time.monotonic() - begin_s) < what.seconds:
        due = bisect_right(times, passed_s)
        while sent < due and sender.may_send():
            sender.send(bodies[sent])
            sent += 1
            if sent % PUMP_EVERY == 0:
                connection.pump()
        connection.wait_until(lambda: False, 0.001)


def consume(connection: Connection, what: Replay) -> None:
    """So many a second, a millisecond's worth together; what it was not given in time is lost to it."""
    receiver = connection.receiver(what.address)
    begin_s = last_s = _begin()
    able = 0.0
    while (now_s := time.monotonic()) - begin_s < what.seconds:
        able += what.rate * (now_s - last_s)
        last_s = now_s
        if able >= 1 and receiver.has_message():
            able -= len(receiver.take(int(able)))
            connection.pump()
        able = min(able, max(what.rate * 0.002, 1.0))
        connection.wait_until(lambda: False, 0.001)


def main() -> int:
    """Plays one client."""
    what = Replay(**json.loads(sys.argv[1]))
    try:
        with Connection(what.url) as connection:
            (produce if what.role == "producer" else consume)(connection, what)
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
