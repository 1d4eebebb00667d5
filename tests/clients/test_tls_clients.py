"""Client libraries over TLS: one with a certificate is its user; an expired one lets nobody in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME
from tests.wire.conftest import RunningBroker
from tests.wire.tlsworld import Pki, url_of

# Building a client takes longer than one test may.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

LIBRARIES = ("rhea", "qpid-jms", "go-amqp")
FEATURES = ("send-receive", "outcomes", "large")
PASSWORD = "changeit"  # of files that are made anew for each run
SECONDS = 120


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.at(tmp_path_factory.mktemp("clients-tls") / "certs")


@pytest.fixture(scope="module")
def secure(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    policies = (Path(__file__).parent / "policies.yaml").read_text()
    config = pki.section(client_ca=str(pki.ca), client_certificates="required")
    args = ("--listen", "amqps://127.0.0.1:0")
    broker = RunningBroker(tmp_path_factory.mktemp("clients-secure"), config, policies, args)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def stores(ca: Path, both: Path) -> str:
    """An authority and a client's certificate as Java wants them, as the query of a URL."""
    trust, own = both.with_suffix(f".{ca.stem}.trust"), both.with_suffix(".p12")
    for path in (trust, own):
        path.unlink(missing_ok=True)
    trusted = ("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(ca))
    _run(*trusted, "-keystore", str(trust), "-storetype", "PKCS12", "-storepass", PASSWORD)
    _run("openssl", "pkcs12", "-export", "-in", str(both), "-out", str(own), "-passout", f"pass:{PASSWORD}")
    rows = {"trustStore": trust, "keyStore": own}
    return "&".join(
        f"transport.{name}Location={path}&transport.{name}Password={PASSWORD}&transport.{name}Type=PKCS12"
        for name, path in rows.items()
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def results(secure: RunningBroker, library: str, ca: Path, both: Path) -> dict[str, str]:
    """What each feature came to, for a client that trusts that authority and shows that certificate."""
    query = ""
    if library == "qpid-jms":
        if shutil.which("keytool") is None or shutil.which("openssl") is None:
            pytest.skip("needs keytool and openssl")
        query = "?" + stores(ca, both)
    env = programs.environment(url_of(secure) + query, "") | {"CA": str(ca), "CERT": str(both)}
    ran = programs.ran(programs.start(BY_NAME[library], env, "features", library, *FEATURES), SECONDS)
    return {str(line["feature"]): f"{line['result']} {line.get('why') or ''}".strip() for line in ran.lines}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_comes_in_by_its_certificate(
    library: str, clients: Clients, secure: RunningBroker, pki: Pki
) -> None:
    clients.built(BY_NAME[library])
    assert results(secure, library, pki.ca, pki.client(library)) == dict.fromkeys(FEATURES, "pass")
    secure.wait_for_log(f"user {library} by EXTERNAL, TLSv1.3")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_trusts_another_authority_stays_out(
    library: str, clients: Clients, secure: RunningBroker, pki: Pki, tmp_path: Path
) -> None:
    clients.built(BY_NAME[library])
    stranger = Pki.at(tmp_path / "stranger")
    found = results(secure, library, stranger.ca, pki.client(f"stray-{library}"))
    assert all(result.startswith("fail") for result in found.values())
    assert f"user stray-{library} by" not in secure.log


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_whose_certificate_has_expired_stays_out(
    library: str, clients: Clients, secure: RunningBroker, pki: Pki
) -> None:
    clients.built(BY_NAME[library])
    found = results(secure, library, pki.ca, pki.client(f"late-{library}", expired=True))
    assert all(result.startswith("fail") for result in found.values())
    assert f"user late-{library} by" not in secure.log
    secure.wait_for_log("the certificate was not accepted: certificate has expired")
