"""Tokens: whose are believed, whose are not, and that an issuer isn't asked more often than it has to be."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.errors import OperatorError
from broker.security.exchange import Accepted, ListenerTrust, Refused, TokenError, Work
from broker.security.identity import Identity
from broker.security.keys import AGAIN_S, FRESH_S, LARGEST_BYTES, KeyFile, KeyUrl, check_url, parsed
from broker.security.tokens import TokenRules, Tokens
from tests.security.exchanges import with_users

RULES = TokenRules("https://id.example.org", ("sluice",), ("RS256", "ES256"))
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str, algorithm: str = "RS256") -> dict[str, object]:
    kind = jwt.algorithms.RSAAlgorithm if algorithm == "RS256" else jwt.algorithms.ECAlgorithm
    public: dict[str, object] = json.loads(kind.to_jwk(key.public_key()))
    return public | {"kid": kid, "use": "sig", "alg": algorithm}


JWKS = json.dumps({"keys": [jwk(RSA, "one"), jwk(EC, "two", "ES256")]}).encode()


def claims(**more: object) -> dict[str, object]:
    given = {
        "iss": RULES.issuer,
        "aud": "sluice",
        "sub": "alice",
        "exp": int(time.time()) + 600,
        "groups": ["writers", 7, ""],
    }
    return {key: value for key, value in (given | more).items() if value is not None}


def token(
    key: Any = RSA,
    kid: str | None = "one",
    algorithm: str = "RS256",
    headers: dict[str, object] | None = None,
    **more: object,
) -> str:
    named = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**more), key, algorithm, headers=named | (headers or {}))


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    file = tmp_path / "jwks.json"
    file.write_bytes(JWKS)
    return Tokens(RULES, KeyFile(file))


def test_a_token_says_who_it_is_and_for_how_long(tokens: Tokens) -> None:
    identity, left_s = tokens.identify(token(), "OAUTHBEARER")
    assert identity == Identity("alice", frozenset({"writers"}), "OAUTHBEARER")
    assert 600 < left_s <= 600 + RULES.leeway_s
    assert tokens.identify(token(EC, "two", "ES256"), "XOAUTH2")[0].user == "alice"
    assert tokens.identify(token(groups="a b"), "XOAUTH2")[0].groups == {"a", "b"}
    assert tokens.identify(token(groups=5), "XOAUTH2")[0].groups == frozenset()


def unsigned(**more: object) -> str:
    return jwt.encode(claims(**more), "", "none")


def by_the_public_key() -> str:
    """Signed with the public key as if it were a shared secret (CVE-2022-29217 and its kin)."""
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body = ({"alg": "HS256", "kid": "one"}, claims())
    said = b".".join(urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (head, body))
    mark = urlsafe_b64encode(hmac.digest(secret, said, "sha256")).rstrip(b"=")
    return (said + b"." + mark).decode()


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("expired", lambda: token(exp=int(time.time()) - 3600)),
        ("not valid yet", lambda: token(nbf=int(time.time()) + 3600)),
        ("without an end", lambda: token(exp=None)),
        ("another issuer's", lambda: token(iss="https://evil.example.org")),
        ("without an issuer", lambda: token(iss=None)),
        ("for somebody else", lambda: token(aud="another")),
        ("for nobody", lambda: token(aud=None)),
        ("signed by another key", lambda: token(OTHER)),
        ("a key nobody knows", lambda: token(kid="three")),
        ("no key named, and there are two", lambda: token(kid=None)),
        ("an algorithm that isn't allowed", lambda: token(algorithm="RS512")),
        ("not signed", unsigned),
        ("a shared secret", by_the_public_key),
        ("nobody's", lambda: token(sub=None)),
        ("a number's", lambda: token(sub=5)),
        ("anonymous'", lambda: token(sub="anonymous")),
        ("the broker's own", lambda: token(sub="$broker")),
        ("a name that is none", lambda: token(sub="a\nb")),
        ("one that only looks like alice's", lambda: token(sub="\uff41lice")),
        ("too many groups", lambda: token(groups=[str(n) for n in range(1000)])),
        ("changed", lambda: token()[:-6] + "AAAAAA"),
        ("no token", lambda: "hello"),
        ("no JSON", lambda: "aGVsbG8.aGVsbG8.aGVsbG8"),
        ("more to understand than we do", lambda: token(headers={"crit": ["cnf"], "cnf": {}})),
        ("an end beyond any number", lambda: token(exp=10**400)),
        ("empty", lambda: ""),
        ("deep", lambda: "eyJhIjo" + "W1tb" * 2000 + ".e30.e30"),
    ],
)
def test_tokens_that_are_not_believed(what: str, make: Callable[[], str], tokens: Tokens) -> None:
    text = make()
    with pytest.raises(TokenError) as refused:
        tokens.identify(text, "OAUTHBEARER")
    assert text[:40] == "" or text[:40] not in str(refused.value), what


# --- the mechanisms


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("OAUTHBEARER", "n,,\x01auth=Bearer {}\x01\x01"),
        ("OAUTHBEARER", "n,a=alice,\x01host=h\x01port=5671\x01auth=Bearer {}\x01\x01"),
        ("XOAUTH2", "user=alice\x01auth=Bearer {}\x01\x01"),
        ("XOAUTH2", "user=\x01auth=bearer {}\x01\x01"),
    ],
)
def test_messages_with_a_token(mechanism: str, message: str, tokens: Tokens) -> None:
    exchange = with_users(tokens=tokens).begin(mechanism, ListenerTrust(False, True))
    step = exchange.respond(message.format(token()).encode())
    assert isinstance(step, Work)
    accepted = step.run()
    assert isinstance(accepted, Accepted)
    assert (accepted.identity.user, accepted.identity.mechanism) == ("alice", mechanism)
    assert accepted.seconds > 600


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("OAUTHBEARER", "n,a=bob,\x01auth=Bearer {}\x01\x01"),
        ("OAUTHBEARER", "p=tls-unique,,\x01auth=Bearer {}\x01\x01"),
        ("OAUTHBEARER", "n,,\x01auth=Basic {}\x01\x01"),
        ("OAUTHBEARER", "n,,\x01auth=Bearer {}"),
        ("OAUTHBEARER", "n,,\x01auth=Bearer a\x01auth=Bearer {}\x01\x01"),
        ("OAUTHBEARER", "n,,\x01\x01"),
        ("OAUTHBEARER", "{}"),
        ("XOAUTH2", "user=bob\x01auth=Bearer {}\x01\x01"),
        ("XOAUTH2", "auth=Bearer {}\x01\x01"),
        ("XOAUTH2", ""),
    ],
)
def test_messages_that_are_refused(mechanism: str, message: str, tokens: Tokens) -> None:
    exchange = with_users(tokens=tokens).begin(mechanism, ListenerTrust(False, True))
    step = exchange.respond(message.format(token()).encode())
    assert isinstance(step.run() if isinstance(step, Work) else step, Refused)


# --- keys


class Issuer:
    """Publishes keys, and counts who asks."""

    def __init__(self) -> None:
        self.answers: list[bytes | OSError] = [JWKS]
        self.asked = 0
        self.now_s = 1000.0

    def fetch(self, url: str) -> bytes:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def keys(self) -> KeyUrl:
        return KeyUrl("https://id.example.org/keys", self.fetch, lambda: self.now_s)


def test_keys_are_fetched_once_and_again_when_they_are_old() -> None:
    issuer = Issuer()
    keys = issuer.keys()
    for _ in range(5):
        assert keys.find("one", "RS256", RULES.algorithms).key_id == "one"
    assert issuer.asked == 1
    issuer.now_s += FRESH_S + 1
    keys.find("one", "RS256", RULES.algorithms)
    assert issuer.asked == 2


def test_a_new_key_is_asked_for_but_unknown_names_are_no_flood() -> None:
    issuer = Issuer()
    issuer.answers = [JWKS, json.dumps({"keys": [jwk(OTHER, "new")]}).encode()]
    keys = issuer.keys()
    keys.find("one", "RS256", RULES.algorithms)
    for _ in range(100):
        with pytest.raises(jwt.PyJWTError):
            keys.find("new", "RS256", RULES.algorithms)
    assert issuer.asked == 1
    issuer.now_s += AGAIN_S
    assert keys.find("new", "RS256", RULES.algorithms).key_id == "new"
    assert issuer.asked == 2


def test_those_who_ask_while_keys_are_fetched_get_them_too() -> None:
    issuer, begun, goes_on = Issuer(), Event(), Event()

    def slow(url: str) -> bytes:
        begun.set()
        assert goes_on.wait(20)
        return issuer.fetch(url)

    keys = KeyUrl("https://id.example.org/keys", slow, lambda: issuer.now_s)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(keys.find, "one", "RS256", RULES.algorithms)
        assert begun.wait(20)
        second = pool.submit(keys.find, "two", "ES256", RULES.algorithms)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        goes_on.set()
        assert (first.result(20).key_id, second.result(20).key_id) == ("one", "two")
    assert issuer.asked == 1


def test_while_the_issuer_is_away_the_old_keys_hold() -> None:
    issuer = Issuer()
    issuer.answers = [JWKS, OSError("gone"), b"no JSON"]
    keys = issuer.keys()
    for _ in range(3):
        keys.find("one", "RS256", RULES.algorithms)
        issuer.now_s += FRESH_S + 1
    assert issuer.asked == 3
    never = Issuer()
    never.answers = [OSError("gone")]
    with pytest.raises(jwt.PyJWTError):
        never.keys().find("one", "RS256", RULES.algorithms)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b" " * (LARGEST_BYTES + 1),
        b"[" * 100_000,
    ],
)
def test_what_is_no_jwks(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"JWKS|larger"):
        parsed(raw)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be read"):
        KeyFile(tmp_path / "none")
    (tmp_path / "none").write_text("hello")
    with pytest.raises(OperatorError, match="no JWKS"):
        KeyFile(tmp_path / "none")


@pytest.mark.parametrize(
    "url", ["http://id.example.org/keys", "file:///etc/passwd", "ftp://x/y", "https:///keys", "keys"]
)
def test_keys_come_by_https_only(url: str) -> None:
    with pytest.raises(OperatorError):
        check_url(url)


class Answers(BaseHTTPRequestHandler):
    """What an issuer's server may do."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self.send_response(200 if self.path != "/gone" else 500)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(JWKS if self.path != "/large" else b" " * (LARGEST_BYTES + 10))

    def log_message(self, *_: object) -> None:
        pass


def test_keys_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both sides are threads of this process: one that is held for seconds is no issuer that doesn't answer.
    monkeypatch.setattr("broker.security.keys.FETCH_TIMEOUT_S", 60.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        assert KeyUrl(f"{where}/keys").find("one", "RS256", RULES.algorithms).key_id == "one"
        for fault in ("moved", "gone", "large"):
            with pytest.raises(jwt.PyJWTError):
                KeyUrl(f"{where}/{fault}").find("one", "RS256", RULES.algorithms)
        server.shutdown()
    with pytest.raises(jwt.PyJWTError):
        KeyUrl(f"{where}/keys").find("one", "RS256", RULES.algorithms)


def test_this_machine_needs_no_https() -> None:
    assert check_url("http://127.0.0.1:8080/keys")
    assert check_url("https://id.example.org/keys")
