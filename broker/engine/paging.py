"""Which messages of a backlog go to disk for want of memory, and when they come back.

Nodes that page are held to their own limit, and all of them together to what the broker may hold in memory.
The runs themselves are the queue's (``engine/spool.py``). Nothing here waits for a disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import constants
from broker.engine.bodies import NodeBodies
from broker.engine.changes import Changes
from broker.engine.depths import Depths
from broker.engine.expirations import Expirations
from broker.engine.large import dress
from broker.engine.letters import Letters
from broker.engine.node import Node, memory_of
from broker.engine.priority_spool import PrioritySpool
from broker.engine.scan import Scans
from broker.engine.settlement import Settlement
from broker.engine.spool import READ_AHEAD_BYTES, Message, PagerPort, Run, Spool, put_back
from broker.engine.topology import Topology
from broker.engine.transfer import BODY_LOST, EXPIRED, MOVE_WINDOW
from broker.engine.turn import Turn
from broker.store.port import LARGE, REDELIVERED, UNSURE

if TYPE_CHECKING:
    from broker.queues.queue import Entry

# Memory that may be held before paging begins, of a paging node's limit and of the broker's, and how
# much more than the excess goes to disk at a time.
PAGE_PERCENT = 70
PAGE_BYTES = 1 << 18
# How long to let be when all that could go to disk has gone and the broker still holds too much.
PAGE_PAUSE_NS = 10_000_000
# The part of a paging node's limit that may be read ahead.
AHEAD_PART = 8


class Paging:
    """The nodes that page; the engine calls ``look`` at a node that has something to do.

    ``pager`` puts runs on disk; without one nothing pages. ``passing_bytes`` are those of runs on their way
    to or from disk, part of what memory holds; ``scans`` are those that readers look at.
    """

    def __init__(
        self,
        turn: Turn,
        changes: Changes,
        depths: Depths,
        bodies: NodeBodies,
        expirations: Expirations,
        letters: Letters,
        settlement: Settlement,
        topology: Topology,
    ) -> None:
        self._turn = turn
        self._changes = changes
        self._depths = depths
        self._memory = depths.memory
        self._temp = depths.temp
        self._bodies = bodies
        self._expirations = expirations
        self._letters = letters
        self._settlement = settlement
        self._topology = topology
        self.pager: PagerPort | None = None
        self.nodes = topology.paging
        self.passing_bytes = 0
        self.scans = Scans()
        self._pause_ns = 0

    def set(self, node: Node, pages: bool) -> None:
        """A node that pages needs room on disk for what comes; what is there comes back in any case."""
        if pages and self.pager is not None:
            self.nodes.add(node)
            self._spool_of(node).ahead_bytes = min(READ_AHEAD_BYTES, node.page_bytes // AHEAD_PART)
        else:
            self.nodes.discard(node)
        for owner in node.owners():
            self._topology.update_claims(owner)

    def look(self, node: Node) -> None:
        """Read ahead what will be needed; put on disk what is more than memory should hold."""
        spool = node.spool
        if spool is None:
            return
        now_ns = self._turn.now_ns
        spool.tidy()
        if spool.runs and (node.consumers or spool.is_over(now_ns)) and not _letters_wait(node):
            spool.read_ahead(now_ns, self._room())
        if node.hot.overflow == constants.OVERFLOW_PAGE:
            excess = memory_of(node) - node.page_bytes * PAGE_PERCENT // 100
            if excess > 0:
                self._page_out(node, excess + PAGE_BYTES)

    def _room(self) -> int:
        """How much more memory may hold beside all that is promised."""
        memory = self._memory
        if memory.stop_bytes == 0:
            return constants.UNBOUNDED
        return max(memory.stop_bytes - memory.depth_bytes - memory.promised_bytes, 0)

    def make_room(self) -> None:
        """The broker holds much in memory: of the nodes that page the largest make room first."""
        if self._memory.stop_bytes == 0 or self._turn.now_ns < self._pause_ns:
            return
        held = self._memory.depth_bytes - self.passing_bytes
        over = held - self._memory.stop_bytes * PAGE_PERCENT // 100
        if over <= 0:
            return
        for node in sorted(self.nodes, key=memory_of, reverse=True):
            over -= self._page_out(node, over + PAGE_BYTES)
            if over <= 0:
                return
        self._pause_ns = self._turn.now_ns + PAGE_PAUSE_NS

    def _page_out(self, node: Node, nbytes: int) -> int:
        """Put about so much of the node on disk; how much it was."""
        spool = node.spool
        if spool is None or spool.write_fault is not None or self._temp.closed:
            return 0
        if self._temp.stop_bytes:
            nbytes = min(nbytes, self._temp.stop_bytes - self._temp.depth_bytes)
        before = memory_of(node)
        msgs = spool.page_out(nbytes)
        freed = before - memory_of(node)
        self._memory.depth_bytes -= freed
        self._memory.depth_msgs -= msgs
        if spool.grown:
            # What is forgotten of them one day is what they have on disk.
            self._depths.count_kept(node, 0, spool.grown)
            spool.grown = 0
        while spool.husks:
            spool.husks -= 1
            assert node.expiry is not None, "what expires is known to it"
            node.expiry.left()
        return freed

    def drop(self, node: Node) -> int:
        """Forget what is on disk only; how many messages that was."""
        if node.spool is None:
            return 0
        count, nbytes, runs = node.spool.drop()
        node.gate.depth_msgs -= count
        node.gate.depth_bytes -= nbytes
        if node.shelf is not None:
            # What expired between them and is on its way elsewhere.
            # Between the messages of one level stand those of others.
            held = {entry.seq for entry in node.queue if node.ordered or entry.state == constants.ACQUIRED}
            for run in runs:
                for seq in range(run.first, run.last + 1):
                    if seq not in held:
                        node.shelf.forget(seq, run.nbytes // max(run.count, 1))
        if node.bodies:
            inside = {entry.seq for entry in node.queue}
            for seq in [seq for seq in node.bodies if seq not in inside]:
                self._bodies.let_go(node, seq)
        return int(count)

    def _loaded(self, node: Node, run: Run, messages: list[Message]) -> None:
        """A run is back; what it was counted for at the gate is set right where it was an estimate."""
        nbytes = 0
        now_ns = self._turn.now_ns
        late: list[tuple[Entry, str]] = []
        near: Entry | None = None
        for seq, flags, delivery_count, expires_ns, data in messages:
            if node.maybe_delivered_upto and seq <= node.maybe_delivered_upto:
                flags |= REDELIVERED
            reason = EXPIRED if 0 < expires_ns <= now_ns else ""
            if flags & (LARGE | UNSURE) and self._letters.is_without_body(node, seq, flags, data):
                reason = BODY_LOST
            entry = put_back(node.queue, seq, flags, delivery_count, 0 if reason else expires_ns, data, near)
            near = entry
            nbytes += len(data)
            if seq in node.bodies:
                dress(entry, node.bodies[seq][0])
            if reason:
                late.append((entry, reason))
            elif expires_ns:
                self._expirations.watch(node, entry)
        self._memory.depth_bytes += nbytes + constants.HELD_BYTES * len(messages)
        self._memory.depth_msgs += len(messages)
        node.gate.depth_msgs += len(messages) - run.count
        node.gate.depth_bytes += nbytes - run.nbytes
        if run.kept:
            self._depths.count_kept(node, len(messages) - run.count, nbytes - run.nbytes)
        for entry, reason in late:
            node.queue.take(entry)
            self._settlement.dead_letter(node, entry, reason)
        self._turn.mark_dirty(node)

    def _scanned(self, node: Node, run: Run, messages: list[Message]) -> list[Message]:
        """A run was read to be looked at: from now on it is counted for what it holds."""
        spool = node.spool
        assert spool is not None
        if not run.measured:
            msgs, nbytes = spool.measure(run, len(messages), sum(len(each[4]) for each in messages))
            if msgs or nbytes:
                node.gate.depth_msgs += msgs
                node.gate.depth_bytes += nbytes
                if run.kept:
                    self._depths.count_kept(node, msgs, nbytes)
        # One that has lost its body stays where it is until it is read ahead, and becomes a dead letter then.
        lost = {
            each[0]
            for each in messages
            if each[1] & (LARGE | UNSURE) and self._letters.is_without_body(node, each[0], each[1], each[4])
        }
        if lost:
            messages = [each for each in messages if each[0] not in lost]
        if run.first <= node.maybe_delivered_upto:
            return [
                (
                    seq,
                    flags | REDELIVERED if seq <= node.maybe_delivered_upto else flags,
                    count,
                    expires_ns,
                    data,
                )
                for seq, flags, count, expires_ns, data in messages
            ]
        return messages

    def _met(self, node: Node, entry: Entry, taken: bool) -> None:
        """A reader gets a message from disk; what a consumer takes is in memory from now on."""
        if entry.seq in node.bodies:
            dress(entry, node.bodies[entry.seq][0])
        if taken:
            self._memory.depth_bytes += len(entry.data) + constants.HELD_BYTES
            self._memory.depth_msgs += 1
            if entry.extra is not None and entry.extra.expires_ns:
                self._expirations.watch(node, entry)

    def restore(self, node: Node, run: Run, level: int = -1) -> None:
        """A page of messages that survived: it stays on disk until it is needed.

        At a node whose messages leave by their priority it has those of one level.
        """
        spool = self._spool_of(node)
        if isinstance(spool, PrioritySpool):
            spool.add_to(level, run)
        else:
            spool.add(run)
        node.gate.depth_bytes += run.nbytes
        node.gate.depth_msgs += run.count
        self._depths.count_kept(node, run.count, run.nbytes)
        if node.gate.look(self._turn.now_ns):
            self._changes.gate_changed(node)

    def fault(self) -> str:
        """What the temporary store can't do at present; empty if all is well."""
        for node in self._topology.every_node():
            if node.spool is not None and (
                fault := node.spool.read_fault or node.spool.write_fault or node.spool.look_fault
            ):
                return f"messages of '{node.name}' can't be paged: {fault}"
        return ""

    def retry(self, node: Node, spool: Spool) -> None:
        """Once a second what failed is tried again, and what expired on disk is looked for."""
        if spool.write_fault is not None or spool.read_fault is not None or spool.look_fault is not None:
            spool.retry()
            self._paged(node)
        if spool.is_over(self._turn.now_ns) or self._temp.closed:
            self._turn.mark_dirty(node)

    def hold_temp(self) -> None:
        """Nodes that page take nothing in while what they put out can't be written."""
        faults = [each.spool.write_fault for each in self.nodes if each.spool is not None]
        if self._temp.hold(any(fault is not None for fault in faults), self._turn.now_ns):
            self._changes.budget_changed(self._temp)
            for each in self.nodes:
                self._changes.overpromise(each)

    def _spool_of(self, node: Node) -> Spool:
        """The node's spool, made when it is first needed."""
        if node.spool is None:
            if self.pager is None:
                raise RuntimeError("there is no pager")

            def loaded(run: Run, messages: list[Message]) -> None:
                self._loaded(node, run, messages)

            def answered() -> None:
                self._paged(node)

            kind: Any = PrioritySpool if node.ordered else Spool
            node.spool = kind(
                node.queue,
                self.pager,
                loaded,
                self._memory_changed,
                self._temp_changed,
                answered,
                scans=self.scans,
                on_scanned=lambda run, messages: self._scanned(node, run, messages),
                on_met=lambda entry, taken: self._met(node, entry, taken),
                is_late=lambda expires_ns: expires_ns <= self._turn.now_ns,
            )
        return node.spool

    def _paged(self, node: Node) -> None:
        """The pager has answered: where it can't write, nodes that page grant no credit until it can."""
        self._turn.mark_dirty(node)
        if node.spool is not None and (node.spool.write_fault is not None) != self._temp.held:
            self.hold_temp()

    def _memory_changed(self, nbytes: int) -> None:
        self._memory.depth_bytes += nbytes
        self.passing_bytes += nbytes

    def _temp_changed(self, nbytes: int) -> None:
        """A run takes room on disk, or gives it back; recovered ones never took any."""
        self._temp.depth_bytes += nbytes
        self._temp.depth_msgs += (nbytes > 0) - (nbytes < 0)


def _letters_wait(node: Node) -> bool:
    """Whether so many dead letters wait for room that no more should be read to become one."""
    return node.letters is not None and node.letters.waiting_msgs() >= MOVE_WINDOW
