"""Termini that outlive their links: ended by the way a link goes, by its session, or after a time."""

from __future__ import annotations

import pytest

from broker.amqp.control.client import ClientDetails
from broker.amqp.control.lifetimes import CLOSED, CONNECTION_CLOSED, DETACHED, SESSION_ENDED, Kept
from broker.amqp.control.termini import KeptTermini
from broker.security.exchange import ListenerTrust
from broker.units import SECOND_NS
from tests.unit.amqp.world import AmqpWorld

HANDLE, CHANNEL = 4711, 3


@pytest.fixture
def termini(world: AmqpWorld) -> KeptTermini:
    container = world.container
    client = ClientDetails("c1", "192.0.2.1:1", "alice", ListenerTrust(), name="app")
    subscriptions = world.model.subscriptions
    return KeptTermini(world.engine, container.timers, subscriptions, container.temporary, client)


def kept_until(until: int, timeout_s: int = 0) -> tuple[Kept, list[str]]:
    ends: list[str] = []
    return Kept(until, timeout_s, lambda: ends.append("end")), ends


def test_a_terminus_ends_with_its_link(termini: KeptTermini) -> None:
    kept, ends = kept_until(DETACHED)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.link_gone(HANDLE, "in", False, DETACHED)
    assert ends == ["end"]
    assert termini.kept_of(HANDLE) is None


def test_a_terminus_ends_with_its_session_and_no_other(termini: KeptTermini) -> None:
    kept, ends = kept_until(SESSION_ENDED)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.link_gone(HANDLE, "in", False, DETACHED)
    termini.session_ended(CHANNEL + 1)
    assert ends == []
    termini.session_ended(CHANNEL)
    assert ends == ["end"]


def test_a_terminus_ends_with_its_connection(termini: KeptTermini) -> None:
    kept, ends = kept_until(CONNECTION_CLOSED)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.link_gone(HANDLE, "in", False, SESSION_ENDED)
    termini.session_ended(CHANNEL)
    assert ends == []
    termini.connection_closed()
    assert ends == ["end"]


def test_a_terminus_stays_for_its_timeout(world: AmqpWorld, termini: KeptTermini) -> None:
    kept, ends = kept_until(DETACHED, timeout_s=5)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.link_gone(HANDLE, "in", False, DETACHED)
    due_ns = world.engine.turn.now_ns + 5 * SECOND_NS
    world.container.timers.run(due_ns - 1)
    assert ends == []
    world.container.timers.run(due_ns)
    assert ends == ["end"]


def test_a_closed_link_ends_its_terminus_at_once(termini: KeptTermini) -> None:
    kept, ends = kept_until(CLOSED, timeout_s=5)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.link_gone(HANDLE, "in", False, CLOSED)
    assert ends == ["end"]


def test_a_link_that_is_back_keeps_its_terminus(world: AmqpWorld, termini: KeptTermini) -> None:
    kept, ends = kept_until(DETACHED, timeout_s=5)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.link_gone(HANDLE, "in", False, DETACHED)
    termini.resume(kept)
    world.container.timers.run(world.engine.turn.now_ns + 9 * SECOND_NS)
    assert ends == []


def test_what_was_made_for_a_refused_link_goes_at_once(termini: KeptTermini) -> None:
    kept, ends = kept_until(CLOSED, timeout_s=5)
    termini.keep(HANDLE, CHANNEL, kept)
    termini.discard(HANDLE)
    assert ends == ["end"]
