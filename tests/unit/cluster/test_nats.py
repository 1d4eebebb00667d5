"""Bytes of NATS servers, in whatever pieces they come, and a server of our own that behaves badly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster.jetstream import (
    OLDEST_SERVER,
    JetStreamLog,
    LogServers,
    check_server,
    check_stream,
    unsynced,
)
from broker.cluster.log import LogUnavailable
from broker.cluster.nats import (
    MOST_LINE_BYTES,
    MOST_MESSAGE_BYTES,
    Message,
    NatsConnection,
    NatsLogin,
    NatsParser,
)
from broker.errors import OperatorError

TALK = (
    b'INFO {"version":"2.15.2","max_payload":1048576}\r\n'
    b"PING\r\n"
    b"MSG a.b 1 5\r\nhello\r\n"
    b"MSG a.b 7 back 0\r\n\r\n"
    b"HMSG a.c 2 back 26 31\r\nNATS/1.0\r\nNats-One: 17\r\n\r\nworld\r\n"
    b"HMSG in 3 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    b"+OK\r\nPONG\r\n-ERR 'Authorization Violation'\r\n"
)
SAID: list[tuple[str, Any]] = [
    ("INFO", {"version": "2.15.2", "max_payload": 1048576}),
    ("PING", None),
    ("MSG", Message(1, "a.b", "", b"", b"hello")),
    ("MSG", Message(7, "a.b", "back", b"", b"")),
    ("MSG", Message(2, "a.c", "back", b"NATS/1.0\r\nNats-One: 17\r\n\r\n", b"world")),
    ("MSG", Message(3, "in", "", b"NATS/1.0 503\r\n\r\n", b"")),
    ("+OK", None),
    ("PONG", None),
    ("-ERR", "Authorization Violation"),
]


def parsed(data: bytes, size: int) -> list[tuple[str, Any]]:
    parser = NatsParser()
    found = []
    for at in range(0, len(data), size):
        parser.feed(data[at : at + size])
        while (operation := parser.next()) is not None:
            found.append(operation)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
def test_reads_may_split_operations_anywhere(size: int) -> None:
    assert parsed(TALK, size) == SAID


def test_headers_and_statuses_are_found() -> None:
    with_header, status_only = SAID[4][1], SAID[5][1]
    assert (with_header.header(b"Nats-One"), with_header.header(b"Nats-Two"), with_header.status) == (
        b"17",
        b"",
        0,
    )
    assert (status_only.status, status_only.header(b"Nats-One")) == (503, b"")
    assert Message(1, "a", "", b"", b"").status == 0


@pytest.mark.parametrize(
    "data",
    [
        b"x" * (MOST_LINE_BYTES + 1),
        b"MSG a 1 %d\r\n" % (MOST_MESSAGE_BYTES + 1),
        b"MSG a 1 -1\r\n",
        b"MSG a 1\r\n",
        b"MSG a one 1\r\nx\r\n",
        b"HMSG a 1 9 3\r\nabc\r\n",
        b"MSG a 1 3\r\nabcde\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO {\r\n",
    ],
)
def test_bytes_that_are_not_nats_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many kinds
        parsed(data, len(data))


Play = Callable[[socket.socket], None]


def played(play: Play) -> tuple[str, threading.Thread]:
    """A server for one connection; returns its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listening:
            connected, _ = listening.accept()
        with connected:
            connected.settimeout(20)
            play(connected)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return f"nats://127.0.0.1:{listening.getsockname()[1]}", thread


def read_until(connected: socket.socket, what: bytes) -> bytes:
    found = bytearray()
    while what not in found[-len(what) - (1 << 20) :]:
        data = connected.recv(1 << 20)
        if not data:
            break
        found += data
    return bytes(found)


def greet(connected: socket.socket) -> None:
    connected.sendall(b'INFO {"version":"2.15.2"}\r\n')
    read_until(connected, b"PING\r\n")
    connected.sendall(b"PONG\r\n")


def test_login_is_sent_and_a_refusal_is_told() -> None:
    seen: list[bytes] = []

    def play(connected: socket.socket) -> None:
        connected.sendall(b'INFO {"version":"2.15.2"}\r\n')
        seen.append(read_until(connected, b"PING\r\n"))
        connected.sendall(b"-ERR 'Authorization Violation'\r\n")

    url, thread = played(play)
    with pytest.raises(LogUnavailable, match="Authorization Violation"):
        NatsConnection([url], 5, NatsLogin("ann", "secret"))
    thread.join(20)
    assert b'"user": "ann"' in seen[0]
    assert b'"pass": "secret"' in seen[0]
    assert "secret" not in repr(NatsLogin("ann", "secret", "secret"))


