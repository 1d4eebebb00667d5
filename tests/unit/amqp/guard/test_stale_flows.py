"""Flows for a link that has no handle any more: only the session's part leaves."""

from __future__ import annotations

import pytest

from broker.amqp.guard.stale_flows import StaleFlows
from tests.wire.frames import TRANSFER, frame, performative

GONE = 0xFFFFFFFE


def flow(handle: int | None, *fields: object) -> bytes:
    """A flow as Proton encodes it: a small list, its numbers as uints."""
    numbers = [1, 2, 3, 4] if handle is None else [1, 2, 3, 4, handle, 0, 5]
    body = b"".join(b"\x70" + number.to_bytes(4, "big") for number in numbers)
    return frame(b"\x00\x53\x13\xc0" + bytes((len(body) + 1, len(numbers))) + body)


OTHER = performative(TRANSFER, 0, 7, b"\xff\xff\xff\xfe")


@pytest.mark.parametrize("size", [1, 3, 8, 1000])
def test_only_flows_without_a_handle_are_repaired(size: int) -> None:
    stale = StaleFlows(0, b"")
    sent = flow(3) + flow(GONE) + OTHER + flow(None)
    out = b"".join(stale.feed(sent[at : at + size]) for at in range(0, len(sent), size))
    assert out == flow(3) + flow(None) + OTHER + flow(None)
    assert stale.is_between_frames


def test_it_begins_within_a_frame() -> None:
    left = StaleFlows(len(OTHER) - 20, b"")
    assert left.feed(OTHER[20:] + flow(GONE)) == OTHER[20:] + flow(None)
    begun = StaleFlows(0, OTHER[:6])
    assert begun.feed(OTHER[6:]) == OTHER[6:]


def test_a_frame_under_way_is_held_back() -> None:
    stale = StaleFlows(0, b"")
    assert stale.feed(flow(GONE)[:10]) == b""
    assert not stale.is_between_frames


def test_an_empty_frame_passes() -> None:
    assert StaleFlows(0, b"").feed(frame(b"")) == frame(b"")
