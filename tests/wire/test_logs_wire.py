"""What a real broker says in its log: who came, who went and why, and no more than a bound of it."""

from __future__ import annotations

import json
import signal
import socket
from http.client import HTTPConnection
from typing import Any

import pytest

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.frames import CLOSE, RawPeer, performative
from tests.wire.test_cli_wire import parsed, sluice

pytestmark = pytest.mark.wire

BROKER = "org.sluice.broker"
JSON = "log_format: json\n"
SECRET = "hunter2-in-the-body"


def told(broker: RunningBroker, text: str) -> dict[str, Any]:
    """The one JSON line whose message has this in it."""
    wait_until(lambda: any(text in line for line in broker.lines), 10, f"{text!r} in:\n{broker.log}")
    [line] = [line for line in broker.lines if line.startswith("{") and text in line]
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def lines(broker: RunningBroker, text: str) -> list[str]:
    return [line for line in broker.lines if text in line]


def test_one_line_for_an_opening_and_one_for_its_end(start_broker: StartBroker) -> None:
    broker = start_broker(JSON)
    peer = RawPeer(broker.port).open(container="till-7")
    address = "{}:{}".format(*peer.socket.getsockname())  # type: ignore[attr-defined]
    opened = told(broker, "open from")
    who = {"peer": address, "container": "till-7", "user": "anonymous", "connection": opened["connection"]}
    assert {key: opened[key] for key in who} == who
    assert (opened["level"], opened["logger"]) == ("info", "sluice.amqp")
    peer.send(performative(CLOSE))
    closed = told(broker, "closed")
    assert {key: closed[key] for key in who} == who
    assert (closed["condition"], closed["reason"]) == ("", "by the client")
    peer.await_end()
    peer.socket.close()


def test_what_a_start_is_known_by_is_an_object_too(start_broker: StartBroker) -> None:
    broker = start_broker(JSON)
    said = [told(broker, text) for text in ("limits ", "listening amqp://", "listening http://", " ready")]
    assert {(line["level"], line["logger"]) for line in said} == {("info", "sluice")}
    assert said[1]["message"] == f"listening {broker.url}"
    assert broker.stop() == 0
    assert told(broker, "sluice stopped")["message"] == "sluice stopped"
    assert all(isinstance(json.loads(line), dict) for line in broker.lines)


def test_an_end_says_why(start_broker: StartBroker) -> None:
    broker = start_broker(JSON + "limits: {idle_timeout: 2s}\n")
    silent = RawPeer(broker.port).open(container="silent")
    assert told(broker, "'silent', user anonymous: ")["condition"] == "amqp:resource-limit-exceeded"
    silent.socket.close()
    gone = RawPeer(broker.port).open(container="gone", idle_ms=200)
    gone.socket.close()
    assert told(broker, "'gone', user anonymous: ")["reason"] == "connection aborted"
    rude = RawPeer(broker.port).open(container="rude")
    rude.send(b"\x00\x00\x00\x10\x02\x00\x00\x00not AMQP")
    assert told(broker, "'rude', user anonymous: ")["condition"] in (
        "amqp:connection:framing-error",
        "amqp:decode-error",
    )
    rude.socket.close()
    # It says nothing of itself either, and is not to be cut off before the broker has heard the signal.
    with Connection(broker.url) as forced:
        assert forced
        sluice_stop(broker)
    shut = [line for line in broker.lines if "the broker is shutting down" in line]
    assert len(shut) == 1
    assert json.loads(shut[0])["condition"] == "amqp:connection:forced"


def sluice_stop(broker: RunningBroker) -> None:
    broker.signal(signal.SIGTERM)
    broker.wait_for_log("the broker is shutting down")


def test_a_refused_link_has_its_reason(start_broker: StartBroker) -> None:
    broker = start_broker(JSON + "auto_create: false\n")
    peer = RawPeer(broker.port).open(container="till-7").begin()
    peer.attach_sender("nowhere", name="out")
    found = told(broker, "refused link")
    assert (found["link"], found["node"], found["role"]) == ("out", "nowhere", "producer")
    assert (found["container"], found["condition"]) == ("till-7", "amqp:not-found")
    assert "auto_create is false" in found["reason"]
    peer.socket.close()


def test_a_client_that_cannot_authenticate_has_its_reason(start_broker: StartBroker) -> None:
    broker = start_broker(JSON)
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        found = told(broker, "refused: protocol header")
        assert found["peer"] == "{}:{}".format(*client.getsockname())


def test_a_name_cannot_forge_a_line(broker: RunningBroker) -> None:
    name = "x'\n2026-01-01 00:00:00,000 ERROR sluice: forged\x1b[2J\u202e"
    peer = RawPeer(broker.port).open(container=name).begin()
    peer.attach_sender("$no\nERROR forged", name="l\r\nERROR forged")
    broker.wait_for_log("refused link")
    assert "x'\\n2026-01-01 00:00:00,000 ERROR sluice: forged\\x1b[2J\\u202e" in broker.log
    assert all(line.isprintable() for line in broker.lines)
    assert not [line for line in broker.lines if line.startswith(("ERROR", "2026-01-01 00"))]
    peer.socket.close()


