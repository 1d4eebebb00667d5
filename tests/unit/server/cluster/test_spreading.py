"""One of several cells as a part of all: its member's rank, its successor, and when it is given away."""

from __future__ import annotations

from typing import cast

from broker.cluster.presence import GONE_S, OWNER, STANDBY, MemberReport, MemberSeen, Presence
from broker.config.cluster import Cluster
from broker.manage.cluster import CellOwner
from broker.server.cluster.spreading import SpreadView

SECOND_NS = 1_000_000_000


class Heard:
    """What was heard of the members of three cells, of which this process has number 0."""

    def __init__(self) -> None:
        self.seen: dict[str, list[MemberSeen]] = {f"main-{cell}": [] for cell in range(3)}

    def says(
        self, cell: int, name: str, role: str, *, ago_s: float = 0.5, fault: str = "", epoch: int = 1
    ) -> None:
        report = MemberReport(name, role, epoch, fault=fault)
        others = [each for each in self.seen[f"main-{cell}"] if each.report.name != name]
        self.seen[f"main-{cell}"] = [*others, MemberSeen(report, ago_s)]

    def members(self) -> list[MemberSeen]:
        return self.seen["main-0"]

    def members_of(self, cell: str) -> list[MemberSeen]:
        return self.seen[cell]


def view(heard: Heard, member: str = "a", rebalance_ms: int = 60_000) -> SpreadView:
    whole = Cluster(cell="main", member=member, rebalance_ms=rebalance_ms)
    return SpreadView(whole, 0, 3, cast(Presence, heard))


def all_of_a() -> Heard:
    """Member a owns all, and b follows."""
    heard = Heard()
    for cell in range(3):
        heard.says(cell, "a", OWNER)
        heard.says(cell, "b", STANDBY)
    return heard


def test_owners_are_those_that_are_there_and_the_latest_of_two() -> None:
    heard = Heard()
    heard.says(0, "a", OWNER, epoch=2)
    heard.says(0, "b", OWNER, epoch=3)
    heard.says(1, "b", OWNER, ago_s=GONE_S + 1)
    assert view(heard).owners() == (
        CellOwner(0, "main-0", "b", 3),
        CellOwner(1, "main-1", "", 0),
        CellOwner(2, "main-2", "", 0),
    )


def test_ranks_differ_and_a_member_that_owns_more_comes_later() -> None:
    heard = all_of_a()
    heard.says(0, "c", STANDBY)
    ranks = [view(heard, member).rank() for member in "bc"]
    assert sorted(ranks) == [0, 1]
    heard.says(1, "b", OWNER, epoch=2)
    heard.says(1, "a", STANDBY)
    assert [view(heard, member).rank() for member in "bc"] == [1, 0]
    assert view(heard, "z").rank() == 2, "one that was not heard of yet"


def test_a_successor_is_sound() -> None:
    heard = all_of_a()
    assert view(heard).successor() == "b"
    heard.says(0, "b", STANDBY, fault="its disk is full")
    assert view(heard).successor() == ""
    heard.says(0, "b", STANDBY, ago_s=GONE_S + 1)
    assert view(heard).successor() == ""


def test_a_cell_is_given_away_once_the_same_member_has_had_fewer_for_so_long() -> None:
    heard = all_of_a()
    for cell in range(3):
        heard.says(cell, "b", STANDBY, ago_s=GONE_S + 1)
    views = view(heard)
    assert views.taker(0) == ""
    # It can take cell 0 from here on, and no other.
    heard.says(0, "b", STANDBY)
    assert views.taker(30 * SECOND_NS) == ""
    assert views.taker(89 * SECOND_NS) == ""
    assert views.taker(90 * SECOND_NS) == "b"
    heard.says(0, "b", STANDBY, fault="its disk is full")
    assert views.taker(91 * SECOND_NS) == ""
    heard.says(0, "b", STANDBY)
    assert views.taker(92 * SECOND_NS) == "", "it begins anew"


def test_nothing_is_given_away_where_a_cell_has_no_owner_or_that_is_switched_off() -> None:
    heard = all_of_a()
    for cell in (1, 2):
        heard.says(cell, "b", STANDBY, ago_s=GONE_S + 1)
    off = view(heard, rebalance_ms=0)
    assert [off.taker(at * SECOND_NS) for at in (0, 3600)] == ["", ""]
    heard.says(2, "a", STANDBY)
    views = view(heard)
    assert [views.taker(at * SECOND_NS) for at in (0, 3600)] == ["", ""]


def test_a_member_that_does_not_own_the_cell_gives_nothing() -> None:
    heard = all_of_a()
    for cell in (1, 2):
        heard.says(cell, "b", STANDBY, ago_s=GONE_S + 1)
    views = view(heard, "b")
    assert [views.taker(at * SECOND_NS) for at in (0, 3600)] == ["", ""]
