"""Our client's side of a login, and that no password is shown on the way to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.terminal import arguments
from broker.client.login import LoginError, LoginExchange
from broker.client.url import parse, without_login
from broker.codec.scram import MOST_ITERATIONS
from broker.errors import OperatorError
from broker.security.exchange import Accepted, Challenge, ListenerTrust
from tests.security.exchanges import PASSWORD, with_users


def test_scram_comes_before_plain() -> None:
    def chosen(*offered: str) -> str | None:
        found = LoginExchange("alice", PASSWORD).choose(offered)
        return None if found is None else found[0]

    assert chosen("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1") == "SCRAM-SHA-256"
    assert chosen("PLAIN", "SCRAM-SHA-512") == "SCRAM-SHA-512"
    assert chosen("SCRAM-SHA-1", "PLAIN") == "SCRAM-SHA-1"
    assert chosen("ANONYMOUS", "PLAIN") == "PLAIN"
    assert chosen("ANONYMOUS", "EXTERNAL", "SCRAM-SHA-256-PLUS") is None


def begun() -> tuple[LoginExchange, bytes, object]:
    login = LoginExchange("alice", PASSWORD)
    chosen = login.choose(["SCRAM-SHA-256"])
    assert chosen is not None
    server = with_users().begin("SCRAM-SHA-256", ListenerTrust(loopback=True))
    challenge = server.respond(chosen[1])
    assert isinstance(challenge, Challenge)
    return login, challenge.data, server.respond(login.respond(challenge.data))


def test_the_broker_has_to_prove_itself() -> None:
    login, _, accepted = begun()
    assert isinstance(accepted, Accepted)
    login.finish(accepted.data)


def test_some_brokers_prove_themselves_in_a_challenge() -> None:
    login, _, accepted = begun()
    assert isinstance(accepted, Accepted)
    assert login.respond(accepted.data) == b""
    login.finish(b"")


@pytest.mark.parametrize("proof", [b"", b"v=AAAA", b"e=other-error", b"\xff"])
def test_one_that_does_not_is_refused(proof: bytes) -> None:
    login, _, _ = begun()
    with pytest.raises(LoginError):
        login.finish(proof)


def test_one_that_lets_us_in_at_once_is_refused() -> None:
    login = LoginExchange("alice", PASSWORD)
    login.choose(["SCRAM-SHA-256"])
    with pytest.raises(LoginError):
        login.finish(b"")


@pytest.mark.parametrize(
    "change", [("i=4096", "i=1"), ("i=4096", f"i={MOST_ITERATIONS + 1}"), ("r=", "r=x"), (",s=", ",t=")]
)
def test_challenges_that_make_no_sense(change: tuple[str, str]) -> None:
    login = LoginExchange("alice", PASSWORD)
    chosen = login.choose(["SCRAM-SHA-256"])
    assert chosen is not None
    step = with_users().begin("SCRAM-SHA-256", ListenerTrust(loopback=True)).respond(chosen[1])
    assert isinstance(step, Challenge)
    with pytest.raises(LoginError):
        login.respond(step.data.decode().replace(*change).encode())


def test_plain_answers_nothing_more() -> None:
    login = LoginExchange("alice", PASSWORD)
    assert login.choose(["PLAIN"]) == ("PLAIN", f"\0alice\0{PASSWORD}".encode())
    with pytest.raises(LoginError):
        login.respond(b"more?")
    login.finish(b"")


# --- addresses


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("SLUICE_USER", "SLUICE_PASSWORD", "SLUICE_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_user_and_password_come_from_the_environment(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert arguments.with_login("amqp://h:1") == "amqp://h:1"
    environment.setenv("SLUICE_USER", "a@b/c")
    assert parse(arguments.with_login("h:1")).user == "a@b/c"
    file = tmp_path / "password"
    file.write_bytes("p@ss:/wörd \r\nsecond line\n".encode())
    environment.setenv("SLUICE_PASSWORD_FILE", str(file))
    found = parse(arguments.with_login("amqps://h"))
    assert (found.scheme, found.host, found.user, found.password) == ("amqps", "h", "a@b/c", "p@ss:/wörd ")
    environment.setenv("SLUICE_PASSWORD", "other")
    assert parse(arguments.with_login("amqp://h")).password == "other"
    assert parse(arguments.with_login("amqp://carl@h")).user == "carl"
    assert parse(arguments.with_login("amqp://carl@h")).password == "other"
    assert arguments.with_login("amqp://carl:own@h") == "amqp://carl:own@h"


def test_a_password_file_that_is_none(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("SLUICE_USER", "alice")
    environment.setenv("SLUICE_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(OperatorError, match="cannot be read"):
        arguments.with_login("amqp://h")


@pytest.mark.parametrize(
    "url", ["amqp://a:hunter2@h:x", "amqp://a:hunter2@h/path", "http://a:hunter2@h", "amqp://a:hun@ter2@h/x"]
)
def test_an_address_at_fault_is_told_without_its_password(url: str) -> None:
    with pytest.raises(OperatorError) as refused:
        parse(url)
    assert "hunter2" not in str(refused.value)
    assert "ter2" not in str(refused.value)


def test_an_address_is_shown_without_who_logs_in() -> None:
    for show in (arguments.shown, without_login):
        assert show("amqp://a:p@h:1") == "amqp://h:1"
        assert show("h:1") == "h:1"
        assert show("a:p@h:1") == "h:1"
    assert str(parse("amqp://a:p@h:1")) == "amqp://h:1"
    assert "p4ss" not in repr(parse("amqp://a:p4ss@h:1"))
