"""Runs the two clients beside each other and watches the broker through its management node."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import OperatorError
from examples.flights import table
from examples.flights.ends import Received, Sent, consume, produce

QUEUE = "org.sluice.queue"
LOOK_EVERY_S = 0.1
SETTLE_S = 5.0
ADDRESS = "orders.flights"
SLOW_RATE = 2000.0  # rows a second
SLOW_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: every row to ``address``, taken at ``slow_rate`` for ``slow_s`` and then freely."""

    url: str
    address: str = ADDRESS
    rows: int = table.ROWS
    slow_rate: float = SLOW_RATE
    slow_s: float = SLOW_S


@dataclass(frozen=True, slots=True)
class Look:
    """The queue at one moment, from its attributes; ``peak`` is the deepest it ever was."""

    depth: int
    peak: int
    promised: int
    stop: int
    resume: int
    stopped: bool
    stopped_count: int
    stopped_s: float
    received: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened; the counts of ``flow`` are this run's own."""

    plan: Plan
    sent: Sent
    received: Received
    looks: list[Look]
    stops: int
    stopped_s: float

    @property
    def deepest_look(self) -> int:
        """The greatest depth that was sampled."""
        return max(look.depth for look in self.looks)

    @property
    def failures(self) -> list[str]:
        """What did not come out as promised; empty when all did."""
        rows, last = self.plan.rows, self.looks[-1]
        held = {
            "not every row was accepted": self.sent.accepted == self.sent.rows == rows,
            "not every row arrived exactly once": self.received.rows == rows and not self.received.repeated,
            "rows arrived out of order": self.received.in_order,
            "rows arrived altered": self.received.digest == self.sent.digest,
            "the queue was deeper than its stop threshold": not last.stop or last.peak <= last.stop,
            "something is left in the queue": last.depth == 0,
        }
        return [failure for failure, kept in held.items() if not kept]


def run(plan: Plan, watch: Callable[[Look], None] = lambda _: None) -> Outcome:
    """Sends and receives every row; ``watch`` gets a look ten times a second.

    Raises ClientError or OperatorError if the broker can't be reached, the queue isn't empty or the data set
    isn't installed.
    """
    table.archive()  # before anybody waits for rows that can't come
    spawn = multiprocessing.get_context("spawn")
    with Management(plan.url) as management, ProcessPoolExecutor(2, mp_context=spawn) as processes:
        first = _begin(management, plan)
        look = partial(_look, management, plan.address)
        ends = (
            processes.submit(consume, plan.url, plan.address, plan.rows, plan.slow_rate, plan.slow_s),
            processes.submit(produce, plan.url, plan.address, plan.rows),
        )
        looks = [first]
        while not _all_done(ends):
            looks.append(look())
            watch(looks[-1])
            time.sleep(LOOK_EVERY_S)
        received, sent = ends[0].result(), ends[1].result()
        looks.append(_settled(look))
    return Outcome(
        plan=plan,
        sent=sent,
        received=received,
        looks=looks,
        stops=looks[-1].stopped_count - first.stopped_count,
        stopped_s=looks[-1].stopped_s - first.stopped_s,
    )


def _begin(management: Management, plan: Plan) -> Look:
    """The empty queue."""
    with Connection(plan.url) as connection:
        connection.sender(plan.address)  # attaching creates the queue, as its policy says
    look = _look(management, plan.address)
    if look.depth:
        raise OperatorError(f"{plan.address} holds {look.depth:,} messages of others; it must be empty")
    return look


def _all_done(ends: tuple[Future[Received], Future[Sent]]) -> bool:
    """Whether both have ended; raises why one of them failed."""
    for end in ends:
        if end.done():
            end.result()
    return all(end.done() for end in ends)


def _settled(look: Callable[[], Look]) -> Look:
    """The queue once the broker has heard of the last rows taken."""
    deadline = time.monotonic() + SETTLE_S
    last = look()
    while last.depth and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        last = look()
    return last


def _look(management: Management, address: str) -> Look:
    found = management.call("READ", QUEUE, address).body
    assert isinstance(found, dict)
    number = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return Look(
        depth=int(number["depth_msgs"]),
        peak=int(number["peak_msgs"]),
        promised=int(number["promised_msgs"]),
        stop=int(number.get("flow_stop_count", 0)),
        resume=int(number.get("flow_resume_count", 0)),
        stopped=bool(number["flowStopped"]),
        stopped_count=int(number["flowStoppedCount"]),
        stopped_s=number["flowStoppedSeconds"],
        received=int(number["received"]),
        accepted=int(number["accepted"]),
    )
