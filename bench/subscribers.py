"""What subscribers of a topic cost: one that stalls beside nine that go on; and what each more of them costs.

The stalled one takes ten messages and settles none. Its policy says what becomes of the rest: it goes to
disk, the oldest of it is dropped, or (without flow control) what is beyond its hard limit is. The nine stay
and go on while it comes and goes: they are measured with it and without it, second by second, so that a
machine that slows down slows both.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench.contenders import BenchError, Running
from bench.measuring import BODY, Figures, Pace
from broker.client.link import Connection
from broker.client.load.load import Usage
from broker.client.load.loop import LoadLoop
from broker.codec import sections

HEALTHY = 9
PAIRS = 15
# After the stalled one has come or gone, before anything is counted.
TURN_S = 0.2
COUNTS = (1, 10, 100, 1000)
MODES = ("paging", "shedding", "uncontrolled")
STALLED_CREDIT = 10
MOST_OF_A_LOOP = 250
ATTACH_S = 30.0
FRAME = sections.header() + sections.binary_body(bytes(97 + i % 26 for i in range(BODY)))


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages delivered a second, and the broker's processor time for each."""

    rate: float
    cpu_us: float


def scenario(running: Running, pace: Pace) -> Figures:
    """``_part`` is the rate of the nine beside a stalled one, of their rate without it."""
    figures: Figures = {}
    for mode in MODES:
        pairs = _pairs(running, pace.seconds / 8, f"fan.{mode}")
        figures[f"{mode}_part"] = median(beside.rate / alone.rate for alone, beside in pairs)
        figures[f"{mode}_cpu_part"] = median(beside.cpu_us / alone.cpu_us for alone, beside in pairs)
    for count in COUNTS:
        found = [_slice(running, pace.seconds / 2, "fan.many", count) for _ in range(3)]
        figures[f"cpu_{count}"] = median(each.cpu_us for each in found)
        figures[f"rate_{count}"] = median(each.rate for each in found)
    return figures


def _pairs(running: Running, seconds: float, address: str) -> list[tuple[Slice, Slice]]:
    """What nine subscribers get without the stalled one, and beside it right afterwards."""
    found = []
    with _going(running, address, HEALTHY) as going:
        going.spin(seconds)
        for _ in range(PAIRS):
            going.spin(TURN_S)
            alone = going.measured(seconds)
            with _stalled(running, address):
                going.spin(TURN_S)
                found.append((alone, going.measured(seconds)))
    return found


@contextmanager
def _stalled(running: Running, address: str) -> Iterator[None]:
    with Connection(running.url, container_id="slow") as connection:
        receiver = connection.receiver(address, credit=STALLED_CREDIT)
        yield
        # It was there all the time and got what it may have before it settles anything.
        connection.wait_until(lambda: receiver.received >= STALLED_CREDIT, 5.0)
        if receiver.received != STALLED_CREDIT:
            raise BenchError("the stalled subscriber was not there")


class Going:
    """One sender and its receivers, which move messages while one of the methods runs."""

    def __init__(
        self, running: Running, address: str, loops: list[LoadLoop], threads: ThreadPoolExecutor
    ) -> None:
        self._running = running
        self._address = address
        self._loops = loops
        self._threads = threads

    def spin(self, seconds: float) -> None:
        """Go on for so long."""
        _spin(self._loops, self._threads, seconds)

    def measured(self, seconds: float) -> Slice:
        """Go on for so long, counting. BenchError if nothing moves."""
        before, used = _received(self._loops), _cpu_s(self._running)
        begun = time.monotonic()
        self.spin(seconds)
        passed_s = time.monotonic() - begun
        moved, cpu_s = _received(self._loops) - before, _cpu_s(self._running) - used
        if moved == 0:
            raise BenchError(f"nothing came of '{self._address}'")
        return Slice(moved / passed_s, cpu_s / moved * 1e6)


@contextmanager
def _going(running: Running, address: str, receivers: int) -> Iterator[Going]:
    """One sender and so many receivers, each on a connection of its own."""
    loops: list[LoadLoop] = []
    run = secrets.randbits(63)
    try:
        for first in range(0, receivers, MOST_OF_A_LOOP):
            loop = LoadLoop(run, FRAME, BODY, 1)
            loops.append(loop)
            for index in range(first, min(first + MOST_OF_A_LOOP, receivers)):
                loop.connect(running.url, address, is_sender=False, index=index - first)
        loops[0].connect(running.url, address, is_sender=True, index=0)
        with ThreadPoolExecutor(len(loops)) as threads:
            _attach(loops, threads)
            loops[0].begin()
            yield Going(running, address, loops, threads)
            loops[0].sending = False
            _spin(loops, threads, 0.2)
    finally:
        for loop in loops:
            loop.close()


def _slice(running: Running, seconds: float, address: str, receivers: int) -> Slice:
    with _going(running, address, receivers) as going:
        going.spin(seconds / 4)
        return going.measured(seconds)


def _attach(loops: list[LoadLoop], threads: ThreadPoolExecutor) -> None:
    deadline = time.monotonic() + ATTACH_S
    while not all(loop.attached for loop in loops):
        if time.monotonic() > deadline:
            raise BenchError("not every link was attached in time")
        _spin(loops, threads, 0.05)


def _spin(loops: list[LoadLoop], threads: ThreadPoolExecutor, seconds: float) -> None:
    list(threads.map(lambda loop: loop.spin(seconds), loops))


def _received(loops: list[LoadLoop]) -> int:
    """Deliveries; a loop takes the copies that its other receivers get for repeats."""
    return sum(loop.received + loop.repeated for loop in loops)


def _cpu_s(running: Running) -> float:
    usage = Usage.of(running.pid)
    if usage is None:
        raise BenchError("the contender ended by itself")
    return usage.cpu_s
