"""How long the HTTP API takes to answer on a connection that is kept alive.

``python -m bench.api``: a broker with so many queues and one client with one connection, which asks for one
thing after the other, each as soon as it has the answer before it. A console and a script do the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from http.client import HTTPConnection

from bench.barelog import natural
from bench.contenders import OURS, BenchError
from bench.measuring import Figures
from bench.scrape import http_port
from broker.client.request import Management

WARM_UP = 20
# What is asked: a short answer, one node of many, a page of a listing, a change.
REQUESTS: Sequence[tuple[str, str, str, object]] = (
    ("health", "GET", "/healthz", None),
    ("broker", "GET", "/api/v1/broker", None),
    ("queue", "GET", "/api/v1/queues/asked.0", None),
    ("queues", "GET", "/api/v1/queues?limit=50", None),
    ("effect", "POST", "/api/v1/effect", {"name": "asked.0", "arguments": {"max_count": 5}}),
)


def answered(connection: HTTPConnection, method: str, path: str, body: object) -> float:
    """Seconds from the request to the last byte of its answer."""
    begun = time.perf_counter()
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {} if text is None else {"Content-Type": "application/json"})
    response = connection.getresponse()
    found = response.read()
    if response.status >= 300:
        raise BenchError(f"{method} {path} answered {response.status}: {found[:200]!r}")
    return time.perf_counter() - begun


def latencies(port: int, count: int) -> Figures:
    """Milliseconds of so many requests of each sort, all of them on one connection."""
    figures: Figures = {}
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    opened = connection.sock
    for name, method, path, body in REQUESTS:
        taken = [answered(connection, method, path, body) for _ in range(WARM_UP + count)][WARM_UP:]
        figures[f"{name}_ms"] = statistics.median(taken) * 1000
        figures[f"{name}_p99_ms"] = statistics.quantiles(taken, n=100)[98] * 1000
    if connection.sock is not opened:
        raise BenchError("the broker did not keep the connection alive")
    connection.close()
    return figures


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=natural, default=100)
    parser.add_argument("--requests", type=natural, default=1000)
    args = parser.parse_args()
    with OURS.started() as running:
        with Management(running.url) as management:
            for index in range(args.queues):
                management.call("CREATE", "org.sluice.queue", f"asked.{index}", {"max_count": 1000})
        for name, value in latencies(http_port(running), args.requests).items():
            print(f"{name:<20} {value:>8.2f}")


if __name__ == "__main__":
    main()
