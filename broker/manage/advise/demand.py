"""The load behind a history: what producers wanted to send and consumers could have taken.

A history shows what happened under the thresholds of its day; two things have to be inferred.

*What producers wanted* is what they sent, as long as nothing held them back. From the moment the gate
stops until a sample shows it open and nobody blocked, it is taken to have gone on at the rate of before,
or the mean of all that time if that is more, the surplus waiting at the producers; but in the end no more
than was then really sent, for a backlog that is gone was sent. When a burst began is told by what consumers
had settled of it.

*What consumers could take* is what they took while there was a backlog: while a message would wait longer
than ``SOJOURN_S``. Without one they are taken to be as fast as they were when there last was.

Between two samples the depths at which the gate stopped and opened tell what came and went: nothing comes
while it is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from broker.errors import OperatorError
from broker.manage.advise.history import FlowHistory, HistorySample
from broker.manage.advise.trace import SECOND_NS, Curve, Measured, Thresholds, Trace

SOJOURN_S = 0.01
# A rate seen for less time than this may be one turn of the broker's.
SHORTEST_S = 0.05
# A consumer nobody ever waited for is at least so much faster than what it was seen to do.
SPARE = 2.0
# Producers never seen with a backlog are taken to send one so much faster than what they usually send.
UNSEEN = 20.0


@dataclass(slots=True)
class DemandPart:
    """A stretch of time: messages ``received`` and ``settled``, and how long the gate was closed.

    The gate is in one state throughout, unless it changed more often than the history tells one by one.
    ``calm`` is true where it ends with a sample that saw the gate open and no producer blocked, ``blocked``
    where one was. What was received came in the last ``arriving_ns``.
    """

    begin_ns: int
    end_ns: int
    closed_ns: int
    begin_msgs: int
    end_msgs: int
    received: float = 0.0
    settled: float = 0.0
    consumers: int = 1
    blocked: bool = False
    calm: bool = False
    arriving_ns: int = 0

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.begin_ns) / SECOND_NS

    @property
    def open_s(self) -> float:
        """Seconds in which the gate was open."""
        return (self.end_ns - self.begin_ns - self.closed_ns) / SECOND_NS

    @property
    def shut(self) -> bool:
        """True if the gate was closed throughout."""
        return self.closed_ns >= self.end_ns - self.begin_ns

    @property
    def arrival_rate(self) -> float:
        """Messages received a second while they came."""
        seconds = min(self.open_s, (self.arriving_ns or self.end_ns - self.begin_ns) / SECOND_NS)
        return self.received / seconds if seconds > 0 else 0.0

    @property
    def settle_rate(self) -> float:
        """Messages settled a second."""
        return self.settled / self.length_s if self.end_ns > self.begin_ns else 0.0


def recover(history: FlowHistory) -> Trace:
    """The load of one node. OperatorError if nothing was sampled."""
    if not history.samples:
        raise OperatorError(f"{history.node}: the history has no sample of this node")
    begin_ns = history.begin_ns
    parts = list(_parts(history))
    _find_bursts(parts)
    duration_ns = history.end_ns - begin_ns
    offered, peak = _offered(parts, begin_ns)
    begin_msgs = max(parts[0].begin_msgs, 0)
    return Trace(
        history.node,
        duration_ns,
        offered,
        _served(parts, begin_ns),
        peak,
        _sizes(history, begin_ns),
        producers=max(max(sample.producers for sample in history.samples), 1),
        consumers=max(max(sample.consumers for sample in history.samples), 1),
        begin_msgs=begin_msgs,
        pressed=any(sample.pressed for sample in history.samples),
        thresholds=_thresholds(history),
        measured=measured(history),
        notes=tuple(_notes(history, parts)),
    )


def measured(history: FlowHistory) -> Measured:
    """What the history itself says of stops and depth."""
    depths = [(sample.depth_msgs, sample.depth_bytes) for sample in history.samples]
    depths += [(turn.depth_msgs, turn.depth_bytes) for turn in history.turns]
    stopped = [_since(each, before) for before, each in _pairs(history)]
    return Measured(
        stop_seconds=sum(stopped_ns for stopped_ns, _ in stopped) / SECOND_NS,
        stops=sum(stops for _, stops in stopped),
        settled=sum(sample.settled for sample in history.samples),
        worst_msgs=max(msgs for msgs, _ in depths),
        worst_bytes=max(nbytes for _, nbytes in depths),
    )


def _pairs(history: FlowHistory) -> Iterator[tuple[HistorySample | None, HistorySample]]:
    yield None, history.samples[0]
    yield from pairwise(history.samples)


def _since(sample: HistorySample, before: HistorySample | None) -> tuple[int, int]:
    """How long the gate was closed since the sample before, in nanoseconds, and how often it closed."""
    if before is not None and before.stopped_ns <= sample.stopped_ns and before.stops <= sample.stops:
        return sample.stopped_ns - before.stopped_ns, sample.stops - before.stops
    # The first of a life of the broker: a node it has known for longer is taken as open until now.
    if sample.stopped_ns <= sample.interval_ns:
        return sample.stopped_ns, sample.stops
    return (sample.interval_ns, 1) if sample.closed else (0, 0)


def _parts(history: FlowHistory) -> Iterator[DemandPart]:
    """Every stretch between samples and gate changes, with what came and went in it."""
    turns = history.turns
    next_turn = 0
    now_ns = history.begin_ns
    first = history.samples[0]
    depth = first.depth_msgs - first.received + first.settled
    for before, sample in _pairs(history):
        begin_ns = max(sample.at_ns - sample.interval_ns, now_ns)
        closed = before is not None and before.closed
        if begin_ns > now_ns:
            # No sample: nothing came or went, and the gate stayed as it was.
            yield DemandPart(
                now_ns, begin_ns, begin_ns - now_ns if closed else 0, depth, depth, calm=not closed
            )
        inside: list[DemandPart] = []
        at_ns, told_ns = begin_ns, 0
        while next_turn < len(turns) and turns[next_turn].at_ns <= sample.at_ns:
            turn = turns[next_turn]
            next_turn += 1
            if turn.closed == closed and before is None and not inside:
                closed = not turn.closed
            if turn.at_ns > at_ns and turn.closed != closed and not turn.skipped:
                length_ns = turn.at_ns - at_ns
                inside.append(
                    DemandPart(at_ns, turn.at_ns, length_ns if closed else 0, depth, turn.depth_msgs)
                )
                told_ns += length_ns if closed else 0
                at_ns, depth = turn.at_ns, turn.depth_msgs
            closed = turn.closed
        if sample.at_ns > at_ns or not inside:
            # What is left may hold changes that were not told one by one.
            rest_ns = min(max(_since(sample, before)[0] - told_ns, 0), sample.at_ns - at_ns)
            inside.append(DemandPart(at_ns, sample.at_ns, rest_ns, depth, sample.depth_msgs))
        depth = sample.depth_msgs
        _share_out(inside, sample)
        inside[-1].blocked = sample.blocked_producers > 0 or sample.pressed
        inside[-1].calm = not sample.closed and not inside[-1].blocked
        yield from inside
        now_ns = max(sample.at_ns, now_ns)


def _share_out(parts: list[DemandPart], sample: HistorySample) -> None:
    """What came and went in a sample, to its parts.

    1. A part that was shut takes nothing in (but what was parked): what its depth fell by was settled.
    2. The other messages settled are shared among the other parts by their length.
    3. These received what they settled and what their depth rose by.
    """
    flowing = [part for part in parts if not part.shut]
    for part in parts:
        part.consumers = sample.consumers
        rise = part.end_msgs - part.begin_msgs
        if part.shut and flowing:
            part.received = float(max(rise, 0))
            part.settled = part.received - rise
    if not flowing:
        _spread(parts, "settled", float(sample.settled), [part.length_s for part in parts])
        _spread(parts, "received", float(sample.received), [part.length_s for part in parts])
        return
    left = sample.settled - sum(part.settled for part in parts if part.shut)
    _spread(flowing, "settled", max(left, 0.0), [part.length_s for part in flowing])
    came = sample.received - sum(part.received for part in parts if part.shut)
    rises = [max(part.end_msgs - part.begin_msgs + part.settled, 0.0) for part in flowing]
    _spread(flowing, "received", max(came, 0.0), rises)


def _spread(parts: list[DemandPart], name: str, amount: float, weights: list[float]) -> None:
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        setattr(part, name, amount * weight / total if total > 0 else amount / len(parts))


def _find_bursts(parts: list[DemandPart]) -> None:
    """When it began that more came into an empty queue than could be taken: consumers are busy from then on,
    so what they settled in the part, at the rate they have right after it, tells how long ago that was.
    """
    usual = max((part.settle_rate for part in parts if part.length_s >= SHORTEST_S), default=0.0)
    hardly = max(usual * SOJOURN_S, 1.0)
    for part, following in pairwise(parts):
        rate = following.settle_rate
        length_ns = part.end_ns - part.begin_ns
        if part.closed_ns or not part.begin_msgs <= hardly < part.end_msgs:
            continue
        part.arriving_ns = length_ns
        if part.settled > 0 and rate > 0:
            part.arriving_ns = max(min(round(part.settled / rate * SECOND_NS), length_ns), 1)


# --- producers


def _offered(parts: list[DemandPart], begin_ns: int) -> tuple[Curve, float]:
    """What producers wanted to send, cumulative, and how fast they send what they could not before."""
    knots: list[tuple[int, float]] = [(0, 0.0)]
    flushed = _flush_rate(parts)
    peak = flushed or UNSEEN * _fastest(parts)
    received = 0.0
    i, held = 0, False
    while i < len(parts):
        if not (parts[i].closed_ns or held):
            # Where a sample sees producers blocked at an open gate, they are from there on.
            held = parts[i].blocked
            if parts[i].arriving_ns:
                knots.append((parts[i].end_ns - parts[i].arriving_ns - begin_ns, received))
            received += parts[i].received
            knots.append((parts[i].end_ns - begin_ns, received))
            i += 1
            continue
        end = _busy_until(parts, i)
        rate = max(_rate_at(parts, i, flushed), _mean_rate(parts[i:end]))
        knots += _held_back(parts[i:end], rate, received, begin_ns, ended=parts[end - 1].calm)
        received += sum(part.received for part in parts[i:end])
        i, held = end, False
    return Curve(knots), max(peak, _fastest(parts))


def _fastest(parts: list[DemandPart]) -> float:
    """The greatest rate at which messages came, over no shorter time than ``SHORTEST_S``."""
    return max((part.arrival_rate for part in parts if part.open_s >= SHORTEST_S), default=1.0)


def _flush_rate(parts: list[DemandPart]) -> float:
    """How fast producers send between an opening of the gate and its next stop; 0 if that was not seen."""
    received, seconds = 0.0, 0.0
    for i, part in enumerate(parts):
        opened = i > 0 and parts[i - 1].closed_ns > 0
        stopped = i + 1 < len(parts) and parts[i + 1].closed_ns > 0
        if not part.shut and (part.closed_ns > 0 or (opened and stopped)):
            received += part.received
            seconds += part.open_s
    return received / max(seconds, 1e-6) if received else 0.0


def _busy_until(parts: list[DemandPart], first: int) -> int:
    """The end of the time in which producers may have wanted to send more than they could."""
    for i in range(first, len(parts)):
        if parts[i].calm:
            return i + 1
    return len(parts)


def _rate_at(parts: list[DemandPart], first: int, flushed: float) -> float:
    """At what rate producers wanted to send just before they were stopped: in the last ``SHORTEST_S`` at
    least, or since the burst began; where there is nothing before, that of flushing.
    """
    begin, received, seconds = first, 0.0, 0.0
    while begin > 0 and seconds < SHORTEST_S:
        begin -= 1
        received += parts[begin].received
        if parts[begin].arriving_ns:
            seconds += parts[begin].arriving_ns / SECOND_NS
            break
        seconds += parts[begin].open_s
    return received / seconds if seconds > 0 else flushed


def _mean_rate(parts: list[DemandPart]) -> float:
    return sum(part.received for part in parts) / max(sum(part.length_s for part in parts), SHORTEST_S)


def _held_back(
    parts: list[DemandPart], rate: float, received: float, begin_ns: int, *, ended: bool
) -> Iterator[tuple[int, float]]:
    """Knots of what was wanted in a busy time: the rate of before, never less than was received, and in
    the end, if it has ended, exactly that.
    """
    since_ns, start = parts[0].begin_ns, received
    most = start + sum(part.received for part in parts) if ended else float("inf")
    full_ns = since_ns + (most - start) / rate * SECOND_NS if rate > 0 and ended else float("inf")
    for part in parts:
        if part.begin_ns < full_ns < part.end_ns:
            yield round(full_ns) - begin_ns, most
        received += part.received
        wanted = start + rate * (part.end_ns - since_ns) / SECOND_NS
        yield part.end_ns - begin_ns, max(min(wanted, most), received)


# --- consumers


def _served(parts: list[DemandPart], begin_ns: int) -> Curve:
    """What consumers could take, cumulative."""
    known = [part.settle_rate if _is_backlogged(part) else None for part in parts]
    last = next((rate for rate in known if rate), None) or SPARE * max(part.settle_rate for part in parts)
    knots, total = [(0, 0.0)], 0.0
    for part, rate in zip(parts, known, strict=True):
        idle_s = part.length_s - part.arriving_ns / SECOND_NS if part.arriving_ns else 0.0
        if idle_s > 0:
            total += last * idle_s
            knots.append((part.end_ns - part.arriving_ns - begin_ns, total))
        if part.arriving_ns:
            total += part.settled
        elif rate is None:
            total += (max(last, part.settle_rate) if part.consumers else part.settle_rate) * part.length_s
        else:
            last = rate or last
            total += rate * part.length_s
        knots.append((part.end_ns - begin_ns, total))
    return Curve(knots)


def _is_backlogged(part: DemandPart) -> bool:
    least = min(part.begin_msgs, part.end_msgs)
    return least >= max(part.settle_rate * SOJOURN_S, 1)


# --- the rest


def _sizes(history: FlowHistory, begin_ns: int) -> tuple[tuple[int, int], ...]:
    """Mean sizes, where they change by more than a twentieth."""
    found: list[tuple[int, int]] = []
    for sample in history.samples:
        if sample.received == 0:
            continue
        size = max(round(sample.received_bytes / sample.received), 1)
        if not found or abs(size - found[-1][1]) > found[-1][1] / 20:
            found.append((max(sample.at_ns - sample.interval_ns - begin_ns, 0), size))
    if not found:
        last = history.samples[-1]
        found = [(0, max(last.depth_bytes // max(last.depth_msgs, 1), 1))]
    return ((0, found[0][1]), *found[1:])


def _thresholds(history: FlowHistory) -> Thresholds:
    """The last ones: settings may have changed under way."""
    return _limits(history)[-1]


def _limits(history: FlowHistory) -> list[Thresholds]:
    """Those of every sample: a gate change between two is of one of them."""
    return [
        Thresholds(sample.stop_msgs, sample.resume_msgs, sample.stop_bytes, sample.resume_bytes)
        for sample in history.samples
    ]


def _notes(history: FlowHistory, parts: list[DemandPart]) -> Iterator[str]:
    if len(set(_limits(history))) > 1:
        yield "the thresholds changed while this was recorded; the last ones are compared with"
    if any(turn.reason in ("operator", "shutdown") for turn in history.turns):
        yield "an operator held the gate for a time: that is in what was recorded, and in no prediction"
    if not parts[-1].calm:
        yield "producers were held back to the end: what they wanted to send is their rate, prolonged"
    if not any(_is_backlogged(part) for part in parts):
        yield (
            "consumers never had a backlog: how fast they can be is unknown,"
            f" {SPARE:g} times what they were seen to do is assumed"
        )
