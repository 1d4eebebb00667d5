"""Live figures in the server's own process: without end, in step, and nobody's for longer than they read."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest
from starlette.types import Message

from broker.http.api import live
from broker.http.server import limits
from broker.http.server.server import HttpServer
from broker.http.server.types import Operate
from tests.unit.manage_world import World, finished
from tests.wire.conftest import wait_until

Answer = TypeVar("Answer")
WAIT_S = 30.0


class Reactor:
    """Answers at once, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.fault: Exception | None = None
        self._lock = threading.Lock()

    def ask(self, question: Callable[[], Answer], /) -> Answer:
        with self._lock:
            self.asked += 1
            if self.fault is not None:
                raise self.fault
            return question()

    def ask_in_parts(self, question: Callable[[], Generator[None, None, Answer]], /) -> Answer:
        return self.ask(lambda: finished(question()))


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


@pytest.fixture
def server(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr(live, "INTERVAL_S", 0.05)
    monkeypatch.setattr(live, "FRESH_S", 0.04)
    # Nobody is cut off for asking slowly, unless a test says so.
    monkeypatch.setattr(limits, "REQUEST_S", 10 * WAIT_S)
    monkeypatch.setattr(limits, "PAUSE_S", 10 * WAIT_S)
    world = World()
    world.queue("orders")
    found = HttpServer(
        "127.0.0.1", 0, reactor.ask, world.survey, operate=Operate(world.model, reactor.ask_in_parts)
    )
    found.start()
    yield found
    found.stop()


class Watcher:
    """One client of server-sent events; it hears of it at once if it may not watch."""

    def __init__(self, server: HttpServer, query: str = "", source: str = "127.0.0.1") -> None:
        to = "127.0.0.1", server.port
        self.sock = socket.create_connection(to, timeout=WAIT_S, source_address=(source, 0))
        head = f"GET /api/v1/live{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        self.sock.sendall(head.encode())
        self._lines = self.sock.makefile("rb")

    def next(self) -> tuple[str, dict[str, object]]:
        """The next event."""
        kind = ""
        for line in self._lines:
            if line.startswith(b"event: "):
                kind = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                return kind, json.loads(line[6:])
        raise EOFError

    def close(self) -> None:
        self._lines.close()
        self.sock.close()


def test_they_go_on_longer_than_any_other_answer_may_take(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.5)
    monkeypatch.setattr(limits, "PAUSE_S", 0.4)
    watcher = _let_in(server)
    # A second: twice the time for an answer.
    for _ in range(20):
        assert watcher.next()[0] == "broker"
    watcher.close()


def _let_in(server: HttpServer) -> Watcher:
    """A watcher that has seen its first event; one that asked too slowly was cut off, and asks again."""
    while True:
        watcher = Watcher(server)
        try:
            assert watcher.next()[0] == "broker"
            return watcher
        except (EOFError, ConnectionResetError):
            watcher.close()


def test_watchers_share_one_reading(
    server: HttpServer, reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FRESH_S", 0.5)
    watchers = [Watcher(server) for _ in range(live.MOST_WATCHERS)]
    for watcher in watchers:
        watcher.next()
    began_s, before = time.monotonic(), reactor.asked
    for _ in range(10):
        for watcher in watchers:
            watcher.next()
    # 80 events. However long that took: a reading each time the last was stale, and those at either end.
    assert reactor.asked - before <= (time.monotonic() - began_s) / 0.5 + 2
    for watcher in watchers:
        watcher.close()


def test_a_loop_that_is_silent_is_told_of_and_asked_again(server: HttpServer, reactor: Reactor) -> None:
    watcher = Watcher(server, "?nodes=orders")
    assert [watcher.next()[0] for _ in range(2)] == ["broker", "node"]
    reactor.fault = TimeoutError("no answer")
    wait_until(lambda: watcher.next()[0] == "silent", WAIT_S, "the silence to be told of")
    reactor.fault = None
    wait_until(lambda: watcher.next()[0] == "node", WAIT_S, "the figures to go on")
    watcher.close()


def test_a_watcher_that_goes_leaves_its_place(server: HttpServer) -> None:
    for _ in range(3 * live.MOST_WATCHERS):
        wait_until(lambda: _may_watch(server), WAIT_S, "a place")


def _may_watch(server: HttpServer) -> bool:
    watcher = Watcher(server)
    try:
        return watcher.next()[0] == "broker"
    except EOFError:
        return False
    finally:
        watcher.close()


def test_nobody_keeps_all_places_from_others(server: HttpServer) -> None:
    """The oldest of whoever has most goes; shares that are as even as can be stay as they are."""
    greedy, others = [], []
    for _ in range(live.MOST_WATCHERS):
        greedy.append(Watcher(server))
        # Seen before the next one asks: of several that ask at once any may be the oldest.
        assert greedy[-1].next()[0] == "broker"
    for number in range(live.MOST_WATCHERS // 2):
        others.append(Watcher(server, source=f"127.0.{1 + number % 2}.9"))
        assert others[-1].next()[0] == "broker"
        assert ends(greedy[number])
    # Four of the first, and two and two of the others: none of these has any to give away to the first.
    assert not _may_watch(server)
    for each in [*others, *greedy[len(others) :]]:
        assert each.next()[0] == "broker"
    third = Watcher(server, source="127.0.3.9")
    assert third.next()[0] == "broker"
    assert ends(greedy[len(others)])
    for each in [*greedy, *others, third]:
        each.close()


def test_whoever_finds_no_place_is_told_when_to_come_back(server: HttpServer) -> None:
    watchers = [Watcher(server) for _ in range(live.MOST_WATCHERS)]
    for each in watchers:
        each.next()
    late = Watcher(server)
    told = late.sock.recv(4096)
    assert told.startswith(b"HTTP/1.1 429")
    assert b"\r\nRetry-After: 5\r\n" in told
    for each in [*watchers, late]:
        each.close()


def ends(watcher: Watcher) -> bool:
    """Whether it comes to its end, and soon."""
    began_s = time.monotonic()
    with suppress(EOFError, ConnectionResetError):
        while time.monotonic() < began_s + WAIT_S:
            watcher.next()
        return False
    return True


def test_a_watcher_that_does_not_read_is_let_go(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE_S", 0.2)
    monkeypatch.setattr(live, "INTERVAL_S", 0.0)
    monkeypatch.setattr(live, "MOST_WATCHERS", 1)
    lazy = Watcher(server, f"?nodes={','.join(['orders'] * live.MOST_NODES)}")
    assert lazy.next()[0] == "broker"
    wait_until(lambda: _may_watch(server), 2 * WAIT_S, "its place")
    lazy.close()


def test_stop_ends_them(server: HttpServer) -> None:
    watcher = Watcher(server)
    watcher.next()
    server.stop()
    with pytest.raises((EOFError, ConnectionResetError)):
        _read_on(watcher)
    watcher.close()


def _read_on(watcher: Watcher) -> None:
    while True:
        watcher.next()


@pytest.mark.parametrize("turns", range(8))
def test_a_client_that_goes_while_an_event_is_sent_is_let_go(turns: int) -> None:
    """Whatever the loop does in between: a watcher that stayed would keep its place for ever."""
    ended: list[bool] = []

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"event"
                await asyncio.sleep(0)
        finally:
            ended.append(True)

    async def serve() -> None:
        leaves = asyncio.Event()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                leaves.set()
                for _ in range(turns):
                    await asyncio.sleep(0)

        async def receive() -> Message:
            await leaves.wait()
            return {"type": "http.disconnect"}

        serving = asyncio.create_task(live.Stream(events)({"type": "http"}, receive, send))
        for _ in range(200):
            await asyncio.sleep(0)
        assert serving.done()
        await serving

    asyncio.run(serve())
    assert ended == [True]
