"""``python -m tests.crash.chaos --lives 300 --faults 300 --seed 7``: until all are lived or one is wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from tests.crash.chaos.books import Breach
from tests.crash.chaos.lives import run


def main() -> int:
    """The status is 1 if a message wasn't where it should be; the data directory is kept then."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.chaos", description=__doc__)
    parser.add_argument("--lives", type=int, default=100, help="lives on a sound disk")
    parser.add_argument("--faults", type=int, default=0, help="lives whose disk has faults, in between")
    parser.add_argument(
        "--aim",
        default="",
        help="only these faults: part of call:file, as in sync:directory, or 'full disk' from the start",
    )
    parser.add_argument("--busy", type=int, default=1, help="how many times as long lives are, and as busy")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    args = parser.parse_args()
    folder = Path(mkdtemp(prefix=f"sluice-chaos-{args.seed}-"))
    print(f"seed {args.seed}, in {folder}", flush=True)
    try:
        run(
            folder / "broker",
            args.seed,
            args.lives,
            args.faults,
            args.aim,
            lambda line: print(line, flush=True),
            args.busy,
        )
    except Breach:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
