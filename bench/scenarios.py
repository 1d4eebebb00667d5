"""What is measured, and what has to come out.

A scenario measures one started contender and returns named figures; a target judges one of them.
"""

from __future__ import annotations

import resource
from contextlib import ExitStack
from dataclasses import dataclass

from bench import adaptive, durable, events, flow, subscribers, transactions
from bench.contenders import BenchError, Running
from bench.measuring import BODY, Figures, Pace, Scenario, load, number
from broker.client.link import Connection
from broker.client.load.load import Usage

OVERHEAD = 5  # bytes around a body of less than 256: the data section's descriptor and size
IDLE_CONNECTIONS = 2000


FULL = Pace(seconds=8, warmup=2, backlog=1_000_000, connections=IDLE_CONNECTIONS, paged=10_000_000)
QUICK = Pace(seconds=2, warmup=1, backlog=200_000, connections=500, paged=3_000_000)


def _throughput(**job: object) -> Scenario:
    def scenario(running: Running, pace: Pace) -> Figures:
        result = load(running, pace, **job)
        return {"rate": number(result["out_s"]), "cpu_us": number(result["broker_cpu_us"])}

    return scenario


def _latency(running: Running, pace: Pace) -> Figures:
    latency = load(running, pace, rate=2000)["latency_us"]
    assert isinstance(latency, dict)
    return {"p50_us": latency["p50"], "p99_us": latency["p99"]}


def _backlog(running: Running, pace: Pace) -> Figures:
    """Memory a queued message takes beyond its encoded size."""
    load(running, pace, address="warm", count=10_000)
    before = _rss(running)
    load(running, pace, address="backlog", receivers=0, count=pace.backlog)
    return {"bytes": (_rss(running) - before) / pace.backlog - BODY - OVERHEAD}


def _idle(running: Running, pace: Pace) -> Figures:
    """Memory a connection with one session and no link takes."""
    _allow_files(2 * pace.connections + 200)
    before = _rss(running)
    with ExitStack() as stack:
        for _ in range(pace.connections):
            stack.callback(Connection(running.url, timeout_s=10.0).close)
        return {"kib": (_rss(running) - before) / pace.connections / 1024}


