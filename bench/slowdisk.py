"""A slow disk on a fast one: what a broker does where a sync takes milliseconds can be tried anywhere.

Syncs really happen and then take longer. Several at once take no longer than one, as on a disk that
has a queue of commands; what a disk with a single one would do this doesn't show.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
BUILT = SOURCE.parent.parent / "build" / "bench" / "slowdisk.so"


def slow(more_ms: float) -> None:
    """Every process started from now on sees a disk whose syncs take so much longer."""
    os.environ |= {"LD_PRELOAD": str(compiled()), "SLOW_SYNC_US": str(round(more_ms * 1000))}


def compiled() -> Path:
    """The library, compiled if its source is newer than what is there."""
    if not BUILT.exists() or BUILT.stat().st_mtime < SOURCE.stat().st_mtime:
        BUILT.parent.mkdir(parents=True, exist_ok=True)
        # Built under a name of its own and moved into place, so that two builds at once do no harm.
        fresh = BUILT.with_suffix(f".{os.getpid()}")
        flags = ("-Wall", "-Wextra", "-shared", "-fPIC", "-O2")
        subprocess.run(["cc", *flags, "-o", fresh, SOURCE, "-ldl"], check=True)
        fresh.replace(BUILT)
    return BUILT
