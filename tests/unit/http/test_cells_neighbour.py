"""HTTP between cells over real sockets: signs of life, silence, what ends too early and what comes late."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps

import pytest

from broker.http.api.listpart import ListPart
from broker.http.cells import call as calls
from broker.http.cells import neighbour
from broker.http.cells.call import CellAnswer, CellCall, CellSilentError
from broker.http.cells.neighbour import CellClient, serve
from broker.http.server.authenticator import Caller
from broker.security.identity import Identity

# Those of tasks that a loop ended before they began.
SOCKETS: list[socket.socket] = []
Test = Callable[..., Coroutine[None, None, None]]


def in_a_loop(test: Test) -> Callable[..., None]:
    """Run a test on an event loop of its own."""

    @wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


WHO = Caller(Identity("zoë", frozenset({"a", "b"}), "PLAIN", "prover"), "password")


class World:
    """A client and whatever is at the other end of its sockets; each end is closed with the world."""

    def __init__(self, answer: Callable[[CellCall], Awaitable[CellAnswer]]) -> None:
        self.answer = answer
        self.client = CellClient(self.dial)
        self.dialled = 0
        self.serving: set[asyncio.Task[None]] = set()

    def dial(self, cell: int) -> socket.socket:
        self.dialled += 1
        ours, theirs = socket.socketpair()
        SOCKETS.append(theirs)
        self.serving.add(asyncio.get_running_loop().create_task(self.serve(theirs)))
        return ours

    async def serve(self, sock: socket.socket) -> None:
        await serve(sock, self.answer)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Silence is noticed within a fraction of a second."""
    for each in (calls, neighbour):
        monkeypatch.setattr(each, "SILENT_S", 0.5)
    monkeypatch.setattr(neighbour, "SIGN_S", 0.1)
    monkeypatch.setattr(neighbour, "PROBE_S", 0.05)
    yield
    while SOCKETS:
        SOCKETS.pop().close()


@in_a_loop
async def test_a_call_arrives_as_it_was_made() -> None:
    heard: list[CellCall] = []

    async def answer(call: CellCall) -> CellAnswer:
        heard.append(call)
        return CellAnswer(412, b"x" * 300_000, {"etag": '"1"'})

    world = World(answer)
    asked = [
        CellCall("PATCH", "/api/v1/queues/a%2Fb", "x=1%26", b"{}", ((b"if-match", b"1"),), WHO),
        CellCall("GET", "/api/v1/queues", "sort=name", caller=WHO, part=ListPart()),
        CellCall("GET", "/api/v1/queues", caller=WHO, part=ListPart(("ä", "$cell/0/x", "y" * 255) * 100)),
        CellCall("DELETE", "/login", session="2.token"),
    ]
    for call in asked:
        found = await world.client.ask(1, call)
        assert (found.status, found.body, found.headers["etag"]) == (412, b"x" * 300_000, '"1"')
    kept = [(each.method, each.target, each.body, each.headers, each.part, each.session) for each in heard]
    wanted = [(each.method, each.target, each.body, each.headers, each.part, each.session) for each in asked]
    assert kept == wanted
    assert [each.caller.identity for each in heard[:3]] == [WHO.identity] * 3


@in_a_loop
async def test_a_long_answer_is_waited_for_as_long_as_there_are_signs() -> None:
    async def answer(_call: CellCall) -> CellAnswer:
        await asyncio.sleep(1.5)
        return CellAnswer(200, b"done")

    assert (await World(answer).client.ask(1, CellCall("GET", "/x"))).body == b"done"


@in_a_loop
async def test_a_silent_cell_is_left_out_until_it_answers() -> None:
    is_silent = True

    class Stopped(World):
        async def serve(self, sock: socket.socket) -> None:
            with sock:
                while is_silent:
                    await asyncio.sleep(0.01)
            if not is_silent:
                sock.close()

    async def answer(_call: CellCall) -> CellAnswer:
        return CellAnswer(200)

    world: World = Stopped(answer)
    with pytest.raises(CellSilentError, match="it doesn't answer"):
        await world.client.ask(1, CellCall("GET", "/x"))
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(CellSilentError):
            await world.client.ask(1, CellCall("GET", "/x"))
    assert time.monotonic() - began < 0.4
    # A hundred clients don't make a hundred connections to it.
    assert world.dialled < 10
    is_silent = False
    world.serve = lambda sock: serve(sock, answer)  # type: ignore[method-assign]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(CellSilentError):
            assert (await world.client.ask(1, CellCall("GET", "/x"))).status == 200
            return
        await asyncio.sleep(0.05)
    pytest.fail("it was left out for good")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 102 Processing\r\n\r\n",
        b"nothing that is HTTP\r\n\r\n",
    ],
)
@in_a_loop
async def test_an_answer_that_is_none_is_no_answer(said: bytes) -> None:
    """As of a cell that is killed while it answers."""

    class Killed(World):
        async def serve(self, sock: socket.socket) -> None:
            with sock:
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
                await asyncio.get_running_loop().sock_sendall(sock, said)

    async def answer(_call: CellCall) -> CellAnswer:
        raise AssertionError

    world = Killed(answer)
    with pytest.raises(CellSilentError):
        await world.client.ask(1, CellCall("GET", "/x"))
    # It isn't stopped: the next one may find it there again.
    world.serve = lambda sock: serve(sock, _good)  # type: ignore[method-assign]
    assert (await world.client.ask(1, CellCall("GET", "/x"))).status == 200


async def _good(_call: CellCall) -> CellAnswer:
    return CellAnswer(200)


@in_a_loop
async def test_what_comes_late_is_not_done() -> None:
    done: list[CellCall] = []

    async def answer(call: CellCall) -> CellAnswer:
        done.append(call)
        return CellAnswer(200)

    class Stopped(World):
        async def serve(self, sock: socket.socket) -> None:
            await asyncio.sleep(1)
            await serve(sock, self.answer)

    world = Stopped(answer)
    with pytest.raises(CellSilentError):
        await world.client.ask(1, CellCall("POST", "/purge"))
    [first, *_] = world.serving
    await first
    assert [each for each in done if each.method == "POST"] == []


@pytest.mark.parametrize(
    "said",
    [
        b"nothing that is HTTP\r\n\r\n",
        b"GET /x HTTP/1.1\r\nhost: cell\r\n\r\n",
        b"GET /x HTTP/1.1\r\nhost: cell\r\nsluice-call: {}\r\n\r\n",
        b"GET /x HTTP/1.1\r\nhost: cell\r\nsluice-call: no json\r\n\r\n",
        b"GET /x HTTP/1.1\r\nhost: cell\r\ncontent-length: 99999999\r\n\r\n" + b"x" * 5_000_000,
        b"GET /half",
    ],
)
@in_a_loop
async def test_what_is_no_call_is_closed_and_nothing_is_done(said: bytes) -> None:
    async def answer(_call: CellCall) -> CellAnswer:
        raise AssertionError("nothing was asked")

    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        serving = asyncio.get_running_loop().create_task(serve(theirs, answer))
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(ours, said)
        async with asyncio.timeout(10):
            await serving


@in_a_loop
async def test_a_fault_of_ours_is_answered_by_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_call: CellCall) -> CellAnswer:
        raise RuntimeError("a bug")

    with pytest.raises(CellSilentError):
        await World(answer).client.ask(1, CellCall("GET", "/x"))
    assert "another cell's request wasn't answered" in caplog.text
