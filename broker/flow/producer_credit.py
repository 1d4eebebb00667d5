"""One producer link's credit at one address: its numbers, and the answers that follow from them alone.

For each of them ``granted == used + withdrawn + outstanding`` holds, where *granted* is the most the peer was
ever allowed, *outstanding* the credit that stands and is reserved, and *withdrawn* the credit taken back that
the peer may not have heard of yet. All that concerns the address's gates, its line and its other producers
goes through ``AllocatorPort``. This file knows no Proton, no clock, no disk.
"""

from __future__ import annotations

from collections import deque

from broker import constants
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.reservation import ReservationSet

# A link that used nothing for so long while others wait sits on its credit (FLOW §2 rule 5). Longer
# than a scheduler's hiccup, short enough that a waiting producer doesn't notice.
IDLE_NS = 10_000_000
# How often links without credit that showed no wish to send are tried again; no link is expected to have used
# its credit sooner than that.
PROBE_NS = 100_000_000
# Over this time the most that a link used at once is remembered: a timer's next burst will be like its last.
PEAK_NS = 30_000_000_000
# Where there isn't a credit for each, nobody holds one for longer without using it.
MOST_PATIENT_NS = 1_000_000_000
# How long a link's past use counts against its share: others' credit is not for who had more than they.
FLOW_NS = 10_000_000_000
# Past use is counted in parts of a message, so that little fades as much does.
FLOW_BITS = 10
# What a credit reserves before anything is known of a link's messages.
UNKNOWN_BYTES = 1024


class Port:
    """What an account asks of its link; the room that knows the wire implements it."""

    def grant(self, msgs: int) -> None:
        """Raise the peer's credit by ``msgs``."""
        raise NotImplementedError

    def revoke(self, msgs: int) -> None:
        """Lower the peer's credit by ``msgs``."""
        raise NotImplementedError

    def admit(self, parked: object, size: int) -> None:
        """Take in a message handed to :meth:`ProducerCredit.park`: there is room now."""
        raise NotImplementedError

    def offered(self) -> int:
        """Return how many messages the peer says it has to send; 0 where it doesn't say."""
        return 0

    def confirm(self, held: object) -> None:
        """Settle what was held: it is in its node."""
        raise NotImplementedError

    def refuse(self, parked: object) -> None:
        """Refuse a parked message: the time it may wait is over (`reject_after`)."""
        raise NotImplementedError


