"""Groups appended to a replicated log on this machine: rate, time to durable, processor time of our client.

``python -m bench.replog``; ``--nats-py`` measures that client's processor time too, where it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from broker.cluster.jetstream import JetStreamLog, LogServers
from broker.cluster.log import Acked, LogUnavailable
from tools.nats import NatsCluster

SIZES = (200, 16 << 10, 64 << 10, 256 << 10)
WINDOWS = (1, 8, 16, 32)
PREPARE_S = 30.0


def processor_s() -> float:
    """Return what this process has used, in user and system mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(
    log: JetStreamLog, size: int, window: int, seconds: float
) -> tuple[int, float, float, list[float]]:
    """Append for so long; return groups, wall and processor seconds, and each group's seconds, sorted."""
    data = bytes(size)
    position = after = log.last()
    sent: dict[int, float] = {}
    times: list[float] = []
    used, began = processor_s(), time.monotonic()
    while (now := time.monotonic()) - began < seconds or sent:
        while len(sent) < window and now - began < seconds:
            sent[after] = time.monotonic()
            log.append(data, after)
            after += 1
        for outcome in log.outcomes(1.0):
            if not isinstance(outcome, Acked):
                raise LogUnavailable(f"{outcome} after {position}")
            times.append(time.monotonic() - sent.pop(outcome.after))
    wall_s = time.monotonic() - began
    return len(times), wall_s, processor_s() - used, sorted(times)


def ours(urls: list[str], seconds: float) -> None:
    """Print a line for each size and window."""
    log = JetStreamLog(LogServers(tuple(urls), timeout_s=10), "bench")
    deadline = time.monotonic() + PREPARE_S
    while True:
        try:
            log.prepare()
            break
        except LogUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    titles = ("bytes", "in flight", "groups/s", "MB/s", "p50 ms", "p99 ms", "client's µs a group")
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for size in SIZES:
        for window in WINDOWS:
            count, wall_s, used_s, times = measure(log, size, window, seconds)
            p50, p99 = (times[int(len(times) * share)] * 1e3 for share in (0.5, 0.99))
            print(
                f"| {size:,} | {window} | {count / wall_s:,.0f} | {count * size / wall_s / 1e6:.1f} |"
                f" {p50:.1f} | {p99:.1f} | {used_s / count * 1e6:.0f} |",
                flush=True,
            )
        log.trim(log.last() + 1)
    log.close()


async def theirs(urls: list[str], size: int, window: int, seconds: float) -> None:
    """Print what nats-py uses, with so many publishes in flight."""
    import nats  # type: ignore[import-not-found,unused-ignore]

    connection: Any = await nats.connect(urls)
    stream: Any = connection.jetstream()
    data, after = bytes(size), (await stream.stream_info("SLUICE_bench")).state.last_seq
    used, began, count = processor_s(), time.monotonic(), 0
    pending: set[asyncio.Task[Any]] = set()
    while time.monotonic() - began < seconds:
        while len(pending) < window:
            headers = {"Nats-Expected-Last-Sequence": str(after)}
            after += 1
            pending.add(
                asyncio.ensure_future(stream.publish("sluice.bench.log", data, timeout=10, headers=headers))
            )
            await asyncio.sleep(0)
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        count += len([each.result() for each in done])
    await asyncio.gather(*pending)
    count += len(pending)
    print(f"nats-py {size:,} B x {window}: {(processor_s() - used) / count * 1e6:.0f} µs a group", flush=True)
    await connection.close()


def main() -> None:
    """Start three servers, measure, end them."""
    parser = argparse.ArgumentParser(prog="python -m bench.replog", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each line")
    parser.add_argument("--nats-py", action="store_true", help="nats-py's processor time too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-replog") as folder:
        cluster = NatsCluster(Path(folder))
        try:
            cluster.start()
            ours(cluster.urls, asked.seconds)
            if asked.nats_py:
                for size in SIZES[:2]:
                    asyncio.run(theirs(cluster.urls, size, 16, asked.seconds))
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
