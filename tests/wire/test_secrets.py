"""A password in the broker's file comes out nowhere: not in a log, a view, a metric, an error or what is
kept.

Its route can't connect, is refused, or has a URL that can't be read, since what goes wrong is what gets told.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli import main
from broker.client.request import Management
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import SASL_HEADER, SASL_INIT, SASL_OUTCOME, RawPeer, Symbol, performative

pytestmark = pytest.mark.wire

SECRET = "tr0ub4dor-and-3"
USER = "courier-with-a-name"
CONFIG = """
log_level: debug
log_format: json
log_levels: [sluice.routes=debug, sluice.amqp=debug, sluice.http=debug]
metrics: {{per_subscription: true, per_link: true}}
routes:
  - {{name: refused, url: "amqp://{user}:{secret}@127.0.0.1:{port}", address: orders, retry_max: 200 ms}}
  - {{name: nobody, url: "amqp://{user}:{secret}@127.0.0.1:1", address: news, retry_max: 200 ms}}
"""
# URLs that can't be read, each in its own way.
WRONG = (
    "amqp://{user}:{secret}@127.0.0.1:99999",
    "http://{user}:{secret}@127.0.0.1",
    "amqp://{user}:{secret}@[::1",
    "amqp://{user}:{secret}@host/path",
    "amqp:{secret}",
    "amqp://{user}:{secret}#@host",
)


def filled(text: str, port: int = 1) -> str:
    return text.format(user=USER, secret=SECRET, port=port)


def clean(what: str, *texts: str) -> None:
    """None of them has the password."""
    for text in texts:
        assert SECRET not in text, f"{what}: {text}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One with two routes, one of which reaches a broker that refuses who it says it is."""
    there = RunningBroker(tmp_path_factory.mktemp("there"), "", "", ())
    found = RunningBroker(tmp_path_factory.mktemp("here"), filled(CONFIG, there.port), "", ())
    try:
        found.wait_for_log("nobody")
        found.wait_for_log("refused")
        yield found
    finally:
        found.stop()
        there.stop()
    clean("the log", found.log, there.log)
    folder = found.config_file.parent / "data"
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command of the command line says, whatever it answers."""
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        main.main([*words])
    found = capsys.readouterr()
    return found.out + found.err


def test_no_answer_of_the_http_port_has_it(broker: RunningBroker) -> None:
    api = Api(broker)
    paths = [path for path, verbs in api.get("/openapi.json")["paths"].items() if "get" in verbs]
    assert len(paths) > 10
    asked = 0
    for path in paths:
        path = path.removeprefix("/api/v1")
        for name in ("orders", "refused", "nobody", "c1", "r-refused"):
            if "stream" in path or "live" in path or path.endswith("/events"):
                continue
            answer = api.call(
                "GET", path.replace("{name}", name).replace("{id}", name).replace("{key}", name)
            )
            clean(path, str(answer.body), str(answer.headers))
            asked += answer.status == 200
            if "{" not in path:
                break
    assert asked > 8
    root = Api(broker, "")
    for path in ("/metrics", "/", "/healthz", "/readyz", "/nonsense"):
        answer = root.call("GET", path)
        clean(path, repr(answer.body))


def test_no_view_of_the_management_node_has_it(broker: RunningBroker) -> None:
    with Management(broker.url) as management:
        types = management.call("GET-TYPES", "", "").body
        assert isinstance(types, dict)
        for kind in types:
            found = management.call("QUERY", "", "", {"attributeNames": []}, entityType=kind)
            clean(kind, repr(found))


def test_no_command_says_it(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("-b", broker.url)
    for words in (
        *(
            ("stat", flag, *json_too, *at)
            for flag in ("-g", "-c", "-q", "-u", "-f", "-r")
            for json_too in ((), ("--json",))
        ),
        ("explain", "orders", *at),
        ("why", *at),
        ("config", "queues", *at),
        ("events", *at),
        ("log-level", *at),
        ("schema", "reference"),
    ):
        found = said(capsys, *words)
        assert found, words
        clean(" ".join(words), found)


def test_no_check_of_the_file_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = tmp_path / "right.yaml"
    right.write_text(filled(CONFIG))
    found = said(capsys, "serve", "--check", "--config", str(right))
    clean("--check", found)
    for number, url in enumerate(WRONG):
        wrong = tmp_path / f"wrong{number}.yaml"
        route = {"name": "r", "url": filled(url), "address": "orders"}
        wrong.write_text("routes:\n  - " + json.dumps(route) + "\n")
        found = said(capsys, "serve", "--check", "--config", str(wrong))
        assert "url" in found
        clean(url, found)
    # What YAML itself can't read is told by its place alone.
    broken = tmp_path / "broken.yaml"
    broken.write_text(filled('routes:\n  - {{url: "amqp://{user}:{secret}@h", x: [}}\n'))
    clean("broken YAML", said(capsys, "serve", "--check", "--config", str(broken)))


def test_a_reload_that_is_refused_does_not_say_it(broker: RunningBroker) -> None:
    for url in WRONG:
        before = broker.log.count("reload refused")
        route = {"name": "r", "url": filled(url), "address": "orders"}
        broker.config_file.write_text("routes:\n  - " + json.dumps(route) + "\n")
        broker.signal(signal.SIGHUP)
        wait_until(lambda n=before: broker.log.count("reload refused") > n, 10, "the reload to be refused")  # type: ignore[misc]


def test_no_command_says_the_one_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    for url in (*(each for each in WRONG if "@" in each), "amqp://{user}:{secret}@127.0.0.1:1"):
        for words in (("stat", "-g"), ("receive", "q")):
            found = said(capsys, *words, "-b", filled(url))
            assert found
            clean(url, found)


def test_passwords_of_users_come_out_nowhere(
    tmp_path: Path, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Proved, sent as it is, wrong, or given for a name; and of the file not even the verifiers are told."""
    given = tmp_path / "password"
    given.write_text(f"{SECRET}\n")
    users = tmp_path / "users"
    for words in (("add", "alice", "--password-file", str(given)), ("list",)):
        clean("users", said(capsys, "users", *words, "--file", str(users)))
    kept = re.findall(r"[A-Za-z0-9+/]{40,}", users.read_text())
    assert len(kept) >= 5
    config = f"log_level: debug\nsecurity: {{users: {users}, plain_without_tls: true}}\n"
    broker = start_broker(config)
    port = broker.port
    for url in (f"amqp://alice:{SECRET}@127.0.0.1:{port}", f"amqp://{SECRET}x:alice@127.0.0.1:{port}"):
        clean(url, said(capsys, "stat", "-c", "--json", "-b", url).replace(f"{SECRET}x", ""))
    for response in (f"\0alice\0{SECRET}", f"\0alice\0{SECRET}-wrong", f"{SECRET}\0alice", f"\0\0{SECRET}"):
        with RawPeer(port) as peer:
            peer.send(SASL_HEADER, performative(SASL_INIT, Symbol("PLAIN"), response.encode(), kind=1))
            peer.read_bytes(8)
            peer.expect(SASL_OUTCOME)
    text = broker.log.replace(f"{SECRET}x", "")
    clean("the log", text)
    for verifier in kept:
        assert verifier not in text
