"""The benchmark of cells, on cells: a short run of it."""

from __future__ import annotations

import subprocess
import sys


def test_a_short_run_prints_every_table() -> None:
    words = ("--rounds", "1", "--seconds", "0.2", "--queues", "20")
    done = subprocess.run(
        [sys.executable, "-m", "bench.cells", *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for head in ("both passed on", "2 queues, 2 cells", "100 B at 2,000/s", "0 → 20 queues", "| 16 |"):
        assert head in done.stdout
