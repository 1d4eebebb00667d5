"""Threads in which answers are made: neither the reactor nor the clients of WebSocket wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from broker.http import server

Answer = TypeVar("Answer")


class Threads:
    """One short-lived thread for each answer under way; no stop waits for them."""

    def __init__(self) -> None:
        self._busy = 0

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """The function's result; TimeoutError where as many are busy as there may be clients."""
        if self._busy >= server.MOST_CLIENTS:
            raise TimeoutError("too many answers are under way")
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
                loop.call_soon_threadsafe(self._leave, future, settle)

        self._busy += 1
        threading.Thread(target=work, name="http-answer", daemon=True).start()
        return await future

    def _leave(self, future: asyncio.Future[Answer], settle: Callable[[], None]) -> None:
        self._busy -= 1
        if not future.done():  # who awaited it may have been cut off
            settle()
