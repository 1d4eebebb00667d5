"""The flood that finds out where a broker's limit is, against ours, whose limit is known."""

from __future__ import annotations

from bench.peers.flood import flooded
from bench.peers.ours import Ours
from bench.peers.peer import LIMIT_MSGS, LIMITED, started


def test_a_limit_is_seen_from_the_wire_alone() -> None:
    with started(Ours()) as subject:
        found = flooded(subject.running.url, f"{LIMITED}wire", 5, 500, 30, pre=False)
    assert (found.accepted, found.kept, found.refused) == (LIMIT_MSGS, LIMIT_MSGS, 0)
    assert found.sent >= LIMIT_MSGS
