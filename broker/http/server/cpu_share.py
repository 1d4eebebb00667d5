"""The share of the processor that the HTTP port takes while messages move.

Its threads and the reactor's share one interpreter, whose lock is given from one to the other: many requests
over HTTP take the time in which messages would be moved. So there is a share, as for control work
(``amqp/loop/control_quota.py``); where no messages move there is none. Pure: time is an
argument. Used on the HTTP loop's thread, but for ``asked_ns``.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.flow.rate import TimeShare

MILLISECOND_NS = 1_000_000
# Time that may be saved up: a scrape of 10,000 queues passes at full load (``python -m bench.scrape``).
MOST_SAVED_NS = 150 * MILLISECOND_NS
MOST_DEBT_NS = 1000 * MILLISECOND_NS
# The cost of an answer until it is known: no more than two at once, as each may keep the reactor
# waiting for the interpreter.
RESERVED_NS = MOST_SAVED_NS // 2
# So long without a message, and nobody minds.
QUIET_NS = 20 * MILLISECOND_NS
# While messages move, clients that cost more than they bring are served no more often than this: each time
# the interpreter changes hands, which costs the reactor more than what is done for a single byte.
ROUND_NS = 5 * MILLISECOND_NS
# How long until it is looked again, whatever is owed: messages may have ceased.
LOOK_NS = 5 * MILLISECOND_NS


class CpuShare:
    """``percent`` of one processor while messages move; ``moved_ns`` says when one last did."""

    def __init__(self, percent: int = 100, moved_ns: Callable[[], int] = lambda: 0) -> None:
        self.time = TimeShare(max(percent, 1), MOST_SAVED_NS, MOST_DEBT_NS, 0)
        # The time that the reactor's thread has spent on questions of ours, which it alone adds up.
        self.asked_ns = 0
        self.spent_ns = 0
        self._moved_ns = moved_ns
        self._charged_ns = 0

    def charge(self, taken_ns: int, now_ns: int) -> None:
        """Charge processor time; the reactor's time for questions of ours comes on top."""
        asked_ns, self._charged_ns = self.asked_ns - self._charged_ns, self.asked_ns
        self.time.may_serve(now_ns)
        self.spent_ns += taken_ns + asked_ns
        if self.is_bounded(now_ns):
            self.time.charge(taken_ns + asked_ns)

    def reserve(self, now_ns: int) -> int:
        """Take what an answer may cost; the caller gives back what this returns once it is charged."""
        if not self.is_bounded(now_ns):
            return 0
        self.time.may_serve(now_ns)
        self.time.saved_ns -= RESERVED_NS
        return RESERVED_NS

    def give_back(self, reserved_ns: int) -> None:
        """Give back what was reserved."""
        self.time.give_back(reserved_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Say after how long to ask again; 0 where something more may be done."""
        if self.time.may_serve(now_ns) or not self.is_bounded(now_ns):
            return 0
        return min(-self.time.saved_ns * 100 // self.time.percent + MILLISECOND_NS, LOOK_NS)

    def is_bounded(self, now_ns: int) -> bool:
        """Whether messages move, and there is a bound."""
        return self.time.percent < 100 and now_ns - self._moved_ns() < QUIET_NS
