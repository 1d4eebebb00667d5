"""The connector's side of a login: frames as the broker writes them, and what is none of SASL's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec import sasl as theirs
from broker.security.exchange import Accepted, Challenge, ListenerTrust
from pyspark_sluice import dial, sasl
from pyspark_sluice.errors import LoginError
from pyspark_sluice.kinds import Broker
from pyspark_sluice.options import MECHANISMS, parse
from tests.security.exchanges import PASSWORD, with_users

BINARY = st.binary(max_size=600)
NAMES = st.lists(st.text("ABCDEFGHIJ-", min_size=1, max_size=20), min_size=1, max_size=9)


@given(NAMES, BINARY, st.integers(0, 255), BINARY)
def test_frames_of_the_broker_are_read(names: list[str], asked: bytes, code: int, more: bytes) -> None:
    assert sasl.read(theirs.mechanisms(tuple(names))[8:]) == (sasl.MECHANISMS, [" ".join(names).encode()])
    assert sasl.read(theirs.challenge(asked)[8:]) == (sasl.CHALLENGE, [asked])
    assert sasl.read(theirs.outcome(code)[8:]) == (sasl.OUTCOME, [bytes((code,))])
    expected = [bytes((code,)), more] if more else [bytes((code,))]
    assert sasl.read(theirs.outcome(code, more)[8:]) == (sasl.OUTCOME, expected)


@given(st.sampled_from(MECHANISMS), BINARY)
def test_the_broker_reads_frames_of_the_connector(name: str, first: bytes) -> None:
    for frame, code, fields in (
        (sasl.init(name, first), theirs.INIT, [name.encode(), first]),
        (sasl.response(first), theirs.RESPONSE, [first]),
    ):
        assert int.from_bytes(frame[:4], "big") == len(frame)
        found = theirs.performative(frame[8:])
        assert found is not None
        assert (found[0], [theirs.binary(frame[8:], place) for place in found[1]]) == (code, fields)


def test_one_mechanism_need_be_no_array() -> None:
    assert sasl.read(b"\x00\x53\x40\xc0\x08\x01\xa3\x05PLAIN") == (sasl.MECHANISMS, [b"PLAIN"])


@given(st.binary(max_size=60))
def test_any_other_bytes_are_refused_or_read(body: bytes) -> None:
    try:
        code, fields = sasl.read(b"\x00\x53" + body)
    except LoginError:
        return
    assert isinstance(code, int)
    assert all(isinstance(field, bytes) for field in fields)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\x00", b"\x00\x53\x44", b"\x40", b"\x00\x40\x45", b"\x00\x53\x44\x40"),
        # A field that is a map, one that is a number beyond a byte, one that is cut off.
        *(b"\x00\x53\x44\xc0\x04\x01\xc1\x01\x00", b"\x00\x53\x44\xc0\x04\x01\x60\x01\x00"),
        b"\x00\x53\x44\xc0\x08\x01\xa3\x09PLAIN",
    ],
)
def test_malformed_frames(body: bytes) -> None:
    with pytest.raises(LoginError):
        sasl.read(body)


@pytest.mark.parametrize("name", ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"])
@pytest.mark.parametrize("in_challenge", [False, True])
def test_a_login_with_scram(name: str, in_challenge: bool) -> None:
    login = sasl.Login("alice", PASSWORD)
    first = fields_of(login.choose([name, "PLAIN"], MECHANISMS, certificate=False))
    assert first[0] == name.encode()
    server = with_users().begin(name, ListenerTrust(loopback=True))
    challenge = server.respond(first[1])
    assert isinstance(challenge, Challenge)
    accepted = server.respond(fields_of(login.respond(challenge.data))[0])
    assert isinstance(accepted, Accepted)
    if in_challenge:
        assert fields_of(login.respond(accepted.data)) == [b""]
        login.finish(0, b"")
    else:
        login.finish(0, accepted.data)


def test_a_broker_that_proves_nothing_is_refused() -> None:
    login = sasl.Login("alice", PASSWORD)
    login.choose(["SCRAM-SHA-256"], MECHANISMS, certificate=False)
    with pytest.raises(LoginError, match="prove"):
        login.finish(0, b"v=AAAA")
    with pytest.raises(LoginError, match="SCRAM is wrong"):
        login.respond(b"r=x,s=AAAA,i=4096")


def test_a_login_with_a_token() -> None:
    offered = ["SCRAM-SHA-256", "OAUTHBEARER", "PLAIN"]
    for user, name in ((None, b""), ("a,b=c", b"a=a=2Cb=3Dc")):
        login = sasl.Login(user, None, "x.y.z")
        first = fields_of(login.choose(offered, MECHANISMS, certificate=False))
        assert first == [b"OAUTHBEARER", b"n," + name + b",\x01auth=Bearer x.y.z\x01\x01"]
        with pytest.raises(LoginError, match="the token is not taken"):
            login.finish(1, b"")
        with pytest.raises(LoginError, match="the broker refused the token"):
            login.respond(b'{"status":"invalid_token"}')
    with pytest.raises(LoginError, match=r"PLAIN; possible here .*, with a token"):
        sasl.Login(None, None, "x.y.z").choose(["PLAIN"], MECHANISMS, certificate=False)
    for wrong in ("", "x y", "x\x01y", "é"):
        with pytest.raises(LoginError, match="the token is empty, or has"):
            sasl.bearer(None, wrong)


def test_a_secret_is_sent_as_it_is_only_where_nobody_listens() -> None:
    options = parse({"url": "amqp://broker.example.org"}, "sink")
    for scheme, host, expected in (
        ("amqp", "broker.example.org", set()),
        ("amqps", "broker.example.org", dial.AS_IT_IS),
        ("amqp", "127.0.0.1", dial.AS_IT_IS),
    ):
        assert dial.AS_IT_IS & set(dial.allowed(Broker(scheme, host, 5671), options)) == expected


def fields_of(frame: bytes) -> list[bytes]:
    return sasl.read(frame[8:])[1]
