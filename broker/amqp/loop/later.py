"""Management requests whose answers take long: worked out beside the loop, one after the other.

Text is read on a thread of its own; what has to be known or done of the broker goes to the loop's thread in
parts (``asking``), and the answer is encoded on the thread again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from broker.manage.calls import IncrementalCall, Steps

log = logging.getLogger("sluice.management")

MOST_WAITING = 8

Found = TypeVar("Found")
Post = Callable[[Callable[[], None]], None]


class AskLoop(Protocol):
    """Has a question answered in parts on the loop's thread, and waits for it."""

    def __call__(self, question: Callable[[], Steps[Found]], /) -> Found: ...


# Makes the whole answer, on the thread.
Work = Callable[[AskLoop], bytes]


class LongAnswers:
    """A thread, for as long as there is something to do; ``post`` brings a function to the loop's."""

    def __init__(self, post: Post, charge: Callable[[int], None]) -> None:
        self._post = post
        self._charge = charge
        self._waiting: deque[tuple[Work, Callable[[bytes], None]]] = deque()
        self._lock = threading.Lock()
        self._is_working = False

    def submit(self, work: Work, done: Callable[[bytes], None]) -> bool:
        """Whether there is room for it; then ``done`` gets the answer, on the loop's thread."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                return False
            self._waiting.append((work, done))
            if self._is_working:
                return True
            self._is_working = True
        threading.Thread(target=self._run, name="sluice-answers", daemon=True).start()
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_working = False
                    return
                work, done = self._waiting.popleft()
            try:
                answer = work(self._ask)
            except Exception:
                log.exception("a management request could not be answered")
                continue
            self._post(lambda done=done, answer=answer: done(answer))  # type: ignore[misc]

    def _ask(self, question: Callable[[], Steps[Found]]) -> Found:
        return IncrementalCall(self._post, question, self._charge).wait()
