"""Who asks over HTTPS: the cookie that belongs to TLS, certificates, and slow handshakes."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from broker.security.users import User
from broker.security.usersfile import changing
from tests.wire import people
from tests.wire.apiclient import Answered
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.people import PASSWORDS, basic
from tests.wire.tlsworld import Pki

pytestmark = pytest.mark.wire

PLACES = 32


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.at(tmp_path_factory.mktemp("https") / "pki")


@pytest.fixture(scope="module")
def served(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("https-users")
    tls = pki.section(client_ca=f"{pki.folder}/ca.pem", client_certificates="optional")
    settings = people.settings_for(folder, more="  longest_pause: 0\n") + tls
    broker = RunningBroker(folder / "broker", settings, "", ("--http", "https://127.0.0.1:0"))
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def port_of(broker: RunningBroker) -> int:
    return int(broker._find(r"listening https://\S+:(\d+)"))


def call(
    broker: RunningBroker,
    context: ssl.SSLContext,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Answered:
    """One request on a connection of its own."""
    connection = HTTPSConnection("localhost", port_of(broker), timeout=START_SECONDS, context=context)
    content = None if body is None else json.dumps(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, f"/api/v1{path}", content, kind | (headers or {}))
        response = connection.getresponse()
        data = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answered(response.status, found, json.loads(data) if data else None)
    finally:
        connection.close()


def test_over_tls_a_cookie_is_this_hosts_alone(served: RunningBroker, pki: Pki) -> None:
    context = pki.context()
    given = {"user": "alice", "password": PASSWORDS["alice"]}
    said = call(served, context, "POST", "/session", given).headers["set-cookie"]
    name, _, attributes = said.partition("=")
    assert name == f"__Host-sluice-session-{port_of(served)}"
    assert attributes.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    session = said.partition(";")[0]
    assert call(served, context, "GET", "/session", headers={"Cookie": session}).body["by"] == "session"
    # The same token under a name that anybody on the way could have set.
    planted = {"Cookie": session.removeprefix("__Host-")}
    assert call(served, context, "GET", "/session", headers=planted).status == 401


def test_a_certificate_says_who_it_is(served: RunningBroker, pki: Pki) -> None:
    alice = pki.context(pki.client("alice"))
    who = call(served, alice, "GET", "/session").body
    assert (who["user"], who["groups"], who["by"]) == ("alice", ["operators"], "certificate")
    assert call(served, alice, "POST", "/queues", {"name": "tls"}).status == 201
    # What is said in the request comes first, wrong or right.
    assert call(served, alice, "GET", "/session", headers=basic("rita")).body["user"] == "rita"
    assert call(served, alice, "GET", "/session", headers=basic("rita", "no")).status == 401
    assert call(served, pki.context(), "GET", "/session").status == 401


def test_a_certificate_that_expires_says_nothing_any_more(served: RunningBroker, pki: Pki) -> None:
    context = pki.context(pki.client("brief", "alice", lasts=timedelta(seconds=6)))
    port = port_of(served)
    with closing(HTTPSConnection("localhost", port, timeout=START_SECONDS, context=context)) as one:

        def status() -> int:
            one.request("GET", "/api/v1/session")
            answered = one.getresponse()
            answered.read()
            return answered.status

        assert status() == 200
        wait_until(lambda: status() == 401, 30, "the end of the certificate")


def test_a_certificates_stream_goes_by_what_holds_now(
    start_broker: StartBroker, pki: Pki, tmp_path: Path
) -> None:
    tls = pki.section(client_ca=f"{pki.folder}/ca.pem", client_certificates="optional")
    settings = people.settings_for(tmp_path, people.RULES + "  - allow: connect\n")
    broker = start_broker(settings + tls, "", ("--http", "https://127.0.0.1:0"))
    rita = pki.context(pki.client("rita"))
    with closing(
        HTTPSConnection("localhost", port_of(broker), timeout=START_SECONDS, context=rita)
    ) as connection:
        connection.request("GET", "/api/v1/live")
        with connection.getresponse() as stream:
            assert b"event: broker\n" in stream
            with changing(tmp_path / "users") as file:
                file.users["rita"] = User("rita", file.users["rita"].verifiers, frozenset())
            broker.signal(signal.SIGHUP)
            assert b"event: silent\n" in stream
            broker.config_file.write_text(settings + "  mechanisms: [SCRAM-SHA-256]\n" + tls)
            broker.signal(signal.SIGHUP)
            stream.read()
    assert call(broker, rita, "GET", "/session").status == 401


def test_browsers_are_told_to_stay_with_tls(served: RunningBroker, pki: Pki) -> None:
    own = call(served, pki.context(), "GET", "/session").headers
    assert "strict-transport-security" not in own, "localhost is everybody's"
    there = call(served, pki.context(), "GET", "/session", headers={"Host": "mq.example.org"})
    assert there.headers["strict-transport-security"] == "max-age=31536000"


@pytest.mark.parametrize("beginning", [b"", b"\x16\x03\x01"])
def test_handshakes_that_go_no_further_keep_nobody_out_for_long(
    served: RunningBroker, pki: Pki, beginning: bytes
) -> None:
    with ExitStack() as stack:
        for _ in range(PLACES):
            client = socket.create_connection(("127.0.0.1", port_of(served)), timeout=10)
            stack.enter_context(client)
            client.sendall(beginning)

        def answered() -> bool:
            try:
                return call(served, pki.context(), "GET", "/session").status == 401
            except OSError:
                return False

        wait_until(answered, 40, "a place for somebody who asks")


def test_files_of_the_console_come_over_tls(served: RunningBroker, pki: Pki) -> None:
    connection = HTTPSConnection("localhost", port_of(served), timeout=START_SECONDS, context=pki.context())
    connection.request("GET", "/")
    answered = connection.getresponse()
    assert answered.status == 200
    assert b"main.js" in answered.read()
    connection.close()
