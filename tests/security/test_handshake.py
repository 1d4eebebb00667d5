"""The SASL layer with every mechanism: states, bounds, and that AMQP never begins too early."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.control.sasl import MAX_FRAME, MAX_FRAMES, MAX_TOKEN_FRAME, Handshake
from broker.codec import sasl
from broker.codec.sasl import AMQP_HEADER, AUTH, OK, SASL_HEADER, SYS_TEMP
from broker.security.exchange import Accepted, ListenerTrust, Refused
from broker.security.identity import Identity
from tests.security.exchanges import OPEN, PASSWORD, ScramSide, frames, outcome_of, plain, with_users

LOCAL = ListenerTrust(loopback=True)
AUTHENTICATION = with_users()


def begun(allow_plain: bool = True, **more: object) -> Handshake:
    handshake = Handshake(allow_plain, with_users(**more) if more else AUTHENTICATION, LOCAL)
    handshake.feed(SASL_HEADER)
    return handshake


def work(handshake: Handshake) -> bytes:
    assert handshake.work is not None
    return handshake.resume(handshake.work.run())


def test_scram_to_the_first_byte_of_amqp() -> None:
    handshake, client = begun(), ScramSide("alice")
    [(code, [challenge])] = frames(handshake.feed(sasl.init("SCRAM-SHA-256", client.first(), "host")))
    assert (code, handshake.state) == (sasl.CHALLENGE, "response")
    assert challenge is not None
    said = handshake.feed(sasl.response(client.final(challenge)))
    [(code, [_, final])] = frames(said)
    assert (code, outcome_of(said)) == (sasl.OUTCOME, OK)
    assert final is not None
    client.check(final)
    assert not handshake.done
    assert handshake.feed(AMQP_HEADER + OPEN) == b""
    assert (handshake.done, handshake.rest) == (True, AMQP_HEADER + OPEN)
    assert handshake.identity == Identity("alice", frozenset({"writers"}), "SCRAM-SHA-256")


def test_an_init_without_a_response_is_asked_for_one() -> None:
    handshake = begun()
    assert frames(handshake.feed(sasl.init("PLAIN", None))) == [(sasl.CHALLENGE, [b""])]
    handshake.feed(sasl.response(plain("alice")))
    assert outcome_of(work(handshake)) == OK


def test_what_is_sent_too_early_waits_for_the_outcome() -> None:
    """A client may not wait for our answers (§2.2); nothing of AMQP begins before they are given."""
    handshake = Handshake(False, AUTHENTICATION, LOCAL)
    sent = SASL_HEADER + sasl.init("PLAIN", plain("alice")) + AMQP_HEADER + OPEN
    handshake.feed(sent)
    assert (handshake.done, handshake.state) == (False, "working")
    assert outcome_of(work(handshake)) == OK
    assert (handshake.done, handshake.rest) == (True, AMQP_HEADER + OPEN)


def test_a_refusal_ends_it_whatever_was_sent_already() -> None:
    handshake = Handshake(True, AUTHENTICATION, LOCAL)
    handshake.feed(SASL_HEADER + sasl.init("PLAIN", plain("alice", "no")) + AMQP_HEADER + OPEN)
    assert outcome_of(work(handshake)) == AUTH
    assert (handshake.done, bool(handshake.failed), handshake.identity) == (False, True, None)
    assert handshake.is_guess
    assert handshake.feed(AMQP_HEADER + OPEN) == b""
    assert not handshake.done


def test_no_sasl_is_no_way_round() -> None:
    handshake = Handshake(True, AUTHENTICATION, LOCAL)
    assert handshake.feed(AMQP_HEADER + OPEN) == SASL_HEADER
    assert (handshake.done, bool(handshake.failed)) == (False, True)


def test_where_nobody_can_come_in_nothing_is_offered() -> None:
    handshake = Handshake(True, with_users(users=None), ListenerTrust(loopback=False))
    assert handshake.feed(SASL_HEADER) == SASL_HEADER
    assert handshake.failed.startswith("nobody can authenticate here")


def test_an_address_that_has_to_wait_is_told_so_and_not_looked_at() -> None:
    handshake = Handshake(True, AUTHENTICATION, LOCAL, lambda: 2000)
    handshake.feed(SASL_HEADER)
    said = handshake.feed(sasl.init("PLAIN", plain("alice")))
    assert (outcome_of(said), handshake.work, handshake.is_guess) == (SYS_TEMP, None, False)
    assert "2000 ms" in handshake.failed


def test_the_wait_begins_while_an_exchange_is_under_way() -> None:
    """Many connections, opened before the first guess, are worth no more guesses."""
    pause = [0]
    handshake = Handshake(True, AUTHENTICATION, LOCAL, lambda: pause[0])
    handshake.feed(SASL_HEADER)
    client = ScramSide("alice")
    [(_, [challenge])] = frames(handshake.feed(sasl.init("SCRAM-SHA-256", client.first())))
    assert challenge is not None
    pause[0] = 1
    assert outcome_of(handshake.feed(sasl.response(client.final(challenge)))) == SYS_TEMP


@pytest.mark.parametrize(
    ("what", "came"),
    [
        ("an init again", sasl.init("PLAIN", plain("alice"))),
        ("an outcome of its own", sasl.outcome(OK)),
        ("a challenge", sasl.challenge(b"")),
        ("AMQP's header", AMQP_HEADER),
        ("an open", OPEN),
        ("SASL's header again", SASL_HEADER),
        ("a response without fields", b"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x43\x45"),
    ],
)
def test_what_cannot_follow_a_challenge(what: str, came: bytes) -> None:
    handshake = begun()
    handshake.feed(sasl.init("SCRAM-SHA-256", ScramSide("alice").first()))
    assert outcome_of(handshake.feed(came)) == AUTH, what
    assert handshake.failed, what


@pytest.mark.parametrize("came", [sasl.response(b""), sasl.init("PLAIN", b""), SASL_HEADER, OPEN])
def test_sasl_after_the_outcome_goes_nowhere(came: bytes) -> None:
    handshake = begun()
    handshake.feed(sasl.init("PLAIN", plain("alice")))
    work(handshake)
    assert handshake.feed(came) == AMQP_HEADER
    assert (bool(handshake.failed), handshake.done) == (True, False)


def test_frames_are_few_and_small() -> None:
    handshake = begun()
    for _ in range(MAX_FRAMES):
        handshake.feed(sasl.init("PLAIN", None) if not handshake.mechanism else b"")
    assert not handshake.failed
    large = begun()
    assert outcome_of(large.feed(sasl.init("PLAIN", b"x" * MAX_FRAME))) == AUTH
    assert large.failed == "malformed SASL frame"
    token = begun(tokens=object())
    token.feed(sasl.init("OAUTHBEARER", b"x" * (MAX_TOKEN_FRAME - 100)))
    assert token.failed == "OAUTHBEARER: malformed"
    huge = begun(tokens=object())
    huge.feed(sasl.init("OAUTHBEARER", b"x" * MAX_TOKEN_FRAME))
    assert huge.failed == "malformed SASL frame"


def test_mechanisms_that_are_not_offered_are_refused_though_they_are_known() -> None:
    for name in ("SCRAM-SHA-1", "EXTERNAL", "ANONYMOUS", "OAUTHBEARER", "SCRAM-SHA-256-PLUS", "CRAM-MD5"):
        handshake = begun(mechanisms=("SCRAM-SHA-256", "PLAIN", "EXTERNAL", "ANONYMOUS"))
        assert outcome_of(handshake.feed(sasl.init(name, b""))) == AUTH
        assert f"{name!r} is not offered" in handshake.failed


def test_an_unknown_user_sees_the_same_frames() -> None:
    """The same frames of the same sizes, but for what is random or the client's own."""

    def sizes(user: str, mechanism: str) -> list[tuple[int, int]]:
        handshake = begun()
        said = b""
        if mechanism == "PLAIN":
            handshake.feed(sasl.init("PLAIN", plain(user, "wrong")))
            said += work(handshake)
        else:
            client = ScramSide(user, "wrong", mechanism)
            said = handshake.feed(sasl.init(mechanism, client.first()))
            [(_, [challenge])] = frames(said)
            assert challenge is not None
            said += handshake.feed(sasl.response(client.final(challenge)))
        return [(code, sum(len(value or b"") for value in values)) for code, values in frames(said)]

    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1"):
        assert sizes("alice", mechanism) == sizes("nobdy", mechanism)


