"""A question that is answered in parts waits for as long as parts of it are done."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator

import pytest

from broker.manage import calls


class Loop:
    """Runs what is posted, a turn each ``pause_s``, until ``stop``."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self._posted: deque[Callable[[], None]] = deque()
        self._stopped = threading.Event()
        self._pause_s = pause_s
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def post(self, work: Callable[[], None]) -> None:
        self._posted.append(work)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s or 0.001):
            if self._posted:
                self._posted.popleft()()


def steps(count: int, step_s: float) -> Generator[None, None, str]:
    for _ in range(count):
        time.sleep(step_s)
        yield
    return "done"


def test_an_answer_may_take_longer_than_a_step() -> None:
    loop = Loop()
    try:
        assert calls.IncrementalCall(loop.post, lambda: steps(100, 0.02)).wait(step_s=1.5) == "done"
    finally:
        loop.stop()


def test_a_loop_that_stands_still_is_told_of() -> None:
    question = calls.IncrementalCall(lambda _work: None, lambda: steps(1, 0))
    with pytest.raises(TimeoutError, match="did not answer in time"):
        question.wait(step_s=0.05)


def test_an_answer_that_takes_too_long_in_all_is_given_up_and_its_steps_are_closed() -> None:
    closed = threading.Event()

    def endless() -> Generator[None, None, None]:
        try:
            while True:
                time.sleep(0.001)
                yield
        finally:
            closed.set()

    loop = Loop()
    try:
        with pytest.raises(TimeoutError):
            calls.IncrementalCall(loop.post, endless).wait(longest_s=0.2)
        assert closed.wait(10)
    finally:
        loop.stop()


def test_a_fault_is_raised_where_it_was_asked() -> None:
    def faulty() -> Generator[None, None, None]:
        yield
        raise KeyError("orders")

    loop = Loop()
    try:
        with pytest.raises(KeyError, match="orders"):
            calls.IncrementalCall(loop.post, faulty).wait()
    finally:
        loop.stop()
