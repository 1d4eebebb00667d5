"""A cluster as operators see it from one member, and the port through which it is asked and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker.errors import NotFoundError

OWNER_ROLE, STANDBY_ROLE, GONE_ROLE = "owner", "standby", "gone"
NO_MEMBER = "this broker is no member of a cluster"


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
class CellOwner:
    """One of several cells: its number, the name of its log, and the member that owns it, empty for none."""

    number: int
    cell: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cell. ``owner`` is empty while there is none; ``suspended`` says why the owner doesn't act.

    ``cells`` are all cells, where there are several.
    """

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
    cells: tuple[CellOwner, ...] = ()

    @property
    def own(self) -> ClusterMember | None:
        """The member that was asked, among the others."""
        return next((each for each in self.members if each.name == self.member), None)

    @property
    def present(self) -> tuple[ClusterMember, ...]:
        """The members that are there."""
        return tuple(each for each in self.members if each.role != GONE_ROLE)


class ClusterView(Protocol):
    """What a member knows of its cluster; both may be called on any thread."""

    def status(self) -> ClusterStatus:
        """Return how the cell is now."""
        ...

    def move(self, member: str) -> str:
        """Ask the owner to hand over to a member, '' for the best one; return its name.

        OperatorError if it can't.
        """
        ...


class ClusterOperations:
    """The operators' verbs about a cluster; ``view`` is set where the broker is a member of one.

    All of it may be called on any thread.
    """

    def __init__(self) -> None:
        self.view: ClusterView | None = None

    def status(self) -> ClusterStatus:
        """Return how the cell is now. NotFoundError where the broker is no member."""
        return self._member().status()

    def move(self, member: str) -> str:
        """Hand the cell over to a member, '' for the one that has come farthest; return its name.

        NotFoundError where the broker is no member, OperatorError where that member can't take the cell.
        """
        return self._member().move(member)

    def known(self) -> ClusterStatus | None:
        """Return how the cell is now; None where the broker is no member."""
        return None if self.view is None else self.view.status()

    def _member(self) -> ClusterView:
        if self.view is None:
            raise NotFoundError(NO_MEMBER)
        return self.view
