"""Tells that a member is alive during a step that takes as long as its disk or its data ask for.

A loop tells it at each turn. A restore, a snapshot's load or a directory's removal has no turns, and may take
longer than a service manager waits (sd_notify(3), ``WATCHDOG=1``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A step that takes longer than this is taken for one that hangs.
STEP_S = 1800.0
TELL_S = 1.0


@contextmanager
def telling(alive: Callable[[], None], most_s: float = STEP_S, every_s: float = TELL_S) -> Iterator[None]:
    """Call ``alive`` from another thread every ``every_s`` while the block runs, for ``most_s`` at most."""
    over = threading.Event()
    until_s = time.monotonic() + most_s

    def tell() -> None:
        while not over.is_set() and time.monotonic() < until_s:
            alive()
            over.wait(every_s)

    thread = threading.Thread(target=tell, name="sluice-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