def test_no_line_has_a_body(start_broker: StartBroker) -> None:
    broker = start_broker("log_level: debug\n")
    with Connection(broker.url) as connection:
        broker.wait_for_log("open from")
        trace(broker, lines(broker, "open from")[0].split("sluice.amqp: ")[1].split(":")[0])
        sender = connection.sender("orders")
        sender.send(sections.text_body(SECRET), 10)
        sender.flush(10)
        assert connection.receiver("orders", credit=1).take(1, 10) == [sections.text_body(SECRET)]
    broker.wait_for_log("trace ended")
    assert "transfer" in broker.log
    assert SECRET not in broker.log


# --- how many


def test_a_flood_of_refused_connections_does_not_fill_the_disk(start_broker: StartBroker) -> None:
    broker = start_broker("log_lines_per_peer: 20\n")
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", broker.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.recv(8)

    def counted() -> int:
        told = lines(broker, "more lines about 127.0.0.1 were left out within 10 s")
        return sum(int(line.split(": ", 1)[1].split()[0]) for line in told)

    # A window may have ended while they came: what the next one left out is told at its own end.
    refused = "refused: protocol header"
    wait_until(lambda: len(lines(broker, refused)) + counted() >= 300, 30, "all that was left out to be told")
    assert 20 <= len(lines(broker, refused)) <= 40


def test_a_log_that_nobody_reads_does_not_stop_the_broker(start_broker: StartBroker) -> None:
    """A pager at its first page, a collector that hangs: lines are left out, messages go on."""
    broker = start_broker("log_lines_per_peer: 0\n")
    with broker.unheard(), Connection(broker.url) as connection:
        sender, receiver = connection.sender("work"), connection.receiver("work")
        # What the pipe holds, and what a reader keeps for itself, comes to some 600 lines.
        for number in range(800):
            RawPeer(broker.port).open(container=f"visitor {number}").socket.close()
            if number % 100 == 0:
                sender.send(sections.text_body("on it goes"))
                assert len(receiver.take(1, 20)) == 1
    broker.wait_for_log("lines were left out: nobody read them")

    def missed() -> int:
        # Told again where whoever reads falls behind once more.
        said = lines(broker, "lines were left out: nobody read them")
        return sum(int(line.partition(": ")[2].split()[0]) for line in said)

    # Each came and went.
    wait_until(
        lambda: len(lines(broker, "'visitor")) + missed() >= 2 * 800, 20, "all of them, or their number"
    )


def test_requests_nobody_can_answer_do_not_fill_it_either(start_broker: StartBroker) -> None:
    broker = start_broker("log_lines_per_peer: 20\n")
    with Connection(broker.url) as connection:
        sender = connection.sender("$management")
        for _ in range(300):
            sender.send(sections.text_body("x"), 10)
        sender.flush(10)
        # One of the twenty told that the connection was opened.
        said = "without a usable reply-to"
        wait_until(lambda: len(lines(broker, said)) >= 19, 10, "as many lines as there may be")
    broker.stop()
    assert len(lines(broker, said)) <= 39


# --- levels


def levels(broker: RunningBroker) -> dict[str, str]:
    with Management(broker.url) as management:
        body = management.call("log-levels", BROKER, body={}).body
    assert isinstance(body, dict)
    return dict(body["levels"])


def trace(broker: RunningBroker, connection: str, **bounds: int) -> None:
    with Management(broker.url) as management:
        management.call("trace", BROKER, body={"connection": connection, **bounds})


def test_levels_are_changed_at_runtime_and_read_again_on_sighup(start_broker: StartBroker) -> None:
    # Who asks again and again whether the settings were read is of the same host as who is waited for.
    every = "log_lines_per_peer: 0\n"
    broker = start_broker(every + "log_level: info\nlog_levels: [sluice.store=debug]\n")
    shown = parsed(broker, "log-level")
    assert (shown["sluice.amqp"], shown["sluice.store"]) == ("info", "debug")
    assert sluice(broker, "log-level", "sluice.amqp", "error") == "sluice.amqp  error\n"
    RawPeer(broker.port).open(container="unseen").socket.close()
    assert levels(broker)["sluice.amqp"] == "error"
    assert "no logger 'sluice.ampq'" in sluice(broker, "log-level", "sluice.ampq", "info", status=1)
    assert "expected 'debug'" in sluice(broker, "log-level", "sluice.amqp", "loud", status=1)
    assert sluice(broker, "log-level", "sluice.amqp", "inherit") == "sluice.amqp  info\n"
    RawPeer(broker.port).open(container="seen").socket.close()
    broker.wait_for_log("container 'seen'")
    assert "unseen" not in broker.log
    broker.config_file.write_text(every + "log_level: warning\nlog_format: json\n")
    broker.signal(signal.SIGHUP)
    wait_until(lambda: levels(broker)["sluice.amqp"] == "warning", 10, "the settings to be read again")
    assert set(levels(broker).values()) == {"warning"}
    with Management(broker.url) as management:
        management.call("log-levels", BROKER, body={"logger": "sluice.amqp", "level": "info"})
    RawPeer(broker.port).open(container="as-json").socket.close()
    assert told(broker, "'as-json', user anonymous by ANONYMOUS\",")["level"] == "info"


