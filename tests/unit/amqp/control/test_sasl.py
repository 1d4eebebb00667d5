"""Authentication before AMQP: what is let through, what ends the connection, and its bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp.control.sasl import AMQP_HEADER, MAX_FRAME, MAX_FRAMES, SASL_HEADER, Handshake

TLS_HEADER = b"AMQP\x02\x01\x00\x00"
OPEN = b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x10\x45"


def frame(body: bytes, kind: int = 1, doff: int = 2) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes((doff, kind, 0, 0)) + body


def init(mechanism: bytes, extra: bytes = b"") -> bytes:
    fields = b"\xa3" + bytes((len(mechanism),)) + mechanism + extra
    return frame(b"\x00\x53\x41\xc0" + bytes((len(fields) + 1, 1 + len(extra))) + fields)


OUTCOME_OK = frame(b"\x00\x53\x44\xc0\x03\x01\x50\x00")
OUTCOME_AUTH = frame(b"\x00\x53\x44\xc0\x03\x01\x50\x01")


def test_anonymous() -> None:
    handshake = Handshake(allow_plain=False)
    offered = handshake.feed(SASL_HEADER)
    assert offered.startswith(SASL_HEADER)
    assert b"ANONYMOUS" in offered
    assert handshake.feed(init(b"ANONYMOUS")) == OUTCOME_OK
    assert not handshake.done
    assert handshake.feed(AMQP_HEADER + OPEN) == b""
    assert (handshake.done, handshake.rest, handshake.user) == (True, AMQP_HEADER + OPEN, "anonymous")


def test_without_sasl_only_where_it_is_allowed() -> None:
    allowed = Handshake(allow_plain=True)
    assert allowed.feed(AMQP_HEADER + OPEN) == b""
    assert (allowed.done, allowed.rest) == (True, AMQP_HEADER + OPEN)
    refused = Handshake(allow_plain=False)
    assert refused.feed(AMQP_HEADER + OPEN) == SASL_HEADER
    assert (refused.done, bool(refused.failed)) == (False, True)


@pytest.mark.parametrize(
    ("what", "came", "answer"),
    [
        ("garbage", b"GET / HTTP/1.1\r\n", SASL_HEADER),
        ("garbage, little of it", b"GET", SASL_HEADER),
        ("TLS, which isn't spoken here", TLS_HEADER, SASL_HEADER),
        ("AMQP 0-9-1", b"AMQP\x00\x00\x09\x01", SASL_HEADER),
        ("AMQP 2", b"AMQP\x00\x02\x00\x00", SASL_HEADER),
    ],
)
def test_a_wrong_header_is_answered_with_the_supported_one(what: str, came: bytes, answer: bytes) -> None:
    handshake = Handshake(allow_plain=True)
    assert handshake.feed(came) == answer, what
    assert handshake.failed
    assert not handshake.done


@pytest.mark.parametrize(
    ("what", "came"),
    [
        ("an AMQP frame before the outcome", OPEN),
        ("the AMQP header before the outcome", AMQP_HEADER),
        ("a mechanism that isn't offered", init(b"PLAIN")),
        ("an empty mechanism", init(b"")),
        ("a frame larger than its limit", b"\x00\x00\x02\x01\x02\x01\x00\x00"),
        ("a frame of 4 GB", b"\xff\xff\xff\xff\x02\x01\x00\x00"),
        ("a frame smaller than its header", b"\x00\x00\x00\x04\x02\x01\x00\x00"),
        ("doff below 2", frame(b"\x00\x53\x41\xc0\x01\x00", doff=1)),
        ("doff beyond the frame", frame(b"\x00\x53\x41\x45", doff=200)),
        ("an empty frame", frame(b"")),
        ("an init without fields", frame(b"\x00\x53\x41\x45")),
        ("an init whose list is cut off", frame(b"\x00\x53\x41\xc0\x20\x01\xa3\x09ANON")),
        ("an init whose symbol is cut off", frame(b"\x00\x53\x41\xc0\x03\x01\xa3\xff")),
        ("a response instead of an init", frame(b"\x00\x53\x43\xc0\x03\x01\xa0\x00")),
        ("bytes behind the list", frame(b"\x00\x53\x41\x45\x40")),
    ],
)
def test_what_ends_the_connection(what: str, came: bytes) -> None:
    handshake = Handshake(allow_plain=True)
    handshake.feed(SASL_HEADER)
    assert handshake.feed(came) == OUTCOME_AUTH, what
    assert handshake.failed, what
    assert handshake.rest == b"" or not handshake.done


def test_frames_of_amqp_between_outcome_and_header_go_nowhere() -> None:
    handshake = Handshake(allow_plain=True)
    handshake.feed(SASL_HEADER + init(b"ANONYMOUS"))
    assert handshake.feed(OPEN) == AMQP_HEADER
    assert (handshake.failed != "", handshake.done) == (True, False)


def test_a_second_sasl_header_goes_nowhere() -> None:
    handshake = Handshake(allow_plain=True)
    handshake.feed(SASL_HEADER + init(b"ANONYMOUS"))
    assert handshake.feed(SASL_HEADER) == AMQP_HEADER
    assert handshake.failed


@given(cuts=st.lists(st.integers(1, 60), max_size=8))
def test_cut_anywhere_it_is_the_same(cuts: list[int]) -> None:
    said = SASL_HEADER + init(b"ANONYMOUS", b"\x40\x40") + AMQP_HEADER + OPEN
    handshake = Handshake(allow_plain=False)
    at = 0
    for cut in [*cuts, len(said)]:
        handshake.feed(said[at : at + cut])
        at += cut
    assert handshake.done
    assert handshake.rest == AMQP_HEADER + OPEN


@given(came=st.lists(st.binary(min_size=1, max_size=700), max_size=10))
def test_whatever_comes_nothing_is_raised_and_what_is_kept_is_bounded(came: list[bytes]) -> None:
    handshake = Handshake(allow_plain=False)
    handshake.feed(SASL_HEADER)
    for data in came:
        if handshake.failed or handshake.done:
            break
        handshake.feed(data)
        assert handshake.failed or len(handshake.rest) <= MAX_FRAME
    assert not handshake.done
    assert MAX_FRAMES * MAX_FRAME <= 2048
