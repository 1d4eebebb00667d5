"""The fair share of each producer, of room that several producers hold together."""

from __future__ import annotations

from broker.flow.fairness import level
from broker.flow.gate import Gate
from broker.flow.producer_credit import FLOW_BITS, ProducerCredit


class Level:
    """The max-min shares of room that some accounts share: of what there is now, and was lately.

    Of what is left one may hold more than its share while it was served less than others lately: theirs is in
    the node. But never more than its share of the ``whole``, of what the threshold allows in all.
    Counted in messages, or in what they take of a ``budget``.
    """

    def __init__(
        self, accounts: list[ProducerCredit], room: int, whole: int, now_ns: int, budget: Gate | None = None
    ) -> None:
        self.budget = budget
        # How many of them there is no telling of: they never used any credit, and don't ask for it.
        self.strangers = 0
        self._weigh(accounts, room, whole, now_ns)

    def _weigh(self, accounts: list[ProducerCredit], room: int, whole: int, now_ns: int) -> None:
        demands: list[int] = []
        served: list[int] = []
        capacity = room
        past = 0
        for account in accounts:
            unit = self.unit(account)
            flow = account.served(now_ns) * unit
            demand = account.demand(now_ns) * unit
            capacity += account.outstanding * unit
            past += flow
            if demand == 0:
                self.strangers += 1
            if demand + flow > 0:
                demands.append(demand)
                served.append(flow + demand)
        self.capacity = capacity
        # The room that those may hold together who never used any and may be about to.
        self.spare = capacity >> 2
        self.share = level(capacity, demands)
        self.flow = level(capacity + past, served)
        self.most = level(max(whole, capacity), demands)

    def unit(self, account: ProducerCredit) -> int:
        """Return what a credit of the account counts for; 0 where its messages don't use the budget."""
        if self.budget is None:
            return 1
        if account.budget is not None and account.budget.gate is self.budget:
            return account.allocator.reservations.held(account.reserve_bytes)
        return account.allocator.reservations.takes(self.budget, account.reserve_bytes)

    def spared(self, account: ProducerCredit) -> int:
        """Return how much credit one may hold that never used any: an even part of a quarter of the room."""
        unit = self.unit(account)
        if unit == 0 or self.spare < unit:
            return 0
        part = (self.capacity >> 2) // max(self.strangers, 1)
        keep = min(max(part // unit, 1), self.spare // unit, account.outstanding)
        self.spare -= keep * unit
        return keep

    def of(self, account: ProducerCredit) -> int:
        """Return how much credit the account may hold beside those who wait."""
        unit = self.unit(account)
        if unit == 0:
            return account.outstanding
        behind = self.flow - (account.flow >> FLOW_BITS) * unit
        return max(self.share, min(behind, self.most), 0) // unit
