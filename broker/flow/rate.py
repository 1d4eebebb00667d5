"""Limits of what passes in a span of time: bytes, events of each of many keys, and shares of the time itself.

They fill up with time, which is an argument, to a bound that is the burst; what passes empties them.
"""

from __future__ import annotations

from collections import OrderedDict

SECOND_NS = 1_000_000_000


class TokenBucket:
    """A rate in bytes a second (RFC 2697's committed information rate). It begins full at ``now_ns``.

    In any span of T seconds no more than ``rate * T + burst`` bytes pass, and what one item is larger than
    the burst: such an item passes when the bucket is full, and what it took too much is paid back before the
    next. Tokens are bytes times nanoseconds, so that no rounding adds up.
    """

    def __init__(self, rate_bytes: int, burst_bytes: int, now_ns: int) -> None:
        self.rate_bytes = rate_bytes
        self.burst_bytes = burst_bytes
        self._level = burst_bytes * SECOND_NS
        self._filled_ns = now_ns

    def wait_ns(self, size: int, now_ns: int) -> int:
        """How long until an item of this size may pass; 0 if it may now."""
        self._fill(now_ns)
        missing = min(size, self.burst_bytes) * SECOND_NS - self._level
        return 0 if missing <= 0 else -(-missing // self.rate_bytes)

    def take(self, size: int) -> None:
        """An item passes; after ``wait_ns`` said 0."""
        self._level -= size * SECOND_NS

    def _fill(self, now_ns: int) -> None:
        if now_ns > self._filled_ns:
            level = self._level + (now_ns - self._filled_ns) * self.rate_bytes
            self._level = min(level, self.burst_bytes * SECOND_NS)
            self._filled_ns = now_ns


class KeyedRate:
    """Events of many keys: each takes ``step_ns`` of its key's time, and may be paid for later.

    This is the virtual scheduling of ITU-T I.371: a key owes the time between now and when its events are
    paid for; callers bound it. Keys that owe nothing are forgotten, and of the others all but the
    ``most_keys`` counted last.
    """

    def __init__(self, step_ns: int, most_keys: int) -> None:
        self.step_ns = step_ns
        self._most_keys = most_keys
        # When the events of a key are paid for, in the order in which keys were counted last.
        self._due_ns: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._due_ns)

    def owed_ns(self, key: str, now_ns: int) -> int:
        """How long until all that was counted of a key is paid for."""
        return max(self._due_ns.get(key, 0) - now_ns, 0)

    def count(self, key: str, now_ns: int) -> None:
        """Count one event of a key."""
        self._due_ns[key] = max(self._due_ns.get(key, 0), now_ns) + self.step_ns
        self._due_ns.move_to_end(key)
        if len(self._due_ns) > self._most_keys:
            self._due_ns.popitem(last=False)

    def forget(self, now_ns: int) -> None:
        """Forget the oldest keys as far as they owe nothing."""
        while self._due_ns:
            key = next(iter(self._due_ns))
            if self._due_ns[key] > now_ns:
                break
            del self._due_ns[key]


class TimeShare:
    """``percent`` of the time, of which ``most_saved_ns`` may be saved up and ``most_debt_ns`` be owed."""

    def __init__(self, percent: int, most_saved_ns: int, most_debt_ns: int, now_ns: int) -> None:
        self.percent = percent
        self.saved_ns = most_saved_ns
        self._most_saved_ns = most_saved_ns
        self._most_debt_ns = most_debt_ns
        self._filled_ns = now_ns

    def may_serve(self, now_ns: int) -> bool:
        """Whether there is time left, with what was added by now."""
        saved_ns = self.saved_ns + (now_ns - self._filled_ns) * self.percent // 100
        self.saved_ns = min(saved_ns, self._most_saved_ns)
        self._filled_ns = now_ns
        return self.saved_ns > 0

    def charge(self, taken_ns: int) -> None:
        """Take so much time, at once or after it was spent."""
        self.saved_ns = max(self.saved_ns - taken_ns, -self._most_debt_ns)

    def give_back(self, taken_ns: int) -> None:
        """Give back time that was taken and not spent."""
        self.saved_ns = min(self.saved_ns + taken_ns, self._most_saved_ns)
