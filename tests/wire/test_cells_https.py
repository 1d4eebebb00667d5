"""The one HTTP port of several cells with TLS: who a client's certificate names is known in every cell."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from websockets.sync.client import connect

from tests.wire.cells import ARGS, CELLS, kill_cell, one_in_each, wait_for_cell
from tests.wire.conftest import START_SECONDS, wait_until
from tests.wire.frames import SASL_HEADER
from tests.wire.test_https import SecureHttp
from tests.wire.tlsworld import Pki

pytestmark = pytest.mark.wire

# More than enough to reach each cell, which accept as they have time.
ROUNDS = 12
RULES = "rules: [{allow: all, users: [grace]}]\n"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.at(tmp_path_factory.mktemp("https") / "certs")


@pytest.fixture(scope="module")
def site(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHttp]:
    folder = tmp_path_factory.mktemp("cells")
    (folder / "acl.yaml").write_text(RULES)
    config = pki.section(client_ca=f"{pki.folder}/ca.pem", client_certificates="required")
    config += f"security:\n  acl: {folder / 'acl.yaml'}\n"
    broker = SecureHttp(folder, config, "", (*ARGS, "--http", "https://127.0.0.1:0"))
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def call(
    site: SecureHttp, context: ssl.SSLContext, method: str, path: str, body: object = None
) -> tuple[int, Any]:
    """Ask the API; return the status and the answer's JSON."""
    request = urllib.request.Request(
        f"https://localhost:{site.http_port}/api/v1{path}",
        None if body is None else json.dumps(body).encode(),
        {} if body is None else {"Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=START_SECONDS, context=context) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except HTTPError as fault:
        with fault:
            return fault.code, json.loads(fault.read())


def queues(site: SecureHttp, context: ssl.SSLContext) -> tuple[list[tuple[str, int]], dict[str, str]]:
    """Return names and cells of the queues there are, and the cells that are missing."""
    _, found = call(site, context, "GET", "/queues?filter=secret.&sort=cell")
    return [(row["name"], row["cell"]) for row in found["items"]], found["absent"]


def test_a_certificate_s_user_is_known_in_every_cell(site: SecureHttp, pki: Pki) -> None:
    grace, nobody, eve = pki.context(pki.client("grace")), pki.context(), pki.context(pki.client("eve"))
    wait_until(lambda: queues(site, grace)[1] == {}, START_SECONDS, "all cells to answer", 0.1)
    names = one_in_each("secret")
    for name in names:
        assert call(site, grace, "POST", "/queues", {"name": name})[0] == 201
        assert call(site, eve, "DELETE", f"/queues/{name}")[0] == 403
    for _ in range(ROUNDS):
        assert queues(site, grace) == ([(name, cell) for cell, name in enumerate(names)], {})
        assert call(site, nobody, "GET", "/queues")[0] == 403
    status, text = site.get("/metrics", grace)
    assert status == 200
    assert all(b'sluice_cell_up{cell="%d"} 1\n' % cell in text for cell in range(CELLS))


def test_amqp_over_wss_comes_in_whichever_cell_is_gone(site: SecureHttp, pki: Pki) -> None:
    grace = pki.context(pki.client("grace"))
    for cell in range(CELLS):
        site.lines.clear()
        old = kill_cell(site, cell)
        with connect(f"wss://localhost:{site.http_port}/", ssl=grace, subprotocols=["amqp"]) as client:  # type: ignore[list-item]
            client.send(SASL_HEADER)
            answer = client.recv(timeout=START_SECONDS)
            while b"EXTERNAL" not in answer:
                answer += client.recv(timeout=START_SECONDS)  # type: ignore[operator]
        wait_for_cell(site, cell, old)
