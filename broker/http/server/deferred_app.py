"""An application that is imported and built when its first request comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send


class DeferredApp:
    """An ASGI application that ``build`` returns, called once, in a thread of its own, for the first request.

    Requests that come meanwhile wait. One that fails to be built is built again for the next request.
    """

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._built: ASGIApp | None = None
        self._building: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; raises the building's exception if it fails."""
        if self._built is None:
            if self._building is None:
                self._building = self._begin()
            # A client that leaves must not cancel the building for those who wait for it too.
            await asyncio.shield(self._building)
            assert self._built is not None
        await self._built(scope, receive, send)

    def _begin(self) -> asyncio.Future[ASGIApp]:
        """Start the building, uncharged: its debt would hold up all requests of a busy broker for seconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ASGIApp] = loop.create_future()

        def work() -> None:
            try:
                settle = partial(self._done, future, self._build())
            except Exception as fault:  # noqa: BLE001 - it is raised again where it is awaited
                settle = partial(self._failed, future, fault)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=work, name="http-build", daemon=True).start()
        return future

    def _done(self, future: asyncio.Future[ASGIApp], built: ASGIApp) -> None:
        self._built = built
        future.set_result(built)

    def _failed(self, future: asyncio.Future[ASGIApp], fault: Exception) -> None:
        self._building = None
        future.set_exception(fault)
