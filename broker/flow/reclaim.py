"""Idle credit: it is taken back for those who wait (FLOW §2 rules 5 and 12).

1. While somebody waits in vain, the credit that accounts hold beyond their share (``Level``) and beyond what
   they may be expected to use (``ProducerCredit.expected_use``) is taken back every ``IDLE_NS``, only as much
   as is wanted.
2. An account that uses its credit meanwhile keeps twice what it used since the last look, until somebody has
   waited for ``PATIENT_NS``.
3. Where there isn't a credit for each, they hold one in turn.
4. A link that never used any and lost it rests. Resting links can't say that they want to send, so every
   ``PROBE_NS`` some are put in line again, with a small window. Using it makes a link active.
"""

from __future__ import annotations

from broker import constants
from broker.flow.address_credit import AddressCredit
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.level import Level
from broker.flow.producer_credit import IDLE_NS, PROBE_NS, ProducerCredit

# An account that has waited for so long gets its share from those who are using theirs, too (rule 12).
PATIENT_NS = 50_000_000
# The part of a threshold that is risked on links that are tried again.
PROBE_PART = 20


def lend_of(account: ProducerCredit, now_ns: int, shares: Level, overdue: bool = False) -> int:
    """Take back what an account holds in vain beyond its share, for others; return how much that was.

    From one that uses its credit only where somebody's wait is ``overdue``.
    """
    if account.outstanding == 0:
        return 0
    if not account.is_idle(now_ns):
        if not overdue:
            return 0
        excess = account.outstanding - max(shares.of(account), 1)
        return take_idle(account, account.outstanding - max(excess, 0), excess, now_ns, lent=True)
    due = shares.of(account)
    keep = due if shares.unit(account) == 0 else min(account.expected_use(now_ns), due)
    if keep == 0 and now_ns - account.granted_ns < account.park_timeout_ns():
        keep = shares.spared(account)
    freed = take_idle(account, keep, account.outstanding, now_ns, lent=True)
    if account.outstanding == 0 and account.waiting and not account.parked:
        # It did nothing with what it had: being in line for more doesn't say that it wants it.
        account.allocator.leave_line(account)
        account.allocator.let_rest(account)
    if account.resting:
        # Those elsewhere that wait for what it held come first.
        account.allocator.put_off_probe(now_ns)
    return freed


def lend_in_connection(budget: ConnectionBudget, now_ns: int) -> list[ProducerCredit]:
    """Take back idle credit beyond their share from a connection's links; return those that lost some."""
    gate = budget.gate
    room = max(gate.stop_bytes - gate.depth_bytes - gate.promised_bytes, 0)
    shares = Level(budget.accounts, room, gate.stop_bytes, now_ns, gate)
    account: ProducerCredit
    for account in list(budget.budget_queue):
        # An account that sits on credit has what it needs.
        if account.outstanding > 0 and not account.parked and account.is_idle(now_ns):
            account.allocator.leave_budget_queue(account)
    hungry_ns = now_ns
    for account in budget.budget_queue:
        if account.outstanding == 0:
            hungry_ns = min(hungry_ns, account.blocked_since_ns)
    overdue = now_ns - hungry_ns >= PATIENT_NS
    changed: list[ProducerCredit] = []
    for account in budget.accounts:
        if lend_of(account, now_ns, shares, overdue) > 0:
            changed.append(account)
    return changed


def take_idle(account: ProducerCredit, keep: int, need: int, now_ns: int, lent: bool = False) -> int:
    """Take back as much of ``need`` as an account has beyond ``keep``; return it.

    Where it is ``lent`` to other addresses, an account that has none left rests: it would take it back.
    """
    taken = min(account.outstanding - keep, need)
    if taken <= 0:
        return 0
    account.allocator.withdraw(account, taken, now_ns)
    if account.outstanding == 0 and not account.waiting:
        account.allocator.leave_budget_queue(account)
        if account.expected_use(now_ns) > 0 and not lent and not account.held_in_vain(now_ns):
            # It has used credit lately, and will again: it waits for its turn.
            account.shrink_to_use(now_ns)
            account.allocator.wait(account, now_ns)
        else:
            account.allocator.let_rest(account)
    return taken


