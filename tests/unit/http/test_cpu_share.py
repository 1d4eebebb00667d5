"""The HTTP port's share of the processor: how it is reckoned, and who waits where it is used up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Generator
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

import pytest

from broker.http.server.calls import asking, asking_in_parts
from broker.http.server.cpu_share import LOOK_NS, MOST_DEBT_NS, MOST_SAVED_NS, QUIET_NS, RESERVED_NS, CpuShare
from broker.http.server.request_queue import RequestQueue
from broker.http.server.selector import ThrottledSelector, loop_factory
from broker.http.server.threads import Threads

MS = 1_000_000


class Traffic:
    """When a message moved last."""

    def __init__(self) -> None:
        self.moved_ns = 0

    def __call__(self) -> int:
        return self.moved_ns


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
def share(traffic: Traffic) -> CpuShare:
    """A tenth, with all saved up that may be."""
    return CpuShare(10, traffic)


def at(traffic: Traffic, now_ns: int) -> int:
    """A time at which messages move."""
    traffic.moved_ns = now_ns
    return now_ns


def test_what_is_saved_may_be_spent_and_then_a_tenth(share: CpuShare, traffic: Traffic) -> None:
    now_ns = at(traffic, 1000 * MS)
    assert share.wait_ns(now_ns) == 0
    share.charge(MOST_SAVED_NS, now_ns)
    assert share.wait_ns(now_ns) > 0
    # Ten milliseconds later one has come back, and may be spent.
    now_ns = at(traffic, now_ns + 10 * MS)
    assert share.wait_ns(now_ns) == 0
    share.charge(2 * MS, now_ns)
    assert share.wait_ns(at(traffic, now_ns + 9 * MS)) > 0
    assert share.wait_ns(at(traffic, now_ns + 11 * MS)) == 0


def test_no_wait_is_longer_than_until_it_is_looked_again(share: CpuShare, traffic: Traffic) -> None:
    now_ns = at(traffic, 1000 * MS)
    share.charge(500 * MS, now_ns)
    assert share.wait_ns(now_ns) == LOOK_NS


def test_a_debt_has_an_end(share: CpuShare, traffic: Traffic) -> None:
    now_ns = at(traffic, 1000 * MS)
    share.charge(100 * MOST_DEBT_NS, now_ns)
    later_ns = now_ns + MOST_DEBT_NS * 10
    assert share.wait_ns(at(traffic, later_ns - 100 * MS)) > 0
    assert share.wait_ns(at(traffic, later_ns + 100 * MS)) == 0


def test_where_no_messages_move_nobody_waits_and_nothing_is_owed(share: CpuShare, traffic: Traffic) -> None:
    traffic.moved_ns = 1000 * MS
    now_ns = 1000 * MS + QUIET_NS
    share.charge(5000 * MS, now_ns)
    assert share.reserve(now_ns) == 0
    assert share.wait_ns(now_ns) == 0
    assert share.wait_ns(at(traffic, now_ns + MS)) == 0
    assert share.spent_ns == 5000 * MS


def test_all_of_it_is_no_bound(traffic: Traffic) -> None:
    share = CpuShare(100, traffic)
    now_ns = at(traffic, 1000 * MS)
    share.charge(5000 * MS, now_ns)
    assert share.wait_ns(now_ns) == 0


def test_what_is_under_way_is_reserved_and_given_back(share: CpuShare, traffic: Traffic) -> None:
    now_ns = at(traffic, 1000 * MS)
    reserved = [share.reserve(now_ns) for _ in range(MOST_SAVED_NS // RESERVED_NS)]
    assert share.wait_ns(now_ns) > 0
    for each_ns in reserved:
        share.give_back(each_ns)
    assert share.wait_ns(now_ns) == 0


def test_what_the_reactor_spends_on_answers_counts(share: CpuShare, traffic: Traffic) -> None:
    def busy() -> int:
        return sum(range(10_000))

    def steps() -> Generator[None, None, int]:
        yield
        return busy()

    def ask(question: Callable[[], Any]) -> Any:
        return question()

    def in_parts(question: Callable[[], Generator[None, None, Any]]) -> Any:
        found = question()
        while True:
            try:
                next(found)
            except StopIteration as end:
                return end.value

    assert asking(ask, share)(busy) == busy()
    first_ns = share.asked_ns
    assert first_ns > 0

    assert asking_in_parts(in_parts, share)(steps) == busy()
    assert share.asked_ns > first_ns
    now_ns = at(traffic, 1000 * MS)
    share.charge(0, now_ns)
    assert share.spent_ns == share.asked_ns
    share.charge(0, now_ns)
    assert share.spent_ns == share.asked_ns


def test_who_waits_goes_on_in_the_order_they_came(share: CpuShare, traffic: Traffic) -> None:
    async def walk() -> list[int]:
        turn = RequestQueue(share)
        loop = asyncio.get_running_loop()
        passed: list[int] = []

        async def request(number: int) -> None:
            await turn.passed()
            passed.append(number)

        at(traffic, 1 << 62)
        share.charge(MOST_SAVED_NS + MS, 1 << 62)
        share.time.percent = 1
        tasks = [loop.create_task(request(number)) for number in range(5)]
        await asyncio.sleep(0.01)
        assert passed == []
        traffic.moved_ns = 0
        await asyncio.gather(*tasks)
        assert turn.waited == 5
        return passed

    assert asyncio.run(walk()) == [0, 1, 2, 3, 4]


def test_what_is_urgent_does_not_wait(share: CpuShare, traffic: Traffic) -> None:
    async def walk() -> str:
        threads = Threads(share)
        at(traffic, 1 << 62)
        share.charge(500 * MS, 1 << 62)
        waits = asyncio.get_running_loop().create_task(threads.run(lambda: "slow"))
        assert await threads.run(lambda: "quick", urgent=True) == "quick"
        assert not waits.done()
        traffic.moved_ns = 0
        return await waits

    assert asyncio.run(walk()) == "slow"


# --- the selector


def test_a_socket_that_is_registered_is_moved_to_where_it_waits_and_back(
    share: CpuShare, traffic: Traffic
) -> None:
    """As a tunnel's is; nothing but where it waits changes."""
    turnstile = ThrottledSelector(share)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        turnstile.bind(ours.fileno())
        turnstile.register(ours, EVENT_READ, "mine")
        at(traffic, 1 << 62)
        share.charge(500 * MS, 1 << 62)
        turnstile._looked_ns = 1 << 62
        assert turnstile.select(0) == []
        turnstile.move(ours.fileno(), bounded=False)
        ((key, events),) = turnstile.select(0)
        assert (key.fd, key.data, events) == (ours.fileno(), "mine", EVENT_READ)
        turnstile.move(ours.fileno(), bounded=True)
        turnstile._looked_ns = 1 << 62
        assert turnstile.select(0) == []
        turnstile.unregister(ours)
        turnstile.move(ours.fileno(), bounded=False)
    turnstile.close()


