"""One of several cells as a part of all: when its member may take it over, and to whom it gives it."""

from __future__ import annotations

from collections.abc import Collection

from broker.cluster.presence import OWNER, STANDBY, MemberSeen, Presence
from broker.cluster.spread import CellMove, CellSpread, next_move, succession
from broker.config.cluster import Cluster
from broker.manage.cluster import CellOwner

# By how much a standby that is handed a cell may be behind.
SUCCESSOR_LAG_S = 5.0


def is_sound(seen: MemberSeen) -> bool:
    """Return whether a member could own a cell at once: a standby that is there, well and not far behind."""
    report = seen.report
    return seen.is_there and report.role == STANDBY and not report.fault and report.lag_s < SUCCESSOR_LAG_S


class SpreadView:
    """What member ``member`` knows of the spread of ``cells`` cells; ``number`` is the one of its process.

    ``whole`` is the section of all cells, as it was read.
    """

    def __init__(self, whole: Cluster, number: int, cells: int, presence: Presence) -> None:
        self._whole = whole
        self._number = number
        self._cells = cells
        self._presence = presence
        # The move that would be next, and since when that is so.
        self._next: tuple[CellMove | None, int] = None, 0

    @staticmethod
    def others(whole: Cluster, number: int, cells: int) -> list[str]:
        """Return the names of the logs of all other cells."""
        return [whole.log_of(each) for each in range(cells) if each != number]

    def seen(self, cell: int) -> list[MemberSeen]:
        """Return the members of a cell that were heard of."""
        if cell == self._number:
            return self._presence.members()
        return self._presence.members_of(self._whole.log_of(cell))

    def owners(self) -> tuple[CellOwner, ...]:
        """Return who owns each cell, by its number."""
        return tuple(self._owner(cell) for cell in range(self._cells))

    def rank(self) -> int:
        """Return how many members come before this one where the cell's owner is gone."""
        there = [each.report.name for each in self.seen(self._number) if each.is_there]
        order = succession(self._number, self._spread({self._number: there}))
        return order.index(self._whole.name) if self._whole.name in order else len(order)

    def successor(self) -> str:
        """Return the sound standby that is to take the cell of this process; empty where there is none."""
        order = succession(self._number, self._spread({}))
        return order[0] if order else ""

    def taker(self, now_ns: int) -> str:
        """Return who is to be given this process's cell now, so that all have as many; empty for nobody.

        Asked again and again: the same move must have been the next one for as long as the settings say.
        """
        if not self._whole.rebalance_ms:
            return ""
        spread = self._spread({})
        # With a cell that nobody owns it isn't known who will have how many.
        move = next_move(spread) if len(spread.owners) == self._cells else None
        if move != self._next[0]:
            self._next = move, now_ns
        due = now_ns - self._next[1] >= self._whole.rebalance_ms * 1_000_000
        is_ours = move is not None and (move.cell, move.giver) == (self._number, self._whole.name)
        return move.taker if move is not None and is_ours and due else ""

    def _owner(self, cell: int) -> CellOwner:
        owning = [each.report for each in self.seen(cell) if each.is_there and each.report.role == OWNER]
        # One that doesn't know yet that it was replaced may say so, too.
        latest = max(owning, key=lambda report: report.epoch, default=None)
        name, epoch = ("", 0) if latest is None else (latest.name, latest.epoch)
        return CellOwner(cell, self._whole.log_of(cell), name, epoch)

    def _spread(self, able: dict[int, Collection[str]]) -> CellSpread:
        """Return the spread of now; ``able`` has who could take certain cells, whatever they say."""
        sound = {
            cell: [each.report.name for each in self.seen(cell) if is_sound(each)]
            for cell in range(self._cells)
        }
        owners = {each.number: each.owner for each in self.owners() if each.owner}
        return CellSpread(owners, {**sound, **able})
