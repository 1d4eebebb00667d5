"""Loads of known shape on one queue, each client in a process of its own: ``python -m bench.shapes JSON``.

A producer that can't keep its schedule for want of credit catches up; a consumer that was not given
messages in time does not.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench.contenders import BenchError
from broker.client.errors import ClientError
from broker.client.link import Connection
from broker.codec import sections

Client = Mapping[str, object]

# name -> its clients, and the threshold's unit. Rates in messages a second, times in seconds.
SHAPES: dict[str, tuple[Client, ...]] = {
    "steady overload": (
        {"role": "producer", "rate": 6000},
        {"role": "consumer", "rate": 3000},
    ),
    "bursts": (
        {"role": "producer", "burst": 5000, "every": 4.0},
        {"role": "consumer", "rate": 2000},
    ),
    "slow consumer that recovers": (
        {"role": "producer", "rate": 1200},
        {"role": "consumer", "rate": 4000, "slow": 300, "from": 3.0, "to": 8.0},
    ),
    "pausing consumer": (
        {"role": "producer", "rate": 1500},
        {"role": "consumer", "rate": 3500, "slow": 0, "pause": 2.5, "every": 6.0},
    ),
    "fast and slow producer": (
        {"role": "producer", "rate": 4000},
        {"role": "producer", "rate": 300},
        {"role": "consumer", "rate": 2500},
    ),
    "two consumers, one leaves": (
        {"role": "producer", "rate": 2500},
        {"role": "consumer", "rate": 1500},
        {"role": "consumer", "rate": 1500, "until": 5.0},
    ),
    "as fast as it can": (
        {"role": "producer", "rate": 1_000_000},
        {"role": "consumer", "rate": 20_000},
    ),
    "sizes from 100 B to 100 KB": (
        {"role": "producer", "rate": 1500, "tail": True},
        {"role": "consumer", "rate": 800},
    ),
}


@contextmanager
def running(url: str, address: str, shape: str, seconds: float) -> Iterator[None]:
    """The shape's clients while the block runs; they begin together."""
    processes = []
    try:
        for number, client in enumerate(SHAPES[shape]):
            job = dict(client) | {"url": url, "address": address, "seconds": seconds, "seed": number}
            command = [sys.executable, "-m", "bench.shapes", json.dumps(job)]
            processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise BenchError(f"a client of {shape!r} did not start")
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


def produce(connection: Connection, job: Mapping[str, float | str]) -> None:
    """What the schedule says by now, as far as there is credit."""
    sender = connection.sender(str(job["address"]))
    bodies = _bodies(bool(job.get("tail")), int(job["seed"]))
    begin_s, seconds = _begin(), float(job["seconds"])
    sent = 0
    while (passed_s := time.monotonic() - begin_s) < seconds:
        due = _due(job, passed_s)
        while sent < due and sender.may_send():
            sender.send(bodies[sent % len(bodies)])
            sent += 1
            if sent % 64 == 0:
                connection.pump()
        connection.wait_until(lambda: False, 0.001)


def _due(job: Mapping[str, float | str], passed_s: float) -> int:
    if "burst" in job:
        return int(job["burst"]) * (1 + int(passed_s / float(job["every"])))
    return int(float(job["rate"]) * passed_s)


def _bodies(tail: bool, seed: int) -> Sequence[bytes]:
    if not tail:
        return [sections.binary_body(bytes(200))]
    source = random.Random(seed)
    return [
        sections.binary_body(bytes(min(int(100 * source.paretovariate(0.7)), 100_000))) for _ in range(997)
    ]


def consume(connection: Connection, job: Mapping[str, float | str]) -> None:
    """So many a second, a millisecond's worth together."""
    receiver = connection.receiver(str(job["address"]))
    begin_s = last_s = _begin()
    able = 0.0
    until_s = float(job.get("until", job["seconds"]))
    while (now_s := time.monotonic()) - begin_s < until_s:
        rate = _rate(job, now_s - begin_s)
        able += rate * (now_s - last_s)
        last_s = now_s
        if able >= 1 and receiver.has_message():
            able -= len(receiver.take(int(able)))
            connection.pump()
        able = min(able, max(rate * 0.002, 1.0))
        connection.wait_until(lambda: False, 0.001)


def _rate(job: Mapping[str, float | str], passed_s: float) -> float:
    slow = float(job.get("slow", 0))
    if "pause" in job and passed_s % float(job["every"]) < float(job["pause"]):
        return slow
    if "from" in job and float(job["from"]) <= passed_s < float(job["to"]):
        return slow
    return float(job["rate"])


def main() -> int:
    """Plays one client."""
    job = json.loads(sys.argv[1])
    try:
        with Connection(job["url"]) as connection:
            (produce if job["role"] == "producer" else consume)(connection, job)
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
