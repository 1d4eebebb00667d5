"""Each mechanism's exchange: who is let in, who is refused, and that refusals tell nothing."""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64decode
from dataclasses import replace

import pytest

from broker.config.security import MECHANISMS
from broker.security.authentication import Authentication
from broker.security.exchange import Accepted, Challenge, Exchange, ListenerTrust, Refused, Step, Work
from broker.security.identity import BROKER, Identity
from broker.security.users import FEWEST, User, Users, is_name
from tests.security.exchanges import PASSWORD, ScramSide, a_user, plain, some_users, with_users

LOCAL = ListenerTrust(loopback=True)
SCRAMS = ("SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512")


def worked(step: Step) -> Step:
    return step.run() if isinstance(step, Work) else step


def begun(mechanism: str, door: ListenerTrust = LOCAL, **settings: object) -> Exchange:
    return with_users(**settings).begin(mechanism, door)


# --- what is offered


@pytest.mark.parametrize(
    ("what", "settings", "door", "offered"),
    [
        ("loopback, nothing configured", {"users": None}, ListenerTrust(True), ["ANONYMOUS"]),
        ("elsewhere, nothing configured", {"users": None}, ListenerTrust(False), []),
        ("elsewhere, if it is said", {"users": None, "anonymous": True}, ListenerTrust(False), ["ANONYMOUS"]),
        ("nobody, if it is said", {"users": None, "anonymous": False}, ListenerTrust(True), []),
        ("with users nobody is anonymous", {}, ListenerTrust(True), ["SCRAM-SHA-512", "SCRAM-SHA-256"]),
        ("PLAIN over TLS", {}, ListenerTrust(False, True), ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]),
        (
            "a certificate",
            {"users": None},
            ListenerTrust(False, True, "device"),
            ["EXTERNAL"],
        ),
        (
            "tokens over TLS",
            {"users": None, "tokens": object()},
            ListenerTrust(False, True),
            ["OAUTHBEARER", "XOAUTH2"],
        ),
        ("no tokens without TLS", {"users": None, "tokens": object()}, ListenerTrust(False), []),
        ("for old clients", {"mechanisms": ("SCRAM-SHA-1", "PLAIN")}, ListenerTrust(True), ["SCRAM-SHA-1"]),
        ("the broker's own routes", {"anonymous": False}, ListenerTrust(own=True), ["ANONYMOUS"]),
    ],
)
def test_what_is_offered(
    what: str, settings: dict[str, object], door: ListenerTrust, offered: list[str]
) -> None:
    given = {"users": some_users()} | settings
    found = Authentication(**given).offered(door)  # type: ignore[arg-type]
    assert list(found) == offered, what


def test_every_mechanism_can_begin() -> None:
    tokens = object()
    mine = with_users(tokens=tokens)
    for name in MECHANISMS:
        assert mine.begin(name, ListenerTrust(True, True, "device")) is not None


def test_the_broker_is_somebody_no_user_can_be() -> None:
    step = begun("ANONYMOUS", ListenerTrust(own=True)).respond(None)
    assert step == Accepted(BROKER)
    assert not is_name(BROKER.user)


# --- SCRAM


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram(mechanism: str) -> None:
    client, server = ScramSide("alice", mechanism=mechanism), begun(mechanism)
    assert server.respond(None) == Challenge(b"")
    challenge = server.respond(client.first())
    assert isinstance(challenge, Challenge)
    accepted = server.respond(client.final(challenge.data))
    assert isinstance(accepted, Accepted)
    assert accepted.identity == Identity("alice", frozenset({"writers"}), mechanism)
    client.check(accepted.data)


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("device", "")])
def test_scram_refuses_alike(mechanism: str, user: str, password: str) -> None:
    users = {"alice": a_user("alice"), "device": User("device")}
    client = ScramSide(user, password or PASSWORD, mechanism)
    server = begun(mechanism, users=Users(users, b"s" * 32, FEWEST))
    challenge = server.respond(client.first())
    assert isinstance(challenge, Challenge)
    fields = dict(part.split("=", 1) for part in challenge.data.decode().split(","))
    assert (len(b64decode(fields["s"])), fields["i"]) == (16, str(FEWEST))
    refused = server.respond(client.final(challenge.data))
    whom = repr(user) if user in users else "somebody unknown"
    assert refused == Refused(f"{mechanism} for {whom}: no such user, or the proof is wrong")


def test_a_proof_with_a_decoys_own_keys_is_refused() -> None:
    """Even who knew the decoy's stored key would be nobody."""
    users = some_users()
    decoy = users.verifier("nobody", "SCRAM-SHA-256")
    assert decoy == users.verifier("nobody", "SCRAM-SHA-256")
    assert decoy != users.verifier("nobody2", "SCRAM-SHA-256")
    again = some_users().verifier("nobody", "SCRAM-SHA-256")
    assert again == decoy, "the same after a restart"
    assert hashlib.sha256(decoy.stored_key).digest() != decoy.stored_key


def test_decoys_cost_what_most_users_cost() -> None:
    users = {name: a_user(name) for name in ("a", "b")}
    assert Users(users, b"s", 70_000).verifier("nobody", "SCRAM-SHA-512").iterations == FEWEST
    assert Users({}, b"s", 70_000).verifier("nobody", "SCRAM-SHA-512").iterations == 70_000


