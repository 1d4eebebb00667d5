"""Functions that other threads bring to the loop's thread."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable

log = logging.getLogger("sluice.amqp")


class Inbox:
    """Posted functions in the order they came; ``bell`` is a descriptor that is readable once one has come.

    ``post`` may be called on any thread, everything else on the loop's.
    """

    def __init__(self) -> None:
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.waiting: deque[Callable[[], None]] = deque()

    def post(self, function: Callable[[], None]) -> None:
        """Have a function run by the loop, soon; its exceptions are logged. After ``close`` it isn't run."""
        if self.bell < 0:
            return
        self.waiting.append(function)
        try:
            os.eventfd_write(self.bell, 1)
        except (OSError, ValueError):
            # The loop has taken the function already, and ended with it.
            if self.bell >= 0:
                raise

    def silence(self) -> None:
        """Make the bell unreadable until the next function comes."""
        os.eventfd_read(self.bell)

    def run(self) -> None:
        """Call those that are there now; one that one of them posts is called in the next turn."""
        for _ in range(len(self.waiting)):
            function = self.waiting.popleft()
            try:
                function()
            except Exception:
                log.exception("a posted task failed")

    def close(self) -> None:
        """Take no more functions."""
        bell, self.bell = self.bell, -1
        os.close(bell)
