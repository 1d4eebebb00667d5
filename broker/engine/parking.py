"""Messages that wait outside their node for room, and are refused when their time is over (`when_full`)."""

from __future__ import annotations

from broker import constants
from broker.engine.credit import CreditDealer
from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.flow.producer_credit import IDLE_NS, ProducerCredit

# How long a message waits at a node that rejects where only others' credit is in its way: until what they
# used last is idle, and once more for the look at it.
LENDING_NS = 2 * IDLE_NS


class Parking:
    """Parks messages at their producers' accounts."""

    def __init__(self, turn: Turn, credit: CreditDealer) -> None:
        self._turn = turn
        self._credit = credit

    def park(self, node: Node, account: ProducerCredit, message: object, size: int, settled: bool) -> None:
        """Keep a message until there is room, or the time `when_full` gives it is over.

        A pre-settled message has no deadline: nobody could be told that it was refused.
        """
        patient = settled or account.window_max > 0
        account.park(message, size, self._turn.now_ns, patient)
        node.parked += 1
        if account.budget is not None:
            self._credit.budgets_in_demand[account.budget] = None
        if node.park_timeout_ns and not patient:
            node.timed_parked.add(account)
            due_ns = self._turn.now_ns + node.park_timeout_ns
            if node.refuse_ns == 0 or due_ns < node.refuse_ns:
                node.refuse_ns = due_ns
        self._credit.timed_nodes[node] = None
        self._turn.mark_dirty(node)

    def refuse_overdue(self, node: Node) -> None:
        """Refuse messages that have been parked for as long as they may be."""
        node.refuse_ns = 0
        for account in list(node.timed_parked):
            before = len(account.parked)
            oldest_ns = account.refuse_until(self._turn.now_ns - node.park_timeout_ns)
            if before > len(account.parked):
                node.refused += before - len(account.parked)
                self._turn.wake(node)
            if oldest_ns == 0:
                node.timed_parked.discard(account)
            elif node.refuse_ns == 0 or oldest_ns + node.park_timeout_ns < node.refuse_ns:
                node.refuse_ns = oldest_ns + node.park_timeout_ns

    def set_timeout(self, node: Node) -> None:
        """Set how long a parked message may wait, those that do already included."""
        park_timeout_ns = 0
        if node.hot.when_full == constants.FULL_REJECT:
            park_timeout_ns = LENDING_NS
        elif node.hot.when_full == constants.FULL_REJECT_AFTER:
            park_timeout_ns = node.settings.reject_after_ms * 1_000_000
        if park_timeout_ns == node.park_timeout_ns:
            return
        node.park_timeout_ns = park_timeout_ns
        node.timed_parked.clear()
        node.refuse_ns = 0
        if park_timeout_ns:
            node.timed_parked.update(account for account in node.allocator.accounts if account.parked)
            # The next turn finds out when each is due.
            node.refuse_ns = 1 if node.timed_parked else 0
