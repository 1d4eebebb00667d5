"""Which standbys of a cell come and go, told as events by the cell's owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.manage.cluster import STANDBY_ROLE, ClusterMember

Tell = Callable[[str, Mapping[str, object]], None]


class StandbyWatch:
    """Compares the members it is shown with those of the last time; ``tell`` takes an event.

    Standbys that are there at the first look have joined, as far as this owner's events are concerned.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._there: set[str] = set()

    def look(self, members: Iterable[ClusterMember]) -> None:
        """Tell of each standby that has come or gone since the last look."""
        there = {each.name: each for each in members if each.role == STANDBY_ROLE}
        for name in sorted(there.keys() - self._there):
            self._tell("standby_joined", {"member": name, "version": there[name].version})
        for name in sorted(self._there - there.keys()):
            self._tell("standby_lost", {"member": name, "standbys": len(there)})
        self._there = set(there)
