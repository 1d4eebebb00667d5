"""The HTTP port under attack: sockets that obey no rule, while a pair of AMQP clients goes on beside them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from copy import copy
from itertools import count
from pathlib import Path

import pytest

from tests.wire import people
from tests.wire.apiclient import Api, quoted
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import AMQP_HEADER
from tests.wire.people import basic
from tests.wire.seeing import good_neighbours, memory_kb
from tests.wire.web import CLOSE, PING, close_code, frame, raw

pytestmark = pytest.mark.wire

KB = 1 << 10
MB = 1 << 20
BINARY = 2
PLACES = 32


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all attacks here: none of them may do anything to the next."""
    broker = RunningBroker(tmp_path_factory.mktemp("attacked"), "", "", ())
    broker.settle()
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def attacked(served: RunningBroker) -> Iterator[RunningBroker]:
    """A pair of clients works before and after; so does somebody who asks over HTTP."""
    with good_neighbours(served):
        yield served
    assert Api(served).get("/broker")["version"]


def dial(broker: RunningBroker, source: str = "127.0.0.1") -> socket.socket:
    """A socket to the HTTP port, from an address of this machine."""
    return socket.create_connection(("127.0.0.1", broker.http_port), timeout=15, source_address=(source, 0))


def request(
    broker: RunningBroker, line: str = "GET /healthz HTTP/1.1", *headers: str, host: str | None = None
) -> bytes:
    named = f"Host: 127.0.0.1:{broker.http_port}" if host is None else host
    return "\r\n".join([line, *filter(None, [named]), *headers, "", ""]).encode("latin-1")


def answers(broker: RunningBroker, sent: bytes, source: str = "127.0.0.1") -> bytes:
    """All that is answered until the broker hangs up; a request in order at the end asks for that."""
    with dial(broker, source) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(sent)
        return rest(client)


def rest(client: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionResetError):
        while data := client.recv(65_536):
            found += data
    return found


def statuses(answered: bytes) -> list[int]:
    return [int(part[1:4]) for part in answered.split(b"HTTP/1.1")[1:]]


CLOSING = "Connection: close"


# --- lengths that lie, and requests hidden in others


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: -1"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5 5"],
        ["Content-Length: 5, 6"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: five"],
        ["Content-Length: "],
        ["Content-Length: " + "9" * 300],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding:\x0bchunked"],
        ["Transfer-Encoding: \x00chunked"],
        [" Transfer-Encoding: chunked"],
        ["X: y", " Transfer-Encoding: chunked", "Content-Length: 5", "Transfer-Encoding: chunked"],
    ],
)
def test_a_body_without_one_length_is_refused_and_nothing_behind_it_is_read(
    attacked: RunningBroker, headers: list[str]
) -> None:
    sent = request(attacked, "POST /api/v1/queues HTTP/1.1", "Content-Type: application/json", *headers)
    smuggled = request(attacked, "GET /healthz HTTP/1.1", CLOSING)
    found = statuses(answers(attacked, sent + b"0\r\n\r\n" + smuggled))
    assert all(each in (400, 413, 415, 431, 501) for each in found), found


@pytest.mark.parametrize(
    "line",
    [
        "GET /healthz HTTP/1.1 ",
        "GET  /healthz HTTP/1.1",
        "GET /healthz\tHTTP/1.1",
        "GET /heal\x00thz HTTP/1.1",
        "GET healthz HTTP/1.1",
        "GET http://127.0.0.1/healthz HTTP/1.1",
        "CONNECT 127.0.0.1:22 HTTP/1.1",
        "G@T /healthz HTTP/1.1",
        "GET /healthz HTTP/9.9",
        "GET /healthz HTTP/0.9",
        "GET /healthz",
        "PRI * HTTP/2.0",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "\x00" * 100,
    ],
)
def test_a_line_that_is_no_request_is_refused(attacked: RunningBroker, line: str) -> None:
    found = statuses(answers(attacked, request(attacked, line, CLOSING)))
    assert all(400 <= each < 600 for each in found), found


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([], 400),
        (["Host: 127.0.0.1", "Host: 127.0.0.1"], 400),
        (["Host: stranger.example.org"], 403),
        (["Host: 127.0.0.1:80@stranger.example.org"], 403),
        (["Host: stranger.example.org#127.0.0.1"], 403),
        (["Host: localhost.stranger.example.org"], 403),
        (["Host: [::1"], 403),
        (["Host: 127.0.0.1/../stranger"], 200),
        (["X-Forwarded-Host: stranger.example.org", "Host: 127.0.0.1"], 200),
    ],
)
def test_only_its_own_hosts_names_are_answered(
    attacked: RunningBroker, hosts: list[str], status: int
) -> None:
    line = "GET /api/v1/broker HTTP/1.1"
    answered = answers(attacked, request(attacked, line, *hosts, CLOSING, host=""))
    assert statuses(answered) == [status]
    assert b"stranger" not in answered.partition(b"\r\n\r\n")[0]