@pytest.mark.parametrize(
    ("what", "first"),
    [
        ("empty", b""),
        ("no text", b"\xff\xfe"),
        ("no SCRAM", b"hello"),
        ("channel binding, which isn't offered", b"p=tls-unique,,n=alice,r=abc"),
        ("another's name", b"n,a=bob,n=alice,r=abc"),
        ("its own name as another's", b"n,a=alice,n=alice,r=abc"),
        ("no nonce", b"n,,n=alice"),
        ("an extension", b"n,,m=x,n=alice,r=abc"),
        ("a name that is none", b"n,,n=a\x07b,r=abc"),
        ("too long", b"n,,n=alice,r=" + b"a" * 2000),
    ],
)
def test_scram_first_messages_that_are_refused(what: str, first: bytes) -> None:
    assert isinstance(begun("SCRAM-SHA-256").respond(first), Refused), what


@pytest.mark.parametrize("change", ["nonce", "proof", "binding", "cut", "empty", "first again"])
def test_scram_final_messages_that_are_refused(change: str) -> None:
    client, server = ScramSide("alice"), begun("SCRAM-SHA-256")
    first = client.first()
    challenge = server.respond(first)
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.data)
    changed = {
        "nonce": final.replace(b",r=", b",r=x", 1),
        "proof": final[:-8] + b"AAAAAAA=",
        "binding": final.replace(b"c=biws", b"c=eSws", 1),
        "cut": final[: len(final) // 2],
        "empty": b"",
        "first again": first,
    }[change]
    assert isinstance(server.respond(changed), Refused)
    assert isinstance(server.respond(final), Refused), "one attempt an exchange"


# --- PLAIN


def test_plain_is_work_for_another_thread() -> None:
    step = begun("PLAIN").respond(plain("alice"))
    assert isinstance(step, Work)
    accepted = step.run()
    assert accepted == Accepted(Identity("alice", frozenset({"writers"}), "PLAIN"))
    assert begun("PLAIN").respond(None) == Challenge(b"")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("wrong password", plain("alice", "wrong")),
        ("unknown user", plain("nobody")),
        ("no password", plain("alice", "")),
        ("no user", plain("", PASSWORD)),
        ("a user that has no password", plain("device", PASSWORD)),
        ("another's name", plain("alice", other="proxy")),
        ("one NUL", b"alice\0secret"),
        ("four NULs", plain("alice", PASSWORD + "\0x")),
        ("not UTF-8", b"\0alice\0\xff"),
        ("a password that is none", plain("alice", "a\u0007b")),
        ("a name longer than any", plain("\u00e4" * 4000)),
        ("another's name longer than any", plain("alice", other="\u00e4" * 4000)),
    ],
)
def test_plain_refuses(what: str, message: bytes) -> None:
    users = {"alice": a_user("alice"), "proxy": a_user("proxy"), "device": User("device")}
    step = worked(begun("PLAIN", users=Users(users, b"s", FEWEST)).respond(message))
    assert isinstance(step, Refused), what
    assert PASSWORD not in step.reason
    assert "wrong" not in message.decode("latin1") or "'wrong'" not in step.reason


def test_who_may_act_as_somebody_else_does() -> None:
    step = worked(begun("PLAIN").respond(plain("proxy", other="alice")))
    assert step == Accepted(Identity("alice", frozenset({"writers"}), "PLAIN", proved="proxy"))
    step = worked(begun("PLAIN").respond(plain("alice", other="alice")))
    assert isinstance(step, Accepted)
    assert worked(begun("PLAIN").respond(plain("proxy", other="bob"))) == Refused(
        "'proxy' may not act as 'bob'", is_guess=False
    )


def test_a_name_that_is_too_long_is_no_work() -> None:
    assert isinstance(begun("PLAIN").respond(plain("\u00e4" * 4000)), Refused)


def test_an_unknown_user_costs_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same hash, as many times: counted, not timed."""
    done: list[tuple[str, int]] = []
    real = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        done.append((name, iterations))
        return real(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    users = some_users()
    for user in ("alice", "nobody", "x" * 255, "\u0627a"):
        done.clear()
        assert users.verify(user, "wrong") is None
        assert done == [("sha256", FEWEST)], user


def test_proofs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    real = hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert some_users().verify("nobody", "wrong") is None
    assert compared == [32]


# --- EXTERNAL


def test_external() -> None:
    door = ListenerTrust(False, True, "alice")
    accepted = begun("EXTERNAL", door).respond(None)
    assert accepted == Accepted(Identity("alice", frozenset({"writers"}), "EXTERNAL"))
    assert begun("EXTERNAL", door).respond(b"alice") == accepted
    lasting = begun("EXTERNAL", replace(door, external_until_s=time.time() + 60)).respond(None)
    assert isinstance(lasting, Accepted)
    assert 0 < lasting.seconds <= 60
    over = begun("EXTERNAL", replace(door, external_until_s=time.time() - 1)).respond(None)
    assert over == Refused("EXTERNAL: the certificate has expired", is_guess=False)
    assert isinstance(begun("EXTERNAL", door).respond(b"bob"), Refused)
    assert isinstance(begun("EXTERNAL", door).respond(b"\xff"), Refused)
    stranger = begun("EXTERNAL", ListenerTrust(False, True, "CN=device 7")).respond(b"")
    assert stranger == Accepted(Identity("CN=device 7", frozenset(), "EXTERNAL"))
    acting = begun("EXTERNAL", ListenerTrust(False, True, "proxy")).respond(b"alice")
    assert acting == Accepted(Identity("alice", frozenset({"writers"}), "EXTERNAL", proved="proxy"))
