"""Questions to the reactor's thread; what it spends on them is the HTTP port's."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from broker.http.server.cpu_share import CpuShare

Answer = TypeVar("Answer")


class Ask(Protocol):
    """Runs a function on the reactor's thread and returns its result; TimeoutError if that takes too long."""

    def __call__(self, question: Callable[[], Answer], /) -> Answer: ...


class AskInParts(Protocol):
    """The same with what is answered in steps, between which the reactor goes on."""

    def __call__(self, question: Callable[[], Generator[None, None, Answer]], /) -> Answer: ...


def asking(ask: Ask, share: CpuShare) -> Ask:
    """The same, counted."""

    def counted(question: Callable[[], Answer]) -> Answer:
        def timed() -> Answer:
            began_ns = time.thread_time_ns()
            try:
                return question()
            finally:
                share.asked_ns += time.thread_time_ns() - began_ns

        return ask(timed)

    return counted


def asking_in_parts(ask: AskInParts, share: CpuShare) -> AskInParts:
    """The same, each step counted."""

    def counted(question: Callable[[], Generator[None, None, Answer]]) -> Answer:
        def timed() -> Generator[None, None, Answer]:
            steps = question()
            while True:
                began_ns = time.thread_time_ns()
                try:
                    next(steps)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
                finally:
                    share.asked_ns += time.thread_time_ns() - began_ns
                yield

        return ask(timed)

    return counted
