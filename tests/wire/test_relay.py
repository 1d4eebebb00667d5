"""Clients of a standby, relayed to a real owner: bytes, addresses, limits, faults."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.server.cluster import header
from broker.server.cluster.header import RelayedClient
from broker.server.cluster.member_port import MemberPort
from broker.server.cluster.relay import OwnerAddress, Relay, RelayListener, takes_connections
from tests.wire.conftest import wait_until
from tests.wire.relayworld import SECRET, RelayedOwner

pytestmark = pytest.mark.wire


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[RelayedOwner]:
    found = RelayedOwner(tmp_path / "owner")
    yield found
    found.stop()


@pytest.fixture
def relay(owner: RelayedOwner) -> Iterator[Relay]:
    found = owner.relay(lambda path: (200, "text/plain", b"mine\n") if path == "/healthz" else None)
    found.set_owner(owner.address())
    yield found
    found.stop()


def closed(sock: socket.socket) -> bool:
    """Whether the other side has closed it, within its time-out."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def exchange(port: int, body: bytes) -> bytes:
    queue = os.urandom(4).hex()
    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=30)
    try:
        connection.create_sender(queue).send(Message(body=body, durable=True))
        receiver = connection.create_receiver(queue)
        # Its body is seen in the message's own memory, which goes with it.
        message = receiver.receive(30)
        assert isinstance(message.body, (bytes, memoryview))
        found = bytes(message.body)
        receiver.accept()
        return found
    finally:
        connection.close()


def test_messages_of_any_size_pass(relay: Relay) -> None:
    for size in (1, 20_000_000):
        body = os.urandom(size)
        found = exchange(relay.ports[0], body)
        assert (len(found), found == body) == (size, True)
    wait_until(lambda: relay.open_count == 0, 10, "closed connections to be forgotten")


def test_the_owner_sees_the_clients_address(owner: RelayedOwner, relay: Relay) -> None:
    with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as sock:
        mine = "{}:{}".format(*sock.getsockname())
        clients = owner.server.reactor.clients
        wait_until(lambda: mine in [each.address for each in list(clients.values())], 10, "the client")


def test_http_is_relayed_but_for_the_standbys_own_pages(relay: Relay) -> None:
    base = f"http://127.0.0.1:{relay.ports[1]}"
    with urllib.request.urlopen(f"{base}/healthz", timeout=60) as answer:
        assert answer.read() == b"mine\n"
    with urllib.request.urlopen(f"{base}/readyz", timeout=60) as answer:
        assert answer.read() == b"ready\n"
    with urllib.request.urlopen(f"{base}/api/v1/queues", timeout=60) as answer:
        assert answer.status == 200


def test_clients_are_held_until_there_is_an_owner(owner: RelayedOwner) -> None:
    relay = owner.relay()
    try:
        with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as sock:
            sock.sendall(b"AMQP\x03\x01\x00\x00")
            wait_until(lambda: relay.held_count == 1, 5, "the client to be held")
            owner.standby = "'a' is not the owner"
            relay.set_owner(owner.address())
            wait_until(lambda: relay.counts.refused_total > 0, 5, "a refusal")
            owner.standby = ""
            assert sock.recv(8) == b"AMQP\x03\x01\x00\x00"
    finally:
        relay.stop()


def test_held_clients_are_closed_in_time(owner: RelayedOwner) -> None:
    relay = owner.relay(hold_ns=300_000_000)
    try:
        with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as sock:
            assert closed(sock)
    finally:
        relay.stop()


def test_another_owner_closes_what_the_old_one_had(owner: RelayedOwner, relay: Relay) -> None:
    with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as sock:
        wait_until(lambda: relay.counts.relayed_total == 1, 5, "the client to be relayed")
        relay.set_owner(owner.address(epoch=2))
        assert closed(sock)
    assert exchange(relay.ports[0], b"x") == b"x"


def test_many_idle_clients(owner: RelayedOwner, relay: Relay) -> None:
    # Each has four descriptors in this process, and the blocking client's select takes none above 1,023.
    socks = []
    try:
        for _ in range(100):
            socks.append(socket.create_connection(("127.0.0.1", relay.ports[0]), 10))
        wait_until(lambda: relay.counts.relayed_total == 100, 30, "all to be relayed")
        assert exchange(relay.ports[0], b"x") == b"x"
    finally:
        for sock in socks:
            sock.close()
    wait_until(lambda: relay.open_count == 0, 30, "all to be forgotten")


