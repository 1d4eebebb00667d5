"""Frames out of a stream of bytes that is read in any pieces, from any point on, and never a body."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.trace import LONGEST, MOST_KEPT, Frame, FrameReader, Tap, decoded
from broker.loggers import TRACE

SECRET = b"\x00\x53\x75\xa0\x06secret"


def frame(body: bytes, channel: int = 0) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def performative(code: int, *values: bytes) -> bytes:
    fields = b"".join(values)
    return (
        b"\x00\x53"
        + bytes((code,))
        + b"\xd0"
        + (len(fields) + 4).to_bytes(4, "big")
        + len(values).to_bytes(4, "big")
        + fields
    )


TRANSFER = performative(0x14, b"\x43", b"\x52\x05", b"\xa0\x01t", b"\x43", b"\x42") + SECRET
FLOW = performative(0x13, b"\x40", b"\x52\x0a", b"\x43", b"\x52\x0a", b"\x43", b"\x43", b"\x52\x64")
DETACH = performative(0x16, b"\x43", b"\x41", b"\x00\x53\x1d\xc0\x13\x02\xa3\x0bamqp:broken\xa1\x03why")


def test_a_transfer_is_told_without_its_message() -> None:
    name, fields, payload = decoded(Frame(0, TRANSFER, 8 + len(TRANSFER)))
    assert (name, payload) == ("transfer", len(SECRET))
    assert fields == {
        "handle": "0",
        "delivery-id": "5",
        "delivery-tag": "b't'",
        "message-format": "0",
        "settled": "false",
    }


def test_fields_bear_the_specifications_names() -> None:
    assert decoded(Frame(0, FLOW, 99))[:2] == (
        "flow",
        {
            "incoming-window": "10",
            "next-outgoing-id": "0",
            "outgoing-window": "10",
            "handle": "0",
            "delivery-count": "0",
            "link-credit": "100",
        },
    )
    name, fields, _ = decoded(Frame(0, DETACH, 99))
    assert (name, fields["closed"]) == ("detach", "true")
    assert fields["error"] == "@29['amqp:broken', 'why']"


def test_what_is_long_is_cut() -> None:
    name = b"\xb1" + (4000).to_bytes(4, "big") + b"n" * 4000
    fields = decoded(Frame(0, performative(0x12, name, b"\x43", b"\x41"), 5000))[1]
    assert len(fields["name"]) == LONGEST + 1
    assert fields["role"] == "receiver"
    cut = performative(0x12, b"\xb1" + (9000).to_bytes(4, "big") + b"n" * 9000)
    assert decoded(Frame(0, cut[:MOST_KEPT], len(cut)))[0] == "unreadable"


def test_an_empty_frame_and_one_of_no_known_kind() -> None:
    assert decoded(Frame(0, b"", 8)) == ("empty", {}, 0)
    assert decoded(Frame(0, performative(0x77), 20))[0] == "119"


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_bytes_at_random_raise_nothing(body: bytes) -> None:
    decoded(Frame(0, body, 8 + len(body)))


@given(
    st.lists(st.sampled_from([TRANSFER, FLOW, DETACH, TRANSFER + bytes(5000), b""]), max_size=6), st.data()
)
def test_frames_are_found_however_the_bytes_come(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(body, number) for number, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader(0, b"")
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += list(reader.feed(stream[begin:end]))
    assert [each.channel for each in found] == list(range(len(bodies)))
    assert [each.size for each in found] == [8 + len(body) for body in bodies]
    assert all(len(each.body) <= MOST_KEPT for each in found)


def test_a_trace_may_begin_within_a_frame() -> None:
    whole = frame(FLOW)
    behind = FrameReader(len(whole) - 20, b"")
    assert [each.channel for each in behind.feed(whole[20:] + frame(FLOW, 3))] == [3]
    begun = FrameReader(0, whole[:5])
    assert [each.size for each in begun.feed(whole[5:])] == [len(whole)]


class Traced:
    """A tap and how often it said that it was over."""

    def __init__(self, frames: int) -> None:
        self.ends = 0
        self.tap = Tap("c1", "127.0.0.1:9", frames, (FrameReader(0, b""), FrameReader(0, b"")), self.end)

    def end(self) -> None:
        self.ends += 1


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What traces said; others in this process may say something meanwhile."""
    return [each.getMessage() for each in caplog.records if each.name == TRACE]


def test_a_tap_tells_each_frame_and_ends_after_so_many(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, TRACE)
    traced = Traced(2)
    traced.tap.came(frame(TRANSFER))
    traced.tap.went(frame(FLOW, 1) + frame(FLOW, 2))
    traced.tap.came(frame(FLOW))
    traced.tap.finish("again")
    assert told(caplog) == [
        "c1 <- channel 0 transfer handle=0 delivery-id=5 delivery-tag=b't' message-format=0 settled=false"
        " (11 bytes of message)",
        "c1 -> channel 1 flow incoming-window=10 next-outgoing-id=0 outgoing-window=10 handle=0"
        " delivery-count=0 link-credit=100",
        "c1: trace ended: as many frames as were asked for",
    ]
    assert traced.ends == 1
    assert "secret" not in caplog.text


def test_what_is_no_frame_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, TRACE)
    traced = Traced(2)
    traced.tap.came(bytes(8))
    assert traced.ends == 1
    assert told(caplog)[-1] == "c1: trace ended: what follows is no frame"
