"""One thread for what takes milliseconds: password checks, tokens' keys.

It is bounded: whoever comes when it has too much to do is told so at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from broker.security.exchange import Accepted, Refused, Work

log = logging.getLogger("sluice.security")

MOST_WAITING = 100

Done = Callable[[Accepted | Refused], None]


class Worker:
    """Runs work in the order it came; ``done`` is called on its thread, and posts the result on."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most = most_waiting
        self._waiting: deque[tuple[Work, Done]] = deque()
        self._something = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def submit(self, work: Work, done: Done) -> bool:
        """Whether it is going to be done; false when there is no room or it has stopped."""
        with self._something:
            if self._stopping or len(self._waiting) >= self._most:
                return False
            self._waiting.append((work, done))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sluice-auth", daemon=True)
                self._thread.start()
            self._something.notify()
        return True

    def stop(self) -> None:
        """Finish what is being done; what waits is left undone."""
        with self._something:
            self._stopping = True
            self._waiting.clear()
            self._something.notify()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._something:
                while not self._waiting and not self._stopping:
                    self._something.wait()
                if self._stopping:
                    return
                work, done = self._waiting.popleft()
            try:
                result = work.run()
            except Exception:
                log.exception("an authentication could not be worked out; it is refused")
                result = Refused("a fault of the broker's", is_guess=False)
            done(result)
