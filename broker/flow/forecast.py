"""When a stopped gate opens again, from how fast it drains, and how far such forecasts were off.

It knows no gate: it is told how much has to go in each unit, and when. Every forecast is kept until the
gate opens and compared with what came true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

SECOND_NS = 1_000_000_000
# The drain of the last seconds counts; where little moved in them, that of up to a minute.
SPAN_NS = 5 * SECOND_NS
MOVES = 4
LONGEST_SPAN_NS = 60 * SECOND_NS
# Two looks closer together than this are one, and a rate needs at least as much time.
STEP_NS = SECOND_NS // 10
LEAST_NS = SECOND_NS
# The newest forecast's part in the mean error; an error counts as at most so many times what came true.
WEIGHT = 1 / 8
WORST = 10.0
# Forecasts of one stop that are compared: the first ones, then every second, fourth, eighth…
MOST_KEPT = 64

NEVER = float("inf")


class Drain:
    """How fast one unit falls."""

    def __init__(self) -> None:
        # When, how much was to go, and how often that had changed.
        self._looks: deque[tuple[int, int, int]] = deque()

    def look(self, excess: int, now_ns: int) -> None:
        """So much is still to go."""
        looks = self._looks
        if looks and (now_ns - looks[-1][0] > SPAN_NS or excess > looks[-1][1]):
            # Nobody looked for a while, or there is more to do: what was seen says nothing of now.
            looks.clear()
        if not looks:
            looks.append((now_ns, excess, 0))
        elif now_ns - looks[-1][0] >= STEP_NS:
            looks.append((now_ns, excess, looks[-1][2] + (excess != looks[-1][1])))
        while len(looks) > 2 and self._is_old(looks[1], now_ns):
            looks.popleft()

    def per_second(self, excess: int, now_ns: int) -> float | None:
        """The rate; None while too little was seen to tell."""
        if not self._looks or now_ns - self._looks[0][0] < LEAST_NS:
            return None
        first_ns, first, _ = self._looks[0]
        return (first - excess) * SECOND_NS / (now_ns - first_ns)

    def _is_old(self, second: tuple[int, int, int], now_ns: int) -> bool:
        age_ns = now_ns - second[0]
        return age_ns > LONGEST_SPAN_NS or (age_ns > SPAN_NS and self._looks[-1][2] - second[2] >= MOVES)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A forecast: when it was made, what it said, and what the thresholds were then."""

    at_ns: int
    seconds: float
    terms: object


class Forecast:
    """One gate's: ``error`` is the mean of |forecast - actual| / actual, newer ones counting more; None
    until one was compared. ``compared`` is how many were.
    """

    def __init__(self) -> None:
        self.error: float | None = None
        self.compared = 0
        self._drains: dict[str, Drain] = {}
        self._said: list[Prediction] = []
        self._every = 1
        self._asked = 0

    def seconds(self, excess: Mapping[str, int], rates: Mapping[str, float], now_ns: int) -> float | None:
        """How long until all units have fallen far enough; None where one doesn't fall.

        ``excess`` is what has to go in each unit, ``rates`` what to take for its rate a second until
        enough was seen of it.
        """
        longest = 0.0
        for unit, left in excess.items():
            drain = self._drains.setdefault(unit, Drain())
            drain.look(left, now_ns)
            rate = drain.per_second(left, now_ns)
            if rate is None:
                rate = rates.get(unit, 0.0)
            longest = max(longest, left / rate if rate > 0 else NEVER)
        return None if longest == NEVER else longest

    def say(
        self, excess: Mapping[str, int], rates: Mapping[str, float], terms: object, now_ns: int
    ) -> float | None:
        """The same, and it will be compared, unless the ``terms`` (thresholds) change before."""
        seconds = self.seconds(excess, rates, now_ns)
        if seconds is not None:
            self._keep(Prediction(now_ns, seconds, terms))
        return seconds

    def opened(self, terms: object, now_ns: int) -> None:
        """It is open: every forecast since it stopped is compared."""
        for said in self._said:
            actual = (now_ns - said.at_ns) / SECOND_NS
            if said.terms == terms and actual > 0:
                self._compare(abs(said.seconds - actual) / actual)
        self.forget()

    def forget(self) -> None:
        """What was said and seen of this stop counts no more."""
        self._said.clear()
        self._drains.clear()
        self._every = 1
        self._asked = 0

    def _keep(self, said: Prediction) -> None:
        if self._asked % self._every == 0:
            self._said.append(said)
        self._asked += 1
        if len(self._said) > MOST_KEPT:
            del self._said[1::2]
            self._every *= 2

    def _compare(self, error: float) -> None:
        self.compared += 1
        weight = max(WEIGHT, 1 / self.compared)
        before = self.error or 0.0
        self.error = before + (min(error, WORST) - before) * weight