# --- too much of anything


def test_too_many_headers_and_too_large_heads_are_refused(attacked: RunningBroker) -> None:
    for headers in (
        [f"X-{number}: y" for number in range(101)],
        ["X: " + "y" * 17 * KB],
        [f"X-{number}: {'y' * 200}" for number in range(90)],
    ):
        assert statuses(answers(attacked, request(attacked, "GET /healthz HTTP/1.1", *headers))) == [431]
    # Behind another request, where the parser has more than one in hand.
    large = request(attacked, "GET /healthz HTTP/1.1", "X: " + "y" * 40 * KB, CLOSING)
    assert statuses(answers(attacked, request(attacked) + large)) in ([200, 431], [200], [431])


def test_a_head_without_end_costs_nothing(attacked: RunningBroker) -> None:
    with dial(attacked) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1000):
                client.sendall(b"X: " + b"y" * KB + b"\r\n")
        assert statuses(rest(client)) in ([431], [])


@pytest.mark.parametrize(
    ("path", "largest"), [("/session", 8 * KB), ("/queues", 128 * KB), ("/policies/apply", MB)]
)
def test_each_route_takes_so_much_and_no_more(attacked: RunningBroker, path: str, largest: int) -> None:
    head = "POST /api/v1" + path + " HTTP/1.1"
    kind = "Content-Type: application/json"
    told = answers(attacked, request(attacked, head, kind, f"Content-Length: {largest + 1}", CLOSING))
    assert statuses(told) == [413]
    chunk = b"%x\r\n" % (largest + 1) + b" " * (largest + 1) + b"\r\n0\r\n\r\n"
    chunked = request(attacked, head, kind, "Transfer-Encoding: chunked", CLOSING) + chunk
    assert statuses(answers(attacked, chunked)) == [413]
    within = json.dumps({"text": "x" * (largest // 2)}).encode()
    fitting = request(attacked, head, kind, f"Content-Length: {len(within)}", CLOSING) + within
    assert statuses(answers(attacked, fitting))[0] in (400, 422)


def test_a_body_where_none_is_taken_is_refused(attacked: RunningBroker) -> None:
    for path in ("/metrics", "/healthz", "/", "/console/main.js"):
        sent = request(attacked, f"GET {path} HTTP/1.1", "Content-Length: 1000000000")
        assert statuses(answers(attacked, sent)) == [413]


def test_a_flood_behind_a_refusal_is_cut_off(attacked: RunningBroker) -> None:
    """Chunks without end, of one byte each or of a megabyte; the refusal was said at their beginning."""
    before = memory_kb(attacked)
    for chunk in (
        b"1\r\nx\r\n" * 10_000,
        b"100000\r\n" + b"x" * MB + b"\r\n",
        b"1;" + b"e" * 60_000 + b"\r\nx\r\n",
    ):
        with dial(attacked) as client:
            client.sendall(request(attacked, "POST /api/v1/nothing HTTP/1.1", "Transfer-Encoding: chunked"))
            sent = 0
            with suppress(BrokenPipeError, ConnectionResetError):
                while sent < 64 * MB:
                    client.sendall(chunk)
                    sent += len(chunk)
            assert sent < 64 * MB, "nobody hung up"
    assert memory_kb(attacked) < before + 20 * KB


@pytest.mark.parametrize("size", ["FFFFFFFFFFFFFFFF", "-1", "0x10", "1 1", "", "1" * 1000, "g"])
def test_a_chunk_of_a_size_that_is_none_or_never_comes(attacked: RunningBroker, size: str) -> None:
    head = request(
        attacked,
        "POST /api/v1/queues HTTP/1.1",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )
    with dial(attacked) as client:
        client.sendall(head + size.encode() + b"\r\n" + b"x" * 100)
        client.shutdown(socket.SHUT_WR)
        found = statuses(rest(client))
        assert all(each in (400, 413, 422) for each in found), found


def test_requests_without_end_on_one_connection(attacked: RunningBroker) -> None:
    before = memory_kb(attacked)
    many = 1000
    with dial(attacked) as client:
        client.setblocking(False)
        unsent = memoryview(
            request(attacked) * (many - 1) + request(attacked, "GET /healthz HTTP/1.1", CLOSING)
        )
        found, deadline = 0, time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                unsent = unsent[client.send(unsent[: 256 * KB]) :] if unsent else unsent
            try:
                data = client.recv(256 * KB)
            except BlockingIOError:
                time.sleep(0.001)
                continue
            if not data:
                break
            found += data.count(b"HTTP/1.1 200")
    assert found <= many
    assert memory_kb(attacked) < before + 20 * KB


# --- who lets others wait


def dawdlers(broker: RunningBroker, stack: ExitStack, beginning: bytes, source: str) -> list[socket.socket]:
    """As many clients as there are places, each of which begins a request and goes no further."""
    found = [stack.enter_context(dial(broker, source)) for _ in range(PLACES)]
    for client in found:
        client.sendall(beginning)
    return found


@pytest.mark.parametrize("what", ["nothing", "head", "body"])
def test_who_sends_slowly_keeps_nobody_out(attacked: RunningBroker, what: str) -> None:
    beginning = {
        "nothing": b"",
        "head": b"GET /healthz HTTP/1.1\r\nX-",
        "body": request(
            attacked, "POST /api/v1/queues HTTP/1.1", "Content-Type: application/json", "Content-Length: 100"
        ),
    }[what]
    with ExitStack() as stack:
        dawdlers(attacked, stack, beginning, "127.0.0.2")

        def answered() -> bool:
            told = answers(attacked, request(attacked, "GET /healthz HTTP/1.1", CLOSING))
            return statuses(told) == [200]

        wait_until(answered, 40, "a place for somebody who asks")
        assert answered()


def test_who_dawdles_is_cut_off(attacked: RunningBroker) -> None:
    """A byte now and then helps no longer than the time for a whole request."""
    with dial(attacked) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        client.settimeout(1)

        def cut_off() -> bool:
            try:
                if client.recv(100) == b"":
                    return True
            except TimeoutError:
                pass
            except ConnectionResetError:
                return True
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(b"X")
            return False

        wait_until(cut_off, 40, "the end of the connection")


def test_so_many_watch_and_no_more(attacked: RunningBroker) -> None:
    with ExitStack() as stack:
        watchers = [stack.enter_context(dial(attacked)) for _ in range(9)]
        found = []
        for client in watchers:
            client.sendall(request(attacked, "GET /api/v1/live HTTP/1.1"))
            found.append(int(client.recv(12)[9:12]))
        assert found == [200] * 8 + [429]
    wait_until(lambda: watching(attacked), 10, "a place among the watchers")


PROBED = ("/healthz", "/readyz", "/api/v1/broker", "/metrics")


def test_a_burst_of_half_requests_keeps_out_no_probe_and_no_request(attacked: RunningBroker) -> None:
    """As many as there is room for and more; whoever comes meanwhile with a whole request is answered."""
    asked = [request(attacked, f"GET {path} HTTP/1.1", CLOSING) for path in PROBED * 3]
    for many in (200, 400):
        with ExitStack() as stack:
            for _ in range(many):
                half = stack.enter_context(dial(attacked))
                half.sendall(b"GET /healthz HTT")
            for each in asked:
                assert statuses(answers(attacked, each)) == [200]


def watching(broker: RunningBroker) -> bool:
    with dial(broker) as client:
        client.sendall(request(broker, "GET /api/v1/live HTTP/1.1"))
        return client.recv(12)[9:12] == b"200"


def test_one_address_changes_and_logs_in_so_often(start_broker: StartBroker, tmp_path: Path) -> None:
    limits = "limits:\n  http_writes: 1\n  http_logins: 1\n"
    broker = start_broker(people.settings_for(tmp_path, more="  longest_pause: 0\n") + limits)
    api = Api(broker)
    with good_neighbours(as_user(broker, "alice")):
        found = [api.call("POST", "/queues", {}, basic("alice")) for _ in range(9)]
        assert [each.status for each in found] == [422] * 9
        # Each second that these take allows another one.
        while found[-1].status != 429:
            assert len(found) < 40
            found.append(api.call("POST", "/queues", {}, basic("alice")))
        assert 1 <= int(found[-1].headers["retry-after"]) <= 11
        assert api.call("GET", "/queues", headers=basic("alice")).status == 200
        # Another address has its own.
        line = "DELETE /api/v1/queues/none HTTP/1.1"
        said = f"Authorization: {basic('alice')['Authorization']}"
        assert statuses(answers(broker, request(broker, line, said, CLOSING), "127.0.0.2")) == [404]


def as_user(broker: RunningBroker, user: str) -> RunningBroker:
    """The same broker, whose clients are that user."""
    found = copy(broker)
    found.url = f"amqp://{user}:{quoted(people.PASSWORDS[user])}@127.0.0.1:{broker.port}"
    return found


# --- files, and names in headers


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/console/../../../../etc/passwd",
        "/console/..%2f..%2f..%2fetc%2fpasswd",
        "/console/%2e%2e/%2e%2e/app.py",
        "/console/%252e%252e%252fapp.py",
        "/console/..%5c..%5capp.py",
        "/console/..\\..\\app.py",
        "/console/..%c0%af..%c0%afapp.py",
        "/console//etc/passwd",
        "//etc/passwd",
        "/console/%2fetc%2fpasswd",
        "/console/main.js%00.html",
        "/console/main.js%00",
        "/console/main.js/",
        "/console/main.js/..",
        "/console/.%2fmain.js",
        "/console/file:///etc/passwd",
        "/api/v1/docs/../../../app.py",
        "/api/v1/docs/..%2fapplication.py",
        "/api/v1/docs/%2e%2e%2fapplication.py",
    ],
)
def test_no_path_leads_to_another_file(attacked: RunningBroker, path: str) -> None:
    answered = answers(attacked, request(attacked, f"GET {path} HTTP/1.1", CLOSING))
    assert statuses(answered)[0] in (400, 404), answered
    assert b"root:" not in answered
    assert b"import" not in answered


@pytest.mark.parametrize(
    "name",
    ['a"b', "a;b", "a\\b", "ä", "‮", "a%0d%0aSet-Cookie: x=y", "a, b", "<b>", "a b", "W/", "...", "a?b#c"],
)
def test_a_name_stays_within_its_header(attacked: RunningBroker, name: str) -> None:
    api = Api(attacked)
    made = api.call("POST", "/queues", {"name": name})
    assert made.status == 201
    assert made.headers["location"] == f"/api/v1/queues/{quoted(name)}"
    assert made.headers["etag"].strip('"').isalnum()
    assert "set-cookie" not in made.headers
    assert api.get(made.headers["location"].removeprefix("/api/v1"))["name"] == name
    api.delete(f"/queues/{quoted(name)}")


@pytest.mark.parametrize(
    "name", ["a\r\nSet-Cookie: x=y", "a\nb", "a\rb", "a\0b", "\x1b[31m", "\x85b", "\u2028"]
)
def test_a_name_that_would_leave_it_is_none(attacked: RunningBroker, name: str) -> None:
    made = Api(attacked).call("POST", "/queues", {"name": name})
    assert "set-cookie" not in made.headers
    if made.status == 201:
        assert made.headers["location"] == f"/api/v1/queues/{quoted(name)}"
        Api(attacked).delete(f"/queues/{quoted(name)}")
    else:
        assert made.status == 400


def test_what_a_client_says_comes_back_in_no_header(attacked: RunningBroker) -> None:
    for header in ("If-Match", "If-None-Match", "Cookie", "Referer", "User-Agent", "X-Forwarded-For", "Via"):
        sent = request(attacked, "GET /api/v1/broker HTTP/1.1", f"{header}: echo-this", CLOSING)
        head = answers(attacked, sent).partition(b"\r\n\r\n")[0]
        assert head.startswith(b"HTTP/1.1 200")
        assert b"echo-this" not in head


# --- what every answer says


PAGES = ["/", "/console/main.js", "/metrics", "/healthz", "/nothing", "/api/v1/broker", "/api/v1/nothing"]


@pytest.mark.parametrize("path", [*PAGES, "/api/v1/docs", "/api/v1/openapi.json", "/api/v1/session"])
def test_every_answer_tells_browsers_what_not_to_do(attacked: RunningBroker, path: str) -> None:
    headers = Api(attacked, "").call("GET", path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if path in PAGES[:2] else "no-store")
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert "strict-transport-security" not in headers
    assert not {"server", "x-powered-by", "access-control-allow-origin", "set-cookie"} & headers.keys()


def test_refusals_before_any_page_say_so_too(attacked: RunningBroker) -> None:
    answered = answers(attacked, b"NONSENSE\r\n\r\n").lower()
    for header in (b"nosniff", b"x-frame-options: deny", b"no-store", b"content-security-policy"):
        assert header in answered


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "BREW"])
def test_nothing_is_allowed_to_other_sites(attacked: RunningBroker, method: str) -> None:
    asked = ("Origin: https://stranger.example.org", "Access-Control-Request-Method: DELETE", CLOSING)
    for path in ("/api/v1/queues", "/metrics", "/"):
        answered = answers(attacked, request(attacked, f"{method} {path} HTTP/1.1", *asked)).lower()
        assert statuses(answered.replace(b"http/", b"HTTP/"))[0] in (403, 405, 415)
        assert b"access-control-allow" not in answered


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_another_page_changes_nothing(attacked: RunningBroker, kind: str) -> None:
    """What a browser sends without asking first, with and without saying where it comes from."""
    body = b'{"target": null}'
    for extra in ([], ["Origin: null"], ["Referer: https://stranger.example.org/"]):
        headers = [f"Content-Type: {kind}", f"Content-Length: {len(body)}", CLOSING, *extra]
        sent = request(attacked, "POST /api/v1/producers/stop HTTP/1.1", *headers) + body
        assert statuses(answers(attacked, sent))[0] in (403, 415)
    assert Api(attacked).get("/holds") == {"holds": []}


