"""Promises of credit made to producers.

Only this file does arithmetic on producer credit. It knows no Proton, no clock, no disk.

For every account ``granted == used + withdrawn + outstanding`` holds, where *granted* is the most
the peer was ever allowed, *outstanding* the credit that stands and is reserved, and *withdrawn* the
credit taken back which the peer may not have heard of yet. For every gate the outstanding credit of
all its accounts is reserved, so depth and promises together never pass a stop threshold.
"""

from __future__ import annotations

from collections import deque

from broker import constants
from broker.flow.fairness import deal, level
from broker.flow.gate import Gate

# A link that used nothing for so long while others wait sits on its credit (FLOW §2 rule 5). Longer
# than a scheduler's hiccup, short enough that a waiting producer doesn't notice.
IDLE_NS = 10_000_000
# How often links without credit that showed no wish to send are tried again, and how large a part
# of the threshold is risked on them each time.
PROBE_NS = 100_000_000
# Over this time the most that a link used at once is remembered: a timer's next burst will be like its last.
PEAK_NS = 30_000_000_000
# Who has waited for so long gets its share from those who are using theirs, too (FLOW §2 rule 12).
PATIENT_NS = 50_000_000
# Where there isn't a credit for each, nobody holds one for longer without using it.
MOST_PATIENT_NS = 1_000_000_000
# How long what a link was served counts against its share: others' credit is not for who had more than they.
FLOW_NS = 10_000_000_000
# They are counted in parts of a message, so that little fades as much does.
FLOW_BITS = 10
PROBE_PART = 20
# The credit dealt at once where many ask for little room, and the part of the threshold it may be at most.
BATCH = 10
# What a credit reserves before anything is known of a link's messages.
UNKNOWN_BYTES = 1024
# How often a link whose messages are too large for the room there is may be passed over.
PATIENCE = 16


class Port:
    """What an account asks of its link; the room that knows the wire implements it."""

    def grant(self, msgs: int) -> None:
        """Raise the peer's credit by ``msgs``."""
        raise NotImplementedError

    def revoke(self, msgs: int) -> None:
        """Lower the peer's credit by ``msgs``."""
        raise NotImplementedError

    def admit(self, parked: object, size: int) -> None:
        """There is room now for a message handed to :meth:`ProducerCredit.park`."""
        raise NotImplementedError

    def offered(self) -> int:
        """How many messages the peer says it has to send; 0 where it doesn't say."""
        return 0

    def confirm(self, held: object) -> None:
        """What was held may be settled now: it is in its node."""
        raise NotImplementedError

    def refuse(self, parked: object) -> None:
        """The time a parked message may wait is over (`reject_after`)."""
        raise NotImplementedError


class Reservation:
    """What a message to an address takes of a budget on disk: its size, as often as it is kept there.

    What it has beyond ``most`` bytes is in one file for all its copies.
    """

    def __init__(self, gate: Gate, most: int) -> None:
        self.gate = gate
        self.most = most
        self.copies = 0

    def takes(self, size: int) -> int:
        """What one message of so many bytes takes, in all its copies."""
        return size + (self.copies - 1) * min(size, self.most)

    def promise(self, msgs: int, reserve_bytes: int) -> None:
        """Reserve for ``msgs`` credits of ``reserve_bytes`` each; negative numbers give back."""
        self.gate.promise(msgs, msgs * self.takes(reserve_bytes))


class ConnectionBudget:
    """What all producers of one connection may have promised and parked together, in bytes (FLOW §4).

    Each message counts with ``HELD_BYTES`` for its place. A producer that got nothing for want of room here
    waits in ``budget_queue``, out of its ledger's line, so that it holds nobody else up there; ``serve``
    puts it back.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.gate = Gate("connection_memory_limit")
        self.gate.configure(0, 0, limit_bytes, limit_bytes, 0, 0)
        self.accounts: list[ProducerCredit] = []
        self.budget_queue: list[ProducerCredit] = []
        # How many of those that were just put in line have not been dealt yet.
        self.asking = 0

    def hold(self, msgs: int, size: int) -> None:
        """Count what is held of messages that are in no node yet; negative numbers when it no longer is."""
        self.gate.depth_msgs += msgs
        self.gate.depth_bytes += size

    def share(self, size: int) -> int:
        """How many credits of so many bytes the next one may have, beside those who wait already."""
        room = self.gate.room(size)
        return room if room <= 1 else max(room // max(len(self.budget_queue) + 1, self.asking), 1)

    def is_overdrawn(self) -> bool:
        """Whether what is held alone is more than the limit."""
        return self.gate.depth_bytes > self.gate.stop_bytes

    def trim(self, now_ns: int) -> None:
        """More is held, or reserved for each credit, than was foreseen: the longest idle lose theirs for it.

        The caller has the budget looked after until nobody is short of it.
        """
        for account in sorted(self.accounts, key=lambda each: each.last_used_ns):
            excess = self.gate.excess_msgs()
            if excess == 0:
                return
            taken = min(excess, account.outstanding)
            if taken > 0:
                account.ledger.take_back(account, taken, now_ns)

    def serve(self, now_ns: int) -> list[ProducerCredit]:
        """Once a twentieth is free, or all that could be: those who waited, in line at their nodes again."""
        gate = self.gate
        left = gate.stop_bytes - gate.depth_bytes - gate.promised_bytes
        if left < gate.stop_bytes // PROBE_PART and gate.promised_msgs + gate.depth_msgs > 0:
            return []
        waiting, self.budget_queue = self.budget_queue, []
        self.asking = len(waiting)
        for account in waiting:
            account.waits_for_budget = False
            account.ledger.wait(account, now_ns)
        return waiting

    def lend(self, now_ns: int) -> list[ProducerCredit]:
        """Those of the connection's links that lost idle credit beyond their share (rules 5 and 12)."""
        gate = self.gate
        room = max(gate.stop_bytes - gate.depth_bytes - gate.promised_bytes, 0)
        shares = Level(self.accounts, room, gate.stop_bytes, now_ns, gate)
        for account in list(self.budget_queue):
            # Who sits on credit has what it needs.
            if account.outstanding > 0 and not account.parked and account.is_idle(now_ns):
                account.ledger._unpinch(account)
        hungry_ns = now_ns
        for account in self.budget_queue:
            if account.outstanding == 0:
                hungry_ns = min(hungry_ns, account.blocked_since_ns)
        overdue = now_ns - hungry_ns >= PATIENT_NS
        changed = []
        for account in self.accounts:
            if account.ledger.lend_of(account, now_ns, shares, overdue) > 0:
                changed.append(account)
        return changed


