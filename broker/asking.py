"""Questions from other threads to the one that owns the engine, answered at once or in parts.

A long answer is worked on for a millisecond in each turn, so that messages don't wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

# How long another thread waits for an answer.
TIMEOUT_S = 5.0
SLICE_NS = 1_000_000
SILENT = "the broker's loop did not answer in time"

Answer = TypeVar("Answer")
Steps = Generator[None, None, Answer]


class InParts(Generic[Answer]):
    """One question that is answered in steps; ``wait`` is for the thread that asked.

    ``charge`` is told, on the thread that answers, how long each turn's part took.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        question: Callable[[], Steps[Answer]],
        charge: Callable[[int], None] = lambda _ns: None,
    ) -> None:
        self._post = post
        self._charge = charge
        self._question = question
        self._steps: Steps[Answer] | None = None
        self._answers: list[Answer] = []
        self._fault: Exception | None = None
        self._given_up = False
        self._done = threading.Event()
        post(self._work)

    def wait(self, timeout_s: float = TIMEOUT_S) -> Answer:
        """The answer; TimeoutError if it takes too long, and what is raised where it is made."""
        if not self._done.wait(timeout_s):
            self._given_up = True
            raise TimeoutError(SILENT)
        if self._fault is not None:
            raise self._fault
        return self._answers[0]

    def _work(self) -> None:
        """One turn's part of it."""
        began_ns = time.monotonic_ns()
        try:
            self._take_steps(began_ns + SLICE_NS)
        finally:
            self._charge(time.monotonic_ns() - began_ns)

    def _take_steps(self, until_ns: int) -> None:
        try:
            if self._steps is None:
                self._steps = self._question()
            if self._given_up:
                self._steps.close()
                return
            while time.monotonic_ns() < until_ns:
                next(self._steps)
        except StopIteration as end:
            self._answers.append(end.value)
        except Exception as fault:  # noqa: BLE001 - it is raised again where it was asked
            self._fault = fault
        else:
            self._post(self._work)
            return
        self._done.set()
