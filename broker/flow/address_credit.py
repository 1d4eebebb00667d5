"""The promises of credit that stand at one address, and the one place that enters and strikes them.

At every gate the outstanding credit of all accounts is reserved, so depth and promises together never pass a
stop threshold. Nothing here decides who gets how much; ``flow/allocator.py`` does.
"""

from __future__ import annotations

from collections import deque

from broker import constants
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.producer_credit import IDLE_NS, PROBE_NS, AllocatorPort, Port, ProducerCredit
from broker.flow.reservation import Reservation, ReservationSet


class AddressCredit(AllocatorPort):
    """All producers' credit at one address.

    ``gate`` is the node's own. ``line`` has the accounts that wait for room, ``rest`` those without credit
    that showed no wish to send. ``reclaim_ns`` and ``probe_ns`` are the times when idle credit is next looked
    for and resting links are next tried. ``overpromised`` says that more may be promised than gates cover.
    ``uncommitted_msgs``, of ``uncommitted_bytes``, came in transactions that are open, and keep the room that
    their credit had reserved.
    ``budgets_in_demand`` has the budgets of connections that somebody waits for; the caller empties it.
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__(ReservationSet(gate))
        self.gate = gate
        self.accounts: list[ProducerCredit] = []
        self.line: deque[ProducerCredit] = deque()
        self.rest: deque[ProducerCredit] = deque()
        self.promised_msgs = 0
        self.parked_msgs = 0
        self.parked_bytes = 0
        self.used_total = 0
        self.revoked_count = 0
        self.reclaim_ns = 0
        self.probe_ns = 0
        self.overpromised = False
        self.uncommitted_msgs = 0
        self.uncommitted_bytes = 0
        # By size, for each reserves its own in every gate.
        self._uncommitted: dict[int, int] = {}
        self._last_size = -1
        self._last_msgs = 0
        # How many urgent accounts there are.
        self.urgents = 0
        self.budgets_in_demand: list[ConnectionBudget] = []

    # --- accounts come and go

    def open(
        self, port: Port, window_max: int, initial: int, now_ns: int, budget: ConnectionBudget | None = None
    ) -> ProducerCredit:
        """Open a producer's account; its first grant comes at the end of the turn, if there is room."""
        account = ProducerCredit(self, port, window_max, initial, budget)
        account.last_used_ns = now_ns
        if budget is not None:
            budget.accounts.append(account)
        self.accounts.append(account)
        if self.gate.stop_msgs and window_max > 0:
            part = max(self.gate.stop_msgs // len(self.accounts), 1)
            if part < account.window:
                account.set_window(part)
                account.began = part
                account.sharers = len(self.accounts)
        if window_max > 0:
            self.wait(account, now_ns)
        return account

    def leave(self, account: ProducerCredit) -> None:
        """Forget an account and give back all it had reserved."""
        if account.closed:
            return
        if account.waiting:
            self.leave_line(account)
        if account.resting:
            account.resting = False
            self.rest.remove(account)
        self.leave_budget_queue(account)
        account.closed = True
        self.give_back(account, account.outstanding)
        account.withdrawn = 0
        while account.parked:
            account.next_parked()
        self.accounts.remove(account)
        self.urgents -= account.urgent
        if account.budget is not None:
            account.budget.accounts.remove(account)

    def orphan(self, account: ProducerCredit, now_ns: int) -> None:
        """Keep an account whose link is gone in line, for what it parked was pre-settled: it is the broker's.

        The account gets no credit any more. The caller closes it when it is empty.
        """
        self.give_back(account, account.outstanding)
        account.withdrawn = 0
        account.window_max = 0
        account.set_window(0)
        self.wait(account, now_ns)

    def blocked(self) -> int:
        """Return how many producer links wait without credit, or with a parked message."""
        count = 0
        for account in self.accounts:
            waits = account.waiting or account.waits_for_budget
            if waits and (account.outstanding == 0 or account.parked):
                count += 1
        return count

    # --- the gates that a message here needs room in

    def budget(self, memory: Gate, most_held: int = constants.UNBOUNDED) -> None:
        """Reserve from the broker's memory as well; before the first account is opened.

        Of a message larger than ``most_held`` no more than that is in memory.
        """
        self.reservations.add_memory(memory, most_held)

    def copy(self, copies: int) -> None:
        """Hold a message to this address so many times in memory from now on, once at least."""
        memory = self.reservations.memory
        if memory is not None:
            before = memory.copies
            self._change(memory, 1, max(copies, 1))
            self.overpromised = self.overpromised or memory.copies > before

    def claim(self, gate: Gate, copies: int) -> None:
        """Keep so many copies of a message where ``gate`` is the budget, on disk, from now on."""
        disk = self.reservations.disk_at(gate)
        if disk is None:
            if copies == 0:
                return
            disk = self.reservations.add_disk(gate)
        elif copies == disk.copies:
            return
        self.overpromised = self.overpromised or copies > disk.copies
        self._change(disk, 1 if copies > 0 else 0, copies)
        if copies == 0:
            self.reservations.remove(disk)
            self.reservations.forget_bottleneck(gate)

    def attach_gate(self, gate: Gate, now_ns: int) -> None:
        """Have messages need room in ``gate`` too, in one more way; credit that doesn't fit is withdrawn."""
        other = self.reservations.node_at(gate)
        self._change(other, other.ways + 1, 1)
        for account in self.accounts:
            self.learn(account)
        self.trim(now_ns)

    def detach_gate(self, gate: Gate) -> None:
        """Have messages need room in ``gate`` in one way less."""
        other = self.reservations.node_at(gate)
        self._change(other, other.ways - 1, 1)
        if other.ways == 0:
            self.reservations.remove(other)
        self.reservations.forget_bottleneck(gate)

    def ways_to(self, gate: Gate) -> int:
        """Return in how many ways a message to this address comes to another node's gate."""
        return sum(each.ways for each in self.reservations.others if each.gate is gate)

    def takes(self, gate: Gate, size: int) -> int:
        """Return the bytes a message of ``size`` bytes takes of a budget, in all copies; 0 for nothing."""
        return self.reservations.takes(gate, size)

    def room(self, reserve_bytes: int) -> int:
        """Return how much more credit may be promised now: the least room of all gates."""
        return self.reservations.room(reserve_bytes)

    def urgent_room(self, reserve_bytes: int) -> int:
        """Return how much more credit may be promised now to an urgent producer: with the reserve."""
        return self.reservations.room(reserve_bytes, True)

    def classify(self, account: ProducerCredit, urgent: bool) -> None:
        """Give an account its part in the reserve from now on, or no longer."""
        if account.urgent != urgent:
            account.urgent = urgent
            self.urgents += 1 if urgent else -1
            change = account.outstanding if urgent else -account.outstanding
            self.reservations.promise_urgent(change, account.reserve_bytes)

    def trim_bulk(self, now_ns: int) -> None:
        """Take back other producers' credit that a new or larger reserve covers; the longest idle first."""
        for account in sorted(self.accounts, key=_last_used):
            if account.urgent or account.outstanding == 0:
                continue
            taken = min(self.reservations.reserve_excess(account.reserve_bytes), account.outstanding)
            if taken > 0:
                self.withdraw(account, taken, now_ns)
                self.wait(account, now_ns)

    def is_only_promised(self, size: int) -> bool:
        """Return whether one more message would have room, behind those parked, if no credit stood."""
        return self.reservations.could_hold(self.parked_msgs + 1, self.parked_bytes + size, size)

    def is_shut_by_other(self, gate: Gate) -> bool:
        """Return whether room that came free in this gate is of no use, because another has none."""
        return self.reservations.is_shut_by_other(gate)

    def _change(self, reservation: Reservation, ways: int, copies: int) -> None:
        """Have all that stands reserve differently in one gate."""
        for account in self.accounts:
            reservation.promise(-account.outstanding, account.reserve_bytes)
            if account.urgent:
                reservation.promise_urgent(-account.outstanding, account.reserve_bytes)
        uncommitted = self.uncommitted()
        for size, msgs in uncommitted.items():
            reservation.promise(-msgs, size)
        reservation.ways = ways
        reservation.copies = copies
        for account in self.accounts:
            reservation.promise(account.outstanding, account.reserve_bytes)
            if account.urgent:
                reservation.promise_urgent(account.outstanding, account.reserve_bytes)
        for size, msgs in uncommitted.items():
            reservation.promise(msgs, size)

    # --- promises

    def grant(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        """Promise ``msgs`` more credits, and tell the peer."""
        if account.outstanding == 0:
            account.granted_ns = now_ns
        account.outstanding += msgs
        account.withdrawn = max(account.withdrawn - msgs, 0)
        account.blocked_since_ns = 0
        account.resting = False
        self.promised_msgs += msgs
        self.reservations.promise(msgs, account.reserve_bytes)
        if account.urgent:
            self.reservations.promise_urgent(msgs, account.reserve_bytes)
        if account.budget is not None:
            account.budget.gate.promise(msgs, msgs * self.reservations.held(account.reserve_bytes))
        account.port.grant(msgs)

    def spend(self, account: ProducerCredit) -> None:
        """Give back the reservation of one credit that was used."""
        self.used_total += 1
        self._release(account, 1)

    def give_back(self, account: ProducerCredit, msgs: int) -> None:
        """Give back the reservation of ``msgs`` credits that were not used."""
        account.outstanding -= msgs
        self._release(account, msgs)

    def _release(self, account: ProducerCredit, msgs: int) -> None:
        self.promised_msgs -= msgs
        self.reservations.promise(-msgs, account.reserve_bytes)
        if account.urgent:
            self.reservations.promise_urgent(-msgs, account.reserve_bytes)
        if account.budget is not None:
            account.budget.gate.promise(-msgs, -msgs * self.reservations.held(account.reserve_bytes))

    def hold_uncommitted(self, size: int) -> None:
        """Keep the room for a message of ``size`` bytes until its transaction ends (AMQP 1.0 §4.4.1)."""
        self.uncommitted_msgs += 1
        self.uncommitted_bytes += size
        if size == self._last_size:
            self._last_msgs += 1
        else:
            self._count_last()
            self._last_size = size
            self._last_msgs = 1
        self.reservations.promise(1, size)

    def release_uncommitted(self, size: int, msgs: int) -> None:
        """Give back the room of ``msgs`` messages of ``size`` bytes each whose transaction ends.

        They enter the gate at once, or never.
        """
        self.uncommitted_msgs -= msgs
        self.uncommitted_bytes -= msgs * size
        if size == self._last_size and msgs <= self._last_msgs:
            self._last_msgs -= msgs
        else:
            self._count_last()
            left = self._uncommitted[size] - msgs
            if left > 0:
                self._uncommitted[size] = left
            else:
                del self._uncommitted[size]
        self.reservations.promise(-msgs, size)

    def uncommitted(self) -> dict[int, int]:
        """Return how many messages of each size came in transactions that are open."""
        self._count_last()
        return dict(self._uncommitted)

    def _count_last(self) -> None:
        """Enter the messages that were counted apart, as many of one size come one after the other."""
        if self._last_msgs > 0:
            self._uncommitted[self._last_size] = self._uncommitted.get(self._last_size, 0) + self._last_msgs
        self._last_msgs = 0
        self._last_size = -1

    def withdraw(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        """Take ``msgs`` credits back from the peer, which may use them before it hears of it."""
        self.give_back(account, msgs)
        if account.outstanding == 0 and (account.waiting or account.waits_for_budget):
            account.blocked_since_ns = now_ns
        account.withdrawn += msgs
        self.revoked_count += 1
        account.port.revoke(msgs)

    def take_back(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        """Take back ``msgs`` credits that the connection has no room for; the link waits for that."""
        if not account.waiting and not account.waits_for_budget:
            self.enter_budget_queue(account)
        self.withdraw(account, msgs, now_ns)

    def trim(self, now_ns: int) -> None:
        """Take back credit that the gates no longer cover (lowered limits, an operator's gate).

        The longest idle lose theirs first; all of them stay in line for more.
        """
        excess = self._excess()
        while excess > 0:
            for account in sorted(self.accounts, key=_last_used):
                taken = min(excess, account.outstanding)
                if taken > 0:
                    self.withdraw(account, taken, now_ns)
                    self.wait(account, now_ns)
                    excess -= taken
            # Links reserve different sizes a credit: too few bytes may have come back for the count.
            excess = self._excess()

    def trim_if_overpromised(self, now_ns: int) -> None:
        """Take back what isn't covered, if something happened that may have caused it."""
        if self.overpromised:
            self.overpromised = False
            self.trim(now_ns)

    def _excess(self) -> int:
        return max(min(self.reservations.excess_msgs(), self.promised_msgs), 0)

    def misjudged(self, account: ProducerCredit) -> None:
        """Reserve more for the credit that stands: a message was larger than that had reserved."""
        self.learn(account)
        self.overpromised = True
        if account.budget is not None:
            account.budget.trim(account.last_used_ns)
            self.budgets_in_demand.append(account.budget)

    def learn(self, account: ProducerCredit) -> None:
        """Adopt the size the link's messages turned out to have; reserve anew for what it holds."""
        before = account.reserve_bytes
        size = self.reservations.strict_bytes() or account.learned_bytes
        if size == before:
            return
        account.reserve_bytes = size
        if account.outstanding:
            self.reservations.reprice(account.outstanding, before, size, account.urgent)
            if account.budget is not None:
                change = self.reservations.held(size) - self.reservations.held(before)
                account.budget.gate.promise(0, change * account.outstanding)

    # --- who waits

    def wait(self, account: ProducerCredit, now_ns: int) -> None:
        """Put an account in line for room."""
        if account.waiting or account.closed:
            return
        if account.waits_for_budget:
            if not account.parked:
                return
            self.leave_budget_queue(account)
        account.waiting = True
        if account.resting:
            account.resting = False
            self.rest.remove(account)
        if account.outstanding == 0 and account.blocked_since_ns == 0:
            account.blocked_since_ns = now_ns
        if not self.line and now_ns - self.reclaim_ns > IDLE_NS:
            # The first for a while: what it has just sent may leave, and be all the room it needs.
            self.reclaim_ns = now_ns + IDLE_NS
        self.line.append(account)

    def leave_line(self, account: ProducerCredit) -> None:
        """Take an account out of the line."""
        account.waiting = False
        self.line.remove(account)

    def enter_budget_queue(self, account: ProducerCredit) -> None:
        """Have an account wait for its connection's budget, not for room here."""
        account.waits_for_budget = True
        if account.budget is not None:
            account.budget.budget_queue.append(account)
            self.budgets_in_demand.append(account.budget)

    def leave_budget_queue(self, account: ProducerCredit) -> None:
        """Have an account wait for its connection's budget no more."""
        if account.waits_for_budget and account.budget is not None:
            account.waits_for_budget = False
            account.budget.budget_queue.remove(account)

    def let_rest(self, account: ProducerCredit) -> None:
        """Put an account without credit aside: it showed no wish to send, and is tried again later."""
        account.resting = True
        account.blocked_since_ns = 0
        account.set_window(max(min(account.initial, account.window >> 1), 1))
        self.rest.append(account)

    def put_off_probe(self, now_ns: int) -> None:
        """Try resting links again no sooner than in ``PROBE_NS``, if only one rests."""
        if len(self.rest) == 1:
            self.probe_ns = max(self.probe_ns, now_ns + PROBE_NS)

    def count_parked(self, account: ProducerCredit, msgs: int, size: int) -> None:
        """Count a message of ``size`` bytes that is parked; with ``msgs`` -1 one that no longer is."""
        held = msgs * self.reservations.held(size)
        size *= msgs
        account.parked_bytes += size
        self.parked_msgs += msgs
        self.parked_bytes += size
        if self.reservations.memory is not None:
            self.reservations.memory.gate.park(held)
        if account.budget is not None:
            account.budget.hold(msgs, held)


def _last_used(account: ProducerCredit) -> int:
    return account.last_used_ns