# --- WebSocket


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        (frame(BINARY, b"x" * 100, masked=False), (1002,)),
        (frame(BINARY, b"", size=(1 << 63) - 1), (1009,)),
        (frame(BINARY, b"", size=1 << 63), (1002, 1009)),
        (frame(PING, b"x" * 126), (1002,)),
        (frame(PING, b"", final=False), (1002,)),
        (frame(CLOSE, b"\x03"), (1002,)),
        (frame(CLOSE, (999).to_bytes(2, "big")), (1002,)),
        (bytes((0xF2, 0x80)) + b"\0" * 4, (1002,)),
        (frame(0), (1002,)),
        (frame(PING) * 5000, (1008,)),
        (
            b"".join(frame(0 if n else BINARY, b"A"[n : n + 1], final=False) for n in range(5000)),
            (1008, 1002),
        ),
    ],
    ids=count(),
)
def test_frames_that_break_the_rules_end_their_own_connection(
    attacked: RunningBroker, sent: bytes, codes: tuple[int, ...]
) -> None:
    with raw(attacked) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(sent)
        assert close_code(client) in codes


def test_an_amqp_header_sent_as_dust_is_put_together(attacked: RunningBroker) -> None:
    with raw(attacked) as client:
        for index in range(8):
            client.sendall(
                frame(BINARY if not index else 0, AMQP_HEADER[index : index + 1], final=index == 7)
            )
        assert client.recv(10)[2:] == AMQP_HEADER