def test_the_reason_for_the_log_has_no_password() -> None:
    handshake = begun()
    handshake.feed(sasl.init("PLAIN", plain("alice", PASSWORD + "x")))
    work(handshake)
    assert PASSWORD not in handshake.failed


def test_symbolic_descriptors_are_read_too() -> None:
    handshake = begun()
    usual = sasl.init("PLAIN", plain("alice"))
    name = b"amqp:sasl-init:list"
    body = b"\x00\xa3" + bytes((len(name),)) + name + usual[11:]
    handshake.feed((len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body)
    assert handshake.work is not None


PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            SASL_HEADER,
            AMQP_HEADER,
            OPEN,
            sasl.init("PLAIN", None),
            sasl.init("PLAIN", plain("alice", "wrong")),
            sasl.init("SCRAM-SHA-256", b"n,,n=alice,r=abc"),
            sasl.response(b"c=biws,r=abc,p=AAAA"),
            sasl.response(b""),
            sasl.outcome(OK),
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(came=st.lists(PIECES, max_size=12), refuse=st.booleans())
def test_whatever_comes_amqp_begins_only_for_who_was_accepted(came: list[bytes], refuse: bool) -> None:
    handshake = Handshake(True, AUTHENTICATION, LOCAL)
    accepted = False
    for data in came:
        if handshake.failed or handshake.done:
            break
        handshake.feed(data)
        if handshake.work is not None:
            accepted = not refuse
            identity = Identity("alice")
            handshake.resume(Refused("no") if refuse else Accepted(identity))
        assert handshake.failed or len(handshake.rest) <= 40 + MAX_FRAME
    assert not handshake.done or accepted
