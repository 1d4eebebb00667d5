"""A session's handles and names, as frames attach and detach them."""

from __future__ import annotations

import pytest

from tests.unit.amqp.guard.test_session_rules import attach, session
from tests.wire.frames import DETACH, RECEIVER, performative, transfer


@pytest.mark.parametrize("handle", [2, 15, 16, 1023, 1024, 2**32 - 1])
def test_a_handle_is_free_again_behind_its_detach(handle: int) -> None:
    made = session(attach("first", handle))
    made.feed(performative(DETACH, handle, True), attach("second", handle), transfer(0, handle=handle))
    assert made.guard.ended == {}
    made.feed(attach("third", handle))
    assert made.guard.ended[0][0] == "amqp:session:handle-in-use"


@pytest.mark.parametrize("handle", [2, 1024])
def test_a_freed_handle_has_no_link(handle: int) -> None:
    made = session(attach("first", handle), performative(DETACH, handle, True), transfer(0, handle=handle))
    assert made.guard.ended[0][0] == "amqp:session:unattached-handle"


def test_the_names_of_both_directions_are_their_own() -> None:
    made = session(attach("out", 2, RECEIVER), attach("in", 3))
    assert made.guard.stolen == set()


def test_a_delivery_under_way_ends_with_its_link() -> None:
    made = session(transfer(0, more=True), performative(DETACH, 0, True), attach("out", 0), transfer(1))
    assert made.guard.ended == {}
    assert made.guard.transfer_count(0) == 2


def test_a_stolen_handle_is_free_once_the_peer_confirms() -> None:
    made = session(attach("out", 2), performative(DETACH, 0, True), attach("fresh", 0))
    assert made.guard.stolen == {(0, "out", True)}
    assert made.guard.ended == {}
