"""Headers of relayed clients: what holds, for how long, and what is said of the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.server.cluster import header
from broker.server.cluster.header import (
    MOST_NONCES,
    VALID_MS,
    HeaderChecker,
    RelayedClient,
    RelayHeaderError,
    StaleHeaderError,
)

SECRET = b"0123456789abcdef0123456789abcdef"
CLIENT = RelayedClient("main", "b", "amqp://127.0.0.1:5672", "10.0.0.9", 5, "10.0.0.1", 5672)
NOW_MS = 1_700_000_000_000


def signed(sent_ms: int, nonce: int = 1) -> bytes:
    return header.signed(CLIENT, SECRET, sent_ms, nonce.to_bytes(16, "big"))


def test_a_header_holds_once() -> None:
    checker = HeaderChecker("main", SECRET)
    assert checker.check(signed(NOW_MS), NOW_MS + VALID_MS) == CLIENT
    with pytest.raises(RelayHeaderError, match="before"):
        checker.check(signed(NOW_MS), NOW_MS + VALID_MS)


@pytest.mark.parametrize("apart_ms", [-VALID_MS - 1, VALID_MS + 1])
def test_a_header_of_another_time_is_told_from_a_bad_one(apart_ms: int) -> None:
    checker = HeaderChecker("main", SECRET)
    with pytest.raises(StaleHeaderError) as raised:
        checker.check(signed(NOW_MS + apart_ms, 7), NOW_MS)
    assert raised.value.nonce == (7).to_bytes(16, "big")
    forged = header.signed(CLIENT, b"another", NOW_MS + apart_ms, bytes(16))
    with pytest.raises(RelayHeaderError) as refused:
        checker.check(forged, NOW_MS)
    assert not isinstance(refused.value, StaleHeaderError)


def test_nonces_are_forgotten_once_their_headers_are_old() -> None:
    checker = HeaderChecker("main", SECRET)
    for at in range(3):
        checker.check(signed(NOW_MS, at), NOW_MS)
    checker.check(signed(NOW_MS + 3 * VALID_MS, 9), NOW_MS + 3 * VALID_MS)
    assert len(checker._seen) == 1
    assert len(checker._seen) < MOST_NONCES


def told(answered: bytes) -> str:
    found = header.read_answer(answered)
    assert found is not None
    assert found[0] == header.CLOCK
    return found[1]


def test_the_checkers_time_holds_for_one_header() -> None:
    reason = told(header.clock_answer(SECRET, b"n" * 16, NOW_MS))
    assert header.read_clock(reason, SECRET, b"n" * 16) == NOW_MS
    assert header.read_clock(reason, SECRET, b"m" * 16) is None
    assert header.read_clock(reason, b"another", b"n" * 16) is None
    assert header.read_clock(reason.replace(str(NOW_MS), str(NOW_MS + 1)), SECRET, b"n" * 16) is None


@pytest.mark.parametrize(
    "reason", ["", "x", "1 2", "-5 x", "٣ x", f"{1 << 64} x", "9" * 19 + " é", " ", "5 "]
)
def test_what_is_no_time_is_read_as_none(reason: str) -> None:
    assert header.read_clock(reason, SECRET, b"n" * 16) is None


def test_a_digest_of_what_follows_goes_along_and_a_header_without_one_has_none() -> None:
    checker = HeaderChecker("main", SECRET)
    with_digest = replace(CLIENT, digest=header.digest_of(b"said"))
    found = checker.check(header.signed(with_digest, SECRET, NOW_MS, bytes(16)), NOW_MS)
    assert found.digest == header.digest_of(b"said") != header.digest_of(b"other")
    assert checker.check(signed(NOW_MS), NOW_MS).digest == ""
