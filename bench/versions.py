"""The plain path beside another version of this broker: ``python -m bench.versions TREE [--rounds 14]``.

TREE is a checkout of the other version, compiled in place. Both brokers run at once, each round loads one
after the other with the other version's load generator, and medians are compared, so that what drifts on a
shared machine drifts for both. ``--set SLUICE_NAME=VALUE`` is for this version's broker alone: with TREE this
very checkout, that is what a setting costs (``--set SLUICE_SECURITY_ACL=bench/acl.yaml .``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent.parent
NOTHING = "policies: []\n"


def started(tree: Path, folder: Path, settings: Mapping[str, str]) -> tuple[subprocess.Popen[str], str]:
    """A broker of that tree on a free port, with these variables, and its URL."""
    folder.mkdir()
    (folder / "none.yaml").write_text(NOTHING)
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


def loaded(tree: Path, url: str, seconds: float) -> tuple[float, float]:
    """Messages a second, and the broker's processor time a message in microseconds."""
    words = ("bench", "-b", url, "plain", "--seconds", str(seconds), "--warmup", "0.5", "--json")
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


def _sluice() -> list[str]:
    return [sys.executable, "-m", "broker.cli.main"]


def main() -> None:
    """Print both versions' medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="a compiled checkout of the other version")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--set", action="append", default=[], metavar="SLUICE_NAME=VALUE")
    args = parser.parse_args()
    other = args.tree.resolve()
    settings = dict(each.split("=", 1) for each in args.set)
    with tempfile.TemporaryDirectory() as folder:
        brokers = [
            started(other, Path(folder, "other"), {}),
            started(HERE, Path(folder, "here"), settings),
        ]
        try:
            rounds = [[loaded(other, url, args.seconds) for _, url in brokers] for _ in range(args.rounds)]
        finally:
            for process, _ in brokers:
                process.terminate()
            for process, _ in brokers:
                process.wait(20)
    rates = [median(each[which][0] for each in rounds) for which in (0, 1)]
    costs = [median(each[which][1] for each in rounds) for which in (0, 1)]
    print(f"other {rates[0]:,.0f} msg/s, {costs[0]:.3f} us; here {rates[1]:,.0f} msg/s, {costs[1]:.3f} us")
    print(f"here of other: rate {rates[1] / rates[0]:.3f}, processor time {costs[1] / costs[0]:.3f}")


if __name__ == "__main__":
    main()
