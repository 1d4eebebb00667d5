"""The room in memory that all producers of one connection share.

This file does the budget's arithmetic. It stands below the producers' credit, whose verbs ``trim`` and
``serve`` call; idle producers' credit within a connection is taken back in ``flow/reclaim.py``.
"""

from __future__ import annotations

from typing import Any

from broker.flow.gate import Gate

# The part of the limit that has to be free before those who wait are dealt again.
SERVE_PART = 20


class ConnectionBudget:
    """The bytes that all producers of one connection may have promised and parked together (FLOW §4).

    Each message counts with ``HELD_BYTES`` for its place. A producer that got nothing for want of room here
    waits in ``budget_queue``, out of its address's line, so that it holds nobody else up there; ``serve``
    puts it back. Producers are ``ProducerCredit``, which stands above this file.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.gate = Gate("connection_memory_limit")
        self.gate.configure(0, 0, limit_bytes, limit_bytes, 0, 0)
        self.accounts: list[Any] = []
        self.budget_queue: list[Any] = []
        # How many of those that were just put in line have not been dealt yet.
        self.asking = 0

    def hold(self, msgs: int, size: int) -> None:
        """Count what is held of messages that are in no node yet; negative numbers when it no longer is."""
        self.gate.depth_msgs += msgs
        self.gate.depth_bytes += size

    def share(self, size: int) -> int:
        """Return how many credits of ``size`` bytes the next one may have, beside those who wait already."""
        room = self.gate.room(size)
        return room if room <= 1 else max(room // max(len(self.budget_queue) + 1, self.asking), 1)

    def is_overdrawn(self) -> bool:
        """Return whether what is held alone is more than the limit."""
        return self.gate.depth_bytes > self.gate.stop_bytes

    def trim(self, now_ns: int) -> None:
        """Take back the credit that the limit doesn't cover any more, from the longest idle first.

        It is too much when more is held, or reserved for each credit, than was foreseen. The caller has the
        budget looked after until nobody waits for it.
        """
        for account in sorted(self.accounts, key=lambda each: each.last_used_ns):
            excess = self.gate.excess_msgs()
            if excess == 0:
                return
            taken = min(excess, account.outstanding)
            if taken > 0:
                account.allocator.take_back(account, taken, now_ns)

    def serve(self, now_ns: int) -> list[Any]:
        """Put those who wait in line at their nodes again; return them.

        Nobody, before a twentieth is free or all that could be.
        """
        gate = self.gate
        left = gate.stop_bytes - gate.depth_bytes - gate.promised_bytes
        if left < gate.stop_bytes // SERVE_PART and gate.promised_msgs + gate.depth_msgs > 0:
            return []
        waiting, self.budget_queue = self.budget_queue, []
        self.asking = len(waiting)
        for account in waiting:
            account.waits_for_budget = False
            account.allocator.wait(account, now_ns)
        return waiting
