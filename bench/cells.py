"""Cells beside one broker process, and links that are passed on: ``python -m bench.cells [--only PART]``.

Three brokers run at once and are loaded in turns: one with ``cells: 1``, one with two cells, and one with two
cells that keep the connections they accept, as they keep those with TLS, so that links to the other cell are
passed on. One sender and one receiver, each on a connection of its own; medians of ``--rounds``, whose order
is turned each time.

1. ``costs``: processor time a message of each cell, where clients are at home, handed over, or passed on for
   one of both links or for both.
2. ``capacity``: two queues in one cell beside one in each of two, with as many clients; messages for a second
   of the broker's processor time.
3. ``latency`` at 2,000/s.
4. ``queues``: 10,000 durable ones in one and in four cells: memory, the time of a start, and a load on 200.

From the costs follows a table for more cells than this machine has processors. A cell that is to take no
connection stands still (SIGSTOP) while clients connect: the others have them then.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.barelog import natural
from bench.contenders import START_S, STOP_S, BenchError, free_port
from broker.amqp.loop.handover import ConnectionHandovers
from broker.cli.main import main as sluice
from broker.cli.verbs import serve
from broker.client.load.loop import LoadLoop
from broker.client.request import Management
from broker.codec import sections
from broker.server.cells.directory import heaviest
from broker.server.cells.place import VARIABLE

MODULE = "bench.cells"
POLICIES = """policies:
  - {match: "at0.#", cell: 0}
  - {match: "at1.#", cell: 1}
  - {match: "many.#", durable: true}
"""
SIZES = (100, 1024)
WARMUP_S = 0.4
# Until a cell that runs has taken in what has connected to it.
ACCEPT_S = 0.2
ATTACH_S = 20.0
WINDOW = 1000
# As `sluice bench` has: messages under way at most; of large ones fewer.
BACKLOG = 5000
UNDER_WAY_BYTES = 48 << 20
PACED = 2000.0
LOADED = 200
QUEUE_CELLS = (1, 4)
MODELLED = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Link:
    """A connection with one link of the load; ``via``: the only cell that may accept it, None for any."""

    address: str
    is_sender: bool
    via: int | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """Where the clients of one queue connect, and which cells must have had work then, and no others."""

    broker: str
    sender_via: int | None
    receiver_via: int | None
    working: tuple[int, ...]

    def links(self) -> list[Link]:
        """Return the receiver and the sender of one queue, which is cell 0's."""
        return [Link("at0.one", False, self.receiver_via), Link("at0.one", True, self.sender_via)]


