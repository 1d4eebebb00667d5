"""Reports of members: what they hold on the wire, and what a member makes of those it hears."""

from __future__ import annotations

import json
import time

import pytest

from broker.cluster.jetstream import LogServers
from broker.cluster.nats import Message
from broker.cluster.presence import (
    GONE_S,
    INTERVAL_S,
    MOST_MEMBERS,
    OWNER,
    STANDBY,
    MemberReport,
    Presence,
)

ME = MemberReport("a", OWNER, 3, 70, 50, 0.0, ("amqp://10.0.0.1:5672",), "1.0", life="one")


def presence_of(twins: list[MemberReport] | None = None) -> Presence:
    """Return one that was not started."""
    found = [] if twins is None else twins
    return Presence(LogServers(("nats://127.0.0.1:1",)), "main", lambda: ME, found.append)


def hear(presence: Presence, data: bytes) -> None:
    """Have a message come."""
    presence._hear(Message(1, "sluice.main.member.x", "", b"", data), ME)


def test_a_report_comes_back_as_it_was() -> None:
    assert MemberReport.decode(ME.encode()) == ME


def test_a_report_of_another_version_has_what_both_know() -> None:
    found = MemberReport.decode(b'{"name": "b", "role": "standby", "position": 7, "colour": "red"}')
    assert found == MemberReport("b", STANDBY, position=7)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"name": 5, "role": null, "epoch": "x", "lag_s": []}', MemberReport("5", "")),
        (b'{"name": "b", "addresses": [1, 2]}', MemberReport("b", "", addresses=("1", "2"))),
    ],
)
def test_fields_of_other_types_are_read_as_far_as_they_go(data: bytes, shown: MemberReport) -> None:
    assert MemberReport.decode(data) == shown


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"5", b"\xff"])
def test_no_report_is_told_from_one(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        MemberReport.decode(data)


def test_long_texts_and_lists_are_cut() -> None:
    found = MemberReport.decode(json.dumps({"name": "b" * 1000, "addresses": ["x" * 999] * 99}).encode())
    assert (len(found.name), len(found.addresses), len(found.addresses[0])) == (300, 16, 300)


def test_members_are_known_by_what_they_said_last_and_this_one_is_first() -> None:
    presence = presence_of()
    hear(presence, MemberReport("c", STANDBY, position=1).encode())
    hear(presence, MemberReport("b", STANDBY, position=2).encode())
    hear(presence, MemberReport("c", STANDBY, position=5).encode())
    hear(presence, b"nonsense")
    assert [(each.report.name, each.report.position) for each in presence.members()] == [
        ("a", 70),
        ("b", 2),
        ("c", 5),
    ]
    assert all(each.is_there for each in presence.members())


def test_no_more_than_so_many_members_are_kept() -> None:
    presence = presence_of()
    for number in range(2 * MOST_MEMBERS):
        hear(presence, MemberReport(f"m{number}", STANDBY).encode())
    assert len(presence.members()) == MOST_MEMBERS + 1


def test_a_member_takes_the_place_of_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    presence = presence_of()
    for number in range(MOST_MEMBERS):
        hear(presence, MemberReport(f"m{number}", STANDBY).encode())
    now += GONE_S / 2
    hear(presence, MemberReport("m0", STANDBY).encode())
    now += GONE_S / 2
    hear(presence, MemberReport("new", STANDBY).encode())
    names = {each.report.name for each in presence.members()}
    assert len(names) == MOST_MEMBERS + 1
    assert {"new", "m0"} <= names
    assert "m1" not in names, "it was silent for longest"


def test_another_member_of_this_one_s_name_is_told_once_it_goes_on_speaking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    twins: list[MemberReport] = []
    presence = presence_of(twins)
    twin = MemberReport("a", STANDBY, life="two")
    # So does what an earlier life said last, and was held up on its way.
    for _ in range(5):
        hear(presence, twin.encode())
    hear(presence, ME.encode())
    assert twins == []
    for _ in range(2):
        now += INTERVAL_S
        hear(presence, twin.encode())
    assert twins == [twin]
    # Another life's time is its own.
    hear(presence, MemberReport("a", STANDBY, life="three").encode())
    assert twins == [twin]
    assert [each.report.name for each in presence.members()] == ["a"]


def test_members_of_other_cells_are_heard_too_and_kept_apart() -> None:
    presence = Presence(
        LogServers(("nats://127.0.0.1:1",)), "main-0", lambda: ME, others=["main-1", "main-2"]
    )
    for cell, name in (("main-1", "a"), ("main-1", "b"), ("main-0", "b"), ("main-9", "z")):
        report = MemberReport(name, STANDBY, position=5)
        presence._hear(Message(1, f"sluice.{cell}.member.{name}", "", b"", report.encode()), ME)
    assert [each.report.name for each in presence.members_of("main-1")] == ["a", "b"]
    assert presence.members_of("main-2") == []
    assert presence.members()[1].report.name == "b"
