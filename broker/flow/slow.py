"""Whether a consumer is slow: fewer messages a second than it should, for so long, with work to do (FLOW §5).

Knows no clock and no link: somebody looks at regular times and says what there is.
"""

from __future__ import annotations

# What a look found: nothing new, it has become slow, it is slow no more.
SAME, SLOWED, RECOVERED = 0, 1, 2


class SlowWatch:
    """One consumer against a rate (messages a second) and a time.

    1. A period begins when there is work for it: messages it hasn't settled, or some that wait for it.
    2. Without work there is no period, and the consumer isn't slow: an empty queue says nothing.
    3. As soon as it has settled what the rate asks of a whole period, a new one begins; it isn't slow.
    4. Otherwise, at the end of the period, it is slow.

    So who stops altogether is found out one period after it last kept up, at the latest two.
    """

    def __init__(self, rate: int, for_ms: int) -> None:
        self.rate = rate
        self.for_ms = for_ms
        self.for_ns = for_ms * 1_000_000
        self.slow = False
        self.began_ns = 0
        self.settled_then = 0
        self.needed = max(rate * for_ms // 1000, 1)

    def look(self, now_ns: int, settled: int, has_work: bool) -> int:
        """What ``settled`` so far and ``has_work`` say of it now: SAME, SLOWED or RECOVERED."""
        kept_up = settled - self.settled_then >= self.needed
        if not has_work or kept_up or self.began_ns == 0:
            self._begin(now_ns if has_work else 0, settled)
            return self._now(self.slow and has_work and not kept_up)
        if now_ns - self.began_ns < self.for_ns:
            return SAME
        self._begin(now_ns, settled)
        return self._now(True)

    def _begin(self, now_ns: int, settled: int) -> None:
        self.began_ns = now_ns
        self.settled_then = settled

    def _now(self, slow: bool) -> int:
        if slow == self.slow:
            return SAME
        self.slow = slow
        return SLOWED if slow else RECOVERED
