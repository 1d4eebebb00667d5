"""Which settings to try, and which of those that were tried to recommend."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from broker.config.flow import BrokerDefaults
from broker.config.node import NodeSettings, SettingError
from broker.config.thresholds import resolve
from broker.manage.advise.replay import Clients, Outcome, replay
from broker.manage.advise.trace import Trace
from broker.units import KB, format_size

# Around the thresholds a history was recorded under.
STOPS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Around the depth there would be without thresholds, where none are known.
DEPTHS = (0.1, 0.25, 0.5, 0.75, 1.1)
RESUMES = (0.5, 0.7, 0.9)
WINDOWS = (100, 1000)
LEAST_STOP = 10
LEAST_STOP_BYTES = 4096
# What is as good as the best: in stop-seconds this part of the best's, or this part of the whole time.
ENDLESS_PART, SCARCE = 0.9, 100
STOP_PART, TIME_PART = 0.1, 0.01
THROUGHPUT_PART = 0.99
# How much more than the next a producer may want to send.
SKEWS = (3, 10)
# Depths and numbers of stops this close are equal.
DEPTH_PART, STOPS_PART = 0.05, 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings to try; 0 is none."""

    flow_stop_count: int = 0
    flow_resume_count: int = 0
    flow_stop_size: int = 0
    flow_resume_size: int = 0
    producer_window: int = 1000
    consumer_flow_limit: int = 1000

    def settings(self) -> NodeSettings:
        """As the broker would resolve them, without hard limits. SettingError if they contradict."""
        given = {name: getattr(self, name) for name in self.__slots__}
        given["initial_credit"] = min(self.producer_window, NodeSettings().initial_credit)
        return resolve(given | {"max_count": 0, "max_size": 0}, BrokerDefaults())


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and what it would have done; ``observed`` is true for the history's own settings."""

    candidate: Candidate
    outcome: Outcome
    observed: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """What to try; empty is chosen. Resumes are numbers, or parts of the stop where below 1."""

    stop_counts: tuple[int, ...] = ()
    resume_counts: tuple[float, ...] = ()
    stop_sizes: tuple[int, ...] = ()
    resume_sizes: tuple[float, ...] = ()
    windows: tuple[int, ...] = ()
    consumer_limits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateResults:
    """All that was tried, the observed settings first, with what there would be without thresholds."""

    trace: Trace
    clients: Clients
    trials: tuple[Trial, ...]
    best: Trial
    unlimited: Outcome
    endless: bool
    by_size: bool


Show = Callable[[int, int, float], None]


def explain(trace: Trace, rtt_ns: int) -> Clients:
    """What a history doesn't say of its clients is taken as what best explains the stops it recorded.

    Whether a gate closes at a threshold that is nearly reached, or credit alone holds producers there,
    hangs on how soon they use it: on batches of consumers, and on producers that hold credit unused.
    """
    plain = Clients(rtt_ns)
    now = observed(trace)
    if trace.measured is None or now is None or not (trace.measured.stops or trace.pressed):
        return plain
    others = [Clients(rtt_ns, batch_ns=0)]
    if trace.producers > 1:
        others += [Clients(rtt_ns, skew=skew) for skew in SKEWS]
    goal, settings = trace.measured.stop_seconds, now.settings()
    # The first stands unless another is closer by more than what is as good as the best.
    slack = trace.seconds * TIME_PART
    found = {each: abs(replay(trace, settings, each).stop_seconds - goal) for each in (plain, *others)}
    closest = min(found, key=lambda each: found[each])
    return closest if found[closest] + slack < found[plain] else plain


def advise(
    trace: Trace, grid: Grid, clients: Clients, show: Show = lambda done, total, part: None
) -> CandidateResults:
    """Try every candidate, then other windows at the best of them.

    SettingError if what was given contradicts itself.
    """
    open_ended = replace(NodeSettings(), flow_control=False)
    unlimited = replay(trace, open_ended, clients)
    endless = is_endless(trace, unlimited)
    by_size = is_by_size(observed(trace), grid)
    candidates = list(dict.fromkeys(thresholds_to_try(observed(trace), grid, unlimited, by_size=by_size)))
    total = len(candidates) + (0 if grid.windows and grid.consumer_limits else 3)
    trials: list[Trial] = []

    def run(candidate: Candidate) -> None:
        done = len(trials)
        outcome = replay(
            trace, candidate.settings(), clients, lambda part: show(done, max(total, done + 1), part)
        )
        trials.append(Trial(candidate, outcome, candidate == observed(trace)))

    for candidate in candidates:
        run(candidate)
    tried = {trial.candidate for trial in trials}
    for candidate in windows_to_try(recommended(trials, endless=endless).candidate, grid):
        if candidate not in tried:
            run(candidate)
    return CandidateResults(
        trace, clients, tuple(trials), recommended(trials, endless=endless), unlimited, endless, by_size
    )


def is_endless(trace: Trace, unlimited: Outcome) -> bool:
    """Whether the backlog there would be without thresholds is at its greatest when the history ends."""
    return unlimited.stayed_msgs >= ENDLESS_PART * max(unlimited.worst_msgs, trace.served.total / SCARCE)


def observed(trace: Trace) -> Candidate | None:
    """The settings of the recording, as far as it tells; None where there were no thresholds."""
    seen = trace.thresholds
    if seen is None or not (seen.stop_msgs or seen.stop_bytes):
        return None
    return Candidate(seen.stop_msgs, seen.resume_msgs, seen.stop_bytes, seen.resume_bytes)


