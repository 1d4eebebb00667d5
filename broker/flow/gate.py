"""The flow state of one node: depth and promised credit against two pairs of thresholds.

A gate is *open* or *closed*. It closes when a unit has no room for one more message below its stop
threshold, or by an operator's hand; it opens when every configured unit is strictly below its
resume threshold and no operator holds it. Only this file decides that. It grants nothing itself:
``room`` says how much credit may be promised, the allocator promises.
"""

from __future__ import annotations

from broker import constants

OPEN = "open"
STOPPED = "stopped"

# (state, what happened) -> state. A pair that is absent changes nothing.
TRANSITIONS = {(OPEN, "full"): STOPPED, (STOPPED, "drained"): OPEN}


class Gate:
    """Depth, promises and thresholds of one node; sizes in bytes, times in monotonic nanoseconds.

    A threshold of 0 means that the unit is not configured. The caller serialises access. The reserve is the
    part of the room below the stop threshold that is kept for producers of high priorities; credit that they
    hold counts against it first, so that only the rest is kept free.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.enforced = True
        self.held = False
        self.full = False
        self.closed = False
        # Of a budget: nodes wait for room, so that nobody takes what comes free out of turn.
        self.wanted = False
        self.stop_msgs = 0
        self.resume_msgs = 0
        self.stop_bytes = 0
        self.resume_bytes = 0
        self.strict_bytes = 0
        # The reserve, 0 for none, and the part of what is promised that is urgent producers'.
        self.reserves = False
        self.reserve_msgs = 0
        self.reserve_bytes = 0
        self.urgent_msgs = 0
        self.urgent_bytes = 0
        self.depth_msgs = 0
        self.depth_bytes = 0
        self.promised_msgs = 0
        self.promised_bytes = 0
        # Of the depth of a budget: what waits to enter a node.
        self.parked_bytes = 0
        self.typical_bytes = 0
        self.peak_msgs = 0
        self.peak_bytes = 0
        self.closed_count = 0
        self.closed_since_ns = 0
        self.closed_total_ns = 0

    def configure(
        self,
        stop_msgs: int,
        resume_msgs: int,
        stop_bytes: int,
        resume_bytes: int,
        strict_bytes: int,
        now_ns: int,
    ) -> bool:
        """Take new thresholds; true if the gate opened or closed by it.

        A raised stop threshold lets waiting producers in at once, even above the resume threshold:
        whoever raises it means to (FLOW §2 rule 9). ``strict_bytes`` is the size one credit
        reserves, or 0 where it is learned.
        """
        raised = _is_raised(self.stop_msgs, stop_msgs) or _is_raised(self.stop_bytes, stop_bytes)
        self.stop_msgs = stop_msgs
        self.resume_msgs = resume_msgs or stop_msgs
        self.stop_bytes = stop_bytes
        self.resume_bytes = resume_bytes or stop_bytes
        self.strict_bytes = strict_bytes
        if self.full and raised:
            self.full = self._is_full()
        return self._reconsider(now_ns)

    def reserve(self, percent: int) -> None:
        """Keep so many percent of each stop threshold, rounded up, for urgent producers; 0 keeps none.

        A threshold of one message has no room for a reserve.
        """
        self.reserve_msgs = min((self.stop_msgs * percent + 99) // 100, max(self.stop_msgs - 1, 0))
        self.reserve_bytes = (self.stop_bytes * percent + 99) // 100
        self.reserves = self.reserve_msgs > 0 or self.reserve_bytes > 0

    def enforce(self, enforced: bool, now_ns: int) -> bool:
        """Let the thresholds count or not (`flow_control`, `enforce_flow`); true if the state changed."""
        self.enforced = enforced
        return self._reconsider(now_ns)

    def hold(self, held: bool, now_ns: int) -> bool:
        """An operator's gate, above every threshold; true if the state changed."""
        self.held = held
        return self._settle_state(now_ns)

    def enter(self, size: int, now_ns: int) -> bool:
        """Count a message in; true if the gate closed by it."""
        self.depth_msgs += 1
        self.depth_bytes += size
        # Rounded up: what is rounded down never comes within 16 bytes of the size of small messages.
        self.typical_bytes += (size - self.typical_bytes + 15) >> 4
        if self.depth_msgs > self.peak_msgs:
            self.peak_msgs = self.depth_msgs
        if self.depth_bytes > self.peak_bytes:
            self.peak_bytes = self.depth_bytes
        if self.full or not self.enforced or not self._is_full():
            return False
        self.full = True
        return self._settle_state(now_ns)

    def leave(self, size: int, now_ns: int) -> bool:
        """Count a message out; true if the gate opened by it."""
        self.depth_msgs -= 1
        self.depth_bytes -= size
        if not self.full or not self._is_drained():
            return False
        self.full = False
        return self._settle_state(now_ns)

    def look(self, now_ns: int) -> bool:
        """Its depth was counted directly (a budget's, in every node's turn); true if its state changed."""
        if self.depth_bytes > self.peak_bytes:
            self.peak_bytes = self.depth_bytes
        return self._reconsider(now_ns)

    def measure(self, msgs: int, nbytes: int, now_ns: int, anew: bool = False) -> bool:
        """Take its depth as counted elsewhere (a stream's slowest reader); true if its state changed.

        ``anew``: a depth that was too large stood there, so that it is closed only if it is full by this one.
        """
        self.depth_msgs = msgs
        self.depth_bytes = nbytes
        if msgs > self.peak_msgs:
            self.peak_msgs = msgs
        if anew:
            self.full = False
        elif nbytes > self.peak_bytes:
            self.peak_bytes = nbytes
        return self._reconsider(now_ns)

    def learn(self, size: int) -> None:
        """Learn from a message what size to expect, where ``enter`` isn't told of it."""
        self.typical_bytes += (size - self.typical_bytes + 15) >> 4

    def promise(self, msgs: int, size: int) -> None:
        """Reserve room for ``msgs`` credits of ``size`` bytes in all; negative numbers give it back."""
        self.promised_msgs += msgs
        self.promised_bytes += size

    def promise_urgent(self, msgs: int, size: int) -> None:
        """Count what was promised, or given back, as urgent producers' credit."""
        self.urgent_msgs += msgs
        self.urgent_bytes += size

    def park(self, size: int) -> None:
        """A message of so many bytes waits outside its node; a negative number: it does no more."""
        self.depth_bytes += size
        self.parked_bytes += size

    def takes_parked(self, size: int) -> bool:
        """Whether a message that waits may enter its node, where it takes so many bytes: what else waits
        is not in its way.
        """
        entered = self.depth_bytes - self.parked_bytes + self.promised_bytes
        return not self.enforced or self.stop_bytes == 0 or entered == 0 or entered + size <= self.stop_bytes

    def room(self, reserve_bytes: int) -> int:
        """How many more credits of ``reserve_bytes`` each may be promised now without the reserve."""
        room = self.whole_room(reserve_bytes)
        if not self.reserves or room == 0 or room == constants.UNBOUNDED:
            return room
        if self.depth_msgs == 0 and self.promised_msgs == 0:
            # However large: there is one message's room where nothing is.
            return max(min(room, self._room_beside_reserve(reserve_bytes)), 1)
        return min(room, self._room_beside_reserve(reserve_bytes))

    def _room_beside_reserve(self, reserve_bytes: int) -> int:
        room = constants.UNBOUNDED
        if self.reserve_msgs:
            kept = max(self.reserve_msgs - self.urgent_msgs, 0)
            room = self.stop_msgs - self.depth_msgs - self.promised_msgs - kept
        if self.reserve_bytes:
            kept = max(self.reserve_bytes - self.urgent_bytes, 0)
            left = self.stop_bytes - self.depth_bytes - self.promised_bytes - kept
            room = min(room, left // max(reserve_bytes, 1))
        return max(room, 0)

    def reserve_excess(self, size: int) -> int:
        """How many promised credits of ``size`` bytes each stand where the reserve should be free."""
        if not self.reserves or not self.enforced or self.promised_msgs == self.urgent_msgs:
            return 0
        excess = 0
        if self.reserve_msgs:
            kept = max(self.reserve_msgs - self.urgent_msgs, 0)
            excess = self.depth_msgs + self.promised_msgs + kept - self.stop_msgs
        if self.reserve_bytes:
            kept = max(self.reserve_bytes - self.urgent_bytes, 0)
            over = self.depth_bytes + self.promised_bytes + kept - self.stop_bytes
            excess = max(excess, (over + size - 1) // max(size, 1))
        return max(excess, 0)

    def whole_room(self, reserve_bytes: int) -> int:
        """How many more credits of ``reserve_bytes`` each may be promised now, the reserve included.

        An empty node always has room for one message, however large: without that a message larger
        than the threshold would wait for ever.
        """
        if self.held:
            return 0
        if not self.enforced:
            return constants.UNBOUNDED
        if self.full:
            return 0
        room = constants.UNBOUNDED
        if self.stop_msgs:
            room = self.stop_msgs - self.depth_msgs - self.promised_msgs
        if self.stop_bytes:
            room = min(room, self._room_by_bytes(reserve_bytes))
        return max(room, 0)

    def could_hold(self, msgs: int, size: int) -> bool:
        """Whether so many more messages, of ``size`` bytes in all, would have room if no credit stood."""
        if self.held:
            return False
        if not self.enforced:
            return True
        if self.full or (self.stop_msgs and self.depth_msgs + msgs > self.stop_msgs):
            return False
        alone = self.depth_msgs == 0 and msgs == 1
        return alone or not self.stop_bytes or self.depth_bytes + size <= self.stop_bytes

    def excess_msgs(self) -> int:
        """Credits promised beyond what the thresholds still cover: those to take back."""
        if self.promised_msgs == 0:
            return 0
        if self.held:
            return self.promised_msgs
        if not self.enforced:
            return 0
        if self.full:
            return self.promised_msgs
        excess = 0
        if self.stop_msgs:
            excess = self.depth_msgs + self.promised_msgs - self.stop_msgs
        over_bytes = self.depth_bytes + self.promised_bytes - self.stop_bytes
        # One credit on an empty node is always allowed, whatever it reserves.
        if self.stop_bytes and over_bytes > 0 and self.depth_msgs + self.promised_msgs > 1:
            each = max(self.promised_bytes // self.promised_msgs, 1)
            excess = max(excess, (over_bytes + each - 1) // each)
        return min(max(excess, 0), self.promised_msgs)

    def unit_bytes(self) -> int:
        """The size to expect of one more message."""
        return self.strict_bytes or max(self.typical_bytes, 1)

    def _room_by_bytes(self, reserve_bytes: int) -> int:
        room = (self.stop_bytes - self.depth_bytes - self.promised_bytes) // max(reserve_bytes, 1)
        if room < 1 and self.depth_msgs == 0 and self.promised_msgs == 0:
            return 1
        return room

    def _is_full(self) -> bool:
        if self.stop_msgs and self.depth_msgs >= self.stop_msgs:
            return True
        if self.stop_bytes == 0 or self.depth_msgs == 0:
            return False
        # Below the resume threshold the gate is open, whatever size is expected next: a link whose
        # messages don't fit waits for room, others go on. Where both thresholds are one, only the
        # expected size can tell that nothing more fits.
        if self.depth_bytes < self.resume_bytes < self.stop_bytes:
            return False
        return self.depth_bytes + self.unit_bytes() > self.stop_bytes

    def _is_drained(self) -> bool:
        if self.stop_msgs and self.depth_msgs >= self.resume_msgs:
            return False
        return not (self.stop_bytes and self.depth_bytes >= self.resume_bytes)

    def _reconsider(self, now_ns: int) -> bool:
        if not self.enforced:
            self.full = False
        elif self.full:
            self.full = not self._is_drained()
        else:
            self.full = self._is_full()
        return self._settle_state(now_ns)

    def _settle_state(self, now_ns: int) -> bool:
        closed = self.full or self.held
        if closed == self.closed:
            return False
        self.closed = closed
        if closed:
            self.closed_count += 1
            self.closed_since_ns = now_ns
        else:
            self.closed_total_ns += now_ns - self.closed_since_ns
        return True

    @property
    def state(self) -> str:
        """``open`` or ``stopped``."""
        return STOPPED if self.closed else OPEN


def _is_raised(before: int, after: int) -> bool:
    """Whether a stop threshold went up; 0 is the highest, for it is none."""
    return before > 0 and (after == 0 or after > before)
