"""Other users and settings while clients are there, or on their way in: who stays, and who has to go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Queue
from threading import Event
from types import SimpleNamespace
from typing import cast

import pytest

from broker.amqp.control.live import LiveConnection
from broker.amqp.control.sasl import Handshake
from broker.amqp.loop.admission import Admission
from broker.codec import sasl
from broker.codec.sasl import AMQP_HEADER, SASL_HEADER
from broker.config.security import USUAL, Security
from broker.security.authentication import Authentication
from broker.security.exchange import Accepted, ListenerTrust, Refused, Work
from broker.security.identity import ANONYMOUS, BROKER, Identity
from broker.security.keys import Keys
from broker.security.tokens import TokenRules, Tokens
from broker.security.users import Users
from tests.security.exchanges import a_user

HERE, OWN = ListenerTrust(loopback=True), ListenerTrust(own=True)
BY_CERTIFICATE = ListenerTrust(loopback=True, secure=True, external_user="cert")
NOBODY = Identity("anonymous", mechanism="ANONYMOUS")
CERTIFICATE = Identity("cert", frozenset({"old"}), "EXTERNAL")
TOKEN = Identity("tom", frozenset({"ops"}), "OAUTHBEARER")
PASSWORD = Identity("alice", frozenset({"old"}), "SCRAM-SHA-256")
USERS = Users({name: a_user(name, groups=frozenset({"new"})) for name in ("alice", "cert")})


def tokens(issuer: str = "me") -> Tokens:
    return Tokens(TokenRules(issuer, ("sluice",)), cast("Keys", None))


BEFORE = Authentication(USERS, tokens(), anonymous=True)


@dataclass
class There:
    """A connection, as far as its admission is concerned."""

    identity: Identity
    door: ListenerTrust = HERE
    told: list[str] = field(default_factory=list)

    def close(self, condition: str, text: str) -> None:
        self.told.append(f"{condition}: {text}")


def after(there: There, authentication: Authentication) -> str:
    """What a connection is told when these settings take the place of the others; empty where it stays."""
    admission = Admission(BEFORE)
    try:
        admission.reload(authentication, Security(), [cast("LiveConnection", there)])
    finally:
        admission.stop()
    return "".join(there.told)


@pytest.mark.parametrize(
    ("identity", "door"),
    [(NOBODY, HERE), (ANONYMOUS, HERE), (CERTIFICATE, BY_CERTIFICATE), (TOKEN, HERE), (BROKER, OWN)],
)
def test_where_nothing_else_holds_everybody_stays(identity: Identity, door: ListenerTrust) -> None:
    there = There(identity, door)
    assert after(there, Authentication(USERS, tokens(), anonymous=True, plain_without_tls=True)) == ""
    assert there.identity.user == identity.user


@pytest.mark.parametrize(("identity", "how"), [(NOBODY, "ANONYMOUS"), (ANONYMOUS, "without SASL")])
@pytest.mark.parametrize("anonymous", [None, False])
def test_nobody_stays_where_nobody_is_let_in(identity: Identity, how: str, anonymous: bool | None) -> None:
    told = after(There(identity), Authentication(USERS, anonymous=anonymous))
    assert told.startswith("amqp:unauthorized-access: 'anonymous' is let in no more by ")
    assert how in told


def test_a_mechanism_that_is_taken_out_takes_its_own_with_it() -> None:
    few = tuple(name for name in USUAL if name not in ("EXTERNAL", "ANONYMOUS", "OAUTHBEARER"))
    without = Authentication(USERS, tokens(), True, few, plain_without_tls=True)
    assert "by EXTERNAL" in after(There(CERTIFICATE, BY_CERTIFICATE), without)
    assert "by ANONYMOUS" in after(There(NOBODY), without)
    assert "by OAUTHBEARER" in after(There(TOKEN), without)
    assert after(There(BROKER, OWN), without) == ""
    assert after(There(ANONYMOUS), without) == "", "without SASL there is no mechanism"


def test_groups_are_those_of_now() -> None:
    for there in (There(CERTIFICATE, BY_CERTIFICATE), There(PASSWORD)):
        assert after(there, BEFORE) == ""
        assert there.identity.groups == {"new"}


@pytest.mark.parametrize("believed", [None, tokens("another")])
def test_tokens_of_an_issuer_that_is_believed_no_more(believed: Tokens | None) -> None:
    now = Authentication(USERS, believed, anonymous=True, plain_without_tls=True)
    assert "'tom' is let in no more by OAUTHBEARER" in after(There(TOKEN), now)
    assert after(There(PASSWORD), now) == ""


@pytest.mark.parametrize(("issuer", "arrives"), [("me", True), ("another", False)])
def test_a_token_on_its_way_in(issuer: str, arrives: bool) -> None:
    """The exchange began while its issuer was believed, and ends behind the reload."""
    admission = Admission(Authentication(tokens=tokens(), plain_without_tls=True))
    try:
        handshake = admission.handshake("192.0.2.1", False, HERE, lambda: 0)
        handshake.feed(SASL_HEADER + sasl.init("OAUTHBEARER", b"n,,\x01auth=Bearer x\x01\x01"))
        now = Authentication(tokens=tokens(issuer), plain_without_tls=True)
        admission.reload(now, Security(), [])
        handshake.resume(Accepted(TOKEN))
        handshake.feed(AMQP_HEADER)
        assert handshake.done
        assert (admission.arrived(handshake) is not None) == arrives
    finally:
        admission.stop()


def test_a_slow_issuer_holds_up_no_password() -> None:
    admission, goes_on, done = Admission(BEFORE), Event(), Queue[Accepted | Refused]()

    def begin(mechanism: str, run: Callable[[], Accepted]) -> None:
        handshake = cast("Handshake", SimpleNamespace(mechanism=mechanism, work=Work(run)))
        admission.work(handshake, "10.0.0.1:5", lambda: 0, lambda function: function(), done.put)

    def slow() -> Accepted:
        assert goes_on.wait(20)
        return Accepted(TOKEN)

    try:
        begin("OAUTHBEARER", slow)
        begin("PLAIN", lambda: Accepted(PASSWORD))
        assert done.get(timeout=20) == Accepted(PASSWORD)
        goes_on.set()
        assert done.get(timeout=20) == Accepted(TOKEN)
    finally:
        goes_on.set()
        admission.stop()
