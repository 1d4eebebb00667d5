"""The answers to a begin and an attach, and the outcomes a producer's source offers (§2.6.3, §3.5.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    BODY,
    DETACH,
    DISPOSITION,
    FLOW,
    MODIFIED,
    REJECTED,
    RELEASED,
    SENDER,
    SOURCE,
    TARGET,
    Described,
    Frame,
    RawPeer,
    Symbols,
    UByte,
    performative,
    transfer,
)

pytestmark = pytest.mark.wire

POLICIES = """policies:
  - {match: full, max_count: 1, when_full: reject}
  - {match: stopped, flow_stop_count: 1, flow_resume_count: 0}
"""
NAMES = {
    ACCEPTED: "amqp:accepted:list",
    REJECTED: "amqp:rejected:list",
    RELEASED: "amqp:released:list",
    MODIFIED: "amqp:modified:list",
}
TO_NOBODY = b"\x00\x53\x73\xc0\x0a\x03\x40\x40\xa1\x05" + b"a.*.b" + BODY


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies=POLICIES)


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    with RawPeer(broker.port) as made:
        yield made.open().begin()


def source_with(*codes: int) -> Described:
    """A source that offers these outcomes."""
    fields: list[object] = [None] * 9
    return Described(SOURCE, [*fields, Symbols(NAMES[each] for each in codes)])


def attach(
    peer: RawPeer, address: str | None, source: Described | None, handle: int = 0, mode: int = 2
) -> Frame:
    modes = UByte(mode), UByte(0)
    target = Described(TARGET, [address])
    peer.send(performative(ATTACH, f"out{handle}", handle, SENDER, *modes, source, target, None, None, 0))
    return peer._attached(handle)


def state_of(found: Frame) -> int:
    state: Any = found.field(4)
    return int(state.descriptor)


def info_of(found: Frame) -> dict[str, Any]:
    """What an error says beside its condition and description."""
    return {str(key): value for key, value in dict(found.error[2]).items()}  # type: ignore[call-overload]


# --- flows that say nothing


def test_no_flow_repeats_a_begin(peer: RawPeer) -> None:
    attach(peer, "orders", Described(SOURCE))
    peer.await_credit()
    flows = [frame for frame in peer.log if frame.code == FLOW]
    assert len(flows) == 1
    assert flows[0].field(4) is not None


def test_no_flow_says_that_there_is_no_credit_yet(broker: RunningBroker, peer: RawPeer) -> None:
    attach(peer, "stopped", Described(SOURCE))
    peer.await_credit()
    peer.send(transfer(0))
    peer.expect(DISPOSITION)
    before = len(peer.log)
    attach(peer, "stopped", Described(SOURCE), 1)
    peer.begin(channel=1)
    said = [frame for frame in peer.log[before:] if frame.code == FLOW]
    assert not [frame for frame in said if frame.field(6) == 0 and frame.field(4) == peer._handles[1]]
    # Who asks is told all the same.
    peer.send(performative(FLOW, 0, 100, 1, 100, 1, 0, None, None, None, True))
    answer = peer.expect(FLOW)
    assert (answer.field(4), answer.field(6)) == (peer._handles[1], 0)


def test_a_window_is_what_it_was(peer: RawPeer) -> None:
    begun = next(frame for frame in peer.log if frame.code == BEGIN)
    peer.send(performative(FLOW, 0, 100, 0, 100, None, None, None, None, None, True))
    answer = peer.expect(FLOW)
    assert (answer.field(0), answer.field(1)) == (0, begun.field(2))


# --- a producer's source


@pytest.mark.parametrize("address", ["orders", None, "$management"])
def test_a_producers_source_is_echoed(peer: RawPeer, address: str | None) -> None:
    answer: Any = attach(peer, address, source_with(ACCEPTED, REJECTED))
    assert answer.field(5).descriptor == SOURCE
    assert [str(each) for each in answer.field(5).value[9].elements] == [NAMES[ACCEPTED], NAMES[REJECTED]]
    plain: Any = attach(peer, address, Described(SOURCE), 1)
    assert plain.field(5).descriptor == SOURCE


def test_a_producer_without_a_source_is_answered_without_one(peer: RawPeer) -> None:
    assert attach(peer, "orders", None).field(5) is None


def test_a_refused_producers_source_is_echoed(peer: RawPeer) -> None:
    answer: Any = attach(peer, "a.*", Described(SOURCE))
    assert answer.field(5).descriptor == SOURCE
    assert answer.field(6) is None


# --- outcomes that it offers


def fill(peer: RawPeer, *codes: int) -> None:
    """A link to a full queue, whose source offers these outcomes; its message 0 has filled the queue."""
    attach(peer, "full", source_with(*codes))
    peer.await_credit()
    peer.send(transfer(0))
    assert state_of(peer.expect(DISPOSITION)) == ACCEPTED


@pytest.mark.parametrize(
    ("offered", "told"),
    [
        ((ACCEPTED, REJECTED, RELEASED, MODIFIED), REJECTED),
        ((), REJECTED),
        ((ACCEPTED, RELEASED, MODIFIED), RELEASED),
        ((ACCEPTED, MODIFIED), MODIFIED),
    ],
)
def test_a_message_is_turned_down_with_an_outcome_that_is_offered(
    peer: RawPeer, offered: tuple[int, ...], told: int
) -> None:
    fill(peer, *offered)
    for number in (1, 2):
        peer.send(transfer(number))
        found = peer.expect(DISPOSITION)
        assert (found.field(1), found.field(3), state_of(found)) == (number, True, told)


def test_a_link_ends_where_no_outcome_is_offered_that_fits(peer: RawPeer) -> None:
    fill(peer, ACCEPTED)
    peer.send(transfer(1, tag=b"the tag"))
    found = peer.expect(DETACH)
    assert found.condition == "amqp:resource-limit-exceeded"
    assert info_of(found) == {"delivery-tag": b"the tag"}
    told = [frame for frame in peer.log if frame.code == DISPOSITION][1:]
    assert all(frame.field(4) is None for frame in told)


@pytest.mark.parametrize("offered", [(ACCEPTED,), (ACCEPTED, RELEASED)])
def test_the_relay_ends_where_rejected_is_not_offered(peer: RawPeer, offered: tuple[int, ...]) -> None:
    attach(peer, None, source_with(*offered))
    peer.await_credit()
    peer.send(transfer(0, TO_NOBODY, tag=b"lost"))
    found = peer.expect(DETACH)
    assert found.condition == "amqp:not-found"
    assert info_of(found) == {"delivery-tag": b"lost"}


def test_the_relay_rejects_where_it_may(peer: RawPeer) -> None:
    attach(peer, None, source_with(ACCEPTED, REJECTED))
    peer.await_credit()
    peer.send(transfer(0, TO_NOBODY))
    assert state_of(peer.expect(DISPOSITION)) == REJECTED


def test_the_relay_says_which_settled_message_could_not_be_delivered(peer: RawPeer) -> None:
    attach(peer, None, Described(SOURCE), mode=1)
    peer.await_credit()
    peer.send(transfer(0, TO_NOBODY, settled=True, tag=b"settled"))
    assert info_of(peer.expect(DETACH)) == {"delivery-tag": b"settled"}


def test_what_comes_behind_is_told_nothing_that_is_not_offered(peer: RawPeer) -> None:
    attach(peer, None, source_with(ACCEPTED, RELEASED))
    peer.await_credit()
    peer.send(*(transfer(number, TO_NOBODY if number == 0 else BODY) for number in range(10)))
    peer.expect(DETACH)
    peer.send(performative(DETACH, 0, True))
    attach(peer, "orders", Described(SOURCE), 1)
    told = [frame for frame in peer.log if frame.code == DISPOSITION]
    assert {state_of(frame) for frame in told if frame.field(4) is not None} <= {RELEASED}
