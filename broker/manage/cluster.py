"""A cluster as operators see it from one member, and the port through which it is asked and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """One member as it last said of itself, ``seen_ago_s`` ago. ``fault`` is why it doesn't get on."""

    name: str
    role: str
    applied: int
    lag_groups: int
    lag_s: float
    seen_ago_s: float
    version: str
    addresses: tuple[str, ...]
    fault: str


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The log's engine: its servers, the one this member is connected to, the last record's position."""

    reachable: bool
    servers: tuple[str, ...]
    connected: str
    position: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cell. ``owner`` is empty while there is none; ``suspended`` says why the owner doesn't act."""

    cell: str
    member: str
    role: str
    owner: str
    owner_reachable: bool
    epoch: int
    suspended: str
    take_overs: int
    engine: EngineStatus
    members: tuple[ClusterMember, ...]


class ClusterView(Protocol):
    """What a member knows of its cluster; both may be called on any thread."""

    def status(self) -> ClusterStatus:
        """Return how the cell is now."""
        ...

    def move(self, member: str) -> None:
        """Ask the owner to hand over to a member, '' for the best one. OperatorError if it can't."""
        ...
