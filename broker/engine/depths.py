"""How much is kept: the depth of every node, and of the three budgets over all nodes."""

from __future__ import annotations

from broker import constants
from broker.engine.changes import Changes
from broker.engine.node import Node, memory_of
from broker.engine.turn import Turn
from broker.flow.gate import Gate


class Depths:
    """Counts messages and bytes as they come and go.

    ``memory`` is the gate of all message bytes held in memory, each message with ``HELD_BYTES`` for its
    place. ``disk`` is that of all durable nodes together: what is on disk against the store's limit; it is
    held while the store can't write. ``temp`` is that of what is paged out, held while that can't be written.
    """

    def __init__(self, turn: Turn, changes: Changes) -> None:
        self._turn = turn
        self._changes = changes
        self.memory = Gate("memory_limit")
        self.disk = Gate("store_limit")
        self.temp = Gate("temp_limit")

    def limit(self, memory_bytes: int, store_bytes: int, temp_bytes: int) -> None:
        """Set the budgets over all nodes (FLOW §4): message bytes in memory, durable ones on disk, and paged
        out; 0 is none.
        """
        limits = ((self.memory, memory_bytes), (self.disk, store_bytes), (self.temp, temp_bytes))
        for gate, limit in limits:
            # Who waits for a budget goes on when a twentieth is free, not at every message that leaves.
            gate.configure(0, 0, limit, limit - limit // 20, 0, self._turn.now_ns)

    def enter(self, node: Node, size: int) -> None:
        """Count a message of ``size`` bytes that has come to a node; its gate may close."""
        self.memory.depth_bytes += size + constants.HELD_BYTES
        self.memory.depth_msgs += 1
        if node.gate.enter(size, self._turn.now_ns):
            self._changes.gate_changed(node)

    def restore(self, node: Node, size: int) -> None:
        """Count a message of ``size`` bytes that was on disk already."""
        self.enter(node, size)
        self.count_kept(node, 1, size)

    def leave(self, node: Node, size: int) -> None:
        """Count a message of ``size`` bytes that has left a node; its gate may open."""
        self.memory.depth_bytes -= size + constants.HELD_BYTES
        self.memory.depth_msgs -= 1
        if node.gate.leave(size, self._turn.now_ns):
            self._changes.gate_changed(node)

    def count_kept(self, node: Node, msgs: int, nbytes: int) -> None:
        """Count messages of a node that are kept on disk from now on; negative numbers give back."""
        node.stored_msgs += msgs
        node.kept_bytes += nbytes
        self.count_disk(msgs, nbytes)

    def count_disk(self, msgs: int, nbytes: int) -> None:
        """Count what takes room on disk though no node serves it; negative numbers give it back."""
        self.disk.depth_msgs += msgs
        self.disk.depth_bytes += nbytes

    def recount(self, node: Node) -> None:
        """Count anew what is kept of a node: the sizes of what was dropped unread are not known."""
        kept = [len(entry.data) for entry in node.queue if entry.durable]
        if node.schedule is not None:
            kept += [len(delayed.data) for delayed in node.schedule if delayed.durable]
        self.count_kept(node, len(kept) - node.stored_msgs, sum(kept) - node.kept_bytes)
        if node.gate.look(self._turn.now_ns):
            self._changes.gate_changed(node)

    def release(self, node: Node) -> None:
        """Give back the memory and the runs on disk of a node that is gone."""
        self.memory.depth_bytes -= memory_of(node)
        self.memory.depth_msgs -= node.gate.depth_msgs - (0 if node.spool is None else node.spool.count)
        if node.spool is not None:
            node.gate.depth_msgs -= node.spool.count
            node.gate.depth_bytes -= node.spool.nbytes
            node.spool.drop()

    def look_at_budgets(self) -> None:
        """Open or close the budgets, and tell observers."""
        for gate in (self.memory, self.disk, self.temp):
            if (gate.closed or (gate.stop_bytes and gate.depth_bytes >= gate.stop_bytes)) and gate.look(
                self._turn.now_ns
            ):
                self._changes.budget_changed(gate)
