"""Instructions of the broker for a message on the plain path: ``python -m bench.instructions [TREE ...]``.

The broker of each TREE, a compiled checkout, and of this one runs under callgrind. One sender and one
receiver move messages of 100 bytes, unsettled and not durable, twice: few, then many. The difference of both
counts, divided by that of the messages, has neither start nor end of links in it. On a quiet machine rounds
differ by 0.3 %. On a busy one they gave up to 4 % more: use ``--rounds 3``
and compare no counts of different times. ``--functions 20`` also lists where this version and the first TREE
differ most. Needs valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from bench.versions import NOTHING

HERE = Path(__file__).parent.parent
FEW, MANY = 20_000, 60_000
START_S = 120.0
LINE = re.compile(r"\s*([\d,]+)\s+(\S*?):(.+?)(?: \[.*)?$")
SLUICE = (sys.executable, "-m", "broker.cli.main")
# Valgrind has no room for a database of the size that the broker reserves.
UNDER_VALGRIND = """
import sys
from broker.cli.main import main
from broker.store import directory
directory.MAP_BYTES = 1 << 28
sys.exit(main())
"""


def for_a_message(tree: Path) -> Counter[str]:
    """Return the instructions of that tree's broker for one message, by function."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "none.yaml").write_text(NOTHING)
        said, counts = folder / "said", folder / "counts"
        variables = os.environ | {"PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
        callgrind = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}")
        words = ("serve", "--policies", str(folder / "none.yaml"), "--data", str(folder / "data"))
        listen = ("--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0")
        with said.open("w") as out:
            broker = subprocess.Popen(
                [*callgrind, sys.executable, "-c", UNDER_VALGRIND, *words, *listen],
                cwd=tree,
                env=variables,
                stderr=out,
            )
        try:
            url = address(broker, said)
            control(broker, "-i", "on")
            found = []
            for number, messages in enumerate((FEW, MANY), 1):
                load(url, messages)
                control(broker, "-d")
                found.append(by_function(folder / f"counts.{number}"))
        finally:
            broker.kill()
            broker.wait()
    few, many = found
    many.subtract(few)
    return Counter({name: count / (MANY - FEW) for name, count in many.items()})


def control(broker: subprocess.Popen[bytes], *words: str) -> None:
    """Tell callgrind to begin counting, or to write what it counted since it last wrote."""
    subprocess.run(
        ("callgrind_control", *words, str(broker.pid)), check=True, stdout=subprocess.DEVNULL, timeout=60
    )


def load(url: str, messages: int) -> None:
    """Move messages through a queue of the broker, with this version's load generator."""
    subprocess.run(
        [*SLUICE, "bench", "-b", url, "plain", "--count", str(messages), "--json"],
        cwd=HERE,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=600,
    )


def address(broker: subprocess.Popen[bytes], said: Path) -> str:
    """Wait until a broker listens; return its URL."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and broker.poll() is None:
        found = re.search(r"listening (amqp://127\.0\.0\.1:\d+)", said.read_text())
        if found:
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the broker did not start: {said.read_text()}")


def by_function(counts: Path) -> Counter[str]:
    """Read a file of callgrind's: instructions of each function's own, without those of the ones it calls."""
    words = ("callgrind_annotate", "--threshold=100", "--show-percs=no", str(counts))
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    found: Counter[str] = Counter()
    for line in lines:
        match = LINE.match(line)
        if match:
            found[match[3].split("'")[0]] += int(match[1].replace(",", ""))
    return found


def middle(tree: Path, rounds: int) -> tuple[float, Counter[str]]:
    """Return the median of some rounds and the functions of the round that gave it, or one beside it."""
    took = sorted(
        ((float(sum(each.values())), each) for each in (for_a_message(tree) for _ in range(rounds))),
        key=lambda pair: pair[0],
    )
    return median(total for total, _ in took), took[len(took) // 2][1]


def main() -> None:
    """Print the instructions for a message of each tree and their ratio to this version's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "trees", type=Path, nargs="*", metavar="TREE", help="a compiled checkout to compare with"
    )
    parser.add_argument("--rounds", type=int, default=1, help="of which the median counts (%(default)s)")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="list so many that differ most")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind isn't installed")
    total, here = middle(HERE, args.rounds)
    print(f"here: {total:,.0f} instructions a message")
    first: Counter[str] | None = None
    for tree in args.trees:
        other_total, other = middle(tree.resolve(), args.rounds)
        first = first or other
        print(f"{tree}: {other_total:,.0f}; here of that: {total / other_total:.4f}")
    changes = {name: here[name] - (first or Counter())[name] for name in here.keys() | (first or {}).keys()}
    for name in sorted(changes, key=lambda each: -abs(changes[each]))[: args.functions]:
        print(f"{changes[name]:+9.1f} {here[name]:9.1f}  {name}")


if __name__ == "__main__":
    main()
