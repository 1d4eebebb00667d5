"""How long a message waits after a failed delivery before it is tried again.

The settings are those of Artemis (`redelivery-delay` and its like). The jitter only shortens a delay, so that
``most_ms`` holds and messages that failed together at the longest delay part, too.
"""

from __future__ import annotations

from dataclasses import dataclass

# The longest delay where nothing says so, as a multiple of the first (as in Artemis).
MOST_TIMES = 10
# Knuth's multiplicative hash spreads consecutive numbers evenly.
_HASH = 2_654_435_761
_SPAN = 1 << 32


@dataclass(frozen=True, slots=True)
class RedeliveryDelay:
    """The delay after the first failure, its growth with each further one, and the longest."""

    first_ms: int
    multiplier: float
    most_ms: int
    jitter_percent: int

    def delay_ms(self, failures: int, seq: int) -> int:
        """Return the delay after so many failures; ``seq`` tells messages apart for the jitter."""
        delay = float(self.first_ms)
        for _ in range(failures - 1):
            if delay >= self.most_ms or self.multiplier == 1:
                break
            delay *= self.multiplier
        delay = min(delay, self.most_ms)
        spread = ((seq + failures) * _HASH % _SPAN) / _SPAN
        return max(int(delay - delay * self.jitter_percent / 100 * spread), 1)
