"""AMQP over WebSocket (RFC 6455, OASIS AMQP WebSocket Binding): the same broker through another door."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import Thread

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from broker.client.errors import ClientError, ClientTimeoutError
from broker.client.link import Connection
from broker.codec import sections
from tests.wire import web
from tests.wire.apiclient import Api
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.frames import (
    AMQP_HEADER,
    CLOSE,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_OUTCOME,
    TRANSFER,
    Symbol,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, good_neighbours, memory_kb, number_of
from tests.wire.web import BINARY, PING, PONG, TEXT, Bridge, WebPeer, close_code, dial, frame, raw, read_frame

pytestmark = pytest.mark.wire

MB = 1 << 20
KB = 1 << 10
BEGINNING = SASL_HEADER + performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1) + AMQP_HEADER
OPENED = BEGINNING + performative(OPEN, "raw", None, 65_536, 100)


def connections(broker: RunningBroker) -> list[dict[str, object]]:
    done = run_sluice("stat", "-c", "-b", broker.url, "--json")
    done.check_returncode()
    found = json.loads(done.stdout)["connections"]
    assert isinstance(found, list)
    return found


def descriptors(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def idle_descriptors(broker: RunningBroker) -> int:
    """How many it has with nobody there: one WebSocket is a socket and both ends of a pair."""
    with WebPeer(broker) as peer:
        peer.open()
        return descriptors(broker) - 3


def threads(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/task").iterdir()))


# --- the same broker


def test_send_and_receive_in_order(broker: RunningBroker) -> None:
    with Bridge(broker) as bridge, Connection(bridge.url) as one, Connection(bridge.url) as other:
        sender, receiver = one.sender("orders"), other.receiver("orders", credit=500)
        bodies = [sections.text_body(str(number)) for number in range(3000)]
        for body in bodies:
            sender.send(body, 10)
        sender.flush(10)
        got: list[bytes] = []
        while len(got) < len(bodies):
            taken = receiver.take(1000, 10)
            assert taken
            got += taken
        assert got == bodies


def test_a_large_message_both_ways(broker: RunningBroker) -> None:
    body = sections.binary_body(os.urandom(1 * MB) * 32)
    with Bridge(broker) as bridge, Connection(bridge.url) as connection:
        sender = connection.sender("large")
        sender.send(body, 30)
        sender.flush(30)
        [got] = connection.receiver("large", credit=1).take(1, 30)
        assert got == body


def test_it_is_a_connection_with_its_clients_address(broker: RunningBroker) -> None:
    with WebPeer(broker) as peer:
        peer.open()
        host, port = peer.web.local_address[:2]
        assert f"{host}:{port}" in [view["peer"] for view in connections(broker)]


@pytest.mark.parametrize("path", ["/", "/amqp", "/$iothub/websocket?iothub-no-client-cert=true"])
def test_any_path_will_do(broker: RunningBroker, path: str) -> None:
    with dial(broker, "binary", "AMQPWSB10", "amqp", path=path) as client:
        assert client.subprotocol == "amqp"
        client.send(AMQP_HEADER + performative(OPEN, "raw"))
        said = client.recv(10)
        assert isinstance(said, bytes)
        assert said.startswith(AMQP_HEADER)


def test_the_sasl_layer_is_the_same(broker: RunningBroker) -> None:
    with WebPeer(broker) as peer:
        peer.send(SASL_HEADER, performative(SASL_INIT, Symbol("PLAIN"), b"\0u\0p", kind=1))
        assert peer.read_bytes(8) == SASL_HEADER
        assert peer.expect(SASL_OUTCOME).fields == [1]
        peer.await_end()
        assert peer.close_code == 1000
    with WebPeer(broker) as peer:
        peer.send(b"HTTP/1.1")
        assert peer.read_bytes(8) == SASL_HEADER
        peer.await_end()


def test_who_does_not_open_is_cut_off(start_broker: StartBroker) -> None:
    # Long enough to get as far as that on a machine that is busy, and far from the usual ten seconds.
    broker = start_broker("limits: {handshake_timeout: 2s}\n")
    begin = time.monotonic()
    with WebPeer(broker) as peer:
        peer.authenticate()
        peer.await_end()
        assert time.monotonic() - begin < 10
        assert peer.close_code == 1000


def test_the_idle_timeout_holds(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {idle_timeout: 1500ms}\n")
    with WebPeer(broker) as peer:
        peer.open()
        assert peer.expect(CLOSE, 20).condition == "amqp:resource-limit-exceeded"
        peer.await_end()
        assert peer.close_code == 1000


def test_a_close_in_order_ends_with_1000_after_the_amqp_close(broker: RunningBroker) -> None:
    with WebPeer(broker) as peer:
        peer.open()
        peer.send(performative(CLOSE))
        assert peer.expect(CLOSE).condition is None
        peer.await_end()
        assert peer.close_code == 1000
    with good_neighbours(broker):
        pass


def test_a_close_frame_right_behind_the_amqp_close_still_hears_the_answer(broker: RunningBroker) -> None:
    with raw(broker) as client:
        client.sendall(frame(BINARY, OPENED + performative(CLOSE)) + frame(web.CLOSE, b"\x03\xe8"))
        said = b""
        opcode, payload = read_frame(client)
        while opcode == BINARY:
            said += payload
            opcode, payload = read_frame(client)
        assert (opcode, payload[:2]) == (web.CLOSE, b"\x03\xe8")
        # The performative of close, descriptor 0x18, is the broker's last word.
        assert b"\x00\x53\x18" in said[-20:]
        assert client.recv(1) == b""


# --- flow control


def test_a_stopped_queue_stops_a_producer(start_broker: StartBroker) -> None:
    policy = "policies:\n  - {match: full, max_count: 100, flow_stop_count: 50, flow_resume_count: 10}\n"
    broker = start_broker(policies=policy)
    with Bridge(broker) as bridge, Connection(bridge.url) as connection:
        sender = connection.sender("full")
        sent = 0
        with suppress(ClientTimeoutError):
            while True:
                # Up to the line credit comes, however late; beyond it none does.
                sender.send(sections.text_body("x"), 20 if sent < 50 else 0.5)
                sent += 1
        assert sent == 50
        await_number(broker, "full", "depth_msgs", 50)
        receiver = connection.receiver("full", credit=45)
        taken = 0
        while taken < 45:
            taken += len(receiver.take(45 - taken, 10))
        sender.send(sections.text_body("x"), 10)


def test_a_client_that_reads_late_gets_everything(broker: RunningBroker) -> None:
    count = 100
    bodies = [sections.binary_body(number.to_bytes(4, "big") * (25 * KB)) for number in range(count)]
    with Connection(broker.url) as connection:
        sender = connection.sender("deep")
        for body in bodies:
            sender.send(body, 10)
        sender.flush(10)
    with WebPeer(broker) as peer:
        peer.open().begin().attach_receiver("deep")
        peer.give_credit(count)
        wait_until(lambda: number_of(broker, "deep", "unsettled_msgs") > 0, 10, "the first to be sent")
        with good_neighbours(broker):
            pass
        got: list[bytes] = []
        while sum(map(len, got)) < sum(map(len, bodies)):
            got.append(peer.expect(TRANSFER).payload)
        assert b"".join(got) == b"".join(bodies)
    await_number(broker, "deep", "unsettled_msgs", 0)
    assert number_of(broker, "deep", "depth_msgs") == count


def test_a_client_that_reads_nothing_of_its_end_is_cut_off(broker: RunningBroker) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender("deep")
        for _ in range(300):
            sender.send(sections.binary_body(bytes(60 * KB)), 10)
        sender.flush(10)
    before = idle_descriptors(broker)
    with WebPeer(broker) as peer:
        peer.open().begin().attach_receiver("deep")
        peer.give_credit(300)
        wait_until(lambda: number_of(broker, "deep", "unsettled_msgs") > 0, 10, "the first to be sent")
        # A frame that AMQP does not know: the broker closes, and nobody takes what it says.
        peer.send(b"\0\0\0\0garbage!")
        wait_until(lambda: descriptors(broker) <= before, 25, "the descriptors to be closed")
        peer.vanish()


# --- what is no AMQP over WebSocket


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Sec_WebSocket_Protocol": None}, 400),
        ({"Sec_WebSocket_Protocol": "mqtt"}, 400),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Key": None}, 400),
        ({"Host": None}, 400),
        ({"Origin": "http://evil.example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Upgrade": "h2c"}, 200),
        ({"Connection": "keep-alive"}, 200),
    ],
)
def test_other_handshakes_are_refused(
    broker: RunningBroker, changed: dict[str, str | None], status: int
) -> None:
    found, whole = web.answer(broker, **changed)
    assert found == status
    if status == 426:
        assert b"Sec-WebSocket-Version: 13" in whole
    assert connections(broker)[1:] == []


def test_a_page_of_the_brokers_own_and_one_that_is_named_may_connect(start_broker: StartBroker) -> None:
    broker = start_broker("websocket_origins: [https://console.example.org]\n")
    for origin in (f"http://127.0.0.1:{broker.http_port}", "https://console.example.org"):
        with dial(broker, origin=origin) as client:
            assert client.subprotocol == "amqp"
    with pytest.raises(InvalidStatus, match="403"):
        dial(broker, origin="https://evil.example.org")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (frame(TEXT, b"AMQP\0\1\0\0"), 1003),
        (frame(TEXT, b"AMQP", final=False), 1003),
        (frame(BINARY, AMQP_HEADER, masked=False), 1002),
        (frame(BINARY, b"", size=1 << 62), 1009),
        (frame(BINARY, b"", size=16 * MB + 1), 1009),
        (frame(0, b"never begun"), 1002),
        (frame(BINARY, b"a", final=False) + frame(BINARY, b"b"), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(PING, b"x", final=False), 1002),
        (frame(3, b"reserved"), 1002),
        (b"\xc2" + frame(BINARY, b"compressed")[1:], 1002),
        (frame(web.CLOSE, b"\x03"), 1002),
        (frame(BINARY) * 2000, 1008),
        (frame(PING) * 2000, 1008),
        (frame(BINARY, b"A", final=False) + frame(0, b"M", final=False) * 2000, 1008),
    ],
    ids=count(),
)
def test_a_bad_frame_ends_the_connection_and_says_why(broker: RunningBroker, bad: bytes, code: int) -> None:
    with good_neighbours(broker), raw(broker) as client:
        client.sendall(bad)
        assert close_code(client) == code
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
    wait_until(lambda: len(connections(broker)) == 1, 10, "the connection to be gone")


def test_what_came_before_a_bad_frame_counts(broker: RunningBroker) -> None:
    with raw(broker) as client:
        client.sendall(frame(BINARY, OPENED) + frame(TEXT, b"and now for something else"))
        assert close_code(client) == 1003
        # One that left now could take its handshake with it, as it can on TCP.
        broker.wait_for_log("container 'raw'")


@pytest.mark.parametrize("size", [1, 3, 7])
def test_fragments_are_one_stream(broker: RunningBroker, size: int) -> None:
    pieces = [OPENED[at : at + size] for at in range(0, len(OPENED), size)]
    with raw(broker) as client:
        client.sendall(frame(BINARY, pieces[0], final=False))
        for piece in pieces[1:-1]:
            client.sendall(frame(0, piece, final=False) + frame(PING, b"between"))
        client.sendall(frame(0, pieces[-1]))
        said, pongs = b"", 0
        while b"\x00\x53\x10" not in said:
            opcode, payload = read_frame(client)
            assert opcode in (BINARY, PONG)
            said += payload if opcode == BINARY else b""
            pongs += opcode == PONG
        assert pongs > 0


def test_a_handshake_and_frames_in_one_packet(broker: RunningBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=START_SECONDS) as client:
        client.sendall(web.request(broker.http_port) + frame(BINARY, AMQP_HEADER + performative(OPEN, "raw")))
        assert web.head(client).startswith(b"HTTP/1.1 101 ")
        assert read_frame(client)[1][:8] == AMQP_HEADER


def test_pings_are_answered_and_cost_no_memory(broker: RunningBroker) -> None:
    with raw(broker) as client:
        client.sendall(frame(PING, b"are you there"))
        assert read_frame(client) == (PONG, b"are you there")
        before = memory_kb(broker)
        client.settimeout(3)
        flood = frame(PING, b"x" * 125) * 1000
        with suppress(OSError):
            for _ in range(60):
                client.sendall(flood)
        assert memory_kb(broker) - before < 4 * KB
        with good_neighbours(broker):
            pass


# --- limits and ends


def test_it_counts_as_a_connection(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {max_connections: 3}\n")
    with ExitStack() as stack:
        stack.enter_context(Connection(broker.url))
        for _ in range(2):
            stack.enter_context(WebPeer(broker)).open()
        with pytest.raises(InvalidStatus, match="503"):
            dial(broker)
        with pytest.raises(Exception, match=r"lost|closed|reset"):
            Connection(broker.url)
    # A WebSocket has said goodbye to the HTTP port before the broker has heard of it.
    wait_until(lambda: Api(broker).get("/broker")["connections"] == 0, 20, "room for others")
    with good_neighbours(broker):
        pass


def test_more_websockets_than_there_may_be_clients_of_http(broker: RunningBroker) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(WebPeer(broker)).open()
        assert web.answer(broker, Upgrade=None, Connection="close")[0] == 200
        assert len(connections(broker)) == 51


def test_a_shutdown_says_amqp_close_and_then_1001(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {shutdown_timeout: 2s}\n")
    with WebPeer(broker) as peer, dial(broker) as silent:
        peer.open()
        broker.process.terminate()
        assert peer.expect(CLOSE).condition == "amqp:connection:forced"
        peer.await_end()
        assert peer.close_code == 1001
        with pytest.raises(ConnectionClosed):
            silent.recv(10)
        assert silent.protocol.close_code == 1001
        assert broker.process.wait(20) == 0


def test_a_shutdown_does_not_wait_for_one_that_never_answers(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {shutdown_timeout: 1s}\n")
    with raw(broker) as input_stopped:
        input_stopped.sendall(frame(BINARY, OPENED))
        broker.wait_for_log("container 'raw'")
        begin = time.monotonic()
        broker.process.terminate()
        assert broker.process.wait(30) == 0
        # It takes one, and the usual time is ten.
        assert time.monotonic() - begin < 10


def test_a_client_that_vanishes_leaves_nothing(broker: RunningBroker) -> None:
    before = idle_descriptors(broker)
    for _ in range(5):
        peer = WebPeer(broker)
        peer.open().begin().attach_sender("orders")
        peer.await_credit()
        peer.send(transfer(0))
        peer.vanish()
        with suppress(Exception):
            peer.close()
    for early in (b"", frame(BINARY, AMQP_HEADER)[:5]):
        with raw(broker) as client:
            client.sendall(early)
    wait_until(lambda: descriptors(broker) <= before, 10, "descriptors to be closed")
    wait_until(lambda: len(connections(broker)) == 1, 10, "connections to be gone")
    assert number_of(broker, "orders", "depth_msgs") == 5


def test_two_hundred_connections_leave_neither_memory_nor_threads(broker: RunningBroker) -> None:
    def rounds(count: int) -> None:
        for number in range(count):
            with WebPeer(broker) as peer:
                peer.open().begin().attach_receiver(f"q{number % 3}")
                if number % 2:
                    peer.send(performative(CLOSE))
                    peer.await_end()

    rounds(100)
    seen = descriptors(broker), threads(broker)
    before = memory_kb(broker)
    rounds(200)
    wait_until(lambda: (descriptors(broker), threads(broker)) <= seen, 10, "all to be closed")
    assert memory_kb(broker) - before < 2 * KB


def test_a_busy_tunnel_does_not_keep_health_checks_waiting(broker: RunningBroker) -> None:
    body = sections.binary_body(bytes(64 * KB))
    with Bridge(broker) as bridge, Connection(bridge.url) as connection:
        sender = connection.sender("busy")
        failures: list[ClientError] = []

        def send() -> None:
            try:
                for _ in range(500):
                    sender.send(body, 10)
                sender.flush(10)
            except ClientError as fault:
                failures.append(fault)

        busy = Thread(target=send)
        busy.start()
        answered = 0
        while busy.is_alive():
            assert web.answer(broker, Upgrade=None, Connection="close")[0] == 200
            answered += 1
        busy.join()
        assert failures == []
        # One that waited for the tunnel would have been all there was; some fifty are.
        assert answered >= 5