SETUPS = {
    "cells: 1": Setup("one", None, None, (0,)),
    "at home": Setup("two", 0, 0, (0,)),
    "handed over": Setup("two", 1, 1, (0,)),
    "sender passed on": Setup("kept", 1, 0, (0, 1)),
    "receiver passed on": Setup("kept", 0, 1, (0, 1)),
    "both passed on": Setup("kept", 1, 1, (0, 1)),
}
PACED_SETUPS = ("cells: 1", "at home", "handed over", "both passed on")
CAPACITY = {
    "2 queues, cells: 1": ("one", ("at0.one", "at1.one")),
    "2 queues, 2 cells": ("two", ("at0.one", "at1.one")),
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A started one: its URL, and the process of each cell."""

    url: str
    pids: tuple[int, ...]

    def spent_s(self) -> list[float]:
        """Return the processor seconds of each cell so far."""
        return [spent_s(pid) for pid in self.pids]

    @contextmanager
    def only(self, cell: int | None) -> Iterator[None]:
        """Have no other cell accept connections while the block runs."""
        others = [pid for number, pid in enumerate(self.pids) if number != cell] if cell is not None else []
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one turn: messages a second, microseconds of each cell and of the load for one; latencies."""

    rate: float
    cell_us: tuple[float, ...]
    load_us: float
    p50_us: float = 0.0
    p99_us: float = 0.0

    @property
    def cpu_us(self) -> float:
        """Processor time of the whole broker."""
        return sum(self.cell_us)


def spent_s(pid: int) -> float:
    """Return the processor seconds of all threads of a process so far (schedstat, to the nanosecond)."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9
    except OSError:
        raise BenchError("the broker ended by itself") from None


def proportional_bytes(pids: Sequence[int]) -> int:
    """Return the memory of processes; what they share is counted once (``Pss`` of smaps_rollup, proc(5))."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024


def keep_connections() -> None:
    """Have no connection of this process handed over, nor of the cells that it starts."""
    command: Any = serve._words

    def words(args: argparse.Namespace) -> list[str]:
        python, option, _, *rest = command(args)
        return [python, option, MODULE, "--kept", *rest]

    changed: Any = serve
    changed._words = words
    handovers: Any = ConnectionHandovers
    handovers.begin = lambda _self, _peer, _cell: False


@contextmanager
def started(folder: Path, cells: int, *, keeps: bool = False) -> Iterator[Broker]:
    """Run a broker with its data in a folder while the block does."""
    folder.mkdir(exist_ok=True)
    policies, log, port = folder / "policies.yaml", folder / "log", free_port()
    # A policy can name cells that there are.
    named = [each for each in POLICIES.splitlines(True) if cells > 1 or "cell:" not in each]
    policies.write_text("".join(named))
    begin = [MODULE, "--kept"] if keeps else ["broker.cli.main"]
    words = ["serve", "--policies", str(policies), "--data", str(folder / "data"), "--cells", str(cells)]
    listen = ["--listen", f"amqp://127.0.0.1:{port}", "--http", f"127.0.0.1:{free_port()}"]
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", *begin, *words, *listen], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S
        while not any(line.endswith(" ready") for line in log.read_text(errors="replace").splitlines()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the broker did not start: {log.read_text(errors='replace')}")
            time.sleep(0.005)
        url = f"amqp://127.0.0.1:{port}"
        yield Broker(url, pids_of(process.pid) if cells > 1 else (process.pid,))
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def pids_of(process: int) -> tuple[int, ...]:
    """Return the process ids of the cells that a supervisor has started, by their numbers."""
    found = {}
    for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = each.partition(b"=")
            if name.decode() == VARIABLE:
                found[int(json.loads(value)["number"])] = int(pid)
    return tuple(found[number] for number in sorted(found))


def connected(broker: Broker, links: Sequence[Link], body: int, rate: float = 0.0) -> LoadLoop:
    """Return a load with its links attached, each by way of the cell that it is to go by."""
    frame = sections.header(durable=False) + sections.binary_body(bytes(97 + at % 26 for at in range(body)))
    senders = sum(link.is_sender for link in links)
    run = secrets.randbits(63)
    most = max(UNDER_WAY_BYTES // body, 10)
    window, backlog = min(WINDOW, most), min(BACKLOG, most)
    loop = LoadLoop(run, frame, body, senders, window=window, credit=window, max_backlog=backlog, rate=rate)
    numbers = {True: 0, False: 0}
    # Pages of a cell that stands still can't be attached: links by way of one cell are connected together.
    for via in dict.fromkeys(link.via for link in links):
        with broker.only(via):
            for link in links:
                if link.via == via:
                    number = numbers[link.is_sender]
                    loop.connect(broker.url, link.address, is_sender=link.is_sender, index=number)
                    numbers[link.is_sender] += 1
            if via is not None:
                loop.spin(ACCEPT_S)
    deadline = time.monotonic() + ATTACH_S
    while not loop.attached:
        if time.monotonic() > deadline:
            raise BenchError("not every link was attached in time")
        loop.spin(0.02)
    return loop


def turn(
    broker: Broker, loads: Sequence[Sequence[Link]], body: int, seconds: float, rate: float = 0.0
) -> Figures:
    """Load a broker for so long, with a thread for each of ``loads``."""
    loops = [connected(broker, links, body, rate) for links in loads]
    try:
        with ThreadPoolExecutor(len(loops)) as threads:

            def spin(time_s: float) -> None:
                list(threads.map(lambda loop: loop.spin(time_s), loops))

            for loop in loops:
                loop.begin()
            spin(WARMUP_S)
            for loop in loops:
                loop.measuring = True
            spent, load_s, begun = broker.spent_s(), time.process_time(), time.monotonic()
            count = sum(loop.received for loop in loops)
            spin(seconds)
            took_s, load_s = time.monotonic() - begun, time.process_time() - load_s
            spent = [after - before for after, before in zip(broker.spent_s(), spent, strict=True)]
            count = sum(loop.received for loop in loops) - count
            for loop in loops:
                loop.measuring = loop.sending = False
            wrong = sum(loop.refused + loop.repeated + loop.unordered for loop in loops)
            if not count or wrong:
                raise BenchError(f"the run is void: {count} received, {wrong} wrong")
            latency = loops[0].latency_us() or {}
            spin(0.2)
    finally:
        for loop in loops:
            loop.close()
    each_us = tuple(cell / count * 1e6 for cell in spent)
    return Figures(
        count / took_s, each_us, load_s / count * 1e6, latency.get("p50", 0.0), latency.get("p99", 0.0)
    )


def checked(setup: Setup, found: Figures) -> Figures:
    """Return the figures; raises BenchError where other cells had the work than the setup says."""
    busy = tuple(number for number, spent in enumerate(found.cell_us) if spent > 0.1 * found.cpu_us)
    if busy != setup.working:
        raise BenchError(f"cells {busy} worked where {setup.working} were to: {found}")
    return found


def middle(rounds: Sequence[Figures]) -> Figures:
    """Return the medians of rounds."""
    cells = len(rounds[0].cell_us)
    return Figures(
        median(each.rate for each in rounds),
        tuple(median(each.cell_us[cell] for each in rounds) for cell in range(cells)),
        median(each.load_us for each in rounds),
        median(each.p50_us for each in rounds),
        median(each.p99_us for each in rounds),
    )


def turned(names: Sequence[str], number: int) -> list[str]:
    """Return names in the order of a round."""
    return list(names) if number % 2 == 0 else list(reversed(names))


def costs(
    brokers: Mapping[str, Broker], sizes: Sequence[int], rounds: int, seconds: float
) -> dict[tuple[str, int], Figures]:
    """Return the figures by setup and size."""
    found: dict[tuple[str, int], list[Figures]] = {}
    for number in range(rounds):
        for name in turned(list(SETUPS), number):
            setup = SETUPS[name]
            for body in sizes:
                figures = checked(setup, turn(brokers[setup.broker], [setup.links()], body, seconds))
                found.setdefault((name, body), []).append(figures)
    return {key: middle(each) for key, each in found.items()}


def capacity(brokers: Mapping[str, Broker], rounds: int, seconds: float) -> dict[tuple[str, int], Figures]:
    """Return the figures of two queues, by broker and size."""
    found: dict[tuple[str, int], list[Figures]] = {}
    for number in range(rounds):
        for name in turned(list(CAPACITY), number):
            broker, queues = CAPACITY[name]
            loads = [[Link(queue, False), Link(queue, True)] for queue in queues]
            for body in SIZES:
                found.setdefault((name, body), []).append(turn(brokers[broker], loads, body, seconds))
    return {key: middle(each) for key, each in found.items()}


def latency(brokers: Mapping[str, Broker], rounds: int, seconds: float) -> dict[str, Figures]:
    """Return the figures by setup, of 100 bytes at a fixed rate."""
    found: dict[str, list[Figures]] = {}
    for number in range(rounds):
        for name in turned(PACED_SETUPS, number):
            setup = SETUPS[name]
            figures = turn(brokers[setup.broker], [setup.links()], SIZES[0], seconds, PACED)
            found.setdefault(name, []).append(figures)
    return {name: middle(each) for name, each in found.items()}


@dataclass(frozen=True, slots=True)
class Many:
    """Many queues in so many cells: memory and the time of a start without and with them, and a load."""

    cells: int
    empty_bytes: int
    full_bytes: int
    empty_start_s: float
    start_s: float
    load: Figures


def many(folder: Path, cells: int, count: int, rounds: int, seconds: float) -> Many:
    """Make so many durable queues, start anew, and load 200 of them."""
    names = [f"many.{number}" for number in range(count)]
    begun = time.monotonic()
    with started(folder, cells) as broker:
        empty_s, empty = time.monotonic() - begun, proportional_bytes(broker.pids)
        for cell in range(cells):
            with Management(broker.url, cell=cell if cells > 1 else None) as management:
                for name in names:
                    if cells == 1 or heaviest(name, cells) == cell:
                        management.call("CREATE", "org.sluice.queue", name, {})
    begun = time.monotonic()
    with started(folder, cells) as broker:
        start_s, full = time.monotonic() - begun, proportional_bytes(broker.pids)
        loaded = names[:: max(count // LOADED, 1)][:LOADED]
        # Two loads: one has no more than 256 connections.
        halves = [loaded[0::2], loaded[1::2]]
        loads = [
            [Link(name, is_sender) for is_sender in (False, True) for name in half] for half in halves if half
        ]
        found = middle([turn(broker, loads, SIZES[0], seconds) for _ in range(rounds)])
    return Many(cells, empty, full, empty_s, start_s, found)


def modelled(cells: int, share: float, one_us: float, home_us: float, passed_us: float) -> float:
    """Return how many times one broker process so many cells carry.

    A message costs ``one_us`` there, ``home_us`` in a cell, and with both of its links passed on
    ``passed_us`` more in both cells together; ``share`` of all links are passed on. Work is spread evenly,
    and each cell has a processor of its own.
    """
    return cells * one_us / (home_us + share * passed_us)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are numbers."""
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def costs_shown(found: Mapping[tuple[str, int], Figures], sizes: Sequence[int]) -> str:
    """Return the table of costs, and below it what passing on takes of either cell."""
    rows = []
    for body in sizes:
        for name in SETUPS:
            each = found[name, body]
            apart = ", ".join(f"{cell:.2f}" for cell in each.cell_us)
            rows.append(
                (f"{body} B, {name}", f"{each.rate:,.0f}", f"{each.cpu_us:.2f}", apart, f"{each.load_us:.2f}")
            )
    heads = ("bytes, clients", "msg/s", "broker µs/msg", "cell 0, cell 1", "generator µs/msg")
    lines = []
    for body in sizes:
        home = found["at home", body].cell_us[0]
        said = []
        for name in ("sender passed on", "receiver passed on", "both passed on"):
            owner, other = found[name, body].cell_us
            said.append(
                f"{name}: {owner - home:+.2f} µs in the queue's cell, {other:+.2f} µs in the client's"
            )
        lines.append(f"{body} B beside at home; {'; '.join(said)}")
    return "\n".join([table(heads, rows), "", *lines])


def capacity_shown(found: Mapping[tuple[str, int], Figures]) -> str:
    """Return the table of two queues, and the ratios of two cells to one."""
    rows, lines = [], []
    for body in SIZES:
        for name in CAPACITY:
            each = found[name, body]
            a_second = 1e6 / each.cpu_us
            rows.append(
                (
                    f"{body} B, {name}",
                    f"{each.rate:,.0f}",
                    f"{each.cpu_us:.2f}",
                    f"{a_second:,.0f}",
                    f"{each.load_us:.2f}",
                )
            )
        one, two = (found[name, body] for name in CAPACITY)
        share = one.cpu_us / two.cpu_us
        busy = " and ".join(f"{each.rate * each.cpu_us / 1e6:.2f}" for each in (one, two))
        lines.append(
            f"{body} B: on these processors {two.rate / one.rate:.2f} of the rate, {busy} processors busy in"
            f" the broker; a second of a cell carries {share:.2f} of what one of a single broker does, two"
            f" cells with a processor each {2 * share:.2f} of it"
        )
    heads = ("two queues", "msg/s", "broker µs/msg", "msg a second of broker", "generator µs/msg")
    return "\n".join([table(heads, rows), "", *lines])


def latency_shown(found: Mapping[str, Figures]) -> str:
    """Return the table of latencies."""
    rows = [(name, f"{each.p50_us:.0f}", f"{each.p99_us:.0f}") for name, each in found.items()]
    return table((f"100 B at {PACED:,.0f}/s", "p50, µs", "p99, µs"), rows)


def many_shown(count: int, found: Sequence[Many]) -> str:
    """Return the table of many queues."""
    rows = []
    for each in found:
        memory = f"{each.empty_bytes / 2**20:,.0f} → {each.full_bytes / 2**20:,.0f}"
        start = f"{each.empty_start_s:.2f} → {each.start_s:.2f}"
        load = each.load
        rows.append((f"cells: {each.cells}", memory, start, f"{load.rate:,.0f}", f"{load.cpu_us:.2f}"))
    heads = (f"0 → {count:,} queues", "memory, MiB", "start, s", f"msg/s over {LOADED}", "broker µs/msg")
    return table(heads, rows)


def model_shown(
    cost: Mapping[tuple[str, int], Figures],
    two: Mapping[tuple[str, int], Figures] | None,
) -> str:
    """Return how many times a single broker N cells carry by the costs, and by what was measured."""
    body = SIZES[0]
    one = cost["cells: 1", body].cpu_us
    home, passed = cost["at home", body].cpu_us, cost["both passed on", body].cpu_us
    half = (cost["sender passed on", body].cpu_us + cost["receiver passed on", body].cpu_us) / 2
    measured = {
        (2, 0): f"{2 * one / home:.2f}",
        (2, 1): f"{2 * one / half:.2f}",
        (2, 2): f"{2 * one / passed:.2f}",
    }
    if two is not None:
        single, pair = (two[name, body].cpu_us for name in CAPACITY)
        measured[2, 0] = f"{2 * single / pair:.2f}"
    rows = []
    for cells in MODELLED:
        row = [str(cells)]
        for column, share in enumerate((0.0, (cells - 1) / cells, 1.0)):
            given = modelled(cells, share, one, one if cells == 1 else home, passed - home)
            text = "–" if cells == 1 and column else f"{given:.2f}"
            found = measured.get((cells, column))
            row.append(f"{text} ({found})" if found else text)
        rows.append(row)
    heads = ("cells", "a connection a queue: p = 0", "pooled: p = (N-1)/N", "all passed on: p = 1")
    said = (
        f"times a single broker, N·{one:.2f} / ({home:.2f} + p·{passed - home:.2f}); in brackets by processor"
        " time that was measured"
    )
    return f"{table(heads, rows)}\n\n{said}"


def main() -> int:
    """Measure, and print a table for each part."""
    if sys.argv[1:2] == ["--kept"]:
        keep_connections()
        return sluice(sys.argv[2:])
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--rounds", type=natural, default=3, metavar="N", help="medians of N (3)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of each turn (1)")
    parser.add_argument(
        "--queues", type=natural, default=10_000, metavar="N", help="of the last part (10,000)"
    )
    parser.add_argument(
        "--size",
        type=natural,
        action="append",
        metavar="BYTES",
        help="of messages of the first part (100, 1024)",
    )
    parts = ("costs", "capacity", "latency", "queues")
    parser.add_argument("--only", action="append", choices=parts, help="this part (may be repeated)")
    args = parser.parse_args()
    wanted, sizes = args.only or parts, tuple(args.size or SIZES)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, ExitStack() as running:
        folder = Path(name)
        brokers = {
            each: running.enter_context(started(folder / each, cells, keeps=keeps))
            for each, cells, keeps in (("one", 1, False), ("two", 2, False), ("kept", 2, True))
        }
        cost = two = None
        if "costs" in wanted:
            cost = costs(brokers, sizes, args.rounds, args.seconds)
            print(costs_shown(cost, sizes), end="\n\n", flush=True)
        if "capacity" in wanted:
            two = capacity(brokers, args.rounds, args.seconds)
            print(capacity_shown(two), end="\n\n", flush=True)
        if "latency" in wanted:
            print(latency_shown(latency(brokers, args.rounds, args.seconds)), end="\n\n", flush=True)
        running.close()
        if "queues" in wanted:
            found = [
                many(folder / f"many{cells}", cells, args.queues, args.rounds, args.seconds)
                for cells in QUEUE_CELLS
            ]
            print(many_shown(args.queues, found), end="\n\n", flush=True)
        if cost is not None and SIZES[0] in sizes:
            print(model_shown(cost, two))
    return 0


if __name__ == "__main__":
    sys.exit(main())