def client(**changed: object) -> RelayedClient:
    named = {"cell": "main", "member": "b", "listener": "amqp://127.0.0.1:0", "host": "192.0.2.1"}
    values = {**named, "port": 1}
    return RelayedClient(**{**values, "own_host": "127.0.0.1", "own_port": 2, **changed})  # type: ignore[arg-type]


def said(owner: RelayedOwner, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", owner.member_port), 10) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        try:
            return sock.recv(300)
        except ConnectionResetError:
            return b""


def test_headers_that_dont_hold_are_refused(owner: RelayedOwner) -> None:
    now_ms = time.time_ns() // 1_000_000
    good = header.signed(client(), SECRET, now_ms, b"n" * 16)
    flipped = bytearray(header.signed(client(), SECRET, now_ms, b"m" * 16))
    flipped[50] ^= 1
    bad = [
        *(b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", good[:-1], bytes(flipped)),
        header.signed(client(), b"another secret", now_ms, b"o" * 16),
        header.signed(client(), b"another secret", now_ms - 60_000, b"p" * 16),
        header.signed(client(cell="other"), SECRET, now_ms, b"r" * 16),
    ]
    for data in bad:
        assert said(owner, data) == b""
    wait_until(lambda: owner.port.bad_total == len(bad), 5, "all to be counted")
    assert said(owner, good)[:2] == header.answer(header.ADMITTED)
    assert said(owner, good) == b""  # again
    unknown = header.signed(client(listener="amqps://127.0.0.1:5671"), SECRET, now_ms, b"s" * 16)
    assert said(owner, unknown)[0] == header.REFUSED


@pytest.mark.parametrize("apart_ms", [-60_000, 60_000])
def test_a_header_of_another_time_is_answered_with_the_owners(owner: RelayedOwner, apart_ms: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    stale = header.signed(client(), SECRET, now_ms + apart_ms, b"p" * 16)
    for _ in range(2):  # it says nothing for good
        found = header.read_answer(said(owner, stale))
        assert found is not None
        assert found[0] == header.CLOCK
        told_ms = header.read_clock(found[1], SECRET, b"p" * 16)
        assert told_ms is not None
        assert abs(told_ms - now_ms) < 5000
    assert (owner.port.bad_total, owner.port.refused_total) == (0, 0)


@pytest.mark.parametrize("apart_s", [-3600, 60, 86_400])
def test_clients_pass_between_members_whose_clocks_are_apart(
    owner: RelayedOwner, relay: Relay, monkeypatch: pytest.MonkeyPatch, apart_s: int
) -> None:
    clock = SimpleNamespace(
        time_ns=lambda: time.time_ns() + apart_s * 1_000_000_000, monotonic_ns=time.monotonic_ns
    )
    monkeypatch.setattr("broker.server.cluster.relay.time", clock)
    assert exchange(relay.ports[0], b"first") == b"first"
    assert relay._ahead_ms == pytest.approx(-apart_s * 1000, abs=5000)
    assert exchange(relay.ports[0], b"second") == b"second"
    # Another jump, as when somebody sets it right.
    monkeypatch.undo()
    assert exchange(relay.ports[0], b"third") == b"third"
    assert owner.port.bad_total == 0


def test_a_header_is_not_believed_again_when_the_owners_clock_is_set_back(
    owner: RelayedOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = time.time_ns() // 1_000_000
    good = header.signed(client(), SECRET, now_ms, b"n" * 16)
    assert said(owner, good)[:2] == header.answer(header.ADMITTED)
    clock = SimpleNamespace(
        time_ns=lambda: time.time_ns() - 3_600_000_000_000, monotonic_ns=time.monotonic_ns
    )
    monkeypatch.setattr("broker.server.cluster.member_port.time", clock)
    assert said(owner, good) == b""
    other = header.signed(client(), SECRET, now_ms, b"o" * 16)
    assert said(owner, other)[:2] == header.answer(header.ADMITTED)


def test_headers_are_of_the_owners_wall_clock_where_that_is_set_forward(
    owner: RelayedOwner, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour_ms = 3_600_000
    clock = SimpleNamespace(
        time_ns=lambda: time.time_ns() + hour_ms * 1_000_000, monotonic_ns=time.monotonic_ns
    )
    now_ms = time.time_ns() // 1_000_000
    assert exchange(relay.ports[0], b"before") == b"before"
    monkeypatch.setattr("broker.server.cluster.member_port.time", clock)
    # As a member of an earlier version signs it, which knows no other clock than the wall's.
    ahead = header.signed(client(), SECRET, now_ms + hour_ms, b"n" * 16)
    assert said(owner, ahead)[:2] == header.answer(header.ADMITTED)
    monkeypatch.undo()
    assert said(owner, ahead) == b""
    assert exchange(relay.ports[0], b"after") == b"after"


def test_who_only_looks_whether_the_owner_is_there_is_no_fault(
    owner: RelayedOwner, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert takes_connections(owner.address(), 5)
    # Its connections are taken in order: those that only looked have been seen off by now.
    assert said(owner, b"GET / HTTP/1.1\r\n\r\n") == b""
    wait_until(lambda: owner.port.bad_total == 1, 5, "the bad one to be counted")
    assert [each for each in caplog.messages if "refused at the port" in each] == caplog.messages[-1:]


def test_an_owner_whose_name_is_not_known_is_one_that_can_not_be_reached(owner: RelayedOwner) -> None:
    relay = owner.relay(hold_ns=300_000_000)
    try:
        relay.set_owner(OwnerAddress("a", "no-such-owner.invalid", 1, 1))
        with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as client:
            assert closed(client)
        assert not relay.is_reachable
        relay.set_owner(owner.address(2))
        assert exchange(relay.ports[0], b"goes on") == b"goes on"
    finally:
        relay.stop()


def test_a_slow_look_up_of_the_owners_name_holds_nobody_up(
    owner: RelayedOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, released = socket.getaddrinfo, threading.Event()
    slow: set[str] = set()

    def looked_up(host: str, *given: Any, **named: Any) -> Any:
        if host in slow:
            released.wait(30)
        return look_up("127.0.0.1" if host.endswith(".example") else host, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    relay = owner.relay()
    relay.set_owner(OwnerAddress("a", "owner.example", owner.member_port, 1))
    connection = BlockingConnection(f"amqp://127.0.0.1:{relay.ports[0]}", timeout=10)
    slow.add("owner.example")
    # The name is known; that of the next owner isn't, and its clients wait alone.
    assert exchange(relay.ports[0], b"another") == b"another"
    connection.create_sender("q").send(Message(body=b"flows", durable=True))
    slow.add("next.example")
    relay.set_owner(OwnerAddress("b", "next.example", owner.member_port, 2))
    with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as held:
        wait_until(lambda: relay.held_count == 1, 5, "a client that is held")
        released.set()
        slow.clear()
        held.sendall(b"AMQP\x03\x01\x00\x00")
        assert held.recv(8).startswith(b"AMQP")
        released.clear()
        slow.add("last.example")
        relay.set_owner(OwnerAddress("c", "last.example", owner.member_port, 3))
        with socket.create_connection(("127.0.0.1", relay.ports[0]), 10):
            wait_until(lambda: relay.held_count == 1, 5, "another one")
            began = time.monotonic()
            relay.stop()
            assert time.monotonic() - began < 4
    socket.create_server(("127.0.0.1", relay.ports[0])).close()
    released.set()


@pytest.mark.parametrize("thread", ["relay", "member-port"])
def test_ports_without_descriptors_for_clients_are_not_tried_without_pause(
    owner: RelayedOwner, relay: Relay, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    accept = socket.socket.accept
    tries: list[float] = []

    def accepted(sock: socket.socket) -> tuple[socket.socket, Any]:
        if threading.current_thread().name != thread:
            return accept(sock)
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", accepted)
        port = relay.ports[0] if thread == "relay" else owner.member_port
        with socket.create_connection(("127.0.0.1", port), 10):
            wait_until(lambda: len(tries) > 3, 10, "further tries")
    assert all(later - sooner > 0.05 for sooner, later in pairwise(tries[:4]))
    assert exchange(relay.ports[0], b"goes on") == b"goes on"


def test_the_ports_are_free_once_the_relay_was_stopped_whatever_holds_it_up(
    owner: RelayedOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.server.cluster.relay.END_S", 0.1)
    relay = owner.relay()
    released = threading.Event()

    def held_up() -> None:
        released.wait(30)

    relay._post(held_up)
    relay.stop()
    socket.create_server(("127.0.0.1", relay.ports[0])).close()
    released.set()
    assert relay._thread is not None
    relay._thread.join(30)


def test_an_owner_that_is_back_is_noticed_without_a_client(owner: RelayedOwner) -> None:
    relay = owner.relay(hold_ns=300_000_000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        relay.set_owner(OwnerAddress("a", "127.0.0.1", port, 1))
        with socket.create_connection(("127.0.0.1", relay.ports[0]), 10) as client:
            assert closed(client)
        assert not relay.is_reachable
        taken.listen()
        wait_until(lambda: relay.is_reachable, 10, "the owner to be seen")
    relay.stop()


def test_an_owner_whose_port_is_closed_or_answers_nothing_takes_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        address = OwnerAddress("a", "127.0.0.1", silent.getsockname()[1], 1)
        # With its queue full, what comes is dropped without an answer.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        began = time.monotonic()
        assert not takes_connections(address, 0.25)
        assert 0.2 < time.monotonic() - began < 5
        for each in waiting:
            each.close()
    assert not takes_connections(address, 5)


# --- sockets that others listen at, too, and first messages


class Greetings:
    """Messages of five bytes; `hello` goes on, `leave` is answered here, others are none."""

    def missing_bytes(self, data: bytes) -> int:
        if data and data[:1] not in b"hl":
            raise ValueError("no greeting")
        return 5 - len(data)

    def answer(self, message: bytes) -> bytes:
        return b"bye" if message == b"leave" else b""


def test_a_first_message_goes_on_with_its_digest_or_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listening.bind(str(path))
    listening.listen()
    came: list[tuple[RelayedClient, bytes]] = []

    def route(client: RelayedClient) -> Callable[[socket.socket], None]:
        def take(sock: socket.socket) -> None:
            sock.settimeout(5)
            came.append((client, sock.recv(8, socket.MSG_WAITALL)))
            sock.sendall(b"seen")
            sock.close()

        return take

    port = MemberPort("127.0.0.1", 0, "main", SECRET, lambda: "", route)
    relay = Relay(
        "main", "b", SECRET, [RelayListener("greetings", "", 0, message=Greetings(), sock=listening)]
    )
    try:
        relay.set_owner(OwnerAddress("a", "127.0.0.1", port.start(), 1))
        relay.start()
        for said, heard in ((b"hello you", b"seen"), (b"leave", b"bye"), (b"x", b"")):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(5)
                sock.connect(str(path))
                # A byte at a time, as it may come.
                for at in range(len(said)):
                    sock.sendall(said[at : at + 1])
                with suppress(ConnectionResetError):
                    assert sock.recv(10) == heard
        [(client, first)] = came
        assert first == b"hello yo"
        assert client.listener == "greetings"
        assert client.digest == header.digest_of(b"hello")
    finally:
        relay.stop()
        port.stop()


def test_who_comes_at_a_shared_socket_is_left_to_others_for_a_moment(owner: RelayedOwner) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    late_ns = 200_000_000
    shared = RelayListener(owner.listener, "127.0.0.1", 0, sock=listening.dup(), late_ns=late_ns)
    relay = Relay("main", "b", SECRET, [shared])
    relay.set_owner(owner.address())
    [port] = relay.start()
    try:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            # Another process accepts it.
            wait_until(lambda: accepted(listening), 5, "a client", 0.005)
            time.sleep(1.5 * late_ns / 1e9)
            assert relay.counts.accepted_total == 0
            sock.sendall(b"AMQP")
        began = time.monotonic()
        client = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=10)
        assert late_ns / 1e9 <= time.monotonic() - began
        client.create_sender("late").send(Message(body="taken in the end"))
        client.close()
    finally:
        relay.stop()
        listening.close()


def accepted(listening: socket.socket) -> bool:
    """Accept one client, if there is one."""
    try:
        listening.accept()[0].close()
    except BlockingIOError:
        return False
    return True