class ProducerCredit:
    """One producer link's promise at one node.

    ``window`` is what the link has earned: it starts at ``initial`` and doubles, up to
    ``window_max``, each time the link has used what it had. A ``window_max`` of 0 makes an account
    that never holds credit and only parks (anonymous relay, rejecting nodes).
    """

    def __init__(
        self,
        ledger: CreditAllocator,
        port: Port,
        window_max: int,
        initial: int,
        budget: ConnectionBudget | None,
    ) -> None:
        self.ledger = ledger
        self.budget = budget
        self.waits_for_budget = False
        # The node it is an account at, for whoever deals; opaque.
        self.place: object = None
        self.port = port
        self.window_max = window_max
        self.initial = min(initial, window_max)
        self.window = self.initial
        self.low = self.window >> 1
        self.outstanding = 0
        self.withdrawn = 0
        # Messages taken whose settlement waits: they count against the window.
        self.held = 0
        self.used = 0
        self.used_mark = 0
        self.reserve_bytes = self.ledger._strict() or ledger.gate.typical_bytes or UNKNOWN_BYTES
        self.learned_bytes = self.reserve_bytes
        self.passed_over = 0
        self.last_used_ns = 0
        # What it used in one go and had when it began, how long it had used nothing before, and the most it
        # used in one go in this span of PEAK_NS and in the one before.
        self.burst = 0
        self.had = 0
        self.gap_ns = 0
        self.peak = 0
        self.peak_before = 0
        self.peak_ns = 0
        # What it used lately, as of the last look, fading over FLOW_NS.
        self.flow = 0
        self.flow_ns = 0
        self.flow_mark = 0
        # When it last got credit while it had none: it can't have been idle before.
        self.granted_ns = 0
        self.blocked_since_ns = 0
        self.waiting = False
        self.resting = False
        self.closed = False
        self.late_count = 0
        self.overrun_count = 0
        # Each with its size and when it came; 0 where it may not be refused any more.
        self.parked: deque[tuple[object, int, int]] = deque()
        self.parked_bytes = 0
        # Who sends here, for whoever wants nothing from them; opaque.
        self.origin: object = None

    def use(self, size: int, now_ns: int) -> int:
        """One message of ``size`` bytes came in: TAKEN on standing credit, LATE on credit taken back
        meanwhile, VIOLATION when the peer was never allowed to send it.

        On TAKEN the reservation is gone and the caller enters the message into the gate at once.
        """
        if size > self.learned_bytes or self.used == 0:
            # The first says more than the guess before it, which may be several times too large.
            self.learned_bytes = size
        else:
            self.learned_bytes -= (self.learned_bytes - size) >> 4
        if now_ns - self.last_used_ns > IDLE_NS:
            self.gap_ns = now_ns - self.last_used_ns
            self.burst = 0
            self.had = self.outstanding
        self.burst += 1
        if self.burst > self.peak:
            self.peak = self.burst
        self.last_used_ns = now_ns
        if self.outstanding > 0:
            if size > self.reserve_bytes:
                self.ledger.misjudged(self)
            self.outstanding -= 1
            self.used += 1
            self.ledger.release(1, self.reserve_bytes)
            if self.budget is not None:
                self.budget.gate.promise(-1, -self.ledger._held(self.reserve_bytes))
            if self.outstanding == 0 and (self.waiting or self.waits_for_budget):
                self.blocked_since_ns = now_ns
            return constants.TAKEN
        if self.withdrawn > 0:
            self.withdrawn -= 1
            self.used += 1
            self.late_count += 1
            return constants.LATE
        return constants.VIOLATION

    def return_unused(self, msgs: int, now_ns: int) -> None:
        """The peer counts so much of its credit as used and sent nothing for it: it asks for new."""
        given = min(msgs, self.outstanding)
        late = min(msgs - given, self.withdrawn)
        self.ledger._return(self, given)
        self.withdrawn -= late
        self.used += given + late
        if self.outstanding <= self.low:
            self.ledger.wait(self, now_ns)

    def park(self, message: object, size: int, now_ns: int, patient: bool = False) -> None:
        """Keep a message outside the node until there is room; it is admitted in its turn.

        Credit that stands is taken back: it holds the room that is waited for, and what is sent on it has to
        come later. A ``patient`` one waits as long as it takes (``refuse_until``).
        """
        if self.outstanding > 0:
            self.ledger._withdraw(self, self.outstanding, now_ns)
        self.parked.append((message, size, 0 if patient else now_ns))
        self.parked_bytes += size
        self.ledger.parked_msgs += 1
        self.ledger.parked_bytes += size
        if self.ledger.memory is not None:
            self.ledger.memory.park(self.ledger._held(size))
        if self.budget is not None:
            self.budget.hold(1, self.ledger._held(size))
            self.budget.trim(now_ns)
        self.ledger.wait(self, now_ns)

    def unpark(self, message: object) -> bool:
        """Take a parked message back without admitting it; false if it isn't parked any more."""
        for item in self.parked:
            if item[0] is message:
                self.parked.remove(item)
                self._count_out(item[1])
                return True
        return False

    def refuse_until(self, since_ns: int) -> int:
        """Refuse what was parked by then; when the oldest was that may be refused later, 0 for none."""
        while True:
            oldest = next((item for item in self.parked if item[2] > 0), None)
            if oldest is None or oldest[2] > since_ns:
                break
            self.parked.remove(oldest)
            self._count_out(oldest[1])
            self.port.refuse(oldest[0])
        if not self.parked and self.window_max == 0 and self.waiting:
            self.waiting = False
            self.ledger.line.remove(self)
        return 0 if oldest is None else oldest[2]

    def resize(self, window_max: int) -> None:
        """A new bound on the window; credit beyond it runs out by being used."""
        if self.window_max == 0:
            return
        self.window_max = window_max
        self.window = min(self.window, window_max)
        self.low = self.window >> 1

    def close(self) -> None:
        """Give every reservation back; what is parked is forgotten, its outcome was never told."""
        self.ledger.leave(self)

    def wants(self) -> int:
        """How much credit would fill the window."""
        return max(self.window - self.outstanding - self.held, 0)

    def claim(self, now_ns: int) -> int:
        """What it may be expected to use at once: a little more than the most it did lately, and twice what
        it did last where it had no more. Nothing of one that never used any.
        """
        if now_ns - self.peak_ns >= PEAK_NS:
            self.peak_before = self.peak if now_ns - self.last_used_ns < PEAK_NS else 0
            self.peak = 0
            self.peak_ns = now_ns
        most = max(self.peak, self.peak_before)
        if most == 0:
            return 0
        most += (most >> 2) + 1
        if self.burst >= self.had and 2 * self.burst > most:
            most = 2 * self.burst
        return min(most, self.window_max)

    def park_timeout_ns(self) -> int:
        """How long it may hold credit that others need as much: until its timer should have gone off."""
        return min(max(self.gap_ns + (self.gap_ns >> 2), PROBE_NS), MOST_PATIENT_NS)

    def held_in_vain(self, now_ns: int) -> bool:
        """Whether it used nothing since it got credit, for longer than its last pause."""
        return self.last_used_ns < self.granted_ns and now_ns - self.granted_ns >= self.park_timeout_ns()

    def served(self, now_ns: int) -> int:
        """How much it used lately, in messages."""
        passed_ns = min(now_ns - self.flow_ns, FLOW_NS)
        self.flow += (self.used - self.flow_mark) << FLOW_BITS
        self.flow -= int(self.flow * (passed_ns / FLOW_NS))
        self.flow_ns = now_ns
        self.flow_mark = self.used
        return self.flow >> FLOW_BITS

    def demand(self, now_ns: int) -> int:
        """What its share is measured by: what it asks for while it uses what it gets, else what it may be
        expected to use.
        """
        if (self.waiting or self.waits_for_budget) and (self.outstanding == 0 or not self.is_idle(now_ns)):
            return self.outstanding + self.wants() + len(self.parked)
        return self.claim(now_ns)

    def is_idle(self, now_ns: int) -> bool:
        """Whether it has done nothing for so long with what it had that this may be lent on."""
        return now_ns - max(self.last_used_ns, self.granted_ns) >= IDLE_NS

    def next_parked(self) -> tuple[object, int]:
        """The oldest parked message and its size, taken out."""
        message, size, _ = self.parked.popleft()
        self._count_out(size)
        return message, size

    def _count_out(self, size: int) -> None:
        self.parked_bytes -= size
        self.ledger.parked_msgs -= 1
        self.ledger.parked_bytes -= size
        if self.ledger.memory is not None:
            self.ledger.memory.park(-self.ledger._held(size))
        if self.budget is not None:
            self.budget.hold(-1, -self.ledger._held(size))

    @property
    def granted(self) -> int:
        """The most the peer was ever allowed to send."""
        return self.used + self.withdrawn + self.outstanding


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
        # What those may hold together who never used any and may be about to.
        self.spare = capacity >> 2
        self.share = level(capacity, demands)
        self.flow = level(capacity + past, served)
        self.most = level(max(whole, capacity), demands)

    def unit(self, account: ProducerCredit) -> int:
        """What a credit of the account counts for; nothing where its messages don't use the budget."""
        if self.budget is None:
            return 1
        if account.budget is not None and account.budget.gate is self.budget:
            return account.ledger._held(account.reserve_bytes)
        return account.ledger.takes(self.budget, account.reserve_bytes)

    def spared(self, account: ProducerCredit) -> int:
        """How much credit one may hold that never used any: an even part of a quarter of the room."""
        unit = self.unit(account)
        if unit == 0 or self.spare < unit:
            return 0
        part = (self.capacity >> 2) // max(self.strangers, 1)
        keep = min(max(part // unit, 1), self.spare // unit, account.outstanding)
        self.spare -= keep * unit
        return keep

    def of(self, account: ProducerCredit) -> int:
        """How much credit the account may hold beside those who wait."""
        unit = self.unit(account)
        if unit == 0:
            return account.outstanding
        behind = self.flow - (account.flow >> FLOW_BITS) * unit
        return max(self.share, min(behind, self.most)) // unit


class CreditAllocator:
    """All accounts of one address, dealing out the room of its gates.

    ``gate`` is the node's own; ``others`` are those of nodes a message to this address needs room in as
    well (subscriptions of a topic), more than once where it comes there on more than one way; ``repeated``
    says how often. Room is the least of all of them, each reserved. ``memory`` is the
    whole broker's budget of message bytes, ``claims`` are those on disk; a message at a topic is held
    ``copies`` times, and has in each claim the copies that are kept there.

    How room is dealt, once a turn at most (``settle_turn``):

    1. A link that fell to half its window asks (``renew``). If nobody waits and there is room for
       all it wants, it gets it at once.
    2. Otherwise it waits in line. Room that appears goes first to parked messages in the order of
       the line, then to credit, max-min fair (fairness.py) among as many from the head of the line as
       can have a batch.
    3. While somebody waits in vain, what accounts hold beyond their share (``Level``) and beyond what they
       may be expected to use (``ProducerCredit.claim``) is taken back every ``IDLE_NS``, only as much as is
       wanted. Who uses its credit meanwhile keeps twice what it used since the last look, until somebody has
       waited for ``PATIENT_NS``. Where there isn't a credit for each, they hold one in turn. Who never used
       any and lost it rests.
    4. Resting links can't say that they want to send, so every ``PROBE_NS`` some are put in line
       again, with a small window. Using it makes a link active.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.others: list[Gate] = []
        self.repeated: dict[Gate, int] = {}
        self.claims: list[Reservation] = []
        self.accounts: list[ProducerCredit] = []
        self.line: deque[ProducerCredit] = deque()
        self.rest: deque[ProducerCredit] = deque()
        self.promised_msgs = 0
        self.parked_msgs = 0
        self.parked_bytes = 0
        self.reclaim_ns = 0
        self.probe_ns = 0
        self.used_total = 0
        self.used_at_probe = 0
        self.revoked_count = 0
        self.scan = 0
        self.overpromised = False
        # A gate that had no room at all when somebody in line was last passed over.
        self.bottleneck: Gate | None = None
        self.memory: Gate | None = None
        self.copies = 1
        self.most_held = constants.UNBOUNDED
        # Budgets of connections that somebody was found to wait for; the caller empties it.
        self.budgets_in_demand: list[ConnectionBudget] = []

    def open(
        self, port: Port, window_max: int, initial: int, now_ns: int, budget: ConnectionBudget | None = None
    ) -> ProducerCredit:
        """A new producer's account; its first grant comes at the end of the turn, if there is room."""
        account = ProducerCredit(self, port, window_max, initial, budget)
        account.last_used_ns = now_ns
        if budget is not None:
            budget.accounts.append(account)
        self.accounts.append(account)
        if self.gate.stop_msgs and window_max > 0:
            account.window = max(min(account.window, self.gate.stop_msgs // len(self.accounts)), 1)
            account.low = account.window >> 1
        if window_max > 0:
            self.wait(account, now_ns)
        return account

    def leave(self, account: ProducerCredit) -> None:
        """Forget an account and return all it had reserved."""
        if account.closed:
            return
        if account.waiting:
            self.line.remove(account)
        if account.resting:
            self.rest.remove(account)
        self._unpinch(account)
        account.closed = True
        account.waiting = False
        account.resting = False
        self._return(account, account.outstanding)
        account.withdrawn = 0
        while account.parked:
            account.next_parked()
        self.accounts.remove(account)
        if account.budget is not None:
            account.budget.accounts.remove(account)

    def orphan(self, account: ProducerCredit, now_ns: int) -> None:
        """The link is gone, but what it parked was pre-settled and is the broker's: it keeps its
        place in line; the account gets no credit any more. The caller closes it when it is empty.
        """
        self._return(account, account.outstanding)
        account.withdrawn = 0
        account.window_max = account.window = account.low = 0
        self.wait(account, now_ns)

    def release(self, msgs: int, reserve_bytes: int) -> None:
        """Give back the reservation of ``msgs`` credits of ``reserve_bytes`` each in every gate."""
        self.promised_msgs -= msgs
        self.used_total += msgs
        self.gate.promise(-msgs, -msgs * reserve_bytes)
        if self.others:
            for gate in self.others:
                gate.promise(-msgs, -msgs * reserve_bytes)
        if self.claims:
            for claim in self.claims:
                claim.promise(-msgs, reserve_bytes)
        if self.memory is not None:
            self.memory.promise(-msgs, -msgs * self.copies * self._held(reserve_bytes))

    def misjudged(self, account: ProducerCredit) -> None:
        """A message was larger than its credit had reserved: reserve more for what is still out."""
        self._learn(account)
        self.overpromised = True
        if account.budget is not None:
            account.budget.trim(account.last_used_ns)
            self.budgets_in_demand.append(account.budget)

    def attach_gate(self, gate: Gate, now_ns: int) -> None:
        """Messages to this address now need room in ``gate`` too; what doesn't fit is withdrawn."""
        self.others.append(gate)
        self._count_ways(gate)
        for account in self.accounts:
            gate.promise(account.outstanding, account.outstanding * account.reserve_bytes)
            self._learn(account)
        self.trim(now_ns)

    def detach_gate(self, gate: Gate) -> None:
        """Messages to this address no longer need room in ``gate``."""
        self.others.remove(gate)
        self._count_ways(gate)
        if self.bottleneck is gate:
            self.bottleneck = None
        for account in self.accounts:
            gate.promise(-account.outstanding, -account.outstanding * account.reserve_bytes)

    def _count_ways(self, gate: Gate) -> None:
        count = self.others.count(gate)
        if count > 1:
            self.repeated[gate] = count
        else:
            self.repeated.pop(gate, None)

    def _repeated_room(self, reserve_bytes: int) -> int:
        """How many messages have room where each comes more than once; as in a gate, one always has where
        nothing is.
        """
        least: int = constants.UNBOUNDED
        for gate, count in self.repeated.items():
            room = gate.room(reserve_bytes)
            empty = gate.depth_msgs == 0 and gate.promised_msgs == 0
            least = min(least, max(room // count, 1) if empty and room > 0 else room // count)
        return least

    def budget(self, memory: Gate, most_held: int = constants.UNBOUNDED) -> None:
        """Reserve from the broker's memory as well; before the first account is opened.

        Of a message larger than ``most_held`` no more than that is in memory.
        """
        self.memory = memory
        self.most_held = most_held

    def _held(self, size: int) -> int:
        """What a message of that size takes in memory."""
        return min(size, self.most_held) + constants.HELD_BYTES

    def copy(self, copies: int) -> None:
        """A message to this address is held so many times from now on, once at least."""
        before = self.copies
        self.copies = max(copies, 1)
        if self.memory is not None:
            for account in self.accounts:
                held = account.outstanding * self._held(account.reserve_bytes)
                self.memory.promise(0, (self.copies - before) * held)
            self.overpromised = self.overpromised or self.copies > before

    def claim(self, gate: Gate, copies: int) -> None:
        """Of a message to this address so many copies are kept where ``gate`` is the budget, from now on."""
        claim = self._claim_on(gate)
        if claim is None:
            if copies == 0:
                return
            claim = Reservation(gate, self.most_held)
            self.claims.append(claim)
        elif copies == claim.copies:
            return
        self.overpromised = self.overpromised or copies > claim.copies
        if claim.copies > 0:
            for account in self.accounts:
                claim.promise(-account.outstanding, account.reserve_bytes)
        claim.copies = copies
        if copies > 0:
            for account in self.accounts:
                claim.promise(account.outstanding, account.reserve_bytes)
        else:
            self.claims.remove(claim)
            if self.bottleneck is gate:
                self.bottleneck = None

    def takes(self, gate: Gate, size: int) -> int:
        """What a message of ``size`` bytes takes of a broker's budget, in all its copies; 0 for nothing."""
        if gate is self.memory:
            return self.copies * self._held(size)
        claim = self._claim_on(gate)
        return 0 if claim is None else claim.takes(size)

    def _claim_on(self, gate: Gate) -> Reservation | None:
        for claim in self.claims:
            if claim.gate is gate:
                return claim
        return None

    def lend(self, now_ns: int, shares: Level, spared: bool = False) -> int:
        """Take back what idle accounts hold beyond their shares, for others than ours; how much that was.
        Where they are ``spared``, only of those whose timer should have gone off.
        """
        freed = 0
        for account in self.accounts:
            if (
                not spared
                or now_ns - max(account.last_used_ns, account.granted_ns) >= account.park_timeout_ns()
            ):
                freed += self.lend_of(account, now_ns, shares)
        return freed

    def lend_of(self, account: ProducerCredit, now_ns: int, shares: Level, overdue: bool = False) -> int:
        """The same of one account; of one that uses its credit only where somebody's wait is ``overdue``."""
        if account.outstanding == 0:
            return 0
        if not account.is_idle(now_ns):
            if not overdue:
                return 0
            excess = account.outstanding - max(shares.of(account), 1)
            return self._reclaim_from(
                account, account.outstanding - max(excess, 0), excess, now_ns, lent=True
            )
        due = shares.of(account)
        keep = due if shares.unit(account) == 0 else min(account.claim(now_ns), due)
        if keep == 0 and now_ns - account.granted_ns < account.park_timeout_ns():
            keep = shares.spared(account)
        freed = self._reclaim_from(account, keep, account.outstanding, now_ns, lent=True)
        if account.outstanding == 0 and account.waiting and not account.parked:
            # It did nothing with what it had: being in line for more doesn't say that it wants it.
            account.waiting = False
            self.line.remove(account)
            self._rest(account)
        if account.resting and len(self.rest) == 1:
            # Who waits elsewhere for what it held comes first.
            self.probe_ns = max(self.probe_ns, now_ns + PROBE_NS)
        return freed

    def take_back(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        """Its connection has no room for so much of its credit any more; it waits for that."""
        if not account.waiting and not account.waits_for_budget:
            self._pinch(account)
        self._withdraw(account, msgs, now_ns)

    def room(self, reserve_bytes: int) -> int:
        """Credit that may be promised now: the least room of all gates."""
        room = self.gate.room(reserve_bytes)
        if self.memory is not None:
            room = min(room, self.memory.room(self.copies * self._held(reserve_bytes)))
        if self.others:
            for gate in self.others:
                room = min(room, gate.room(reserve_bytes))
            if self.repeated:
                room = min(room, self._repeated_room(reserve_bytes))
        if self.claims:
            for claim in self.claims:
                room = min(room, claim.gate.room(claim.takes(reserve_bytes)))
        return room

    def is_only_promised(self, size: int) -> bool:
        """Whether credit that stands is all that one more message would wait for, behind those parked."""
        if self.memory is not None and not self.memory.could_hold(1, self.copies * self._held(size)):
            return False
        msgs, nbytes = self.parked_msgs + 1, self.parked_bytes + size
        if not self.gate.could_hold(msgs, nbytes):
            return False
        for gate in self.others:
            if not gate.could_hold(msgs, nbytes):
                return False
        for claim in self.claims:  # noqa: SIM110
            if not claim.gate.could_hold(msgs, msgs * claim.takes(nbytes // msgs)):
                return False
        return True

    def renew(self, account: ProducerCredit, now_ns: int) -> bool:
        """The link used half of what it had: it has earned more; true if it has to wait for it."""
        if account.waiting or account.waits_for_budget or account.window_max == 0:
            return False
        if account.window < account.window_max:
            account.window = min(account.window * 2, account.window_max)
            account.low = account.window >> 1
        if not self.line and not self.rest and not account.parked and not self._is_wanted():
            self._learn(account)
            want = account.wants()
            if self.room(account.reserve_bytes) >= want and (
                account.budget is None or account.budget.share(self._held(account.reserve_bytes)) >= want
            ):
                if want > 0:
                    self._grant(account, want, now_ns)
                return False
        self.wait(account, now_ns)
        return True

    def _is_wanted(self) -> bool:
        """Whether other nodes wait for room of a budget, which is dealt in turn."""
        if self.memory is not None and self.memory.wanted:
            return True
        for claim in self.claims:  # noqa: SIM110
            if claim.gate.wanted:
                return True
        return False

    def wait(self, account: ProducerCredit, now_ns: int) -> None:
        """Put an account in line for room."""
        if account.waiting or account.closed:
            return
        if account.waits_for_budget:
            if not account.parked:
                return
            self._unpinch(account)
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

    def settle_turn(self, now_ns: int) -> None:
        """Deal what room there is to those in line; reclaim from the idle if that isn't enough."""
        if self.overpromised:
            self.overpromised = False
            self.trim(now_ns)
        if self._is_shut():
            return
        if self.line:
            self._deal(now_ns)
        if self.line and now_ns >= self.reclaim_ns and self._may_open():
            self.reclaim_ns = now_ns + IDLE_NS
            if self._reclaim(now_ns):
                self._deal(now_ns)
        if self.rest and now_ns >= self.probe_ns:
            self._probe(now_ns)
        self.bottleneck = self._find_bottleneck() if self.line and (self.others or self.claims) else None

    def wait_its_turn(self, now_ns: int) -> None:
        """Deal nothing, for what room there is is kept for others; take back what isn't covered any more."""
        if self.overpromised:
            self.overpromised = False
            self.trim(now_ns)
        self.reclaim_ns = max(self.reclaim_ns, now_ns + IDLE_NS)
        self.probe_ns = max(self.probe_ns, now_ns + IDLE_NS)

    def is_shut_by_other(self, gate: Gate) -> bool:
        """Whether room that came free in this gate is of no use, because another has none."""
        return self.bottleneck is not None and self.bottleneck is not gate and self.bottleneck.room(1) == 0

    def next_deadline(self) -> int:
        """When ``settle_turn`` has work that no event announces; 0 for never."""
        deadline = 0
        if self.line and self.promised_msgs > 0 and self._may_open():
            deadline = max(self.reclaim_ns, 1)
        if self.rest and (deadline == 0 or self.probe_ns < deadline) and self._may_open():
            # Never looked for is due now, where 0 would be never.
            deadline = max(self.probe_ns, 1)
        return deadline

    def trim(self, now_ns: int) -> None:
        """Take back credit that the thresholds no longer cover (lowered limits, an operator's gate).

        The longest idle lose theirs first; all of them stay in line for more.
        """
        excess = self._excess()
        while excess > 0:
            for account in sorted(self.accounts, key=lambda a: a.last_used_ns):
                taken = min(excess, account.outstanding)
                if taken > 0:
                    self._withdraw(account, taken, now_ns)
                    self.wait(account, now_ns)
                    excess -= taken
            # Links reserve different sizes a credit: too few bytes may have come back for the count.
            excess = self._excess()

    def blocked(self) -> int:
        """How many producer links have no credit and wait for some, or wait with a parked message."""
        count = 0
        for account in self.accounts:
            waits = account.waiting or account.waits_for_budget
            if waits and (account.outstanding == 0 or account.parked):
                count += 1
        return count

    def _may_open(self) -> bool:
        if self.gate.closed or (self.memory is not None and self.memory.closed):
            return False
        if self.bottleneck is not None and self.bottleneck.closed:
            return False
        # One of them per subscription of a topic: a plain loop, typed when compiled.
        for gate in self.others:
            if gate.closed:
                return False
        for claim in self.claims:  # noqa: SIM110
            if claim.gate.closed:
                return False
        return True

    def _is_shut(self) -> bool:
        """Whether the gate that shut this ledger last still does: nothing can be dealt or reclaimed then."""
        return self.bottleneck is not None and self.bottleneck.closed and self.bottleneck.room(1) == 0

    def _find_bottleneck(self) -> Gate | None:
        for gate in self.others:
            if gate.room(1) == 0:
                return gate
        for claim in self.claims:
            if claim.gate.room(1) == 0:
                return claim.gate
        return None

    def _excess(self) -> int:
        excess = self.gate.excess_msgs()
        for gate in self.others:
            excess = max(excess, gate.excess_msgs())
        for claim in self.claims:
            excess = max(excess, claim.gate.excess_msgs())
        if self.memory is not None:
            excess = max(excess, self.memory.excess_msgs())
        return min(excess, self.promised_msgs)

    def _deal(self, now_ns: int) -> None:
        """Step 2 of the class: parked messages, then credit, while there is room."""
        if not self.line:
            return
        askers: list[ProducerCredit] = []
        budget = self.room(1)
        if budget == 0 and self.parked_msgs > 0:
            self._admit_in_line()
            if not self.line:
                return
        # As who is first would use it; who sends smaller messages may find more.
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
                # Who wants more than there is only keeps its place.
                if self.room(account.reserve_bytes) > 0:
                    room -= min(batch, account.wants())
        if askers:
            self._deal_credit(askers, now_ns)

    def _batch(self, room: int) -> int:
        """What an asker gets at least, up to what it wants. Every grant is a flow frame: where room comes in
        crumbs some get a batch now and the others next time, for the line goes round.
        """
        stop_msgs = self.gate.stop_msgs or self.gate.stop_bytes // self.gate.unit_bytes()
        if stop_msgs < len(self.accounts):
            # Beside so many a batch for one is a long wait for the others.
            return 1
        most = stop_msgs // BATCH if room < len(self.line) else stop_msgs // (2 * len(self.accounts))
        return max(min(BATCH, most), 1)

    def _admit_in_line(self) -> None:
        """Parked messages alone, where memory has no room for more: they are in it already."""
        # A way that is refused closes, and leaves the line.
        for account in list(self.line):
            self._admit_parked(account, len(account.parked))
            if account.parked:
                return

    def _fits(self, size: int) -> bool:
        """Whether a parked message may enter the node. Memory has it already: what is parked doesn't keep
        out what is parked.
        """
        if self.gate.room(size) == 0:
            return False
        # One of them per subscription of a topic: a plain loop, typed when compiled.
        for gate in self.others:
            if gate.room(size) == 0:
                return False
        if self.repeated and self._repeated_room(size) == 0:
            return False
        for claim in self.claims:
            if claim.gate.room(claim.takes(size)) == 0:
                return False
        return self.memory is None or self.memory.takes_parked(self.copies * self._held(size))

    def _admit_parked(self, account: ProducerCredit, budget: int) -> int:
        admitted = 0
        while account.parked and admitted < budget and self._fits(account.parked[0][1]):
            message, size = account.next_parked()
            account.port.admit(message, size)
            admitted += 1
        return admitted

    def _deal_credit(self, askers: list[ProducerCredit], now_ns: int) -> None:
        for account in askers:
            self._learn(account)
        room = self._line_room_for(askers)
        shares = deal(room, [a.outstanding for a in askers], [a.wants() for a in askers])
        # Who gets nothing keeps its place at the head of the line, who gets some goes to its end.
        unserved: list[ProducerCredit] = []
        held_back = False
        for account, share in zip(askers, shares, strict=True):
            msgs = 0 if held_back else min(share, self.room(account.reserve_bytes))
            if msgs > 0 and account.budget is not None:
                left = account.budget.share(self._held(account.reserve_bytes))
                account.budget.asking = max(account.budget.asking - 1, 0)
                if left < min(msgs, account.wants()):
                    self._pinch(account)
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
            self._grant(account, msgs, now_ns)
            if account.outstanding <= account.low and account.wants() > 0 and not account.waits_for_budget:
                account.waiting = True
                self.line.append(account)
        self.line.extendleft(reversed(unserved))

    def _line_room_for(self, askers: list[ProducerCredit]) -> int:
        """Room in messages of the askers' average size; each grant is checked by its own size."""
        total = 0
        for account in askers:
            total += account.reserve_bytes
        return self.room(total // len(askers))

    def _learn(self, account: ProducerCredit) -> None:
        """Adopt the size the link's messages turned out to have; what it holds is reserved anew."""
        size: int = self._strict() or account.learned_bytes
        if size == account.reserve_bytes:
            return
        change = (size - account.reserve_bytes) * account.outstanding
        held = (self._held(size) - self._held(account.reserve_bytes)) * account.outstanding
        before = account.reserve_bytes
        account.reserve_bytes = size
        if change:
            self.gate.promise(0, change)
            for gate in self.others:
                gate.promise(0, change)
            for claim in self.claims:
                claim.gate.promise(0, (claim.takes(size) - claim.takes(before)) * account.outstanding)
            if self.memory is not None:
                self.memory.promise(0, held * self.copies)
            if account.budget is not None:
                account.budget.gate.promise(0, held)

    def _strict(self) -> int:
        """The size each credit reserves, where this gate or another reckons with the largest; else 0."""
        size = self.gate.strict_bytes
        for gate in self.others:
            size = max(size, gate.strict_bytes)
        return size

    def _pinch(self, account: ProducerCredit) -> None:
        """It waits for its connection's budget, not for room here."""
        account.waits_for_budget = True
        if account.budget is not None:
            account.budget.budget_queue.append(account)
            self.budgets_in_demand.append(account.budget)

    def _unpinch(self, account: ProducerCredit) -> None:
        if account.waits_for_budget and account.budget is not None:
            account.waits_for_budget = False
            account.budget.budget_queue.remove(account)

    def _grant(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        if account.outstanding == 0:
            account.granted_ns = now_ns
        account.outstanding += msgs
        account.withdrawn = max(account.withdrawn - msgs, 0)
        account.blocked_since_ns = 0
        account.resting = False
        size = msgs * account.reserve_bytes
        self.promised_msgs += msgs
        self.gate.promise(msgs, size)
        if self.others:
            for gate in self.others:
                gate.promise(msgs, size)
        if self.claims:
            for claim in self.claims:
                claim.promise(msgs, account.reserve_bytes)
        if self.memory is not None:
            self.memory.promise(msgs, self.copies * msgs * self._held(account.reserve_bytes))
        if account.budget is not None:
            account.budget.gate.promise(msgs, msgs * self._held(account.reserve_bytes))
        account.port.grant(msgs)

    def _withdraw(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        self._return(account, msgs)
        if account.outstanding == 0 and (account.waiting or account.waits_for_budget):
            account.blocked_since_ns = now_ns
        account.withdrawn += msgs
        self.revoked_count += 1
        account.port.revoke(msgs)

    def _return(self, account: ProducerCredit, msgs: int) -> None:
        """The reservation of ``msgs`` credits that were not used."""
        account.outstanding -= msgs
        self.release(msgs, account.reserve_bytes)
        self.used_total -= msgs
        if account.budget is not None:
            account.budget.gate.promise(-msgs, -msgs * self._held(account.reserve_bytes))

    def _reclaim(self, now_ns: int) -> bool:
        """Step 3 of the class; true if any credit came back."""
        need = 0
        hungry_ns = now_ns
        # How many use what they get as soon as they have it, of those who wait for more.
        prompt = waiting = 0
        self._content(now_ns)
        for account in self.line:
            need += account.wants() + len(account.parked)
            if account.outstanding == 0:
                hungry_ns = min(hungry_ns, account.blocked_since_ns)
                waiting += 1
                prompt += 0 <= account.last_used_ns - account.granted_ns < IDLE_NS
        count = len(self.accounts)
        shares = Level(self.accounts, self.room(self.gate.unit_bytes()), self._whole(), now_ns)
        # Credits that may be held unused where there isn't one for each: all of them, or half where others
        # would use them at once, more than timers do by chance. A quarter may be held by those who never used
        # any and may be about to, unless messages wait that are here already.
        singles = 0
        if shares.share == 0:
            singles = shares.capacity >> 1 if prompt > waiting >> 3 else shares.capacity
        strangers = 0 if self.parked_msgs > 0 else max(shares.capacity >> 2, 1)
        each = max(strangers // max(shares.strangers, 1), 1)
        overdue = now_ns - hungry_ns >= PATIENT_NS
        freed = 0
        accounts = self.accounts[self.scan :] + self.accounts[: self.scan]
        if singles > 0:
            # Who was served least holds its one until its timer goes off.
            accounts.sort(key=_flow)
        for account in accounts:
            # What one takes from itself it would only be given back.
            others = need - (account.wants() if account.waiting else 0)
            if account.outstanding > 0 and not account.parked:
                keep = self._due_to(account, shares.of(account), overdue, now_ns)
                if keep == 0:
                    # All of them have their turn within PROBE_NS each.
                    longest_ns = PROBE_NS if prompt > 0 else PROBE_NS * max(shares.capacity, 1)
                    park_timeout_ns = min(account.park_timeout_ns(), longest_ns)
                    fresh = now_ns - account.granted_ns < park_timeout_ns
                    if account.claim(now_ns) > 0:
                        keep = 1 if singles > 0 and fresh else 0
                        singles -= keep
                    elif strangers > 0 and (fresh or each < strangers):
                        keep = min(each, account.outstanding)
                        strangers -= keep
                if freed < others:
                    freed += self._reclaim_from(account, keep, others - freed, now_ns)
            account.used_mark = account.used
        # Start elsewhere next time, so that equals lose in turn.
        self.scan = (self.scan + 1) % max(count, 1)
        return freed > 0

    def _content(self, now_ns: int) -> None:
        """Who sits on credit in line has what it needs: its window shrinks to what it is likely to use."""
        for _ in range(len(self.line)):
            account = self.line.popleft()
            if account.outstanding > 0 and not account.parked and account.is_idle(now_ns):
                account.window = max(min(account.window, account.claim(now_ns)), 1)
                account.low = account.window >> 1
                if account.outstanding > account.low:
                    account.waiting = False
                    continue
            self.line.append(account)

    def _whole(self) -> int:
        """Messages that the tightest threshold allows in all; 0 where there is none."""
        whole = 0
        for gate in (self.gate, *self.others):
            if gate.stop_msgs or gate.stop_bytes:
                allowed = gate.depth_msgs + gate.promised_msgs + gate.room(gate.unit_bytes())
                if whole == 0 or allowed < whole:
                    whole = allowed
        return whole

    def _due_to(self, account: ProducerCredit, share: int, overdue: bool, now_ns: int) -> int:
        """What an account may keep while others wait. Who uses its credit keeps twice what it used since the
        last look, but no more than its share beside one that has waited for long.
        """
        keep = min(account.claim(now_ns), share)
        recent = account.used - account.used_mark
        if recent > 0 or not account.is_idle(now_ns):
            using = max(2 * recent, 1)
            keep = max(keep, min(using, max(share, 1)) if overdue else using)
        return keep

    def _reclaim_from(
        self, account: ProducerCredit, keep: int, need: int, now_ns: int, lent: bool = False
    ) -> int:
        taken = min(account.outstanding - keep, need)
        if taken <= 0:
            return 0
        self._withdraw(account, taken, now_ns)
        if account.outstanding == 0 and not account.waiting:
            self._unpinch(account)
            if account.claim(now_ns) > 0 and not lent and not account.held_in_vain(now_ns):
                # It has used credit lately, and will again: it waits for its turn. Who lent to others than
                # ours would take it back from them.
                account.window = max(min(account.claim(now_ns), account.window), 1)
                account.low = account.window >> 1
                self.wait(account, now_ns)
            else:
                self._rest(account)
        return taken

    def _rest(self, account: ProducerCredit) -> None:
        account.resting = True
        account.blocked_since_ns = 0
        account.window = max(min(account.initial, account.window >> 1), 1)
        account.low = account.window >> 1
        self.rest.append(account)

    def _probe(self, now_ns: int) -> None:
        """Step 4 of the class: some resting links get in line again, with what can be spared."""
        busy = self.used_total != self.used_at_probe
        self.used_at_probe = self.used_total
        self.probe_ns = now_ns + PROBE_NS
        room = self.room(self.gate.unit_bytes())
        count = self._probe_count(room, busy)
        share = max(min(room // max(len(self.rest), 1), constants.UNBOUNDED), 1)
        while self.rest and count > 0:
            account = self.rest.popleft()
            account.resting = False
            account.window = max(min(account.initial, share), 1)
            account.low = account.window >> 1
            self.wait(account, now_ns)
            count -= 1
        self._deal(now_ns)

    def _probe_count(self, room: int, busy: bool) -> int:
        slots = max((self.gate.stop_msgs or 1000) // PROBE_PART, 1)
        if busy or self.line:
            return slots
        return max(slots, min(room, len(self.rest)))


def _flow(account: ProducerCredit) -> int:
    return account.flow
