"""Expiry: the earliest deadline of those that apply, and entries in the order of their deadlines."""

from __future__ import annotations

import pytest

from broker import constants
from broker.queues.expiry import SWEEP_MSGS, Expiry, deadline_ms
from broker.queues.queue import Entry, Queue

pytestmark = pytest.mark.flow


@pytest.mark.parametrize(
    ("ttl_ms", "absolute_ms", "given_ms", "most_ms", "ends_ms"),
    [
        (0, 0, 0, 0, 0),
        (5, 0, 0, 0, 1005),
        (0, 1003, 0, 0, 1003),
        (5, 1003, 0, 0, 1003),
        (5, 1009, 0, 0, 1005),
        # The node's time is for messages that bring none; its limit is for all.
        (0, 0, 7, 0, 1007),
        (9, 0, 7, 0, 1009),
        (0, 1020, 7, 0, 1020),
        (9, 0, 0, 4, 1004),
        (0, 0, 0, 4, 1004),
        (3, 0, 0, 4, 1003),
        # One whose time was over before it came.
        (0, 900, 0, 4, 900),
    ],
)
def test_the_earliest_deadline_holds(
    ttl_ms: int, absolute_ms: int, given_ms: int, most_ms: int, ends_ms: int
) -> None:
    assert deadline_ms(1000, ttl_ms, absolute_ms, given_ms, most_ms) == ends_ms


def expiring(*deadlines_ns: int) -> tuple[Queue, Expiry, list[Entry]]:
    """A queue with an entry for each deadline."""
    queue, expiry = Queue(), Expiry()
    entries = [queue.append(b"x") for _ in deadlines_ns]
    for entry, deadline_ns in zip(entries, deadlines_ns, strict=True):
        expiry.add(entry, deadline_ns)
    return queue, expiry, entries


def test_entries_are_due_in_the_order_of_their_deadlines() -> None:
    _, expiry, (late, early, same) = expiring(30, 10, 10)
    assert expiry.next_deadline() == 10
    assert expiry.due(9) == []
    assert expiry.due(10) == [early, same]
    assert expiry.next_deadline() == 30
    assert expiry.due(100) == [late]
    assert (expiry.next_deadline(), len(expiry)) == (0, 0)


def test_an_entry_that_a_consumer_holds_or_that_is_gone_is_not_due() -> None:
    queue, expiry, (held, gone, ready) = expiring(10, 10, 10)
    assert queue.acquire() is held
    queue.drop(gone)
    expiry.left()
    assert expiry.due(10) == [ready]


def test_entries_that_left_are_swept_out_once_they_are_most() -> None:
    queue, expiry, entries = expiring(*range(1, 2 * SWEEP_MSGS + 2))
    for entry in entries[: SWEEP_MSGS + 1]:
        assert len(expiry) == len(entries)
        queue.drop(entry)
        expiry.left()
    assert len(expiry) == SWEEP_MSGS
    assert all(entry.state != constants.GONE for entry in expiry.due(10**9))
