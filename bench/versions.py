"""This broker beside another version of it: ``python -m bench.versions TREE [--load durable]``.

TREE is a checkout of the other version, compiled in place. Both brokers run at once, each round loads one
after the other with the other version's load generator, and medians are compared, so that what drifts on a
shared machine drifts for both. Where a process lies in memory is worth some percent for its whole life, so
both are started ``--starts`` times, and neither is always the first. ``--load four`` has four producers and
consumers on as many connections, ``durable`` durable messages, ``paging`` a queue that holds 5,000 messages
and 64 KB in memory. ``--set SLUICE_NAME=VALUE`` is for this version's broker alone: with TREE this
very checkout, that is what a setting costs (``--set SLUICE_SECURITY_ACL=bench/acl.yaml .``).

With ``--recovery MESSAGES`` the times of both versions' starts are compared instead, each after a kill with
so many durable messages in a queue.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent.parent
NOTHING = "policies: []\n"
DURABLE = "policies:\n  - {match: q, durable: true}\n"
PAGING = "policies:\n  - {match: q, overflow: page, memory_limit: 64KB}\n"
FOUR = ("--senders", "4", "--receivers", "4")
# By the word for a load: policies, and options of `sluice bench`.
LOADS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": (NOTHING, ()),
    "four": (NOTHING, FOUR),
    "durable": (DURABLE, ("--durable",)),
    "paging": (PAGING, ()),
}


def started(
    tree: Path, folder: Path, settings: Mapping[str, str], policies: str = NOTHING
) -> tuple[subprocess.Popen[str], str]:
    """A broker of that tree on a free port, with these variables, and its URL; its data is in ``folder``."""
    folder.mkdir(exist_ok=True)
    (folder / "none.yaml").write_text(policies)
    words = ("serve", "--policies", str(folder / "none.yaml"), "--data", str(folder / "data"))
    process = subprocess.Popen(
        [*_sluice(), *words, "--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1", **settings},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"listening (amqp://127\.0\.0\.1:\d+)", line)
        if found:
            return process, found[1]
    raise SystemExit(f"the broker of {tree} did not start")


def loaded(tree: Path, url: str, seconds: float, options: Sequence[str] = ()) -> tuple[float, float]:
    """Messages a second, and the broker's processor time a message in microseconds."""
    words = ("bench", "-b", url, "q", *options, "--seconds", str(seconds), "--warmup", "0.5", "--json")
    done = subprocess.run(
        [*_sluice(), *words],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    told = json.loads(done.stdout)
    return float(told["out_s"]), float(told["broker_cpu_us"])


def recovered(tree: Path, folder: Path, messages: int) -> float:
    """Seconds until a broker listens that was killed with so many durable messages of 100 bytes."""
    process, url = started(tree, folder, {}, DURABLE)
    try:
        words = ("send", "-b", url, "--durable", "--size", "100", "--count", str(messages), "q")
        subprocess.run(
            [*_sluice(), *words],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=600,
        )
    finally:
        end(process, signal.SIGKILL)
    begun = time.monotonic()
    process, _ = started(tree, folder, {}, DURABLE)
    took = time.monotonic() - begun
    end(process, signal.SIGTERM)
    return took


def end(process: subprocess.Popen[str], number: int) -> None:
    """Send the signal and wait."""
    process.send_signal(number)
    process.wait(20)
    assert process.stderr is not None
    process.stderr.close()


def compare_recovery(other: Path, messages: int, rounds: int) -> None:
    """Print the medians of both versions' recovery, and their ratio."""
    took: list[list[float]] = [[], []]
    for number in range(rounds):
        for which, tree in enumerate((other, HERE)):
            with tempfile.TemporaryDirectory() as folder:
                took[which].append(recovered(tree, Path(folder, str(number)), messages))
    before, now = median(took[0]), median(took[1])
    print(f"other {before:.3f} s, here {now:.3f} s until it listens, with {messages:,} messages")
    print(f"here of other: {now / before:.3f}")


def _sluice() -> list[str]:
    return [sys.executable, "-m", "broker.cli.main"]


def main() -> None:
    """Print both versions' medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="a compiled checkout of the other version")
    parser.add_argument("--load", choices=LOADS, default="plain")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--starts", type=int, default=4, help="of both brokers, in which rounds are shared out"
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--set", action="append", default=[], metavar="SLUICE_NAME=VALUE")
    parser.add_argument(
        "--recovery", type=int, metavar="MESSAGES", help="the time of a start after a kill instead"
    )
    args = parser.parse_args()
    other = args.tree.resolve()
    if args.recovery:
        compare_recovery(other, args.recovery, args.rounds)
        return
    settings = dict(each.split("=", 1) for each in args.set)
    rounds: list[dict[str, tuple[float, float]]] = []
    for start in range(args.starts):
        rounds += of_one_start(other, settings, args.load, args.seconds, args.rounds // args.starts, start)
    rates = [median(each[which][0] for each in rounds) for which in ("other", "here")]
    costs = [median(each[which][1] for each in rounds) for which in ("other", "here")]
    shown = [f"{rate:,.0f} msg/s, {cost:.3f} us" for rate, cost in zip(rates, costs, strict=True)]
    print(f"{args.load}: other {shown[0]}; here {shown[1]}")
    print(f"here of other: rate {rates[1] / rates[0]:.3f}, processor time {costs[1] / costs[0]:.3f}")


def of_one_start(
    other: Path, settings: Mapping[str, str], load: str, seconds: float, rounds: int, start: int
) -> list[dict[str, tuple[float, float]]]:
    """Rates and costs of both brokers, started once, by ``other`` and ``here`` in each round."""
    policies, options = LOADS[load]
    trees = {"other": (other, {}), "here": (HERE, settings)}
    order = ["other", "here"] if start % 2 == 0 else ["here", "other"]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        brokers = {
            which: started(trees[which][0], Path(folder, which), trees[which][1], policies) for which in order
        }
        try:
            for number in range(rounds):
                turns = order if number % 2 == 0 else order[::-1]
                found.append({which: loaded(other, brokers[which][1], seconds, options) for which in turns})
        finally:
            for process, _ in brokers.values():
                process.terminate()
            for process, _ in brokers.values():
                process.wait(20)
    return found


if __name__ == "__main__":
    main()
