"""Threads in which answers are made: neither the reactor nor the clients of WebSocket wait for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from broker.http.server import limits
from broker.http.server.cpu_share import CpuShare
from broker.http.server.request_queue import RequestQueue

Answer = TypeVar("Answer")


class Threads:
    """One short-lived thread for each answer under way; no stop waits for them.

    What they take is charged to the port's ``share``. Where that is used up the next one waits, and so it
    does while others work on what is left of it: each of them would have the interpreter before the reactor.
    """

    def __init__(self, share: CpuShare | None = None) -> None:
        self._busy = 0
        self._share = share or CpuShare()
        self._turn = RequestQueue(self._share)

    async def run(self, function: Callable[[], Answer], *, urgent: bool = False) -> Answer:
        """The function's result; TimeoutError where as many are busy as there may be clients. What is
        ``urgent`` costs next to nothing, doesn't wait, and has places of its own beside the others'.
        """
        if self._busy >= limits.MOST_CLIENTS * (2 if urgent else 1):
            raise TimeoutError("too many answers are under way")
        self._busy += 1
        if not urgent:
            try:
                await self._turn.passed()
            except BaseException:
                self._busy -= 1
                raise
        reserved_ns = self._share.reserve(time.monotonic_ns())
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()

        def work() -> None:
            try:
                result = function()
            except Exception as fault:  # noqa: BLE001 - it is raised again where it is awaited
                settle = partial(future.set_exception, fault)
            else:
                settle = partial(future.set_result, result)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._leave, future, settle, reserved_ns, time.thread_time_ns())

        threading.Thread(target=work, name="http-answer", daemon=True).start()
        return await future

    def _leave(
        self, future: asyncio.Future[Answer], settle: Callable[[], None], reserved_ns: int, taken_ns: int
    ) -> None:
        self._busy -= 1
        self._share.give_back(reserved_ns)
        self._share.charge(taken_ns, time.monotonic_ns())
        if not future.done():  # who awaited it may have been cut off
            settle()
