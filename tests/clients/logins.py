"""Mechanisms by client libraries: what each is tried with, what has to come of it, and the table of it all.

A library is tried over TLS with what is right, with a secret that is wrong, as somebody nobody knows, with
what has expired, and where it has no right. What it lacks was looked up in its source, which the note names.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from broker.security.devcerts import IssuedCertificate, authority, leaf
from broker.security.users import FEWEST
from broker.security.usersfile import changing
from tests.clients import programs
from tests.clients.programs import BY_NAME, Cell
from tests.security.exchanges import PASSWORD, a_user
from tests.wire.conftest import RunningBroker
from tests.wire.tlsworld import NAMES, YESTERDAY, Pki, url_of

ISSUER = "https://id.example.org"
MECHANISMS = (
    *("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "EXTERNAL"),
    *("XOAUTH2", "OAUTHBEARER", "ANONYMOUS"),
)
SITUATIONS = ("let in", "wrong password", "unknown user", "expired certificate", "missing right")
# Whoever may do what in the broker they are tried on.
ALLOWED, DENIED = "open", "closed"
RULES = f"rules:\n  - allow: connect\n  - allow: [send, create]\n    addresses: [{ALLOWED}]\n"
STORES_PASSWORD = "changeit"  # of files that are made anew for each run
SECONDS = 60

CLIENTS = ("proton-blocking", "rhea", "qpid-jms", "protonj2", "go-amqp")
JAVA = ("qpid-jms", "protonj2")
_SIMPLE = {"PLAIN", "EXTERNAL", "ANONYMOUS"}
_JAVA = set(MECHANISMS) - {"OAUTHBEARER"}
HAS: Mapping[str, set[str]] = {
    "proton-blocking": _SIMPLE,
    "rhea": _SIMPLE | {"XOAUTH2"},
    "qpid-jms": _JAVA,
    "protonj2": _JAVA,
    "go-amqp": _SIMPLE | {"XOAUTH2"},
}
LACKS = {
    "proton-blocking": "Proton: its own SASL knows ANONYMOUS, PLAIN and EXTERNAL"
    " (`c/src/sasl/default_sasl.c`); the others are Cyrus's, which pip doesn't build it with",
    "rhea": "rhea: its client knows ANONYMOUS, PLAIN, EXTERNAL and XOAUTH2 (`lib/sasl.js`)",
    "qpid-jms": "Qpid JMS: knows XOAUTH2, not RFC 7628 (package `org.apache.qpid.jms.sasl`)",
    "protonj2": "Protonj2: likewise (`org.apache.qpid.protonj2.engine.sasl.client.SaslMechanisms`)",
    "go-amqp": "go-amqp: knows ANONYMOUS, PLAIN, EXTERNAL and XOAUTH2 (`sasl.go`)",
}


@dataclass(frozen=True)
class Row:
    """One line of the table: a mechanism, over TLS or without."""

    mechanism: str
    secure: bool = True

    def __str__(self) -> str:
        return self.mechanism if self.secure else f"{self.mechanism} without TLS"


ROWS = (*map(Row, MECHANISMS[:4]), Row("PLAIN", secure=False), *map(Row, MECHANISMS[4:]))


@cache
def signing_key() -> rsa.RSAPrivateKey:
    """The issuer's."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def token(key: rsa.RSAPrivateKey | None = None, **claims: Any) -> str:
    """A token of alice's, as long as those of real issuers: beyond the 512 bytes of a SASL frame."""
    given = {"iss": ISSUER, "aud": "sluice", "sub": "alice", "exp": int(time.time()) + 600} | claims
    return jwt.encode(given | {"more": "x" * 900}, key or signing_key(), "RS256", headers={"kid": "one"})


def users_and_keys(folder: Path) -> str:
    """The files of a broker that knows alice by password and token, and the lines of settings about them."""
    folder.mkdir(parents=True, exist_ok=True)
    with changing(folder / "users") as file:
        file.iterations = FEWEST
        file.users["alice"] = a_user("alice")
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(signing_key().public_key()))
    (folder / "jwks.json").write_text(json.dumps({"keys": [public | {"kid": "one"}]}))
    return (
        f"  users: {folder / 'users'}\n  mechanisms: [{', '.join(MECHANISMS)}]\n  allow_anonymous: true\n"
        f"  oauth_issuer: {ISSUER}\n  oauth_audience: [sluice]\n  oauth_jwks: {folder / 'jwks.json'}\n"
        "  free_attempts: 1000\n"
    )


