"""Operators' actions on the messages and producers of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import constants
from broker.engine.changes import Changes
from broker.engine.delivery import Delivery
from broker.engine.departure import Departure
from broker.engine.depths import Depths
from broker.engine.node import Node
from broker.engine.paging import Paging
from broker.engine.schedules import Schedules
from broker.engine.topology import Topology
from broker.engine.transfer import MoveTransfer
from broker.engine.turn import Turn
from broker.queues.queue import Entry

if TYPE_CHECKING:
    from broker.engine.ports import TransferHost


class OperatorActions:
    """Purges nodes, moves their messages, and stops their producers."""

    def __init__(
        self,
        host: TransferHost,
        turn: Turn,
        changes: Changes,
        depths: Depths,
        departure: Departure,
        delivery: Delivery,
        topology: Topology,
        paging: Paging,
        schedules: Schedules,
    ) -> None:
        self._host = host
        self._turn = turn
        self._changes = changes
        self._depths = depths
        self._departure = departure
        self._delivery = delivery
        self._topology = topology
        self._paging = paging
        self._schedules = schedules

    def purge(self, node: Node) -> int:
        """Drop every message that nobody holds, those that wait for their time too; return how many."""
        count = self._schedules.purge(node)
        for head in node.queue.heads():
            entry: Entry | None = head
            while entry is not None:
                following = entry.next
                if entry.state in (constants.READY, constants.BEHIND, constants.ASIDE):
                    self._departure.drop(node, entry)
                    count += 1
                entry = following
        paged = self._paging.drop(node)
        if paged:
            node.dropped += paged
            self._depths.recount(node)
            for owner in node.owners():
                self._turn.mark_dirty(owner)
            self._turn.mark_dirty(node)
        return count + paged

    def move(self, source: Node, target: Node, count: int) -> int:
        """Move the oldest ready messages to another node, as it has room, then those that wait for their
        time; return how many will go.
        """
        spooled = 0 if source.spool is None else source.spool.count
        queue = source.queue
        ready = min(count, queue.ready + queue.behind + queue.aside + spooled)
        if ready > 0:
            move = MoveTransfer(self._host, source, target, ready)
            self._host.moves.append(move)
            self._delivery.add_consumer(source, move.mover)
        put = self._host.intake.put_waiting
        return ready + self._schedules.move(source, target, count - ready, ready, put)

    def hold(self, node: Node, held: bool) -> None:
        """Stop or start this node's producers."""
        self._changes.hold(node, held)

    def wind_down(self) -> None:
        """Take no more from producers and send no more to consumers; what is out may still settle."""
        self._delivery.wind_down()
        for node in self._topology.nodes.values():
            self._changes.hold(node, True)