class AllocatorPort:
    """What a producer's credit asks of its address; ``flow/address_credit.py`` implements it.

    It is a class of its own because compiled types can't import each other in a circle.
    """

    def __init__(self, reservations: ReservationSet) -> None:
        self.reservations = reservations

    def spend(self, account: ProducerCredit) -> None:
        """Give back the reservation of one credit that was used."""
        raise NotImplementedError

    def misjudged(self, account: ProducerCredit) -> None:
        """Reserve more for the credit that stands: a message was larger than that had reserved."""
        raise NotImplementedError

    def give_back(self, account: ProducerCredit, msgs: int) -> None:
        """Give back the reservation of ``msgs`` credits that were not used."""
        raise NotImplementedError

    def withdraw(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        """Take ``msgs`` credits back from the peer, which may use them before it hears of it."""
        raise NotImplementedError

    def take_back(self, account: ProducerCredit, msgs: int, now_ns: int) -> None:
        """Take back ``msgs`` credits that the connection has no room for; the link waits for that."""
        raise NotImplementedError

    def wait(self, account: ProducerCredit, now_ns: int) -> None:
        """Put an account in line for room."""
        raise NotImplementedError

    def leave_line(self, account: ProducerCredit) -> None:
        """Take an account out of the line."""
        raise NotImplementedError

    def leave_budget_queue(self, account: ProducerCredit) -> None:
        """Have an account wait for its connection's budget no more."""
        raise NotImplementedError

    def let_rest(self, account: ProducerCredit) -> None:
        """Put an account without credit aside: it showed no wish to send, and is tried again later."""
        raise NotImplementedError

    def put_off_probe(self, now_ns: int) -> None:
        """Try resting links again no sooner than in ``PROBE_NS``, if only one rests."""
        raise NotImplementedError

    def count_parked(self, account: ProducerCredit, msgs: int, size: int) -> None:
        """Count a message of ``size`` bytes that is parked; with ``msgs`` -1 one that no longer is."""
        raise NotImplementedError

    def leave(self, account: ProducerCredit) -> None:
        """Forget an account and give back all it had reserved."""
        raise NotImplementedError


class ProducerCredit:
    """One producer link's promise at one node.

    ``window`` is what the link has earned: it starts at ``initial`` and doubles, up to ``window_max``, each
    time the link has used what it had. A ``window_max`` of 0 makes an account that never holds credit and
    only parks (anonymous relay, rejecting nodes). ``stated`` is the lowest priority that the link says it
    sends, -1 where it doesn't say; an ``urgent`` one may use the reserve. A ``mixed`` one doesn't say so, but
    has sent high priorities: it is urgent only while it holds no more than one credit of the reserve. Where
    ``parks_bulk``, one of its parked messages is of a lower priority: they are admitted without the reserve.
    """

    def __init__(
        self,
        allocator: AllocatorPort,
        port: Port,
        window_max: int,
        initial: int,
        budget: ConnectionBudget | None,
    ) -> None:
        self.allocator = allocator
        self.budget = budget
        self.waits_for_budget = False
        # The node it is an account at, for whoever deals; opaque.
        self.place: object = None
        self.port = port
        self.window_max = window_max
        self.initial = min(initial, window_max)
        self.window = self.initial
        self.low = self.window >> 1
        # What its window began at, and how many links parted the threshold then, 0 where none had to.
        self.began = self.window
        self.sharers = 0
        self.outstanding = 0
        self.withdrawn = 0
        # Messages taken whose settlement waits: they count against the window.
        self.held = 0
        self.used = 0
        self.used_mark = 0
        # With the typed attribute, for what is compiled reaches it through that alone.
        self.reserve_bytes = self.allocator.reservations.strict_bytes() or (
            self.allocator.reservations.gate.typical_bytes or UNKNOWN_BYTES
        )
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
        self.stated = -1
        self.urgent = False
        self.mixed = False
        self.parks_bulk = False
        self.late_count = 0
        self.overrun_count = 0
        # Each with its size and when it came; 0 where it may not be refused any more.
        self.parked: deque[tuple[object, int, int]] = deque()
        self.parked_bytes = 0
        # Who sends here, for whoever wants nothing from them; opaque.
        self.origin: object = None

    @property
    def granted(self) -> int:
        """The most the peer was ever allowed to send."""
        return self.used + self.withdrawn + self.outstanding

    # --- credit is used

    def use(self, size: int, now_ns: int) -> int:
        """Use one credit for a message of ``size`` bytes; return which kind it came on.

        TAKEN is standing credit, LATE credit taken back meanwhile, VIOLATION credit that the peer never had.
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
        if size > self.reserve_bytes and self.outstanding > 0:
            # Its connection's budget may take back all credit for that, this message's too: then it is late.
            self.allocator.misjudged(self)
        if self.outstanding > 0:
            self.outstanding -= 1
            self.used += 1
            self.allocator.spend(self)
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
        """Take back ``msgs`` credits that the peer counts as used and sent nothing for: it asks for new."""
        given = min(msgs, self.outstanding)
        late = min(msgs - given, self.withdrawn)
        self.allocator.give_back(self, given)
        self.withdrawn -= late
        self.used += given + late
        if self.outstanding <= self.low:
            self.allocator.wait(self, now_ns)

    # --- messages that wait outside the node

    def park(self, message: object, size: int, now_ns: int, patient: bool = False) -> None:
        """Keep a message outside the node until there is room; it is admitted in its turn.

        Credit that stands is taken back: it holds the room that is waited for, and what is sent on it has to
        come later. A ``patient`` one waits as long as it takes (``refuse_until``).
        """
        if self.outstanding > 0:
            self.allocator.withdraw(self, self.outstanding, now_ns)
        self.parked.append((message, size, 0 if patient else now_ns))
        self.allocator.count_parked(self, 1, size)
        if self.budget is not None:
            self.budget.trim(now_ns)
        self.allocator.wait(self, now_ns)

    def unpark(self, message: object) -> bool:
        """Take a parked message back without admitting it; false if it isn't parked any more."""
        for item in self.parked:
            if item[0] is message:
                self.parked.remove(item)
                self.parks_bulk = self.parks_bulk and len(self.parked) > 0
                self.allocator.count_parked(self, -1, item[1])
                return True
        return False

    def next_parked(self) -> tuple[object, int]:
        """Take out the oldest parked message; return it and its size."""
        message, size, _ = self.parked.popleft()
        self.allocator.count_parked(self, -1, size)
        self.parks_bulk = self.parks_bulk and len(self.parked) > 0
        return message, size

    def refuse_until(self, since_ns: int) -> int:
        """Refuse messages parked by then; return when the oldest of the others came, 0 for none."""
        while True:
            oldest = next((item for item in self.parked if item[2] > 0), None)
            if oldest is None or oldest[2] > since_ns:
                break
            self.parked.remove(oldest)
            self.allocator.count_parked(self, -1, oldest[1])
            self.port.refuse(oldest[0])
        if not self.parked and self.window_max == 0 and self.waiting:
            self.allocator.leave_line(self)
        return 0 if oldest is None else oldest[2]

    # --- the window

    def wants(self) -> int:
        """Return how much credit would fill the window."""
        return max(self.window - self.outstanding - self.held, 0)

    def resize(self, window_max: int) -> None:
        """Set a new bound on the window; credit beyond it runs out by being used."""
        if self.window_max == 0:
            return
        self.window_max = window_max
        self.set_window(min(self.window, window_max))

    def set_window(self, window: int) -> None:
        """Set the window; the link asks for more credit once it has used half of it."""
        self.window = window
        self.low = window >> 1

    def shrink_to_use(self, now_ns: int) -> None:
        """Let the window be no more than the link is likely to use at once."""
        self.set_window(max(min(self.expected_use(now_ns), self.window), 1))

    def close(self) -> None:
        """Give every reservation back; what is parked is forgotten, its outcome was never told."""
        self.allocator.leave(self)

    # --- how the link uses its credit

    def expected_use(self, now_ns: int) -> int:
        """Return how much the link may be expected to use at once; 0 if it never used any.

        That is a little more than the most it did lately, and twice its last burst if it had no more then.
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
        """Return how long the link may hold credit that others need as much: until its timer is overdue."""
        return min(max(self.gap_ns + (self.gap_ns >> 2), PROBE_NS), MOST_PATIENT_NS)

    def held_in_vain(self, now_ns: int) -> bool:
        """Return whether it used nothing since it got credit, for longer than its last pause."""
        return self.last_used_ns < self.granted_ns and now_ns - self.granted_ns >= self.park_timeout_ns()

    def served(self, now_ns: int) -> int:
        """Return how much it used lately, in messages."""
        passed_ns = min(now_ns - self.flow_ns, FLOW_NS)
        self.flow += (self.used - self.flow_mark) << FLOW_BITS
        self.flow -= int(self.flow * (passed_ns / FLOW_NS))
        self.flow_ns = now_ns
        self.flow_mark = self.used
        return self.flow >> FLOW_BITS

    def demand(self, now_ns: int) -> int:
        """Return the number of messages that the link's share is measured by.

        While it waits and uses what it gets, that is all it asks for, else what it may be expected to use.
        """
        if (self.waiting or self.waits_for_budget) and (self.outstanding == 0 or not self.is_idle(now_ns)):
            return self.outstanding + self.wants() + len(self.parked)
        return self.expected_use(now_ns)

    def unused_ns(self, now_ns: int) -> int:
        """Return for how long it has done nothing with the credit it had."""
        return now_ns - max(self.last_used_ns, self.granted_ns)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether it has done nothing for so long that its credit may be lent on."""
        return self.unused_ns(now_ns) >= IDLE_NS
