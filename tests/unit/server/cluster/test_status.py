"""How a cell is, as one member tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from broker.cluster.presence import OWNER, STANDBY, MemberReport, MemberSeen
from broker.server.cluster.status import Knowing, status_of


def test_an_owner_whose_log_cannot_be_trimmed_says_so_and_is_not_suspended() -> None:
    writer = SimpleNamespace(epoch=3, acked_position=90, reachable=True)
    owned = SimpleNamespace(
        writer=writer, suspended="", untrimmed=lambda: "the log can't be trimmed: no room"
    )
    seen = [MemberSeen(MemberReport("a", OWNER), 0.0), MemberSeen(MemberReport("b", STANDBY), 0.5)]
    member = SimpleNamespace(
        name="a",
        cluster=SimpleNamespace(cell="main", engine=()),
        owner=None,
        reaches_owner=True,
        followed=None,
        owned=owned,
        engine_server="nats://x",
        members=lambda: seen,
        cells=lambda: (),
    )
    status = status_of(cast(Knowing, member))
    assert [each.fault for each in status.members] == ["the log can't be trimmed: no room", ""]
    assert status.suspended == ""
