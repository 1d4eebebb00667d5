"""Standbys that come and go, as the owner's events tell them."""

from __future__ import annotations

from collections.abc import Mapping

from broker.manage.cluster import ClusterMember
from broker.server.cluster.standbys import StandbyWatch


def member(name: str, role: str = "standby") -> ClusterMember:
    return ClusterMember(name, role, 0, 0, 0.0, 0.0, "1.0", (), "")


def test_each_change_is_told_once() -> None:
    told: list[tuple[str, Mapping[str, object]]] = []
    watch = StandbyWatch(lambda kind, fields: told.append((kind, fields)))
    watch.look([member("a", "owner"), member("b"), member("c", "starting")])
    assert told == [("standby_joined", {"member": "b", "version": "1.0"})]
    told.clear()
    watch.look([member("a", "owner"), member("b"), member("c")])
    watch.look([member("a", "owner"), member("b"), member("c")])
    assert told == [("standby_joined", {"member": "c", "version": "1.0"})]
    told.clear()
    watch.look([member("a", "owner"), member("b", "gone"), member("c")])
    watch.look([member("a", "owner"), member("c")])
    assert told == [("standby_lost", {"member": "b", "standbys": 1})]
    told.clear()
    watch.look([member("a", "owner"), member("b"), member("c")])
    assert told == [("standby_joined", {"member": "b", "version": "1.0"})]
