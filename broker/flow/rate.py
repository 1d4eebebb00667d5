"""A rate in bytes a second, as a bucket of tokens (RFC 2697's committed information rate).

In any span of T seconds no more than ``rate * T + burst`` bytes pass, and what one item is larger than the
burst: such an item passes when the bucket is full, and what it took too much is paid back before the next.
"""

from __future__ import annotations

SECOND_NS = 1_000_000_000


class TokenBucket:
    """Tokens are bytes times nanoseconds, so that no rounding adds up. It begins full at ``now_ns``."""

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
