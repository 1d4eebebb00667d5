"""Each rule of a session, and the smallest scope that a breach of it ends."""

from __future__ import annotations

import pytest

from tests.unit.amqp.live import Guarded
from tests.wire.frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Symbol,
    UByte,
    ULong,
    performative,
    transfer,
)

BEGUN = performative(BEGIN, None, 0, 100, 100)


def attach(
    name: str, handle: int, receiver: bool = SENDER, source: object = None, target: object = None
) -> bytes:
    modes = (UByte(2), UByte(0))
    termini = (source or Described(SOURCE), target or Described(TARGET, ["orders"]))
    return performative(ATTACH, name, handle, receiver, *modes, *termini, None, None, 0)


def session(*frames: bytes, window: int = 10) -> Guarded:
    """A session in which the peer sends by handle 0 and receives by handle 1."""
    made = Guarded().open().feed(BEGUN)
    made.allow(window)
    return made.feed(attach("out", 0), attach("in", 1, RECEIVER), *frames)


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ([attach("other", 0)], "amqp:session:handle-in-use"),
        ([performative(ATTACH, None, 5)], "amqp:invalid-field"),
        ([performative(TRANSFER, None, 0, b"0")], "amqp:invalid-field"),
        ([transfer(0, handle=7)], "amqp:session:unattached-handle"),
        ([transfer(0, handle=1)], "amqp:not-allowed"),
        ([transfer(0), transfer(5)], "amqp:invalid-field"),
        ([transfer(0, more=True), transfer(1, more=True)], "amqp:invalid-field"),
        ([transfer(0, more=True, settled=True), transfer(0)], "amqp:invalid-field"),
        ([transfer(0, more=True), transfer(0, message_format=7)], "amqp:invalid-field"),
        ([performative(TRANSFER, 0, None, b"0")], "amqp:invalid-field"),
        ([performative(TRANSFER, 0, 0, None, 0)], "amqp:invalid-field"),
        ([performative(TRANSFER, 0, 0, b"0", 0, False, False, UByte(1))], "amqp:invalid-field"),
        ([performative(FLOW, 0)], "amqp:invalid-field"),
        ([performative(FLOW, 0, 9, 0, 9, 7)], "amqp:session:unattached-handle"),
        ([performative(DISPOSITION, RECEIVER)], "amqp:invalid-field"),
        ([performative(DISPOSITION, RECEIVER, 5, 4)], "amqp:invalid-field"),
        ([performative(DETACH, 7)], "amqp:session:unattached-handle"),
    ],
)
def test_a_breach_ends_the_session_alone(frames: list[bytes], condition: str) -> None:
    made = session(*frames)
    assert made.guard.fault is None
    assert made.guard.ended[0][0] == condition
    # Proton was told of an end, and of nothing behind it.
    made.feed(transfer(9))
    assert not made.guard.lost
    assert made.transport.condition is None


def test_a_session_ends_whose_window_was_exceeded() -> None:
    made = session(*(transfer(number) for number in range(3)), window=2)
    assert made.guard.ended[0][0] == "amqp:session:window-violation"
    assert made.guard.transfer_count(0) == 2


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ([performative(OPEN, "again")], "amqp:not-allowed"),
        ([BEGUN], "amqp:not-allowed"),
        ([performative(BEGIN, 0, 0, 100, 100, channel=1)], "amqp:not-allowed"),
        ([performative(BEGIN, None, 0, channel=1)], "amqp:decode-error"),
    ],
)
def test_a_breach_without_a_session_closes_the_connection(frames: list[bytes], condition: str) -> None:
    made = session(*frames)
    assert made.guard.fault is not None
    assert made.guard.fault[0] == condition
    assert made.closed == made.guard.fault


def test_a_connection_begins_with_an_open_frame() -> None:
    made = Guarded().feed(BEGUN)
    assert made.guard.fault is not None
    # Proton was told of an open, without which it says no close.
    assert made.connection.remote_container == ""


def test_a_channel_beyond_the_limit_names_the_setting() -> None:
    made = Guarded()
    made.guard.bound(1 << 16, 1 << 16, 4, 32, 1000, 10)
    made.open().feed(performative(BEGIN, None, 0, 100, 100, channel=4))
    assert (made.guard.limit, made.closed is not None) == ("max_sessions", True)


def test_links_that_were_refused_have_to_be_let_go_of() -> None:
    made = Guarded()
    made.guard.bound(1 << 16, 1 << 16, 4, 32, 1000, 1)
    made.open().feed(BEGUN, attach("a", 0), attach("b", 1))
    for name in ("a", "b"):
        made.guard.wrong(0, name, True, True)
    assert made.guard.has_wronged()
    made.feed(attach("c", 2))
    assert made.guard.limit == "max_links"


def test_a_link_of_the_same_name_steals_the_first_ones() -> None:
    made = session(attach("out", 5))
    assert made.guard.stolen == {(0, "out", True)}
    assert made.guard.ended == {}
    # The peer confirms the detach that it never saw us send to Proton.
    made.feed(performative(DETACH, 0, True), transfer(0, handle=5))
    assert made.guard.ended == {}


