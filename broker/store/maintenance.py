"""A thread that does one thing after the other for the store: prepares files, makes checkpoints, copies."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("sluice.store")


class MaintenanceThread:
    """Jobs in the order they were asked for; after each the bell rings, so that its result is looked at."""

    def __init__(self, bell: int) -> None:
        self._bell = bell
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sluice-keeper", daemon=True)
        self._thread.start()

    def ask(self, job: Callable[[], None]) -> None:
        """Do it soon. A job tells of its own faults; one that raises is a bug of ours."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what was asked for and leave."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a task of the store failed")
            os.eventfd_write(self._bell, 1)