class Reclaimer:
    """Takes back the idle credit of one address, and tries the links again that lost theirs."""

    def __init__(self) -> None:
        self.scan = 0
        self.used_at_probe = 0

    def lend(self, credit: AddressCredit, now_ns: int, shares: Level, spared: bool = False) -> int:
        """Take back what idle accounts hold beyond their shares, for other addresses; return how much.

        Where they are ``spared``, only from those whose timer should have gone off.
        """
        freed = 0
        for account in credit.accounts:
            if not spared or account.unused_ns(now_ns) >= account.park_timeout_ns():
                freed += lend_of(account, now_ns, shares)
        return freed

    def reclaim(self, credit: AddressCredit, now_ns: int) -> bool:
        """Take back idle credit for those in line; return whether any came back."""
        need = 0
        hungry_ns = now_ns
        # How many use what they get as soon as they have it, of those who wait for more.
        prompt = waiting = 0
        self._let_satisfied_go(credit, now_ns)
        for account in credit.line:
            need += account.wants() + len(account.parked)
            if account.outstanding == 0:
                hungry_ns = min(hungry_ns, account.blocked_since_ns)
                waiting += 1
                prompt += 0 <= account.last_used_ns - account.granted_ns < IDLE_NS
        count = len(credit.accounts)
        room = credit.room(credit.gate.unit_bytes())
        shares = Level(credit.accounts, room, credit.reservations.threshold_msgs(), now_ns)
        # Credits that may be held unused where there isn't one for each: all of them, or half where others
        # would use them at once, more than timers do by chance. A quarter may be held by those who never used
        # any and may be about to, unless messages wait that are here already.
        singles = 0
        if shares.share == 0:
            singles = shares.capacity >> 1 if prompt > waiting >> 3 else shares.capacity
        strangers = 0 if credit.parked_msgs > 0 else max(shares.capacity >> 2, 1)
        each = max(strangers // max(shares.strangers, 1), 1)
        overdue = now_ns - hungry_ns >= PATIENT_NS
        freed = 0
        accounts = credit.accounts[self.scan :] + credit.accounts[: self.scan]
        if singles > 0:
            # The least served holds its one until its timer goes off.
            accounts.sort(key=_flow)
        for account in accounts:
            # One would only be given back what it takes from itself.
            others = need - (account.wants() if account.waiting else 0)
            if account.outstanding > 0 and not account.parked:
                keep = self._due_to(account, shares.of(account), overdue, now_ns)
                if account.urgent:
                    # Nobody but other urgent ones could use the reserve that it holds.
                    part = credit.reservations.reserve_part(credit.urgents, account.reserve_bytes)
                    keep = max(keep, min(part, account.outstanding))
                if keep == 0:
                    # All of them have their turn within PROBE_NS each.
                    longest_ns = PROBE_NS if prompt > 0 else PROBE_NS * max(shares.capacity, 1)
                    park_timeout_ns = min(account.park_timeout_ns(), longest_ns)
                    fresh = now_ns - account.granted_ns < park_timeout_ns
                    if account.expected_use(now_ns) > 0:
                        keep = 1 if singles > 0 and fresh else 0
                        singles -= keep
                    elif strangers > 0 and (fresh or each < strangers):
                        keep = min(each, account.outstanding)
                        strangers -= keep
                if freed < others:
                    freed += take_idle(account, keep, others - freed, now_ns)
            account.used_mark = account.used
        # Start elsewhere next time, so that equals lose in turn.
        self.scan = (self.scan + 1) % max(count, 1)
        return freed > 0

    def _let_satisfied_go(self, credit: AddressCredit, now_ns: int) -> None:
        """Let accounts leave the line that sit on credit: they have what they need.

        Their window shrinks to what they are likely to use.
        """
        line = credit.line
        for _ in range(len(line)):
            account = line.popleft()
            if account.outstanding > 0 and not account.parked and account.is_idle(now_ns):
                account.shrink_to_use(now_ns)
                if account.outstanding > account.low:
                    account.waiting = False
                    continue
            line.append(account)

    def _due_to(self, account: ProducerCredit, share: int, overdue: bool, now_ns: int) -> int:
        """Return what an account may keep while others wait.

        One that uses its credit keeps twice what it used since the last look, but no more than its share
        beside one that has waited for long.
        """
        keep = min(account.expected_use(now_ns), share)
        recent = account.used - account.used_mark
        if recent > 0 or not account.is_idle(now_ns):
            using = max(2 * recent, 1)
            keep = max(keep, min(using, max(share, 1)) if overdue else using)
        return keep

    def probe(self, credit: AddressCredit, now_ns: int) -> None:
        """Put some resting links in line again, with what can be spared; the caller deals."""
        busy = credit.used_total != self.used_at_probe
        self.used_at_probe = credit.used_total
        credit.probe_ns = now_ns + PROBE_NS
        room = credit.room(credit.gate.unit_bytes())
        count = self._probe_count(credit, room, busy)
        share = max(min(room // max(len(credit.rest), 1), constants.UNBOUNDED), 1)
        while credit.rest and count > 0:
            account = credit.rest.popleft()
            account.resting = False
            account.set_window(max(min(account.initial, share), 1))
            credit.wait(account, now_ns)
            count -= 1

    def _probe_count(self, credit: AddressCredit, room: int, busy: bool) -> int:
        slots = max((credit.gate.stop_msgs or 1000) // PROBE_PART, 1)
        if busy or credit.line:
            return slots
        return max(slots, min(room, len(credit.rest)))


def _flow(account: ProducerCredit) -> int:
    return account.flow
