"""Settings that can't work well as they are, told from a few numbers of a node: the reason, and what to set.

Each rule asks for evidence beside the numbers themselves, so that a node that does well is told nothing.
Pure: it knows no node, no link and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

# Below so many stops, windows that were full or settlements nobody can say that it is a habit.
HABIT = 20
# A resume threshold above this part of its stop threshold is near it; the defaults are at 7/8.
NEAR = 0.9
# A part of the stop threshold that leaves consumers something to do while producers come back.
APART = 0.7
# Stops this short, in seconds, on average: the gate flaps.
SHORT_S = 0.2
# Credit that each producer should have its share of.
EACH = 10
# So many full windows a second are settled by a client that waits for messages rather than works on them.
ROUNDS_A_SECOND = 4
# Of a window, at once: the client settles in bursts, and has nothing left meanwhile.
BURST = 0.9
# The default, and enough for most round trips.
WIDEST = 1000
# The part of a budget that one node should have reached its threshold by.
BUDGET_PART = 4


@dataclass(frozen=True, slots=True)
class Advice:
    """What to set to which number, and why; ``now`` is the present one."""

    setting: str
    now: int
    number: int
    reason: str


def of_resume(unit: str, stop: int, resume: int, stops: int, stopped_s: float) -> Advice | None:
    """A resume threshold at its stop threshold, or just below: the gate flaps.

    ``unit`` is count or size; ``stops`` is how often the gate stopped, for ``stopped_s`` seconds in all.
    """
    if stop <= 1 or resume <= NEAR * stop or stops < HABIT or stopped_s / stops > SHORT_S:
        return None
    where = "equal to" if resume == stop else f"{(stop - resume) / stop:.0%} below".replace("%", " %")
    reason = (
        f"the gate stopped {stops:,} times, for {1000 * stopped_s / stops:,.0f} ms on average:"
        f" flow_resume_{unit} is {where} flow_stop_{unit}, so a few messages open it and a few close it"
    )
    return Advice(f"flow_resume_{unit}", resume, max(int(stop * APART), 1), reason)


def of_stop(stop_msgs: int, producers: int) -> Advice | None:
    """A stop threshold below the number of producers: some of them can never have credit at the same time."""
    if not 0 < stop_msgs < producers:
        return None
    reason = (
        f"flow_stop_count {stop_msgs:,} is shared by {producers:,} producers: it is less than one credit"
        " each, and they take turns, one round trip a turn"
    )
    return Advice("flow_stop_count", stop_msgs, _tidy(EACH * producers), reason)


def of_budget(stop_bytes: int, memory_bytes: int) -> Advice | None:
    """A stop threshold in bytes that the broker's memory never lets a node reach; 0 is none of each."""
    if not 0 < memory_bytes <= stop_bytes:
        return None
    reason = "memory_limit of the broker is less and stops the producers of every node before this one's are"
    return Advice("flow_stop_size", stop_bytes, max(memory_bytes // BUDGET_PART, 1), reason)


def of_window(limit: int, wanted: int, settled: int, full: int, rate: float) -> Advice | None:
    """A consumer's window below what its client takes and settles at once: it waits a round trip each time.

    ``wanted`` is what the client would hold, its credit and what it has; ``settled`` how many messages it has
    settled while its window was ``full`` so often, and ``rate`` how many it settles a second.
    """
    if not 0 < limit < wanted or full < HABIT or settled < BURST * limit * full:
        return None
    if rate < ROUNDS_A_SECOND * limit:
        return None
    reason = (
        f"consumers settle all {limit:,} messages of their window at once, {rate / limit:,.0f} times a second"
        f" each, and wait for the next: they get {limit:,} a round trip, and would take {wanted:,}"
    )
    return Advice("consumer_flow_limit", limit, min(wanted, WIDEST), reason)


def _tidy(number: int) -> int:
    """Two figures, rounded up."""
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return -(-number // unit) * unit
