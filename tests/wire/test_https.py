"""The HTTP port with TLS: the API, AMQP over wss://, and clients that waste its handshakes."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.wire.conftest import START_SECONDS, RunningBroker, wait_until
from tests.wire.frames import SASL_HEADER
from tests.wire.tlsworld import Pki

pytestmark = pytest.mark.wire


class SecureHttp(RunningBroker):
    """One whose HTTP port has TLS."""

    def _find(self, pattern: str) -> str:
        return super()._find(pattern.replace("http:", "https:"))

    def get(self, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
        """An answer's status and body."""
        url = f"https://localhost:{self.http_port}{path}"
        with urllib.request.urlopen(url, timeout=START_SECONDS, context=context) as answer:
            return answer.status, answer.read()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.at(tmp_path_factory.mktemp("https") / "certs")


@pytest.fixture(scope="module")
def site(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHttp]:
    config = pki.section(client_ca=f"{pki.folder}/ca.pem", client_certificates="required")
    args = ("--http", "https://127.0.0.1:0")
    broker = SecureHttp(tmp_path_factory.mktemp("site"), config, "", args)
    broker.get("/healthz", pki.context())
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def test_the_api_and_the_console_are_served(site: SecureHttp, pki: Pki) -> None:
    assert site.get("/", pki.context())[0] == 200
    status, body = site.get("/api/v1/queues", pki.context())
    assert (status, type(json.loads(body))) == (200, dict)
    # AMQP demands a certificate here; a browser may come without.
    assert site.get("/metrics", pki.context(pki.client("scraper")))[0] == 200


def test_requests_without_tls_are_told_apart(site: SecureHttp) -> None:
    with socket.create_connection(("127.0.0.1", site.http_port), timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1" not in sock.recv(100)
    site.wait_for_log("a request without TLS, and this port is for https://")


def test_amqp_comes_in_over_wss_with_its_certificate(site: SecureHttp, pki: Pki) -> None:
    url = f"wss://localhost:{site.http_port}/"
    with connect(url, ssl=pki.context(pki.client("grace")), subprotocols=["amqp"]) as client:  # type: ignore[list-item]
        client.send(SASL_HEADER)
        answer = client.recv(timeout=10)
        while b"EXTERNAL" not in answer:
            answer += client.recv(timeout=10)  # type: ignore[operator]
    with connect(url, ssl=pki.context(), subprotocols=["amqp"]) as client:  # type: ignore[list-item]
        client.send("AMQP in text")
        with pytest.raises(Exception, match="1003"):
            client.recv(timeout=10)


def test_handshakes_that_go_nowhere_don_t_fill_the_port(site: SecureHttp, pki: Pki) -> None:
    """As many as there may be clients at once, for a few seconds each; then others get in again."""
    silent = [socket.create_connection(("127.0.0.1", site.http_port), timeout=20) for _ in range(60)]
    refused = 0
    for sock in silent[40:]:
        try:
            refused += sock.recv(1) == b""
        except ConnectionError:
            refused += 1
    assert refused == 20

    def answers() -> bool:
        try:
            return site.get("/healthz", pki.context())[0] == 200
        except OSError:
            return False

    wait_until(answers, 40, "the port to answer")
    for sock in silent:
        sock.close()


def test_certificates_are_read_again(site: SecureHttp, pki: Pki, tmp_path: Path) -> None:
    made = pki.server("server")
    site.signal(signal.SIGHUP)
    site.wait_for_log("settings and policies reloaded")

    def serial() -> int:
        plain = socket.create_connection(("127.0.0.1", site.http_port), timeout=10)
        with pki.context().wrap_socket(plain, server_hostname="localhost") as stream:
            shown = stream.getpeercert()
            assert shown is not None
            return int(str(shown["serialNumber"]), 16)

    assert serial() == made.certificate.serial_number
