"""``make bench-peers``: the scenarios of ``make bench`` against every broker this machine has, ours first.

One broker at a time, on loopback, in a folder of its own that is removed afterwards; what can't be had is
listed with its reason, and what a broker fails at is a dash in the table. Close other programs first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench.barelog import natural
from bench.contenders import BenchError
from bench.peers import report
from bench.peers.activemq import ActiveMQ
from bench.peers.artemis import Artemis
from bench.peers.brokerj import BrokerJ
from bench.peers.ours import Ours
from bench.peers.peer import MissingError, Peer, Subject, started
from bench.peers.qpidd import Qpidd
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.report import Measured
from bench.peers.scenarios import (
    FULL,
    NEEDS_LIMIT,
    NEEDS_TRANSACTIONS,
    ONCE,
    QUICK,
    SCENARIOS,
    TRANSACTED,
    Pace,
    warmed,
)
from broker.errors import SluiceError

PAGE = Path("docs/performance.md")
PEERS: dict[str, Peer] = {
    "sluice": Ours(),
    "rabbitmq": RabbitMQ(),
    "artemis": Artemis(),
    "activemq": ActiveMQ(),
    "broker-j": BrokerJ(),
    "qpidd": Qpidd(),
}
# No round begins that would end later than this, judged by the one before it.
MOST_S, QUICK_MOST_S = 25 * 60.0, 8 * 60.0
ROUNDS = 3
EVERY = SCENARIOS | TRANSACTED


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--only", action="append", choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--scenario", action="append", choices=EVERY, help="only this; may be repeated")
    parser.add_argument(
        "--transactions", action="store_true", help="durable messages in transactions; 1 if ours isn't ahead"
    )
    parser.add_argument("--quick", action="store_true", help="one short round, a smaller backlog")
    parser.add_argument("--rounds", type=natural, metavar="N", help=f"medians of N ({ROUNDS})")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"of a measurement ({FULL.seconds:g})")
    parser.add_argument("--backlog", type=natural, metavar="N", help=f"messages ({FULL.backlog:,})")
    parser.add_argument("--json", action="store_true", help="every round's figures")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE}")
    return parser.parse_args(words)


def pace_of(args: argparse.Namespace) -> Pace:
    """How long each measurement lasts, and how much it piles up."""
    pace = QUICK if args.quick else FULL
    return replace(pace, seconds=args.seconds or pace.seconds, backlog=args.backlog or pace.backlog)


def found(names: Sequence[str]) -> tuple[dict[str, Measured], dict[str, str]]:
    """The brokers that are here, ours first, and why the others aren't."""
    here, missing = {}, {}
    for name in PEERS:
        if name not in names:
            continue
        peer = PEERS[name]
        try:
            here[name] = Measured(
                peer.title, peer.find(), limit=peer.limit, syncs=peer.syncs, commit_sync=peer.commit_sync
            )
        except MissingError as error:
            missing[peer.title] = str(error)
            _tell(f"{peer.title} can't be had: {error}")
    return here, missing


def measured(broker: Measured, peer: Peer, names: Sequence[str], pace: Pace, until_s: float) -> None:
    """One round of one broker, started afresh; what would begin after ``until_s`` is left out."""
    if time.monotonic() > until_s:
        _late(broker, names)
        return
    try:
        with started(peer) as subject:
            broker.settings = peer.settings
            _warm(subject, pace)
            for name in names:
                if time.monotonic() > until_s:
                    _late(broker, [name])
                else:
                    _scenario(broker, subject, name, pace)
    except (BenchError, MissingError, SluiceError, OSError) as error:
        for name in names:
            broker.remarks.setdefault(name, str(error))
        _tell(f"{peer.title}: {error}")


def _late(broker: Measured, names: Sequence[str]) -> None:
    for name in names:
        broker.remarks.setdefault(name, "the run had no time left for every round")


def _warm(subject: Subject, pace: Pace) -> None:
    try:
        warmed(subject, pace)
    except (BenchError, SluiceError) as error:
        _tell(f"{subject.peer.title}, warming up: {error}")


def _scenario(broker: Measured, subject: Subject, name: str, pace: Pace) -> None:
    if name in NEEDS_LIMIT and not broker.limit:
        broker.remarks[name] = "no limit could be set"
        return
    if name in NEEDS_TRANSACTIONS and not broker.commit_sync:
        broker.remarks[name] = "it has no transactions"
        return
    subject.overtaken.clear()
    subject.remarks.clear()
    try:
        figures = EVERY[name](subject, pace)
    except (BenchError, SluiceError, OSError) as error:
        broker.remarks[name] = str(error)
        _tell(f"{name}, {broker.title}: {error}")
        return
    broker.rounds.setdefault(name, []).append(figures)
    if subject.overtaken:
        subject.remarks.append(f"{sum(subject.overtaken):,} messages of a producer came out of their order")
    if subject.remarks:
        broker.remarks[name] = "; ".join(subject.remarks)
    shown = ", ".join(f"{key} {value:,.{0 if value >= 10 else 2}f}" for key, value in figures.items())
    _tell(f"{name}, {broker.title}: {shown}")


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Measures, prints or writes; 1 if none could be measured, or one commits faster than ours."""
    args = arguments()
    # So that a broker never outlives a run that is terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pace, wanted = pace_of(args), args.scenario or list(TRANSACTED if args.transactions else SCENARIOS)
    here, missing = found(args.only or list(PEERS))
    rounds, most_s = args.rounds or (1 if args.quick else ROUNDS), QUICK_MOST_S if args.quick else MOST_S
    done, began, last_s = 0, time.monotonic(), 0.0
    while done < rounds and time.monotonic() - began + last_s <= most_s:
        round_s = time.monotonic()
        for name, broker in here.items():
            # Once, and first: a later round may have no time left.
            measured(
                broker,
                PEERS[name],
                [word for word in wanted if not (done and word in ONCE)],
                pace,
                began + most_s,
            )
        done, last_s = done + 1, time.monotonic() - round_s
    brokers = list(here.values())
    command = " ".join(["python -m bench.peers", *sys.argv[1:]])
    of_page = report.transactions_page if args.transactions else report.page
    text = of_page(brokers, missing, command, machine(), done)
    if args.json:
        print(json.dumps({"missing": missing, "brokers": [asdict(broker) for broker in brokers]}, indent=1))
    else:
        print(text)
    if args.write:
        report.write(PAGE, text, report.TRANSACTIONS if args.transactions else report.PEERS)
    faster = report.ahead(brokers)
    for each in faster:
        _tell(f"ahead of ours: {each}")
    return 1 if faster or not any(broker.rounds for broker in brokers) else 0


def machine() -> str:
    """What it ran on, in a few words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {kernel}"


if __name__ == "__main__":
    sys.exit(main())
