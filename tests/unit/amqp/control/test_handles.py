"""Handles of links, by which the message path and Proton's objects find each other."""

from __future__ import annotations

from proton import Connection

from broker.amqp.control.handles import handle_of, link_at


def test_a_link_is_found_again_by_its_handle() -> None:
    session = Connection().session()
    first, second = session.sender("a"), session.receiver("b")
    assert handle_of(first) != handle_of(second)
    assert link_at(handle_of(first)).name == "a"
    assert link_at(handle_of(second)).name == "b"
    assert handle_of(link_at(handle_of(second))) == handle_of(second)
