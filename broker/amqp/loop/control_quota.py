"""Quotas of work that is no message: which connections ask for so much that they wait, and for how long.

Connecting, opening, attaching, flow frames without number: each is little, and a peer can ask for it faster
than it can be done. So a connection that isn't open yet, and one whose frames cost more than it earns by
messages, is served by quota: one slice at a time, in turn, and all together in a share of the loop's
time. Where nothing else is to be done there is no bound. Knows no socket and no clock.

How it is counted: a connection's debt grows by what its frames cost, about in microseconds, and falls with
time and by the messages it moved. Beyond ``BURST`` it is served by quota, until half of that is left.
"""

from __future__ import annotations

from broker.flow.rate import TimeShare

BURST = 50_000
MOST_DEBT = 4 * BURST
# Units that a message pays for, its disposition and a flow frame included, and that a millisecond pays back.
EARNED = 4
PAID_BACK = 50

MILLISECOND_NS = 1_000_000
# The loop's time that may be saved up, for a burst of clients, and that may be owed.
MOST_SAVED_NS = 4 * MILLISECOND_NS
MOST_OWED_NS = 8 * MOST_SAVED_NS
# So long without a message, and control work need not wait for the next one.
QUIET_NS = 5 * MILLISECOND_NS


class CostMeter:
    """The cost of one connection's frames beyond what it earned by messages."""

    __slots__ = ("billed_ns", "costly", "moved", "units")

    def __init__(self, now_ns: int) -> None:
        self.units = 0
        self.moved = 0
        self.billed_ns = now_ns
        self.costly = False

    def charge(self, cost: int, moved: int, now_ns: int) -> bool:
        """Charge a cost and say whether the connection is to be served by quota.

        ``moved`` is the number of messages it has sent and received in all.
        """
        paid = (now_ns - self.billed_ns) * PAID_BACK // MILLISECOND_NS + (moved - self.moved) * EARNED
        self.units = min(max(self.units - paid, 0) + cost, MOST_DEBT)
        self.billed_ns, self.moved = now_ns, moved
        self.costly = self.units > (BURST >> 1 if self.costly else BURST)
        return self.costly


class ControlQuota(TimeShare):
    """The sockets that wait for their slice, by descriptor, and the time they may take.

    ``percent`` of the loop's time is theirs while there are messages to move.
    """

    def __init__(self, percent: int, now_ns: int) -> None:
        super().__init__(percent, MOST_SAVED_NS, MOST_OWED_NS, now_ns)
        self.waiting: dict[int, None] = {}
        self.served_total = 0
        # When something else last had work.
        self.moved_ns = now_ns

    def put(self, fd: int) -> None:
        """Add a socket, behind those that wait already."""
        self.waiting[fd] = None

    def drop(self, fd: int) -> None:
        """Remove a socket."""
        self.waiting.pop(fd, None)

    def take(self) -> int:
        """Take the socket whose turn it is."""
        fd = next(iter(self.waiting))
        del self.waiting[fd]
        self.served_total += 1
        return fd

    def is_quiet(self, now_ns: int) -> bool:
        """Whether nothing else had work for a while."""
        return now_ns - self.moved_ns > QUIET_NS
