"""`sluice cluster`: what it asks a member, what it prints, how it exits."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from broker.cli import main as cli
from broker.manage.cluster import CellOwner, ClusterMember, ClusterStatus, EngineStatus

MEMBERS = (
    ClusterMember("b", "standby", 5000, 3, 1.25, 0.0, "1.0", ("amqp://10.0.0.2:5672",), ""),
    ClusterMember("a", "owner", 7000, 0, 0.0, 0.4, "1.0", ("amqp://10.0.0.1:5672",), "disk\x1b[31m"),
)
ENGINE = EngineStatus(True, ("nats://10.0.0.1:4222", "nats://10.0.0.2:4222"), "nats://10.0.0.1:4222", 7000)
STATUS = ClusterStatus("main", "b", "standby", "a", True, 3, "", 2, ENGINE, MEMBERS)


class Member(HTTPServer):
    """A port that gives one answer to everybody, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.status = 200
        self.content = json.dumps(asdict(STATUS)).encode()
        self.asked: list[tuple[str, str, str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answers(self, content: object, status: int = 200) -> None:
        self.status, self.content = status, json.dumps(content).encode()


class _Answering(BaseHTTPRequestHandler):
    server: Member

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        login = self.headers.get("Authorization") or ""
        self.server.asked.append((self.command, self.path, login, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Iterator[Member]:
    for name in ("SLUICE_USER", "SLUICE_PASSWORD", "SLUICE_HTTP", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Member() as found:
        serving = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield found
        found.shutdown()
        serving.join()


def test_the_members_are_a_table(member: Member, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", "status", "--http", member.url]) == 0
    first, second, blank, heading, _, own, other = capsys.readouterr().out.splitlines()
    assert first == "cell main as b sees it: owned by a, epoch 3, 2 take-overs"
    assert second == (
        "log: position 7,000, connected to nats://10.0.0.1:4222 of nats://10.0.0.1:4222, nats://10.0.0.2:4222"
    )
    assert blank == ""
    assert heading.split()[:2] == ["member", "role"]
    assert own.split()[:5] == ["b", "standby", "5,000", "3", "1.2"]
    assert other.split()[:2] == ["a", "owner"]
    assert other.endswith("disk\\x1b[31m")
    assert member.asked == [("GET", "/api/v1/cluster", "", b"")]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (replace(STATUS, owner=""), "owned by nobody, epoch 3"),
        (replace(STATUS, owner_reachable=False), "owned by a, which can't be reached, epoch 3"),
        (replace(STATUS, suspended="no log for 3 s"), "\nsuspended: no log for 3 s\n"),
        (
            replace(STATUS, engine=EngineStatus(False, (), "", 7)),
            "\nlog: position 7, no server can be reached\n",
        ),
    ],
)
def test_what_is_wrong_is_said(
    member: Member, capsys: pytest.CaptureFixture[str], status: ClusterStatus, told: str
) -> None:
    member.answers(asdict(status))
    assert cli.main(["cluster", "status", "--http", member.url]) == 0
    assert told in capsys.readouterr().out


def test_json_is_the_members_answer(
    member: Member, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = member.url.replace("://", "://alice:secret%20word@")
    monkeypatch.setenv("SLUICE_HTTP", at)
    assert cli.main(["cluster", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(asdict(STATUS)))
    login = base64.b64encode(b"alice:secret word").decode()
    assert member.asked == [("GET", "/api/v1/cluster", f"Basic {login}", b"")]


@pytest.mark.parametrize(("words", "wanted"), [([], ""), (["c"], "c")])
def test_a_move_names_who_takes_it(
    member: Member, capsys: pytest.CaptureFixture[str], words: list[str], wanted: str
) -> None:
    member.answers({"member": "c"}, 202)
    assert cli.main(["cluster", "move", *words, "--http", member.url]) == 0
    assert capsys.readouterr().out == "the cell goes to c\n"
    [(method, path, _, body)] = member.asked
    assert (method, path, json.loads(body)) == ("POST", "/api/v1/cluster/move", {"member": wanted})


def test_several_cells_are_a_table_and_one_is_meant(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = (CellOwner(0, "main-0", "a", 3), CellOwner(1, "main-1", "", 0))
    member.answers(asdict(replace(STATUS, cells=cells)))
    assert cli.main(["cluster", "status", "--cell", "1", "--http", member.url]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "main-0", "a", "3"] in rows
    assert any(row[:2] == ["1", "main-1"] and row[-1] == "0" for row in rows)
    member.answers({"member": "c"}, 202)
    assert cli.main(["cluster", "move", "c", "--cell", "1", "--http", member.url]) == 0
    assert [path for _, path, _, _ in member.asked] == [
        "/api/v1/cluster?cell=1",
        "/api/v1/cluster/move?cell=1",
    ]


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        ({"error": "this broker is no member of a cluster"}, 404, "this broker is no member of a cluster"),
        ({}, 503, "answers 503 Service Unavailable"),
        ([], 500, "answers 500 Internal Server Error"),
        ("nothing of ours", 200, "answers what no member does"),
    ],
)
def test_a_refusal_exits_1_with_the_reason(
    member: Member, capsys: pytest.CaptureFixture[str], content: object, status: int, told: str
) -> None:
    member.answers(content, status)
    assert cli.main(["cluster", "status", "--http", member.url]) == cli.REFUSED
    assert told in capsys.readouterr().err


def test_nobody_there_exits_1(member: Member, capsys: pytest.CaptureFixture[str]) -> None:
    port = member.server_port
    member.socket.close()
    assert cli.main(["cluster", "status", "--http", f"http://bob:pass@127.0.0.1:{port}"]) == cli.REFUSED
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port} does not answer" in said
    assert "pass" not in said


@pytest.mark.parametrize(
    "url", ["amqp://127.0.0.1", "http://", "http://h:port", "http://h/api", "http://h?x"]
)
def test_no_url_exits_2(url: str) -> None:
    assert cli.main(["cluster", "status", "--http", url]) == cli.USAGE