class World:
    """A broker that takes every mechanism, another one whose certificate has expired, and certificates."""

    def __init__(self, folder: Path) -> None:
        self.pki = Pki.at(folder / "certs")
        self._stranger = authority("A stranger's CA")
        late = leaf(self.pki.by, NAMES[0], NAMES, begins=timedelta(days=-3), lasts=YESTERDAY)
        late.write(self.pki.folder, "late")
        (folder / "acl.yaml").write_text(RULES)
        security = f"security:\n{users_and_keys(folder)}  acl: {folder / 'acl.yaml'}\n"
        self.broker = self._start(folder / "broker", security, "server")
        self.late = self._start(folder / "late", security, "late")

    def _start(self, folder: Path, security: str, certificate: str) -> RunningBroker:
        files = {
            "certificate": f"{self.pki.folder}/{certificate}.pem",
            "key": f"{self.pki.folder}/{certificate}-key.pem",
        }
        config = security + self.pki.section(**files, client_ca=str(self.pki.ca))
        return RunningBroker(folder, config, "", ("--listen", "amqps://127.0.0.1:0"))

    def stop(self) -> None:
        """Both; neither has met a fault of its own."""
        for each in (self.broker, self.late):
            each.stop()
            assert "Traceback" not in each.log, each.log

    def certificate(self, user: str, *, expired: bool = False, foreign: bool = False) -> Path:
        """A client's certificate and key, in one file; a foreign one is signed by somebody else."""
        name = f"{user.strip('$')}{'-late' if expired else ''}{'-foreign' if foreign else ''}"
        by: IssuedCertificate | None = self._stranger if foreign else None
        return self.pki.client(name, user, expired=expired, by=by)

    @cache  # noqa: B019 - as long as the files
    def trust_store(self) -> Path:
        """The authority as Java wants it."""
        path = self.pki.folder / "trust.p12"
        trusted = ("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(self.pki.ca))
        _run(*trusted, "-keystore", str(path), "-storetype", "PKCS12", "-storepass", STORES_PASSWORD)
        return path

    def key_store(self, both: Path) -> Path:
        """A certificate and its key as Java wants them."""
        path = both.with_suffix(".p12")
        words = ("-in", str(both), "-out", str(path), "-passout", f"pass:{STORES_PASSWORD}")
        _run("openssl", "pkcs12", "-export", *words)
        return path


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Came:
    """What a library says of a login: accepted, refused or n/a, and of a message that was to be sent."""

    login: str
    send: str
    why: str


class Trier:
    """One library, by one line of the table."""

    def __init__(self, world: World, client: str, row: Row) -> None:
        self.world = world
        self.client = client
        self.row = row
        self._certificates = row.mechanism == "EXTERNAL"
        self._tokens = row.mechanism in ("XOAUTH2", "OAUTHBEARER")

    def attempt(
        self,
        user: str = "alice",
        secret: str = "",
        address: str = ALLOWED,
        broker: RunningBroker | None = None,
        certificate: Path | None = None,
    ) -> Came:
        """One run of its program; what isn't said is right."""
        if self._certificates and certificate is None:
            certificate = self.world.certificate("alice")
        env = self._environment(broker or self.world.broker, certificate)
        env |= {"LOGIN_USER": user, "LOGIN_PASSWORD": secret or (token() if self._tokens else PASSWORD)}
        process = programs.start(BY_NAME[self.client], env, "login", self.row.mechanism, address)
        ran = programs.ran(process, SECONDS)
        assert ran.lines, f"{self.client}: status {ran.status}: {ran.stderr[-2000:]}"
        line = {key: str(value) for key, value in ran.lines[0].items()}
        assert (secret or PASSWORD) not in line["why"], "a secret is in an error's text"
        return Came(line["login"], line.get("send", ""), line["why"])

    def _environment(self, broker: RunningBroker, certificate: Path | None) -> dict[str, str]:
        if not self.row.secure:
            return programs.environment(broker.url, "")
        if self.client not in JAVA:
            shown = {} if certificate is None else {"CERT": str(certificate)}
            return programs.environment(url_of(broker), "") | {"CA": str(self.world.pki.ca)} | shown
        stores = {"trustStore": self.world.trust_store()}
        if certificate is not None:
            stores["keyStore"] = self.world.key_store(certificate)
        query = "&".join(
            f"transport.{name}Location={path}&transport.{name}Password={STORES_PASSWORD}"
            f"&transport.{name}Type=PKCS12"
            for name, path in stores.items()
        )
        return programs.environment(f"{url_of(broker)}?{query}", "")

    # --- the situations

    def results(self) -> dict[str, Cell]:
        """What each situation came to: `pass`, `fail`, or `n/a` where it has no meaning."""
        if not self.row.secure:
            return {SITUATIONS[0]: self._is_refused(self.attempt())} | _without(SITUATIONS[1:])
        tried = {SITUATIONS[0]: self._lets_in()}
        if self.row.mechanism == "ANONYMOUS":
            tried |= _without(SITUATIONS[1:3])
        else:
            tried |= {SITUATIONS[1]: self._wrong_secret(), SITUATIONS[2]: self._unknown()}
        return tried | {SITUATIONS[3]: self._expired(), SITUATIONS[4]: self._without_the_right()}

    def _lets_in(self) -> Cell:
        came = self.attempt()
        if (came.login, came.send) != ("accepted", "accepted"):
            return Cell("fail", str(came))
        user = "anonymous" if self.row.mechanism == "ANONYMOUS" else "alice"
        self.world.broker.wait_for_log(f"user {user} by {self.row.mechanism}, TLSv1.3")
        return Cell("pass")

    def _wrong_secret(self) -> Cell:
        if self._certificates:
            return self._is_refused(self.attempt(certificate=self.world.certificate("alice", foreign=True)))
        forged = token(rsa.generate_private_key(public_exponent=65537, key_size=2048))
        return self._is_refused(self.attempt(secret=forged if self._tokens else "hunter2"))

    def _unknown(self) -> Cell:
        if self._certificates:  # of a name that no user may bear
            return self._is_refused(self.attempt(certificate=self.world.certificate("$broker")))
        return self._is_refused(self.attempt(user="nobody"))

    def _expired(self) -> Cell:
        """The broker's, which the client must not talk to; and its own, or its token."""
        found = [self._is_refused(self.attempt(broker=self.world.late))]
        if "opened" in self.world.late.log:
            found.append(Cell("fail", "it came in to a broker whose certificate has expired"))
        if self._certificates:
            late = self.world.certificate("alice", expired=True)
            found.append(self._is_refused(self.attempt(certificate=late)))
            self.world.broker.wait_for_log("the certificate was not accepted: certificate has expired")
        if self._tokens:
            found.append(self._is_refused(self.attempt(secret=token(exp=int(time.time()) - 600))))
        return next((each for each in found if each.result != "pass"), found[0])

    def _without_the_right(self) -> Cell:
        came = self.attempt(address=DENIED)
        told = f"may not send to '{DENIED}'" in came.why
        refused = (came.login, came.send) == ("accepted", "refused")
        return Cell("pass") if refused and told else Cell("fail", str(came))

    @staticmethod
    def _is_refused(came: Came) -> Cell:
        return Cell("pass") if came.login == "refused" else Cell("fail", str(came))


def _without(situations: Iterable[str]) -> dict[str, Cell]:
    return dict.fromkeys(situations, Cell("n/a"))


MARKS = {"pass": "✓", "fail": "✗", "n/a": "–"}


def table(found: Mapping[tuple[str, Row], Mapping[str, Cell]]) -> str:
    """A line a mechanism, a column a library; a cell has a mark for each situation, or why there is none."""
    notes: dict[str, int] = {}
    lines = [
        "| mechanism | " + " | ".join(f"{each} {BY_NAME[each].library_version}" for each in CLIENTS) + " |",
        "|---|" + ":-:|" * len(CLIENTS),
    ]
    for row in ROWS:
        cells = [_cell(found.get((client, row)), client, notes) for client in CLIENTS]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{number}. {note}" for note, number in notes.items())])


def _cell(results: Mapping[str, Cell] | None, client: str, notes: dict[str, int]) -> str:
    if results is None:
        return f"n/a <sup>{notes.setdefault(LACKS[client], len(notes) + 1)}</sup>"
    return " ".join(MARKS[results[each].result] for each in SITUATIONS)
