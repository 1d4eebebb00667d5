"""The client's side of SCRAM: the RFCs' own exchanges, and scramp on the other side of any other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as Reference  # type: ignore[import-untyped]
from scramp import ScramMechanism

from broker.codec.scram import HASHES, MOST_ITERATIONS, ScramClient, ScramError

ROUNDS = 4096
TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)


def test_the_exchange_of_rfc_5802() -> None:
    client = ScramClient("SCRAM-SHA-1", "user", "pencil", nonce="fyko+d2lbbFgONRv9qkxdawL")
    assert client.first() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    asked = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    assert client.answer(asked) == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    client.check(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")
    assert client.proved


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    asked = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.answer(asked) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert client.proved


@given(st.sampled_from(sorted(HASHES)), TEXT, TEXT)
def test_another_implementation_says_the_same(mechanism: str, user: str, password: str) -> None:
    scheme = ScramMechanism(mechanism)
    kept = scheme.make_auth_info(password, iteration_count=ROUNDS, salt=b"a salt of its own")
    server = scheme.make_server(lambda name: kept)
    client = ScramClient(mechanism, user, password)
    reference = Reference([mechanism], user, password, c_nonce=client.first().rpartition(b"r=")[2].decode())
    assert client.first() == reference.get_client_first().encode()
    server.set_client_first(client.first().decode())
    asked = server.get_server_first()
    reference.set_server_first(asked)
    final = client.answer(asked.encode())
    assert final == reference.get_client_final().encode()
    server.set_client_final(final.decode())
    client.check(server.get_server_final().encode())
    assert client.proved


GOOD = "r=abcd,s=c2FsdHNhbHRzYWx0,i=4096"


@pytest.mark.parametrize(
    "asked",
    [
        *("", "r=abcd", "s=c2FsdA==,i=4096", "r=abc,s=c2FsdA==,i=4096", "r=xbcd,s=c2FsdA==,i=4096"),
        *("r=abcd,s=,i=4096", "r=abcd,s=?,i=4096", "r=abcd,s=c2FsdA==,i=0", "r=abcd,s=c2FsdA==,i=-1"),
        *("r=abcd,s=c2FsdA==,i=4_096", "r=abcd,s=c2FsdA==,i=٤٠٩٦", f"{GOOD},i=4096", f"m=x,{GOOD}"),
        *(f"{GOOD},x", GOOD.replace("4096", str(MOST_ITERATIONS + 1)), GOOD.replace("4096", "9" * 5000)),
    ],
)
def test_a_challenge_that_makes_no_sense_is_refused(asked: str) -> None:
    with pytest.raises(ScramError):
        ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="abc").answer(asked.encode())


def test_fewer_iterations_and_a_shorter_salt_than_were_asked_for_are_refused() -> None:
    def client(**least: int) -> ScramClient:
        return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="abc", **least)

    assert client(fewest=4096, shortest=12).answer(GOOD.encode())
    for least in ({"fewest": 4097}, {"shortest": 13}):
        with pytest.raises(ScramError):
            client(**least).answer(GOOD.encode())


@pytest.mark.parametrize("final", [b"", b"v=AAAA", b"e=other-error", b"\xff", b"v=?"])
def test_a_server_that_proves_nothing_is_refused(final: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="abc")
    with pytest.raises(ScramError):
        client.check(final)
    client.answer(GOOD.encode())
    with pytest.raises(ScramError):
        client.check(final)
    assert not client.proved
