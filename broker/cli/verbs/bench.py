"""Measure a broker: messages a second, latency, and what each message cost it.

The load runs in a process of its own. Latency is from sending to receipt; with --rate it is the
broker's, without it is mostly the queue's (Little's law: backlog divided by throughput). The broker's
processor time and memory are shown when it runs on this machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from broker.cli.main import REFUSED
from broker.cli.terminal import arguments
from broker.errors import OperatorError

QUEUE_TYPE, BROKER_TYPE = "org.sluice.queue", "org.sluice.broker"
EXAMPLES = (
    ("sluice bench --seconds 5", "one sender, one receiver, 100 bytes"),
    ("sluice bench load --senders 4 --receivers 4 --rate 2000 --json", "latency at 2,000 a second"),
    ("sluice bench orders --senders 0 --count 1000", "drain a queue and check its order"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument(
        "address", metavar="ADDRESS", nargs="?", default="bench", help="%%d: connection's number"
    )
    arguments.add_broker(parser)
    for name, least, default, text in (
        ("senders", arguments.natural, 1, "connections that send"),
        ("receivers", arguments.natural, 1, "connections that receive"),
        ("body", arguments.count, 100, "bytes of body, at least 32"),
        ("window", arguments.count, 1000, "unsettled messages per sender"),
        ("credit", arguments.count, 1000, "per receiver, renewed at half"),
        ("transaction", arguments.natural, 0, "messages that a sender commits at once; 0: no transactions"),
        ("retire", arguments.natural, 0, "messages that a receiver settles in one transaction; 0: none"),
        ("max-backlog", arguments.natural, 5000, "messages under way at most; 0: no limit"),
        ("count", arguments.natural, 0, "send so many (receive, without senders), instead of --seconds"),
    ):
        parser.add_argument(f"--{name}", type=least, default=default, metavar="N", help=f"{text} ({default})")
    parser.add_argument(
        "--rate", type=arguments.rate, default=0.0, metavar="R", help="messages a second in all"
    )
    parser.add_argument("--presettled", action="store_true", help="settle on sending")
    parser.add_argument("--durable", action="store_true", help="set the durable header")
    parser.add_argument(
        "--seconds", type=arguments.duration, default=10.0, metavar="S", help="measure so long (10)"
    )
    parser.add_argument(
        "--warmup", type=arguments.duration, default=2.0, metavar="S", help="after so long (2)"
    )
    parser.add_argument(
        "--pid", type=arguments.count, metavar="PID", help="the broker's process, if not found"
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the load and prints its result."""
    from broker.cli.terminal.localpid import listening_pid

    pid = args.pid or listening_pid(args.broker) or _managed(args.broker, BROKER_TYPE, None, "pid")
    before = _managed(args.broker, QUEUE_TYPE, args.address, "flowStoppedSeconds")
    result = measure(job_of(args, pid), live=sys.stderr.isatty() and not args.json)
    after = _managed(args.broker, QUEUE_TYPE, args.address, "flowStoppedSeconds")
    result["flow_stopped_s"] = None if after is None else round(after - (before or 0.0), 3)
    print(json.dumps(result) if args.json else told(result))
    return REFUSED if result["lost"] or result["stalled"] else 0


def job_of(args: argparse.Namespace, pid: float | None) -> dict[str, object]:
    """The load generator's job in its own words."""
    same = (
        "address",
        "senders",
        "receivers",
        "body",
        "window",
        "credit",
        "rate",
        "presettled",
        "durable",
        "transaction",
        "retire",
    )
    job: dict[str, object] = {
        name: getattr(args, name) for name in (*same, "seconds", "warmup", "count", "max_backlog")
    }
    return job | {"url": args.broker, "pid": None if pid is None else int(pid)}


def measure(job: Mapping[str, object], *, live: bool = False) -> dict[str, Any]:
    """Runs one job in a process of its own. Raises OperatorError with the reason it was refused."""
    command = [sys.executable, "-m", "broker.client.load.load"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        line: dict[str, Any] = {"error": "the load generator ended without a result"}
        for text in process.stdout:
            line = json.loads(text)
            if live and "second" in line:
                _show(line)
    if live:
        print(file=sys.stderr)
    if "error" in line:
        raise OperatorError(str(line["error"]))
    return dict(line["result"])


def _show(line: Mapping[str, Any]) -> None:
    text = f"{line['second']:>4} s  in {line['in_s']:>10,}/s  out {line['out_s']:>10,}/s"
    print(f"\r\x1b[K{text}  backlog {line['backlog']:,}", end="", file=sys.stderr, flush=True)


def _managed(url: str, kind: str, name: str | None, attribute: str) -> float | None:
    """A number the broker's management node knows; None if it doesn't, or there is no such node."""
    from broker.client.errors import ClientError
    from broker.client.request import Management

    try:
        with Management(url, timeout_s=2.0) as management:
            body = management.call("READ", kind, name).body
    except (ClientError, OperatorError):
        return None
    value = body.get(attribute) if isinstance(body, dict) else None
    return float(value) if isinstance(value, int | float) else None


def told(result: Mapping[str, Any]) -> str:
    """The result for a reader."""
    lines = [f"in   {result['in_s']:>10,} msg/s", f"out  {result['out_s']:>10,} msg/s"]
    for name, title in (("latency_us", "latency"), ("ack_us", "outcome")):
        if result[name]:
            lines.append(
                title + "".join(f"  {key} {result[name][key]:,} µs" for key in list(result[name])[1:])
            )
    if result["broker_cpu_us"] is not None:
        cost = f"{result['broker_cpu_us']} µs of processor time a message ({result['broker_cpu_pct']} %)"
        lines.append(f"broker {cost}, peak memory {result['peak_rss_mb']} MiB")
    faults = ("refused", "lost", "duplicated", "unordered", "foreign")
    lines.append("faults" + "".join(f"  {name} {result[name]:,}" for name in faults))
    stopped = result.get("flow_stopped_s")
    lines.append(
        f"senders without credit {result['blocked_s']} s"
        + (f", queue stopped {stopped} s" if stopped else "")
    )
    return "\n".join(lines)
