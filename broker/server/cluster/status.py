"""What one member knows of its cell, put together for whoever asks it."""

from __future__ import annotations

from typing import Protocol

from broker.cluster.follower import FollowedTo
from broker.cluster.presence import OWNER, MemberSeen
from broker.config.cluster import Cluster
from broker.manage.cluster import CellOwner, ClusterMember, ClusterStatus, EngineStatus
from broker.server.cluster.relay import OwnerAddress
from broker.server.ownership import OwnedCell


class Knowing(Protocol):
    """What is asked of a member; any thread may ask."""

    name: str
    cluster: Cluster

    @property
    def owner(self) -> OwnerAddress | None: ...

    @property
    def reaches_owner(self) -> bool: ...

    @property
    def followed(self) -> FollowedTo | None: ...

    @property
    def owned(self) -> OwnedCell | None: ...

    @property
    def engine_server(self) -> str: ...

    def members(self) -> list[MemberSeen]: ...

    def cells(self) -> tuple[CellOwner, ...]: ...


def status_of(member: Knowing) -> ClusterStatus:
    """Return how the cell is now."""
    seen = member.members()
    owner, owned, at = member.owner, member.owned, member.followed
    epoch = position = 0
    reachable, suspended = bool(member.engine_server), ""
    if owned is not None:
        epoch, position = owned.writer.epoch, owned.writer.acked_position
        reachable, suspended = owned.writer.reachable, owned.suspended
    elif at is not None:
        epoch, position, reachable = at.epoch, at.last_position, at.reachable
        told = [each.report for each in seen if each.report.role == OWNER and each.is_there]
        suspended = told[0].fault if told else ""
    # Told here alone: others take the fault that an owner tells them for why the cell is suspended.
    untrimmed = "" if owned is None else owned.untrimmed()
    newest = max((each.report.group for each in seen), default=0)
    return ClusterStatus(
        cell=member.cluster.cell,
        member=member.name,
        role=seen[0].report.role,
        owner="" if owner is None else owner.member,
        owner_reachable=member.reaches_owner,
        epoch=epoch,
        suspended=suspended,
        take_overs=max(epoch - 1, 0),
        engine=EngineStatus(
            reachable, tuple(map(str, member.cluster.engine)), member.engine_server, position
        ),
        members=tuple(_member(each, newest, "" if place else untrimmed) for place, each in enumerate(seen)),
        cells=member.cells(),
    )


def _member(seen: MemberSeen, newest: int, untrimmed: str) -> ClusterMember:
    report = seen.report
    return ClusterMember(
        name=report.name,
        role=report.role if seen.is_there else "gone",
        applied=report.position,
        lag_groups=max(newest - report.group, 0) if seen.is_there else 0,
        lag_s=report.lag_s,
        seen_ago_s=round(seen.seen_s, 1),
        version=report.version,
        addresses=report.addresses,
        fault=report.fault or untrimmed,
    )
