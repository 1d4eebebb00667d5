"""A cell's laws over random schedules of faults, and bugs that these schedules must find.

A seed is a schedule; ``World(seed).run(STEPS)`` runs it again.
"""

from __future__ import annotations

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease
from broker.cluster.log import Acked, Outcome, Unknown
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import Record
from tests.property.cell_world import Parts, Violation, World

STEPS = 120
# Every planted bug is found within so many schedules.
MOST_SEEDS = 2_000


def run_all(seeds: range) -> tuple[int, int, int, int]:
    """Run schedules; return how many take-overs, confirmations, void records and broken conditions."""
    takeovers = confirmed = void = let_in = 0
    for seed in seeds:
        world = World(seed)
        try:
            world.run(STEPS)
        except Exception as fault:
            fault.add_note(f"seed {seed}")
            raise
        takeovers += world.takeovers
        confirmed += world.confirmed
        void += world.engine.judge.counts.count(False) - 1
        let_in += world.engine.let_in
    return takeovers, confirmed, void, let_in


@pytest.mark.parametrize("part", range(4))
def test_the_laws_hold(part: int) -> None:
    takeovers, confirmed, void, let_in = run_all(range(part * 500, (part + 1) * 500))
    # The schedules do what they are for.
    assert takeovers > 500
    assert confirmed > 1000
    assert void > 100
    assert let_in > 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(20))
def test_the_laws_hold_for_long(part: int) -> None:
    run_all(range(10_000 + part * 5_000, 10_000 + (part + 1) * 5_000))


def test_a_seed_is_a_schedule() -> None:
    for seed in range(20):
        first, second = World(seed), World(seed)
        first.run(STEPS)
        second.run(STEPS)
        assert first.engine.entries == second.engine.entries


# --- bugs that the schedules must find


class UnknownIsAcked(AppendPipeline):
    """Takes an outcome that isn't known for an acknowledgement."""

    def outcome(self, outcome: Outcome) -> bool:
        if isinstance(outcome, Unknown):
            outcome = Acked(outcome.after, outcome.after + 1)
        return super().outcome(outcome)


class EpochUnchecked(LogFold):
    """Takes a record of a deposed owner for the next one."""

    def _counts(self, position: int, record: Record) -> bool:
        return record.epoch < self.epoch or super()._counts(position, record)


class PositionUnchecked(AppendPipeline):
    """Takes a record for acknowledged wherever it stands."""

    def outcome(self, outcome: Outcome) -> bool:
        if isinstance(outcome, Acked):
            outcome = Acked(outcome.after, outcome.after + 1)
        return super().outcome(outcome)


class LeaseIgnored(OwnerLease):
    """Acts at any time."""

    def may_act(self, now_ns: int) -> bool:
        return True


class OutOfOrderRenews(AppendPipeline):
    """Lets a record renew the lease that the log may not have all before it of."""

    def outcome(self, outcome: Outcome) -> bool:
        super().outcome(outcome)
        return isinstance(outcome, Acked)


class StrayIsAcked(AppendPipeline):
    """Takes a record for durable though another one's took the place of the one before it."""

    def looked(self, entries, is_tail):  # type: ignore[no-untyped-def]
        was = [each.is_acked for each in self._pending]
        super().looked(entries, is_tail)
        for each, is_acked in zip(self._pending, was[len(was) - len(self._pending) :], strict=True):
            each.is_acked = is_acked


BUGS = {
    "Unknown counts as acknowledged": Parts(pipeline=UnknownIsAcked),
    "no epoch check in the fold": Parts(fold=EpochUnchecked),
    "no position check": Parts(pipeline=PositionUnchecked),
    "lease ignored": Parts(lease=LeaseIgnored),
    "take-over not conditional": Parts(claim_is_conditional=False),
    "lease renewed out of order": Parts(pipeline=OutOfOrderRenews),
    "a stray record counts as acknowledged": Parts(pipeline=StrayIsAcked),
}


def caught(parts: Parts, most_seeds: int = MOST_SEEDS) -> tuple[int, str]:
    """Return the first seed whose schedule finds a bug, and how it shows; -1 where none does."""
    for seed in range(most_seeds):
        try:
            World(seed, parts).run(STEPS)
        except Violation as violation:
            return seed, str(violation)
    return -1, ""


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    seed, text = caught(BUGS[bug])
    assert seed >= 0, f"{bug}: not found in {MOST_SEEDS} schedules"
    assert text
