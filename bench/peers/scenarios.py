"""What every broker is asked; each scenario measures a started one and returns named figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from bench.clients import beside
from bench.contenders import BenchError
from bench.measuring import BODY, Figures, number
from bench.peers.flood import flooded
from bench.peers.peer import LIMIT_MSGS, LIMITED, Subject
from bench.peers.seen import flushes, live_heap, resident, settled

# On top of what a measurement is meant to last: attaching, and waiting for what is under way.
BOUND_S = 25.0
STALL_S = 5.0
# Messages a second at which latency is measured: every broker can keep all of them.
RATES = {"latency-200": 200, "latency": 2000, "latency-20000": 20_000}
PRODUCERS, EACH = 10, 3000
IDLE, TURNS = 99, 2
BEFORE = 10_000  # messages that pass before a backlog's memory is looked at
CHUNKS = 10


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things last, in seconds, and how many messages the backlog is to have."""

    seconds: float
    warmup: float
    warm: float
    backlog: int
    backlog_s: float


FULL = Pace(seconds=3, warmup=1.5, warm=5, backlog=1_000_000, backlog_s=60)
QUICK = Pace(seconds=1.5, warmup=1, warm=3, backlog=100_000, backlog_s=20)

Scenario = Callable[[Subject, Pace], Figures]


def done(subject: Subject, pace: Pace, queue: str, **job: object) -> Mapping[str, object]:
    """What one job of the load generator found; BenchError if it was refused or took too long."""
    given: dict[str, object] = {
        "url": subject.running.url,
        "pid": subject.running.pid,
        "address": subject.peer.address(queue),
        "seconds": pace.seconds,
        "warmup": pace.warmup,
        "body": BODY,
        "stall": STALL_S,
    }
    given |= job
    bound_s = number(given["seconds"]) + number(given["warmup"]) + BOUND_S
    command = [sys.executable, "-m", "broker.client.load.load"]
    try:
        ended = subprocess.run(
            command, input=json.dumps(given), capture_output=True, text=True, timeout=bound_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"not done within {bound_s:g} s") from error
    lines = ended.stdout.splitlines() or ['{"error": "the load generator ended without a result"}']
    line: dict[str, dict[str, object]] = json.loads(lines[-1])
    if "result" not in line:
        raise BenchError(str(line.get("error", "the load generator was cut short")))
    return line["result"]


def load(subject: Subject, pace: Pace, queue: str, **job: object) -> Mapping[str, object]:
    """The same; BenchError also if anything was lost, doubled or refused, or nothing moved."""
    return judged(subject, done(subject, pace, queue, **job))


def judged(subject: Subject, result: Mapping[str, object]) -> Mapping[str, object]:
    """A result of which nothing was lost, doubled or refused; else BenchError."""
    if result["unordered"]:
        # Told beside the figures and no reason to void them: every message came.
        subject.overtaken.append(int(number(result["unordered"])))
    wrong = {name: result[name] for name in ("lost", "duplicated", "refused") if result[name]}
    if wrong or result["stalled"]:
        raise BenchError(", ".join(f"{count:,} {name}" for name, count in wrong.items()) or "nothing moved")
    return result


def warmed(subject: Subject, pace: Pace) -> None:
    """Traffic nobody measures: brokers in Java compile themselves while they run."""
    load(subject, pace, "warm", seconds=pace.warm, warmup=0.0)


def throughput(queue: str, **job: object) -> Scenario:
    """Messages received a second, and what one costs in processor time."""

    def scenario(subject: Subject, pace: Pace) -> Figures:
        result = load(subject, pace, queue, **job)
        return {"rate": number(result["out_s"]), "cpu_us": number(result["broker_cpu_us"])}

    return scenario


def synced(queue: str, **job: object) -> Scenario:
    """The same with durable messages, and how often the disk was flushed meanwhile, by whomever."""

    def scenario(subject: Subject, pace: Pace) -> Figures:
        before = flushes(subject.running.directory)
        result = load(subject, pace, queue, durable=True, **job)
        after, figures = flushes(subject.running.directory), {"rate": number(result["out_s"])}
        if before is None or after is None:
            return figures
        return figures | {"flushes": (after - before) * 1000 / number(result["sent"])}

    return scenario


