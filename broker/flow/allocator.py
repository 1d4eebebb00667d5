"""The credit that each producer of an address is granted.

    credit = min(window - outstanding - held,      what the link has earned and doesn't hold, nor what it sent
                                                   that waits for its settlement
                 max-min share,                    among those in line with it; at least a batch
                 room of the own gate,             without the part kept for high priorities
                 room of every subscription's gate,    (`priority_reserve`), unless it is urgent
                 room of memory,
                 room of every budget on disk,
                 room of the connection's budget)

A link's window begins at `initial_credit`, and at most at `flow_stop_count` divided by the links there
are (``AddressCredit.open``); it doubles each time the link has used half of it. Credit is taken back from
links that don't use it while others wait; such a link rests and is tried again with a window of its part of
the room, at most `initial_credit` (reclaim.py). ``CreditAllocator.terms`` returns these numbers for one
producer. A gate's room (``flow/gate.py``) is its stop threshold less depth and promises, in messages, or in
bytes by the size of the link's messages so far. This file knows no Proton, no clock, no disk.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.flow.address_credit import AddressCredit
from broker.flow.fairness import deal
from broker.flow.gate import Gate
from broker.flow.level import Level
from broker.flow.producer_credit import IDLE_NS, ProducerCredit
from broker.flow.reclaim import Reclaimer

# The credit dealt at once where many ask for little room, and the part of the threshold it may be at most.
BATCH = 10
# How often a link whose messages are too large for the room there is may be passed over.
PATIENCE = 16


class Term(NamedTuple):
    """One term of the formula: how many credits it leaves a producer, and whose room it is, if it is one."""

    name: str
    msgs: int
    gate: str = ""


class CreditAllocator(AddressCredit):
    """Deals the room of one address to its producers, once a turn at most (``settle_turn``).

    1. A link that fell to half its window asks (``renew``). If nobody waits and there is room for
       all it wants, it gets it at once.
    2. Otherwise it waits in line. Room that appears goes first to parked messages in the order of
       the line, then to credit, max-min fair (fairness.py) among as many from the head of the line as
       can have a batch.
    3. Urgent producers, who say that they send high priorities only, are dealt the reserve before that,
       max-min fair among themselves; the rest of the room they share with all others. Of those who don't
       say so, one that has sent high priorities and holds nothing gets one credit of it, while more than
       half of it is free: its next message may be an alarm.
    4. While somebody waits in vain, idle credit is taken back, and resting links are tried again from time
       to time (reclaim.py).
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self.reclaimer = Reclaimer()

    # --- when room is dealt

    def renew(self, account: ProducerCredit, now_ns: int) -> bool:
        """Let a link that used half of what it had earn more; return whether it has to wait for it."""
        if account.waiting or account.waits_for_budget or account.window_max == 0:
            return False
        if account.mixed and account.urgent and account.outstanding == 0:
            self.classify(account, False)
        if account.window < account.window_max:
            account.set_window(min(account.window * 2, account.window_max))
        if not self.line and not self.rest and not account.parked and not self.reservations.is_wanted():
            self.learn(account)
            want = account.wants()
            if self.reservations.room(account.reserve_bytes, account.urgent) >= want and (
                account.budget is None
                or account.budget.share(self.reservations.held(account.reserve_bytes)) >= want
            ):
                if want > 0:
                    self.grant(account, want, now_ns)
                return False
        self.wait(account, now_ns)
        return True

    def settle_turn(self, now_ns: int) -> None:
        """Deal what room there is to those in line; reclaim from the idle if that isn't enough."""
        self.trim_if_overpromised(now_ns)
        if self.reservations.is_shut():
            return
        if self.line:
            self._deal(now_ns)
        if self.line and now_ns >= self.reclaim_ns and not self.reservations.is_closed():
            self.reclaim_ns = now_ns + IDLE_NS
            if self.reclaimer.reclaim(self, now_ns):
                self._deal(now_ns)
        if self.rest and now_ns >= self.probe_ns:
            self.reclaimer.probe(self, now_ns)
            self._deal(now_ns)
        if self.line:
            self.reservations.find_bottleneck()
        else:
            self.reservations.bottleneck = None

    def wait_its_turn(self, now_ns: int) -> None:
        """Deal nothing, for what room there is is kept for others; take back what isn't covered any more."""
        self.trim_if_overpromised(now_ns)
        self.reclaim_ns = max(self.reclaim_ns, now_ns + IDLE_NS)
        self.probe_ns = max(self.probe_ns, now_ns + IDLE_NS)

    def next_deadline(self) -> int:
        """Return when ``settle_turn`` has work that no event announces; 0 for never."""
        deadline = 0
        if self.line and self.promised_msgs > 0 and not self.reservations.is_closed():
            deadline = max(self.reclaim_ns, 1)
        if self.rest and (deadline == 0 or self.probe_ns < deadline) and not self.reservations.is_closed():
            # Never looked for is due now, where 0 would be never.
            deadline = max(self.probe_ns, 1)
        return deadline

    def lend(self, now_ns: int, shares: Level, spared: bool = False) -> int:
        """Take back what idle accounts hold beyond their shares, for other addresses; return how much.

        Where they are ``spared``, only from those whose timer should have gone off.
        """
        return self.reclaimer.lend(self, now_ns, shares, spared)

    # --- how much each gets

    def terms(self, account: ProducerCredit) -> list[Term]:
        """Return the terms of the formula in its order, as if the account asked for credit now.

        Of the subscriptions it is the one with the least room. The least term is what the account would be
        granted at the head of the line. Further behind it is granted no more than that, and as much where all
        messages have one size.
        """
        size = account.reserve_bytes
        found = self.reservations
        terms = [
            Term("window", account.wants()),
            Term("share", self._share_of(account)),
            Term("gate", self.gate.whole_room(size), self.gate.name),
        ]
        if self.gate.reserves and not account.urgent:
            terms.append(Term("reserve", self.gate.room(size), self.gate.name))
        if found.others:
            tightest = found.others[0]
            for each in found.others:
                if each.room(size, account.urgent) < tightest.room(size, account.urgent):
                    tightest = each
            terms.append(Term("subscription", tightest.room(size, account.urgent), tightest.gate.name))
        if found.memory is not None:
            terms.append(Term("memory", found.memory.room(size), found.memory.gate.name))
        for each in found.disks:
            terms.append(Term("disk", each.room(size), each.gate.name))
        if account.budget is not None:
            left = account.budget.share(found.held(size))
            terms.append(Term("connection", left, account.budget.gate.name))
        return terms

    def _share_of(self, account: ProducerCredit) -> int:
        """Return the max-min share of an account that asked now; 0 while parked messages come first.

        An urgent one has its part of the reserve beside that.
        """
        if account.urgent:
            return self._common_share_of(account) + min(self._reserve_left(account), account.wants())
        return self._common_share_of(account)

    def _reserve_left(self, account: ProducerCredit) -> int:
        """Return how much credit the reserve has room for, beyond the room that all producers share."""
        size = account.reserve_bytes
        return max(self.urgent_room(size) - self.room(size), 0)

    def _common_share_of(self, account: ProducerCredit) -> int:
        line: list[ProducerCredit] = list(self.line)
        if not account.waiting:
            line.append(account)
        askers: list[ProducerCredit] = []
        budget = self.room(1)
        room = max(self.room(line[0].reserve_bytes), 1)
        batch = self._batch(room)
        for each in line:
            if budget <= len(askers) or room <= 0 or each.parked:
                break
            if each.wants() > 0:
                askers.append(each)
                room -= self._part_of(each, batch)
        for each, share in zip(askers, self._shares(askers) if askers else (), strict=True):
            if each is account:
                return share
        return 0

    def _deal(self, now_ns: int) -> None:
        """Steps 2 and 3 of the class: the reserve, then parked messages and credit, while there is room."""
        if self.urgents > 0 or self.reservations.has_reserve():
            self._deal_reserve(now_ns)
        if not self.line:
            return
        askers: list[ProducerCredit] = []
        budget = self.room(1)
        if budget == 0 and self.parked_msgs > 0:
            self._admit_in_line()
            if not self.line:
                return
        # As the first would use it; one that sends smaller messages may find more.
        room = max(self.room(self.line[0].reserve_bytes), 1)
        batch = self._batch(room)
        while self.line and budget > 0 and room > 0:
            account = self.line.popleft()
            account.waiting = False
            budget -= self._admit_parked(account, budget)
            if account.parked:
                account.waiting = True
                self.line.appendleft(account)
                break
            if account.wants() > 0:
                askers.append(account)
                budget -= 1
                room -= self._part_of(account, batch)
        if askers:
            self._deal_credit(askers, now_ns)

    def _deal_reserve(self, now_ns: int) -> None:
        """Deal what is left of the reserve among the urgent producers in line."""
        askers: list[ProducerCredit] = []
        for account in list(self.line):
            if account.mixed:
                self._deal_single(account, now_ns)
                continue
            if not account.urgent:
                continue
            self._admit_parked(account, len(account.parked))
            # A way that was refused has closed.
            if not account.parked and account.waiting and account.wants() > 0:
                askers.append(account)
        left = self._reserve_left(askers[0]) if askers else 0
        if left == 0:
            return
        for account in askers:
            self.learn(account)
        shares = deal(left, [a.outstanding for a in askers], [a.wants() for a in askers])
        for account, share in zip(askers, shares, strict=True):
            msgs = min(share, self._reserve_left(account))
            if msgs > 0 and account.budget is not None:
                left = account.budget.share(self.reservations.held(account.reserve_bytes))
                if left == 0:
                    self.leave_line(account)
                    self.enter_budget_queue(account)
                msgs = min(msgs, left)
            if msgs > 0:
                account.passed_over = 0
                self.leave_line(account)
                self.grant(account, msgs, now_ns)
                if account.outstanding <= account.low and account.wants() > 0:
                    self.wait(account, now_ns)

    def _deal_single(self, account: ProducerCredit, now_ns: int) -> None:
        """Give a mixed producer that holds nothing one credit of the reserve, if half of it is left."""
        if account.outstanding > 0 or account.parked or account.wants() == 0:
            return
        size = account.reserve_bytes
        left = self._reserve_left(account)
        if self.room(size) > 0 or left <= 1 or 2 * left <= self.reservations.reserve_part(1, size):
            return
        if account.budget is not None and account.budget.share(self.reservations.held(size)) == 0:
            return
        self.classify(account, True)
        self.leave_line(account)
        self.grant(account, 1, now_ns)
        if account.outstanding <= account.low and account.wants() > 0:
            self.wait(account, now_ns)

    def _batch(self, room: int) -> int:
        """Return the credit an asker gets at least, up to what it wants.

        Every grant is a flow frame: where room comes in crumbs some get a batch now and the others next time,
        for the line goes round.
        """
        stop_msgs = self.gate.stop_msgs or self.gate.stop_bytes // self.gate.unit_bytes()
        if stop_msgs < len(self.accounts):
            # Beside so many a batch for one is a long wait for the others.
            return 1
        most = stop_msgs // BATCH if room < len(self.line) else stop_msgs // (2 * len(self.accounts))
        return max(min(BATCH, most), 1)

    def _part_of(self, account: ProducerCredit, batch: int) -> int:
        """Return the room an asker is counted for; one that wants more than there is only keeps its place."""
        return min(batch, account.wants()) if self.room(account.reserve_bytes) > 0 else 0

    def _admit_in_line(self) -> None:
        """Admit parked messages alone, where memory has no room for more: they are in it already."""
        # A way that is refused closes, and leaves the line.
        for account in list(self.line):
            self._admit_parked(account, len(account.parked))
            if account.parked:
                return

    def _admit_parked(self, account: ProducerCredit, budget: int) -> int:
        """Admit up to ``budget`` of an account's parked messages, as far as they fit; return how many."""
        admitted = 0
        while (
            account.parked
            and admitted < budget
            and self.reservations.admit(account.parked[0][1], account.urgent and not account.parks_bulk)
        ):
            message, size = account.next_parked()
            account.port.admit(message, size)
            admitted += 1
        return admitted

    def _deal_credit(self, askers: list[ProducerCredit], now_ns: int) -> None:
        """Grant each asker the least of the formula's terms."""
        for account in askers:
            self.learn(account)
        # An asker that gets nothing keeps its place at the head of the line, the others go to its end.
        unserved: list[ProducerCredit] = []
        held_back = False
        for account, share in zip(askers, self._shares(askers), strict=True):
            if account.mixed and account.urgent and self.room(account.reserve_bytes) > 0:
                # What it holds of the reserve counts as others' credit does from now on.
                self.classify(account, False)
            msgs = 0 if held_back else min(share, self.room(account.reserve_bytes))
            if msgs > 0 and account.budget is not None:
                left = account.budget.share(self.reservations.held(account.reserve_bytes))
                account.budget.asking = max(account.budget.asking - 1, 0)
                if left < min(msgs, account.wants()):
                    self.enter_budget_queue(account)
                    msgs = left
                if msgs <= 0:
                    continue
            if msgs <= 0:
                if account.outstanding == 0:
                    account.passed_over += 1
                    held_back = held_back or account.passed_over > PATIENCE
                account.waiting = True
                unserved.append(account)
                continue
            account.passed_over = 0
            self.grant(account, msgs, now_ns)
            if account.outstanding <= account.low and account.wants() > 0 and not account.waits_for_budget:
                account.waiting = True
                self.line.append(account)
        self.line.extendleft(reversed(unserved))

    def _shares(self, askers: list[ProducerCredit]) -> list[int]:
        """Return the max-min share of each asker, in messages of their average size.

        Each grant is checked by its own size.
        """
        total = 0
        for account in askers:
            total += account.reserve_bytes
        room = self.room(total // len(askers))
        return deal(room, [a.outstanding for a in askers], [a.wants() for a in askers])