def test_bound_sockets_wait_and_others_do_not(share: CpuShare, traffic: Traffic) -> None:
    turnstile = ThrottledSelector(share)
    pairs = [socket.socketpair() for _ in range(2)]
    (client, its_peer), (tunnel, other_peer) = pairs
    turnstile.bind(client.fileno())
    turnstile.register(client, EVENT_READ, "client")
    turnstile.register(tunnel.fileno(), EVENT_READ, "tunnel")
    its_peer.send(b"x")
    other_peer.send(b"x")
    assert {key.data for key, _ in turnstile.select(0)} == {"client", "tunnel"}
    at(traffic, 1 << 62)
    share.charge(500 * MS, 1 << 62)
    turnstile._looked_ns = 1 << 62  # else the client is looked at whenever this took a while
    assert {key.data for key, _ in turnstile.select(0)} == {"tunnel"}
    assert turnstile.get_key(client).data == "client"
    # It has become a tunnel.
    turnstile.release(client.fileno())
    turnstile.modify(client, EVENT_READ | EVENT_WRITE, "tunnel too")
    assert {key.data for key, _ in turnstile.select(0)} == {"tunnel", "tunnel too"}
    for each in (client, tunnel):
        turnstile.unregister(each)
        with pytest.raises(KeyError):
            turnstile.get_key(each)
    turnstile.close()
    for pair in pairs:
        for each in pair:
            each.close()


def test_whatever_is_owed_clients_are_looked_at_now_and_then(share: CpuShare, traffic: Traffic) -> None:
    turnstile = ThrottledSelector(share)
    client, peer = socket.socketpair()
    turnstile.bind(client.fileno())
    turnstile.register(client, EVENT_READ, "client")
    peer.send(b"x")
    turnstile.select(0)
    looked_ns, turnstile._looked_ns = turnstile._looked_ns, 1 << 62
    at(traffic, 1 << 62)
    share.charge(500 * MS, 1 << 62)
    assert turnstile.select(0) == []
    turnstile._looked_ns = looked_ns
    while not (ready := turnstile.select(None)):
        pass
    assert [key.data for key, _ in ready] == ["client"]
    turnstile.close()
    client.close()
    peer.close()


def test_a_socket_whose_client_another_process_took_is_no_fault(share: CpuShare, traffic: Traffic) -> None:
    """Cells share one listening socket: what woke the loop may be gone when it looks."""
    turnstile = ThrottledSelector(share)
    client, peer = socket.socketpair()
    with client, peer:
        turnstile.bind(client.fileno())
        turnstile.register(client, EVENT_READ, "client")
        peer.send(b"x")
        # Ready within the other selector, until that is asked itself.
        original, calls = turnstile._held.select, []

        def select(timeout: float | None = None) -> list[Any]:
            calls.append(client.recv(1))
            return original(timeout)

        turnstile._held.select = select  # type: ignore[method-assign]
        assert turnstile.select(0) == []
        assert calls == [b"x"]
        assert turnstile.select(0) == []
        turnstile.unregister(client)
    turnstile.close()


def test_what_tunnels_take_is_not_charged(share: CpuShare, traffic: Traffic) -> None:
    turnstile = ThrottledSelector(share)
    tunnel, peer = socket.socketpair()
    turnstile.register(tunnel, EVENT_READ, "tunnel")
    peer.send(b"x")
    turnstile.select(0)
    before_ns = share.spent_ns
    sum(range(100_000))
    turnstile.select(0)
    assert share.spent_ns == before_ns
    turnstile.unregister(tunnel)
    turnstile.select(0)
    sum(range(100_000))
    turnstile.select(0)
    assert share.spent_ns > before_ns
    turnstile.close()
    tunnel.close()
    peer.close()


def test_an_event_loop_goes_by_it(share: CpuShare) -> None:
    async def talk() -> bytes:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        await loop.run_in_executor(None, theirs.sendall, b"hello")
        said = await loop.sock_recv(ours, 10)
        ours.close()
        theirs.close()
        return said

    with asyncio.Runner(loop_factory=loop_factory(ThrottledSelector(share))) as runner:
        assert runner.run(talk()) == b"hello"