def transacted(queue: str, **job: object) -> Scenario:
    """Durable messages in transactions: the same figures, with the processor time."""

    def scenario(subject: Subject, pace: Pace) -> Figures:
        before = flushes(subject.running.directory)
        result = done(subject, pace, queue, durable=True, **job)
        if not result["messages"]:
            raise BenchError("no transaction was committed")
        judged(subject, result)
        after = flushes(subject.running.directory)
        figures = {"rate": number(result["out_s"]), "cpu_us": number(result["broker_cpu_us"])}
        if before is None or after is None:
            return figures
        return figures | {"flushes": (after - before) * 1000 / number(result["sent"])}

    return scenario


def latency(queue: str, rate: int) -> Scenario:
    """From sending to receipt at a rate, in messages a second."""

    def scenario(subject: Subject, pace: Pace) -> Figures:
        result = load(subject, pace, queue, rate=rate)
        found = result["latency_us"]
        if not isinstance(found, dict):
            raise BenchError(f"of {result['sent']:,} messages none came within the time that is measured")
        return {"p50_us": found["p50"], "p99_us": found["p99"]}

    return scenario


def busy(subject: Subject, pace: Pace) -> Figures:
    """One producer on a limited queue nobody else uses and on one that idle producers share, by turns.

    What is under way stays below the limit, so that it is never reached.
    """
    words = (
        "idle",
        subject.running.url,
        subject.peer.address(LIMITED + "busy"),
        str(IDLE),
        str(IDLE),
        "awake",
    )
    short = replace(pace, seconds=pace.seconds / 2, warmup=pace.warmup / 2)

    def rate(name: str) -> float:
        return number(load(subject, short, LIMITED + name, max_backlog=LIMIT_MSGS * 4 // 5)["out_s"])

    with beside(*words):
        turns = [(rate("alone"), rate("busy")) for _ in range(TURNS)]
    if not all(alone for alone, _ in turns):
        raise BenchError("nothing came out of the limited queue in one of the turns")
    return {
        "alone": median(alone for alone, _ in turns),
        "rate": median(among for _, among in turns),
        "part": median(among / alone for alone, among in turns),
    }


def overshoot(subject: Subject, pace: Pace) -> Figures:
    """What a limited queue took beyond its limit from ten producers, and what was sent in vain."""
    figures: Figures = {}
    for kind, pre in (("un", False), ("pre", True)):
        address = subject.peer.address(f"{LIMITED}{kind}")
        found = flooded(subject.running.url, address, PRODUCERS, EACH, 4 * pace.seconds, pre=pre)
        if not found.sent:
            raise BenchError("no credit at all")
        figures |= {
            f"{kind}_over": max((found.kept if pre else found.accepted) - LIMIT_MSGS, 0),
            f"{kind}_refused": found.refused,
            f"{kind}_open": max(found.sent - found.accepted - found.refused, 0),
            f"{kind}_lost": max(found.sent - found.kept, 0) if pre else max(found.accepted - found.kept, 0),
        }
    return figures


def backlog(subject: Subject, pace: Pace) -> Figures:
    """Memory of the broker for each queued message: all it has grown by, and what of it a Java heap holds.

    A broker that takes no more, or is too slow for the whole backlog, is judged by what it took.
    """
    running, chunk = subject.running, pace.backlog // CHUNKS
    load(subject, pace, "backlogged", count=BEFORE)
    heap, before, began = live_heap(running), settled(running), time.monotonic()
    queued, took_s = 0.0, 0.0
    while queued < pace.backlog and time.monotonic() < began + pace.backlog_s:
        result = done(subject, pace, "backlog", receivers=0, count=chunk, seconds=pace.backlog_s)
        queued += number(result["settled"]) - number(result["refused"])
        took_s += number(result["seconds"])
        if result["stalled"]:
            took_s -= STALL_S
            subject.remarks.append(f"took no more of the backlog after {queued:,.0f}")
            break
    if not queued:
        raise BenchError("nothing was queued")
    figures = {"bytes": (resident(running) - before) / queued, "queued": queued, "fill": queued / took_s}
    full = live_heap(running)
    return figures if heap is None or full is None else figures | {"heap": (full - heap) / queued}


SCENARIOS: dict[str, Scenario] = {
    "plain": throughput("plain"),
    "kib": throughput("kib", body=1024),
    "many": throughput("many", senders=4, receivers=4),
    "presettled": throughput("presettled", presettled=True),
    "durable": synced("durable.one"),
    "durable-kib": synced("durable.kib", body=1024),
    **{name: latency(name, rate) for name, rate in RATES.items()},
    "busy": busy,
    "overshoot": overshoot,
    "backlog": backlog,
}
SIZES = (100, 10, 1)
# As in a JMS session a transaction begins when the one before it is committed; not so in `post-ahead`.
TRANSACTED: dict[str, Scenario] = {
    "unpost": transacted("durable.unpost", window=100),
    **{f"post-{size}": transacted(f"durable.post.{size}", transaction=size, window=size) for size in SIZES},
    "post-ahead": transacted("durable.post.ahead", transaction=100),
    **{f"retire-{size}": transacted(f"durable.retire.{size}", retire=size) for size in SIZES},
    **{
        f"both-{size}": transacted(f"durable.both.{size}", transaction=size, window=size, retire=size)
        for size in SIZES
    },
}
# It takes the longest and differs least from one round to the next: once, in the first.
ONCE = frozenset({"backlog"})
NEEDS_TRANSACTIONS = frozenset(TRANSACTED) - {"unpost"}
NEEDS_LIMIT = frozenset({"busy", "overshoot"})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    scenario: str
    figure: str
    title: str


ROWS = (
    Row("plain", "rate", "100 B, msg/s"),
    Row("plain", "cpu_us", "100 B, CPU µs/msg"),
    Row("kib", "rate", "1 KiB, msg/s"),
    Row("many", "rate", "4+4, 100 B, msg/s"),
    Row("presettled", "rate", "pre-settled 100 B, msg/s"),
    Row("durable", "rate", "durable 100 B, msg/s"),
    Row("durable", "flushes", "its disk flushes a 1,000 messages"),
    Row("durable-kib", "rate", "durable 1 KiB, msg/s"),
    *(
        Row(name, f"{part}_us", f"{part} at {rate:,}/s, µs")
        for name, rate in RATES.items()
        for part in ("p50", "p99")
    ),
    Row("backlog", "bytes", "backlog of 100 B, RSS B/msg"),
    Row("backlog", "heap", "of it live in a Java heap, B/msg"),
    Row("backlog", "queued", "so many queued"),
    Row("backlog", "fill", "queued at, msg/s"),
    Row("overshoot", "un_over", "limit 1,000, 10 producers: accepted beyond it"),
    Row("overshoot", "un_refused", "refused"),
    Row("overshoot", "un_open", "sent, never answered"),
    Row("overshoot", "un_lost", "accepted, not in the queue"),
    Row("overshoot", "pre_over", "the same pre-settled: kept beyond it"),
    Row("overshoot", "pre_lost", "sent, not in the queue"),
    Row("busy", "alone", "one busy producer, limit 1,000, msg/s"),
    Row("busy", "rate", "beside 99 idle ones, msg/s"),
    Row("busy", "part", "of it alone"),
)
TRANSACTED_ROWS = (
    Row("unpost", "rate", "none, at most 100 without an outcome, msg/s"),
    *(Row(f"post-{size}", "rate", f"sent, {size} in each, msg/s") for size in SIZES),
    Row("post-ahead", "rate", "sent, 100 in each, up to ten commits under way, msg/s"),
    *(Row(f"retire-{size}", "rate", f"accepted, {size} in each, msg/s") for size in SIZES),
    *(Row(f"both-{size}", "rate", f"sent and accepted, {size} in each, msg/s") for size in SIZES),
    *(
        Row(name, "cpu_us", f"CPU µs/msg, {title}")
        for name, title in (("post-100", "sent, 100"), ("post-1", "sent, 1"), ("retire-1", "accepted, 1"))
    ),
    *(
        Row(f"{name}-{size}", "flushes", f"the disk's flushes a 1,000 messages, {title}, {size}")
        for name, title in (("post", "sent"), ("retire", "accepted"))
        for size in SIZES
    ),
)
# Neither needs a ratio to ours: zero is ours to have, or it is one already.
NO_RATIO = frozenset(
    {"un_over", "un_refused", "un_open", "un_lost", "pre_over", "pre_lost", "part", "queued", "heap"}
)
