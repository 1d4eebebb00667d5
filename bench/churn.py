"""``python -m bench.churn``: whether a broker comes back to where it was after very many connections.

Ten thousand connections are opened and stand idle; they close, and for a minute connections open and close,
two thousand a second. Before and after, memory and descriptors of the broker are read. Each round is done
once before it counts: the first fills what the allocator keeps. Exit status 1 unless memory is back within
5 % and there are exactly as many descriptors. The clients are in processes of their own, each with a loopback
address of its own: ports are soon used up on one machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tests.wire.conftest import RunningBroker
from tests.wire.frames import AMQP_HEADER, CLOSE, OPEN, SASL_HEADER, SASL_INIT, Symbol, performative

WORKERS = 4
WITHIN = 0.05
SETTLE_S = 15.0
HELLO = SASL_HEADER + performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1) + AMQP_HEADER
HELLO += performative(OPEN, "churn", None, 65_536, 100)
GOODBYE = performative(CLOSE)
# The end of the broker's answer to a close: an empty list.
CLOSED = b"\x00\x53\x18\x45"


@dataclass(frozen=True, slots=True)
class State:
    """What the broker takes."""

    memory_kb: int
    descriptors: int


def state_of(pid: int) -> State:
    """As the system sees it."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return State(int(status["VmRSS"].split()[0]), sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))


def come_back(pid: int, start: State) -> State:
    """Its state once it is back where it was, or after a while."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = state_of(pid)
        if is_back(start, now) or time.monotonic() > deadline:
            return now
        time.sleep(0.2)


def is_back(start: State, now: State) -> bool:
    """Whether memory is what it was, or less, and descriptors are as many."""
    return now.memory_kb <= start.memory_kb * (1 + WITHIN) and now.descriptors == start.descriptors


def connect(port: int, worker: int) -> socket.socket:
    """A connection that has said hello, from an address of the worker's."""
    sock = socket.socket()
    sock.settimeout(60)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((f"127.0.1.{worker + 1}", 0))
    sock.connect(("127.0.0.1", port))
    sock.sendall(HELLO)
    return sock


def opened(sock: socket.socket) -> None:
    """Until the broker has opened too: its answer ends with its properties' version."""
    data = b""
    while b"sluice" not in data:
        came = sock.recv(4096)
        if not came:
            raise ConnectionError("the broker hung up")
        data += came


def stand_idle(port: int, worker: int, count: int, all_there: Barrier) -> None:
    """So many connections, open until everybody has theirs."""
    socks = []
    for _ in range(count):
        socks.append(connect(port, worker))
        opened(socks[-1])
    all_there.wait(600)
    all_there.wait(600)
    for sock in socks:
        sock.close()


def come_and_go(port: int, worker: int, rate: float, seconds: float, done: Callable[[int], None]) -> None:
    """Connections one after the other, so many a second if the broker keeps up."""
    begin_s = time.monotonic()
    count = 0
    while (passed_s := time.monotonic() - begin_s) < seconds:
        if count > passed_s * rate:
            time.sleep(0.0005)
            continue
        with connect(port, worker) as sock:
            opened(sock)
            sock.sendall(GOODBYE)
            while sock.recv(4096):
                pass
        count += 1
    done(count)


def idle_round(broker: RunningBroker, count: int) -> State:
    """The broker with so many idle connections; they are closed afterwards."""
    barrier = multiprocessing.Barrier(WORKERS + 1)
    share = count // WORKERS
    workers = [
        multiprocessing.Process(target=stand_idle, args=(broker.port, n, share, barrier))
        for n in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    barrier.wait(600)
    there = state_of(broker.pid)
    barrier.wait(600)
    for worker in workers:
        worker.join()
    return there


def churn_round(broker: RunningBroker, rate: float, seconds: float) -> float:
    """Connections a second that came and went."""
    counts: multiprocessing.Queue[int] = multiprocessing.Queue()
    workers = [
        multiprocessing.Process(
            target=come_and_go, args=(broker.port, n, rate / WORKERS, seconds, counts.put)
        )
        for n in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    total = sum(counts.get(timeout=seconds + 120) for _ in workers)
    for worker in workers:
        worker.join()
    return total / seconds


def main() -> int:
    """Both rounds, and what was left."""
    parser = argparse.ArgumentParser(prog="python -m bench.churn", description=__doc__)
    parser.add_argument("--idle", type=int, default=10_000, help="connections that stand idle (10000)")
    parser.add_argument("--rate", type=float, default=2000, help="connections a second (2000)")
    parser.add_argument("--seconds", type=float, default=60, help="of them (60)")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = f"limits:\n  max_connections: {args.idle + 1000}\nlog_level: warning\n"
    with tempfile.TemporaryDirectory(prefix="sluice-churn-") as folder:
        broker = RunningBroker(Path(folder) / "broker", config, "", ())
        try:
            broker.settle()
            idle_round(broker, args.idle)
            churn_round(broker, args.rate, min(args.seconds, 5))
            start = come_back(broker.pid, State(0, state_of(broker.pid).descriptors))
            there = idle_round(broker, args.idle)
            after_idle = come_back(broker.pid, start)
            rate = churn_round(broker, args.rate, args.seconds)
            end = come_back(broker.pid, start)
        finally:
            broker.stop()
    print(f"start: {start.memory_kb / 1024:.1f} MB, {start.descriptors} descriptors")
    print(
        f"{args.idle:,} idle connections: {there.memory_kb / 1024:.1f} MB,"
        f" {(there.memory_kb - start.memory_kb) / args.idle:.1f} KB each; then"
        f" {after_idle.memory_kb / 1024:.1f} MB, {after_idle.descriptors} descriptors"
    )
    print(
        f"{rate:,.0f} connections a second for {args.seconds:g} s: then {end.memory_kb / 1024:.1f} MB"
        f" ({end.memory_kb / start.memory_kb - 1:+.1%}), {end.descriptors} descriptors"
    )
    return 0 if is_back(start, after_idle) and is_back(start, end) else 1


if __name__ == "__main__":
    sys.exit(main())