def recommended(trials: Sequence[Trial], *, endless: bool = False) -> Trial:
    """The least memory that costs nothing.

    1. Among those whose throughput is within 1 % of the best, and whose stop-seconds are within a tenth of
       the least there are, or within 1 % of the whole time (not where the overload is ``endless``: there a
       larger threshold only stops later):
    2. those with the smallest worst depth, 5 % more being the same;
    3. of these, those that stop least often, a tenth more being the same;
    4. of these, the one that changes least from what was observed or is the default.
    """
    fast = max(trial.outcome.throughput for trial in trials) * THROUGHPUT_PART
    able = [trial for trial in trials if trial.outcome.throughput >= fast]
    least = min(trial.outcome.stop_seconds for trial in able)
    bound = least + max(least * STOP_PART, able[0].outcome.seconds * TIME_PART)
    if not endless:
        able = [trial for trial in able if trial.outcome.stop_seconds <= bound]
    able = _near(able, lambda trial: trial.outcome.worst_bytes, DEPTH_PART)
    able = _near(able, lambda trial: trial.outcome.stops, STOPS_PART)
    base = next((trial.candidate for trial in trials if trial.observed), Candidate())
    return min(able, key=lambda trial: _changes(trial.candidate, base))


def _near(trials: list[Trial], cost: Callable[[Trial], float], part: float) -> list[Trial]:
    bound = min(map(cost, trials)) * (1 + part)
    return [trial for trial in trials if cost(trial) <= bound]


def _changes(candidate: Candidate, base: Candidate) -> int:
    return [getattr(candidate, name) == getattr(base, name) for name in Candidate.__slots__].count(False)


def is_by_size(seen: Candidate | None, grid: Grid) -> bool:
    """Whether bytes are what to vary: where they are given, or the only thresholds that were ``seen``."""
    if grid.stop_counts or grid.resume_counts:
        return False
    if grid.stop_sizes or grid.resume_sizes:
        return True
    return seen is not None and seen.flow_stop_size > 0 and seen.flow_stop_count == 0


def thresholds_to_try(
    observed: Candidate | None, grid: Grid, unlimited: Outcome, *, by_size: bool
) -> Iterable[Candidate]:
    """The observed settings, then every stop with every resume and the windows given.

    SettingError if what was given contradicts itself.
    """
    base = observed or Candidate()
    unit = "size" if by_size else "count"
    given = grid.stop_sizes if by_size else grid.stop_counts
    resumes = (grid.resume_sizes if by_size else grid.resume_counts) or RESUMES
    seen: int = getattr(base, f"flow_stop_{unit}")
    deepest = unlimited.worst_bytes if by_size else unlimited.worst_msgs
    tidy = _rounded_size if by_size else _rounded
    stops = given or _stops(seen, deepest, LEAST_STOP_BYTES if by_size else LEAST_STOP, tidy)
    if observed is not None:
        yield base
    for stop, resume, window, limit in product(
        stops,
        resumes,
        grid.windows or (base.producer_window,),
        grid.consumer_limits or (base.consumer_flow_limit,),
    ):
        below = int(resume) if resume >= 1 else round(stop * resume)
        if by_size and resume < 1:
            below -= below % KB
        if below > stop:
            if len(stops) == 1:
                raise SettingError(f"a resume of {below} is above the stop of {stop}", f"flow_resume_{unit}")
            continue
        yield replace(
            base,
            **{f"flow_stop_{unit}": stop, f"flow_resume_{unit}": max(below, 1)},
            producer_window=window,
            consumer_flow_limit=limit,
        )


def _stops(seen: int, deepest: int, least: int, tidy: Callable[[int], int]) -> list[int]:
    """Stops around the one that was seen, else around the depth there would be without."""
    if seen:
        found = [round(seen * part) for part in STOPS]
        if deepest < 4 * STOPS[-1] * seen:
            found.append(round(deepest * DEPTHS[-1]))
    else:
        found = [round(deepest * part) for part in DEPTHS]
    return sorted({tidy(max(stop, least)) for stop in found if stop != seen} | ({seen} if seen else set()))


def _rounded(number: int) -> int:
    """Two figures are enough for a threshold in messages."""
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return -(-number // unit) * unit


def _rounded_size(number: int) -> int:
    """Whole kilobytes, of which five binary figures are enough."""
    unit = max(1 << max(number.bit_length() - 5, 0), KB)
    return -(-number // unit) * unit


def windows_to_try(best: Candidate, grid: Grid) -> Iterable[Candidate]:
    """The best thresholds with the windows that were not given."""
    if not grid.windows:
        yield from (replace(best, producer_window=window) for window in WINDOWS)
    if not grid.consumer_limits:
        yield from (replace(best, consumer_flow_limit=limit) for limit in WINDOWS)


def snippet(node: str, trial: Trial, *, by_size: bool) -> str:
    """A policy file with what was tried of the trial's settings, for ``sluice config apply``."""
    return f"policies:\n{policy(node, trial.candidate, by_size=by_size)}"


def policy(node: str, candidate: Candidate, kind: str = "queue", *, by_size: bool) -> str:
    """One node's entry of such a file; ``kind`` is the node's, as its samples have it."""
    default = Candidate()
    other = "_count" if by_size else "_size"
    lines = [f"  - match: {json.dumps(node)}"]
    lines += ["    kind: subscription"] if kind == "subscription" else []
    for name in Candidate.__slots__:
        value = getattr(candidate, name)
        window = name in ("producer_window", "consumer_flow_limit")
        if value and not name.endswith(other) and not (window and value == getattr(default, name)):
            lines.append(f"    {name}: {format_size(value) if name.endswith('_size') else value}")
    return "\n".join(lines) + "\n"