def test_a_server_that_says_nothing_is_passed_over() -> None:
    ended = threading.Event()

    def wait(connected: socket.socket) -> None:
        ended.wait(20)

    def greet_and_wait(connected: socket.socket) -> None:
        greet(connected)
        wait(connected)

    silent, first = played(wait)
    speaking, second = played(greet_and_wait)
    connection = NatsConnection([silent, speaking], 0.3)
    assert connection.url == speaking
    connection.close()
    ended.set()
    first.join(20)
    second.join(20)


def test_a_log_goes_on_with_the_next_server_where_one_lets_in_and_answers_nothing() -> None:
    ended, reached = threading.Event(), threading.Event()

    def greet_and_wait(connected: socket.socket) -> None:
        greet(connected)
        ended.wait(20)

    def be_reached(connected: socket.socket) -> None:
        reached.set()
        greet_and_wait(connected)

    hanging, first = played(greet_and_wait)
    other, second = played(be_reached)
    log = JetStreamLog(LogServers((hanging, other), timeout_s=0.2), "main")
    for _ in range(2):
        with pytest.raises(LogUnavailable):
            log.last()
    assert reached.is_set()
    log.close()
    ended.set()
    first.join(20)
    second.join(20)


def test_a_ping_while_a_message_is_half_sent_is_answered_behind_it() -> None:
    payload = b"x" * (24 << 20)
    seen: list[bytes] = []

    def play(connected: socket.socket) -> None:
        greet(connected)
        # Nothing is read until the client's buffers are full; it reads this within its message.
        connected.sendall(b"PING\r\n")
        seen.append(read_until(connected, b"PONG\r\n"))

    url, thread = played(play)
    connection = NatsConnection([url], 20)
    connection.publish("a", payload)
    connection.messages(0)
    thread.join(20)
    connection.close()
    assert seen == [b"PUB a %d\r\n" % len(payload) + payload + b"\r\nPONG\r\n"]


def test_a_server_that_takes_nothing_ends_in_time() -> None:
    ended = threading.Event()

    def play(connected: socket.socket) -> None:
        greet(connected)
        ended.wait(20)

    url, thread = played(play)
    connection = NatsConnection([url], 0.3)
    with pytest.raises(LogUnavailable, match="takes nothing"):
        connection.publish("a", b"x" * (64 << 20))
    connection.close()
    ended.set()
    thread.join(20)


def test_a_question_that_nobody_hears_at_first_is_asked_again_until_it_is_answered() -> None:
    asked = []

    def play(connected: socket.socket) -> None:
        greet(connected)
        found = b""
        while found.count(b"PUB question ") < 3:
            found += connected.recv(1 << 16)
        asked.append(found.count(b"SUB "))
        answer = b"MSG inbox 2 3\r\nyes\r\n"
        # Whoever is asked twice may answer twice; the second answer belongs to nobody.
        connected.sendall(2 * answer + b"MSG other 1 2\r\nno\r\n")
        while connected.recv(1 << 16):
            pass

    url, thread = played(play)
    connection = NatsConnection((url,), 20.0)
    connection.subscribe("other")
    assert connection.request("question", b"", again_s=0.01).data == b"yes"
    assert asked == [2]
    assert [each.data for each in connection.messages(20.0)] == [b"no"]
    connection.close()
    thread.join(20)


def test_an_old_server_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"2\.14\.9 is too old: 2\.15\.0"):
        check_server({"version": "2.14.9", "jetstream": True, "max_payload": 1 << 20})
    check_server({"version": ".".join(map(str, OLDEST_SERVER)), "jetstream": True, "max_payload": 1 << 20})
    check_server({"version": "2.16.0-beta.1", "jetstream": True, "max_payload": 1 << 20})


def test_a_server_without_jetstream_or_with_small_messages_is_refused() -> None:
    with pytest.raises(OperatorError, match="without JetStream"):
        check_server({"version": "2.15.2", "max_payload": 1 << 20})
    # A full disk ends JetStream at one server of several; the others are asked through it.
    check_server({"version": "2.15.2", "max_payload": 1 << 20, "cluster": "log"})
    with pytest.raises(OperatorError, match="max_payload is 65536"):
        check_server({"version": "2.15.2", "jetstream": True, "max_payload": 1 << 16})


def test_each_wrong_setting_of_a_stream_is_named() -> None:
    wanted = {"storage": "file", "num_replicas": 3, "no_ack": False}
    check_stream("S", {"storage": "file", "num_replicas": 3, "mirror": None, "sealed": False}, wanted)
    found = {"storage": "memory", "num_replicas": 1, "no_ack": True, "persist_mode": "async"}
    with pytest.raises(OperatorError) as told:
        check_stream("S", found, wanted)
    for word in ("storage is 'memory'", "num_replicas is 1", "no_ack is True", "persist_mode is 'async'"):
        assert word in str(told.value)


def test_servers_that_sync_late_are_warned_of() -> None:
    assert unsynced([{"server_id": "A", "config": {"sync_always": True}}]) == []
    assert len(unsynced([{"server_id": "B", "config": {"sync_interval": 120}}])) == 1