def _allow_files(wanted: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchError(f"{wanted} open files are needed and {hard} allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _rss(running: Running) -> int:
    usage = Usage.of(running.pid)
    if usage is None:
        raise BenchError("the contender ended by itself")
    return usage.rss_bytes


SCENARIOS: dict[str, Scenario] = {
    "plain": _throughput(),
    "kib": _throughput(body=1024),
    "many": _throughput(senders=4, receivers=4),
    "presettled": _throughput(presettled=True),
    "latency": _latency,
    "backlog": _backlog,
    "idle": _idle,
    "flow": flow.scenario,
    "events": events.scenario,
    "adaptive": adaptive.scenario,
    "topic": subscribers.scenario,
    "durable": durable.throughput(),
    "durable-kib": durable.throughput(body=1024),
    "durable-many": durable.throughput(senders=8, receivers=8, address="durable.%d"),
    "durable-latency": durable.latency,
    "transactions": transactions.scenario,
    "backlog-paged": durable.paged,
}
# The bare loop grants what it likes and stores nothing: there is nothing to compare.
OURS_ONLY = {
    *("flow", "events", "adaptive", "topic", "backlog-paged", "transactions"),
    *("durable", "durable-kib", "durable-many", "durable-latency"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table: a figure, the bound it must keep and the share of what stands beside it.

    ``bound`` may name another figure as scenario.figure. Throughput must also reach ``least_ratio`` of
    the bare loop's, or of the figure ``beside`` of our own round, which ``beside_is`` says in a word.
    """

    scenario: str
    figure: str
    title: str
    more_is_better: bool
    bound: float | str | None
    least_ratio: float | None = None
    beside: str | None = None
    beside_is: str = "bare"


RATIO = 0.70
HALF, THIRD = 0.5, 0.334


def _durable(scenario: str, title: str, bound: float, least_ratio: float | None) -> tuple[Target, ...]:
    """Beside it what appends and syncs the same bytes in the same groups: to a file that grows, and to
    one whose blocks were written before, as the journal's are.
    """
    return (
        Target(scenario, "rate", f"{title}, msg/s", True, bound, least_ratio, "bare_rate"),
        Target(scenario, "rate", "beside a preallocated file", True, None, None, "filled_rate"),
        Target(scenario, "sync_ms", "its sync, ms", False, None, beside="filled_ms"),
        Target(scenario, "group", "messages a sync", True, None),
        Target(scenario, "cpu_us", "CPU µs/msg", False, None),
    )


TARGETS = (
    Target("plain", "rate", "100 B, msg/s", True, 300_000, RATIO),
    Target("plain", "cpu_us", "100 B, CPU µs/msg", False, 2.5),
    Target("kib", "rate", "1 KiB, msg/s", True, 220_000, RATIO),
    Target("many", "rate", "4+4, 100 B, msg/s", True, "plain.rate", RATIO),
    Target("presettled", "rate", "pre-settled 100 B, msg/s", True, None, RATIO),
    Target("latency", "p50_us", "p50 at 2,000/s, µs", False, 80),
    Target("latency", "p99_us", "p99 at 2,000/s, µs", False, 230),
    Target("backlog", "bytes", "memory per queued message, B", False, 150),
    Target("idle", "kib", "memory per idle connection, KiB", False, 48),
    Target("flow", "alone", "1 producer, flow_stop_count 1000, msg/s", True, None),
    Target("flow", "awake_part", "beside 999 idle ones that read, of that", True, 0.90),
    Target("flow", "asleep_part", "beside 999 idle ones that don't, of that", True, 0.90),
    Target("flow", "paced_50_part", "stop 100, window 50 at 9,000/s, of no stop", True, 0.98),
    Target("flow", "paced_15_part", "stop 100, window 15 at 9,000/s, of no stop", True, 0.98),
    Target("flow", "slow_part", "stop 100, both flat out, of the consumer's 20,000/s", True, 0.98),
    Target("flow", "slow_even", "the slower of both, of the faster", True, 0.90),
    Target("flow", "free_50_part", "stop 100, window 50, free consumer, of no stop", True, None),
    Target("flow", "free_15_part", "stop 100, window 15, free consumer, of no stop", True, None),
    Target("flow", "peak", "deepest the queue with stop 100 ever was", False, 100),
    Target("events", "plain", "100 B with events, msg/s", True, None),
    Target("events", "plain_part", "of it without events", True, 0.97),
    Target("events", "plain_cpu_part", "CPU, of that without", False, 1.03),
    Target("events", "gate_part", "a gate that flaps and a listener, of it without events", True, None),
    *(
        Target(
            "adaptive", f"trip_{trip}_part", f"adaptive window at {trip} ms, of the best static", True, 0.95
        )
        for trip in adaptive.TRIPS_MS
    ),
    Target("adaptive", "slow_1000_held", "unsettled at a consumer of 2,000/s, window 1000", False, None),
    Target("adaptive", "slow_adaptive_held", "the same, adaptive", False, None),
    Target("topic", "paging_part", "9 subscribers beside a stalled one that pages, of without", True, 0.95),
    Target("topic", "shedding_part", "one with a pending_message_limit, of without", True, 0.95),
    Target("topic", "uncontrolled_part", "one with flow_control: false, of without", True, 0.95),
    *(
        Target("topic", f"cpu_{count}", f"{count:,} subscribers, CPU µs per delivered", False, None)
        for count in subscribers.COUNTS
    ),
    *_durable("durable", "durable 100 B", 80_000, HALF),
    *_durable("durable-kib", "durable 1 KiB", 45_000, HALF),
    # Groups are so large here that a fast disk takes more than the plain path can bring.
    *_durable("durable-many", "durable 100 B, 8 on 8 queues", 80_000, None),
    Target(
        *(
            "transactions",
            "many_rate",
            f"durable, {transactions.MANY} in a transaction, msg/s",
            True,
            None,
            RATIO,
        ),
        *("plain_rate", "none"),
    ),
    Target("transactions", "many_us", "CPU µs/msg", False, None, beside="plain_us", beside_is="none"),
    Target(
        *("transactions", "one_rate", "durable, window 1, a transaction each, msg/s", True, None, HALF),
        *("single_rate", "none"),
    ),
    Target("transactions", "one_us", "CPU µs/msg", False, None, beside="single_us", beside_is="none"),
    Target("durable-latency", "p50_us", "durable, p50 at 2,000/s, µs", False, None),
    Target("durable-latency", "p99_us", "durable, p99 at 2,000/s, µs", False, None, beside="bare_p99_us"),
    Target("durable-latency", "sync_us", "one sync meanwhile, µs", False, None, beside="bare_us"),
    Target("durable-latency", "over_us", "p50 beyond one sync, µs", False, 1000),
    Target(
        "backlog-paged", "fill", "paged backlog, filled, msg/s", True, None, THIRD, "memory_fill", "memory"
    ),
    Target(
        "backlog-paged", "drain", "paged backlog, drained, msg/s", True, None, THIRD, "memory_drain", "memory"
    ),
    Target("backlog-paged", "peak_mb", "its peak RSS, MB (memory_limit 256 MB)", False, 500),
)
