"""`make fuzz`: every target for so many seconds, and a table of what was tried and reached.

`python -m tests.fuzz [--seconds 600] [--jobs 1] [TARGET ...]`. Inputs that reach more than those before them
are kept in build/fuzz-inputs and used again the next time. Exit status 1 if any target showed a fault; the
input is then in build/fuzz-inputs/fault-….
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.builds import ROOT
from tests.fuzz.build import built
from tests.fuzz.target import NAMES

INPUTS = ROOT / "build" / "fuzz-inputs"
# Beyond the time given: to load, to try what was kept, to end an input that takes too long.
PATIENCE_S = 600


@dataclass
class Found:
    """What became of one target; ``lines``: of each file, those that ran and all."""

    name: str
    fault: str = ""
    tried: int = 0
    seconds: int = 0
    kept: int = 0
    places: int = 0
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)

    def row(self) -> str:
        files = ", ".join(
            f"{file} {100 * ran // max(every, 1)} %" for file, (ran, every) in self.lines.items()
        )
        said = self.fault or "nothing"
        counts = f"{self.tried:,} | {self.places:,} | {self.kept:,}"
        return f"| {self.name} | {self.seconds:,} s | {counts} | {files} | {said} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=600, help="for each target (600)")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (1)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}; all of them")
    args = parser.parse_args()
    folder = built("coverage")
    INPUTS.mkdir(parents=True, exist_ok=True)
    names = args.targets or list(NAMES)
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(lambda name: _searched(name, args.seconds, folder), names))
    print("| target | time | inputs tried | places reached | inputs kept | lines reached | faults |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for each in found:
        print(each.row())
    return 1 if any(each.fault for each in found) else 0


def _searched(name: str, seconds: int, folder: Path) -> Found:
    found = Found(name)
    inputs = INPUTS / name
    inputs.mkdir(exist_ok=True)
    before = set(INPUTS.glob(f"fault-{name}-*"))
    log = _run(folder, seconds + PATIENCE_S, "search", name, str(seconds), str(inputs))
    (INPUTS / f"{name}.log").write_text(log)
    found.tried = _number(log, r"stat::number_of_executed_units:\s+(\d+)")
    found.seconds = _number(log, r"Done \d+ runs in (\d+) second")
    found.places = max((int(each) for each in re.findall(r"cov: (\d+)", log)), default=0)
    found.kept = sum(1 for _ in inputs.iterdir())
    faults = set(INPUTS.glob(f"fault-{name}-*")) - before
    if faults or not found.tried:
        shown = ", ".join(str(each.relative_to(ROOT)) for each in sorted(faults))
        found.fault = shown or f"no run: {log.strip().splitlines()[-1] if log.strip() else 'it said nothing'}"
        print(log[-6000:], file=sys.stderr)
    else:
        told = _run(folder, PATIENCE_S, "replay", name, str(inputs))
        found.lines = json.loads(told.strip().splitlines()[-1])
    print(f"{name}: {found.tried:,} inputs, {found.places:,} places, {found.fault or 'no fault'}", flush=True)
    return found


def _run(folder: Path, seconds: int, *arguments: str) -> str:
    """What the campaign says; from the build's own directory, so that its broker is the one that is
    imported."""
    paths = os.pathsep.join((str(folder), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": paths, "SLUICE_FUZZ": str(folder), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.fuzz.campaign", *arguments]
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        timeout=seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return ended.stdout


def _number(log: str, pattern: str) -> int:
    found = re.search(pattern, log)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    sys.exit(main())