def test_a_transfer_behind_our_detach_with_an_error_is_errant() -> None:
    made = session()
    made.guard.wrong(0, "out", True, False)
    made.feed(performative(DETACH, 0, True))
    assert not made.guard.has_wronged()
    made.feed(transfer(0))
    assert made.guard.ended[0][0] == "amqp:session:errant-link"


def test_words_that_crossed_a_detach_are_dropped() -> None:
    made = session(performative(DETACH, 1, True))
    made.feed(performative(DETACH, 1, True), performative(FLOW, 0, 9, 0, 9, 1, 0, 5))
    assert made.guard.ended == {}


def test_words_behind_an_end_are_dropped() -> None:
    made = session(performative(END))
    made.feed(performative(FLOW, 0, 9, 0, 9), performative(DISPOSITION, RECEIVER, 0))
    assert (made.guard.fault, made.transport.condition) == (None, None)


def test_termini_that_proton_takes_for_others_are_noted() -> None:
    made = session()
    made.feed(attach("odd", 2, source=Described(0x77), target=Described(TARGET, ["x"])))
    bare = performative(
        ATTACH, "bare", 3, SENDER, UByte(2), UByte(0), None, Described(TARGET, ["x"]), None, None, 0
    )
    made.feed(bare)
    assert made.guard.odd == {(0, "odd", True)}
    assert made.guard.sourceless == {(0, "bare", True)}


def test_a_sender_says_how_many_messages_wait() -> None:
    made = session(performative(FLOW, 0, 9, 0, 9, 0, 0, 0, 42))
    assert made.guard.offered(0, "out") == 42
    assert made.guard.offered(0, "in") == made.guard.offered(3, "out") == 0


def test_echoes_are_asked_for() -> None:
    made = session(performative(FLOW, 0, 9, 0, 9, 0, 0, 0, None, False, True))
    assert made.guard.echo
    made.feed(performative(FLOW, 0, 9, 0, 9, None, None, None, None, False, True))
    assert made.guard.session_echoes == []


def test_a_tag_that_is_too_long_ends_the_link_and_the_delivery_counts() -> None:
    made = session(transfer(0, tag=b"t" * 33), transfer(1))
    assert [fault[:2] for fault in made.faults] == [("out", "amqp:invalid-field")]
    assert made.guard.ended == {}
    assert made.guard.transfer_count(0) == 2


def test_a_resumed_delivery_is_ignored() -> None:
    resumed = performative(TRANSFER, 0, 0, b"0", 0, False, False, None, None, True)
    made = session(resumed, transfer(1))
    assert made.guard.ended == {}
    assert made.guard.transfer_count(0) == 2


def test_a_disposition_of_deliveries_that_cannot_be_is_dropped() -> None:
    made = session(transfer(0))
    before = made.guard.cost
    made.feed(performative(DISPOSITION, SENDER, 0, 2**31 - 5, True))
    assert made.guard.ended == {}
    assert made.guard.cost - before < 1000


def flow(handle: int, properties: object, windows: object = 9) -> bytes:
    return performative(FLOW, 0, windows, 0, 9, handle, 0, 5, None, False, False, properties)


@pytest.mark.parametrize(
    "properties",
    [
        {Symbol("txn-id"): b"1"},
        {Symbol("other"): [1, {}], Symbol("txn-id"): b""},
        {Symbol("txn-id"): ULong(7)},
    ],
)
def test_a_flow_that_acquires_in_a_transaction_fails_its_link_alone(properties: object) -> None:
    made = session(flow(1, properties))
    assert [fault[:2] for fault in made.faults] == [("in", "amqp:not-implemented")]
    assert "txn-id" in made.faults[0][2]
    assert (made.guard.ended, made.guard.fault) == ({}, None)
    # The session's windows count, and the link got none of the credit.
    link = made.connection.link_head(0)
    while link is not None and link.name != "in":
        link = link.next(0)
    assert link is not None
    assert link.credit == 0


@pytest.mark.parametrize(
    ("handle", "properties"),
    [
        (1, None),
        (1, {}),
        (1, {Symbol("txn-id"): None}),  # nothing is acquired in a transaction any more
        (1, {Symbol("txn-idx"): b"1", Symbol("other"): Symbol("txn-id")}),
        (1, {Symbol("other"): {Symbol("txn-id"): b"1"}}),
        (0, {Symbol("txn-id"): b"1"}),  # the peer sends on it
    ],
)
def test_other_properties_of_a_flow_are_nobodys_fault(handle: int, properties: object) -> None:
    made = session(flow(handle, properties))
    assert made.faults == []
    assert (made.guard.ended, made.guard.fault) == ({}, None)


def test_a_flow_that_acquires_and_has_no_windows_ends_the_session() -> None:
    acquires = {Symbol("txn-id"): b"1"}
    made = session(performative(FLOW, "x" * 200, 9, 0, 9, 1, 0, 5, None, None, None, acquires))
    assert made.guard.ended[0][0] == "amqp:invalid-field"
    assert made.faults == []
