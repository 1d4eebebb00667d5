"""A thread that does one thing after the other for the store: checkpoints, copies, large messages' files."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("sluice.store")


class MaintenanceThread:
    """Jobs in the order they were asked for.

    After each the ``bell`` rings, where there is one, so that its result is looked at. ``subject`` is what
    a job is about, in the log.
    """

    def __init__(self, name: str, subject: str, bell: int | None = None) -> None:
        self._subject = subject
        self._bell = bell
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
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
                log.exception("a task of %s failed", self._subject)
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)
