"""Questions from other threads to the one that owns the engine, answered at once or in parts.

A long answer is worked on for a millisecond in each turn, so that messages don't wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

# How long another thread waits for the next step of an answer, and for the answer.
TIMEOUT_S = 5.0
LONGEST_S = 60.0
SLICE_NS = 1_000_000
SILENT = "the broker's loop did not answer in time"

Answer = TypeVar("Answer")
Steps = Generator[None, None, Answer]


class IncrementalCall(Generic[Answer]):
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
        # How many turns have worked on it.
        self._turns = 0
        self._done = threading.Event()
        post(self._work)

    def wait(self, longest_s: float = LONGEST_S, step_s: float = TIMEOUT_S) -> Answer:
        """Return the answer, or raise the fault of the function that makes it.

        Raises TimeoutError where nothing of it is done for ``step_s``, or it isn't ready after ``longest_s``.
        """
        until_s = time.monotonic() + longest_s
        turns = -1
        while not self._done.wait(min(step_s, max(until_s - time.monotonic(), 0.0))):
            if turns == self._turns or time.monotonic() >= until_s:
                self._given_up = True
                raise TimeoutError(SILENT)
            turns = self._turns
        if self._fault is not None:
            raise self._fault
        return self._answers[0]

    def _work(self) -> None:
        """One turn's part of it."""
        began_ns = time.monotonic_ns()
        self._turns += 1
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


def ended(steps: Steps[Answer]) -> Answer:
    """Return the answer, all steps taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
