"""The laws of a cell over random schedules of faults; and bugs that these schedules must find.

``log_world`` has the engine in memory, the members and the laws; a seed is a schedule.
"""

from __future__ import annotations

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease
from broker.cluster.log import Acked, LogEntry, Outcome, Unknown
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import TAKEOVER, Record
from tests.property.log_world import Kinds, Violation, World

STEPS = 150
# Every planted bug is found within so many schedules.
MOST_SEEDS = 3000


def run(seed: int, kinds: Kinds | None = None) -> World:
    """Run one schedule; return its world at the end."""
    world = World(seed, kinds or Kinds())
    world.run(STEPS)
    return world


def run_many(seeds: range) -> None:
    """Run schedules; name the seed of one that breaks a law."""
    for seed in seeds:
        try:
            run(seed)
        except Exception as fault:
            fault.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("part", range(4))
def test_the_laws_hold_in_random_schedules(part: int) -> None:
    run_many(range(part * 500, (part + 1) * 500))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_laws_hold_in_very_many_schedules() -> None:
    run_many(range(2_000, 102_000))


def test_the_schedules_reach_what_they_are_for() -> None:
    worlds = [run(seed) for seed in range(150)]
    assert sum(world.referee.epoch > 1 for world in worlds) > 30
    assert sum(len(world.epochs) > 1 for world in worlds) > 5
    assert sum(world.unconditional for world in worlds) > 0
    # Records of deposed owners, and of owners behind those.
    assert sum(not counts for world in worlds for counts in world.referee.counted[1:]) > 30
    assert sum(len(world.confirmed_settled) for world in worlds) > 50


def test_a_seed_is_the_same_schedule_again() -> None:
    assert run(5).log == run(5).log


class AssumingPipeline(AppendPipeline):
    """Takes an outcome that isn't known for an acknowledgement."""

    def outcome(self, outcome: Outcome) -> bool:
        if isinstance(outcome, Unknown):
            outcome = Acked(outcome.after, outcome.after + 1)
        return super().outcome(outcome)


class TrustingPipeline(AppendPipeline):
    """Takes any position for the one that was asked for."""

    def outcome(self, outcome: Outcome) -> bool:
        if isinstance(outcome, Acked):
            outcome = Acked(outcome.after, outcome.after + 1)
        return super().outcome(outcome)


class BlindPipeline(AppendPipeline):
    """Takes every record that stands where its own was to stand for its own."""

    def looked(self, entries: list[LogEntry], is_tail: bool) -> None:  # type: ignore[override]
        ours = [
            LogEntry(entry.position, pending.data)
            for entry, pending in zip(entries, self._pending, strict=False)
        ]
        super().looked(ours + entries[len(ours) :], is_tail)


class HastyPipeline(AppendPipeline):
    """Lets a record renew the lease that the log took without those before it."""

    def outcome(self, outcome: Outcome) -> bool:
        return super().outcome(outcome) or isinstance(outcome, Acked)


class EndlessLease(OwnerLease):
    """Never ends."""

    def may_act(self, now_ns: int) -> bool:
        return True


class TimelessFold(LogFold):
    """Lets records of older epochs count."""

    def _counts(self, position: int, record: Record) -> bool:
        return record.epoch < self.epoch or super()._counts(position, record)


class LooseFold(LogFold):
    """Doesn't ask whether a record follows the one before it."""

    def _counts(self, position: int, record: Record) -> bool:
        if record.epoch == self.epoch and record.kind != TAKEOVER:
            return True
        return super()._counts(position, record)


LOST = "confirmed and lost"
DEPOSED = "confirms where"
# The classes with a bug, and the law that a schedule must find broken.
BUGS = {
    "an unknown outcome is an acknowledgement": (Kinds(pipeline=AssumingPipeline), LOST),
    "the fold knows no epochs": (Kinds(fold=TimelessFold), "the truth is"),
    "the position of an acknowledgement is not compared": (Kinds(pipeline=TrustingPipeline), DEPOSED),
    "a record that was read is not compared": (Kinds(pipeline=BlindPipeline), LOST),
    "the lease never ends": (Kinds(lease=EndlessLease), DEPOSED),
    "a record renews the lease without those before it": (Kinds(pipeline=HastyPipeline), DEPOSED),
    "a take-over is not conditional on the position applied": (Kinds(conditional_takeover=False), LOST),
    "the fold knows no chain": (Kinds(fold=LooseFold), "the truth is"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    kinds, law = BUGS[bug]
    for seed in range(MOST_SEEDS):
        try:
            run(seed, kinds)
        except Violation as broken:
            if law in str(broken):
                print(f"{bug}: seed {seed}: {broken}")
                return
    pytest.fail(f"{MOST_SEEDS} schedules didn't find: {bug}")