# --- frames


def test_frames_of_one_connection_are_traced_for_so_many(start_broker: StartBroker) -> None:
    broker = start_broker(JSON)
    peer = RawPeer(broker.port).open(container="traced").begin()
    other = RawPeer(broker.port).open(container="other").begin()
    identity = told(broker, "container 'traced'")["connection"]
    assert sluice(broker, "trace", identity, "--frames", "4") == (
        f"the broker logs the next 4 frames of {identity}, for at most 60 s\n"
    )
    peer.attach_sender("orders", name="out")
    other.attach_sender("orders", name="other")
    peer.await_credit()
    peer.send(AMQP_FRAME_OF_NOTHING)
    broker.wait_for_log("trace ended: as many frames as were asked for")
    frames = [json.loads(line) for line in lines(broker, "sluice.trace")]
    assert [(each.get("direction"), each.get("performative")) for each in frames] == [
        ("<-", "attach"),
        ("->", "attach"),
        ("->", "flow"),
        ("<-", "empty"),
        (None, None),
    ]
    assert {each["connection"] for each in frames} == {identity}
    assert "name='out'" in frames[0]["message"]
    assert "link-credit=100" in frames[2]["message"]
    peer.socket.close()
    other.socket.close()


AMQP_FRAME_OF_NOTHING = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def test_a_trace_ends_by_time_by_order_and_with_its_connection(broker: RunningBroker) -> None:
    peer = RawPeer(broker.port).open(container="traced")
    broker.wait_for_log("container 'traced'")
    identity = lines(broker, "container 'traced'")[0].split("sluice.amqp: ")[1].split(":")[0]
    trace(broker, identity, seconds=1)
    broker.wait_for_log(f"{identity}: trace ended: its time is over")
    trace(broker, identity)
    assert sluice(broker, "trace", identity, "--stop") == f"{identity} is not traced any more\n"
    broker.wait_for_log(f"{identity}: trace ended: another order came")
    trace(broker, identity)
    peer.socket.close()
    broker.wait_for_log(f"{identity}: trace ended: the connection is closed")
    assert "no connection named 'c999'" in sluice(broker, "trace", "c999", status=1)


def test_a_trace_begins_within_a_frame_that_is_under_way(start_broker: StartBroker) -> None:
    broker = start_broker(JSON)
    peer = RawPeer(broker.port).open(container="traced").begin()
    peer.attach_sender("orders")
    peer.await_credit()
    body = b"\x00\x53\x75\xb0" + (60_000).to_bytes(4, "big") + bytes(60_000)
    whole = performative(0x14, 0, 0, b"t", 0, False, payload=body)
    identity = told(broker, "container 'traced'")["connection"]
    peer.send(whole[:30_000])
    # What was there before the order came is read before it.
    trace(broker, identity)
    peer.send(whole[30_000:], AMQP_FRAME_OF_NOTHING)
    wait_until(lambda: bool(lines(broker, '"performative": "empty"')), 10, "the frame behind it")
    assert not lines(broker, "trace ended")
    peer.socket.close()


def test_levels_and_traces_over_http(start_broker: StartBroker) -> None:
    broker = start_broker(JSON)
    peer = RawPeer(broker.port).open(container="traced")
    identity = told(broker, "container 'traced'")["connection"]
    assert http(broker, "GET", "/log-levels")["levels"] == levels(broker)
    changed = http(broker, "PUT", "/log-levels", {"levels": {"sluice.store": "debug"}})
    assert changed["levels"]["sluice.store"] == levels(broker)["sluice.store"] == "debug"
    refused = http(broker, "PUT", "/log-levels", {"levels": {"sluice.store": "loud"}}, status=400)
    assert "expected 'debug'" in refused["error"]
    order = {"connection": identity, "frames": 1, "seconds": 60}
    assert http(broker, "POST", "/trace", order) == order
    peer.send(AMQP_FRAME_OF_NOTHING)
    broker.wait_for_log(f"{identity}: trace ended: as many frames as were asked for")
    assert "c999" in http(broker, "POST", "/trace", order | {"connection": "c999"}, status=404)["error"]
    peer.socket.close()


def http(
    broker: RunningBroker, method: str, path: str, body: object = None, status: int = 200
) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, f"/api/v1{path}", json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        found = json.loads(response.read())
        assert response.status == status, found
    finally:
        connection.close()
    assert isinstance(found, dict)
    return found
