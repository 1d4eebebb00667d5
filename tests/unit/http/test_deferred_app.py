"""An application that is built for its first request: once, beside the loop, and again after a failure."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.http.server.deferred_app import DeferredApp

WAIT_S = 30.0


class Built:
    """An application that notes what it was asked, and counts how often it was built."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.times = 0
        self.may_build = threading.Event()
        self.faults: list[Exception] = []

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        self.paths.append(scope["path"])

    def build(self) -> ASGIApp:
        """Wait until the test says so, then fail if there is a fault left."""
        assert self.may_build.wait(WAIT_S)
        self.times += 1
        if self.faults:
            raise self.faults.pop()
        return self


async def ask(app: ASGIApp, path: str) -> None:
    async def receive() -> Message:
        raise AssertionError("nothing is read here")

    async def send(_message: Message) -> None:
        raise AssertionError("nothing is answered here")

    await app({"path": path}, receive, send)


def test_requests_that_come_meanwhile_wait_for_one_building() -> None:
    built = Built()
    app = DeferredApp(built.build)

    async def asked() -> None:
        tasks = [asyncio.create_task(ask(app, path)) for path in ("/a", "/b")]
        await asyncio.sleep(0)
        assert built.paths == []
        built.may_build.set()
        await asyncio.gather(*tasks)
        await ask(app, "/c")

    asyncio.run(asked())
    assert (built.paths, built.times) == (["/a", "/b", "/c"], 1)


def test_a_client_that_leaves_does_not_end_the_building() -> None:
    built = Built()
    app = DeferredApp(built.build)

    async def asked() -> None:
        leaving, staying = (asyncio.create_task(ask(app, path)) for path in ("/leaving", "/staying"))
        await asyncio.sleep(0)
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
        built.may_build.set()
        await staying

    asyncio.run(asked())
    assert (built.paths, built.times) == (["/staying"], 1)


def test_a_failure_is_raised_and_the_next_request_tries_again() -> None:
    built = Built()
    built.may_build.set()
    built.faults.append(MemoryError("no room"))
    app = DeferredApp(built.build)

    async def asked() -> None:
        with pytest.raises(MemoryError, match="no room"):
            await ask(app, "/first")
        await ask(app, "/second")

    asyncio.run(asked())
    assert (built.paths, built.times) == (["/second"], 2)
