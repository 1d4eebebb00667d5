"""A load run through the broker's own engine under one candidate's settings, with another clock.

Nothing here decides about flow: gate, allocator, shares and windows are the broker's, this file plays the
clients and turns the hands of the clock.

1. Time goes in ticks short against the time the depth takes from one threshold to the other: short ones
   while producers send a backlog to an open gate, longer ones while the consumers' pace is what counts.
2. In a tick producers send what they want to and have credit for, no faster than ``peak``; then consumers
   settle what they have had for a round trip, no faster than the load's curve; then the engine's turn ends.
3. Credit is heard of a round trip after it was given. Consumers settle in batches (``Clients``); their own
   credit is never what limits.
4. Where a load has more messages than are worth the wait, one message stands for ``grain`` of them and
   has their size; counts and windows shrink by as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from broker import constants
from broker.config.node import NodeSettings
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.flow.producer_credit import Port, ProducerCredit
from broker.flow.window import Window
from broker.manage.advise.trace import SECOND_NS, Trace
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

# Columns of the picture.
BINS = 240
# Ticks a way between the thresholds should take at least, and the bounds of a tick.
STEPS = 12
STEPS_DOWN = 100
SHORTEST_NS, LONGEST_NS = 50_000, 5_000_000
MOST_TICKS = 200_000
FEWEST_TICKS = 2_000
# Messages of one replay, and what a threshold keeps of its fineness when they stand for several.
MOST_MSGS = 250_000
FINENESS = 50
LARGEST_BYTES = 16 << 20
MOST_LINKS = 64
# Where consumers were never seen to have a limit, messages a second that are more than enough.
MOST_RATE = 1e6


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a candidate would have done. ``depth`` and ``closed`` are the picture's columns: the greatest
    depth in each, in messages, and the part of it in which the gate was closed.

    ``held_msgs`` is the most that waited at producers, ``overshoot_msgs`` what was above the threshold,
    ``stayed_msgs`` what was left at the end, at producers too.
    """

    seconds: float
    stop_seconds: float
    stops: int
    settled: int
    throughput: float
    worst_msgs: int
    worst_bytes: int
    stayed_msgs: int
    held_msgs: int
    overshoot_msgs: int
    overshoot_bytes: int
    depth: tuple[int, ...]
    depth_bytes: tuple[int, ...]
    closed: tuple[float, ...]
    tick_ns: int
    grain: int


class ReplayedSender(Port):
    """A producer: it goes by the credit it has heard of."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.account: ProducerCredit
        self.waiting = 0.0
        self.part = 1.0
        self.sent = 0
        self.heard = 0
        self.told: deque[tuple[int, int]] = deque()

    def grant(self, msgs: int) -> None:
        self._tell()

    def revoke(self, msgs: int) -> None:
        self._tell()

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        self.replay.engine.intake.put(self.replay.node, parked, 0)

    def refuse(self, parked: object) -> None:
        """Never: a parked message waits as long as it takes."""

    def _tell(self) -> None:
        # What a flow frame says: delivery-count + link-credit, an absolute number.
        limit = self.account.used + self.account.outstanding
        self.told.append((self.replay.now_ns + self.replay.rtt_ns, limit))

    def credit(self) -> int:
        """What it may send, as far as it knows."""
        while self.told and self.told[0][0] <= self.replay.now_ns:
            self.heard = self.told.popleft()[1]
        return self.heard - self.sent


class Taker(Consumer):
    """A consumer that settles in order; what it was just sent takes a round trip."""

    def __init__(self, replay: Replay, window: Window) -> None:
        super().__init__()
        self.replay = replay
        self.window = window
        self.held: deque[tuple[int, Entry]] = deque()

    def capacity(self) -> int:
        return self.window.room()

    def send(self, entry: Entry) -> None:
        self.held.append((self.replay.now_ns + self.replay.rtt_ns, entry))
        self.in_flight += 1
        self.window.sent()

    def settle(self, count: int) -> int:
        """Settle up to ``count`` of what has been here long enough; how many it was."""
        replay, held, done = self.replay, self.held, 0
        while done < count and held and held[0][0] <= replay.now_ns:
            _, entry = held.popleft()
            self.in_flight -= 1
            self.window.settled()
            replay.engine.settlement.acknowledge(replay.node, entry)
            done += 1
        if done and replay.node.queue.ready > 0:
            replay.engine.turn.mark_dirty(replay.node)
        return done


@dataclass(frozen=True, slots=True)
class Clients:
    """What a history doesn't say of the clients.

    ``rtt_ns`` is the round trip to them, ``batch_ns`` how often a busy consumer settles. With ``skew`` 1
    producers want to send as much as each other, with N each of them N times as much as the next.
    """

    rtt_ns: int = 1_000_000
    batch_ns: int = 1_000_000
    skew: int = 1


class Replay:
    """One load under one candidate's settings; ``run`` it once."""

    def __init__(self, trace: Trace, settings: NodeSettings, clients: Clients) -> None:
        self.trace = trace
        self.clients = clients
        self.rtt_ns = clients.rtt_ns
        self.grain = grain_of(trace, settings)
        self.settings = coarse(settings, self.grain)
        self.tick_ns, self.calm_ns = ticks_of(trace, settings)
        self.waiting = 0.0
        self.now_ns = 1
        self.engine = Engine()
        self.engine.begin_turn(self.now_ns)
        self.node: Node = self.engine.lifecycle.create("replayed", self.settings)
        self.bodies = [(at_ns, bytes(max(size * self.grain, 1))) for at_ns, size in trace.sizes]
        self.body = self.bodies[0][1]
        self.senders: list[ReplayedSender] = []
        self.takers: list[Taker] = []
        self.held_msgs = 0
        self.overshoot_msgs = 0
        self.overshoot_bytes = 0
        self.depth = [0] * BINS
        self.depth_bytes = [0] * BINS
        self.closed = [0] * BINS
        self.first = 0

    def run(self, show: Callable[[float], None] = lambda part: None) -> Outcome:
        """Play it from begin to end; ``show`` is told how much is done."""
        self._set_up()
        trace, node = self.trace, self.node
        offered = served = sendable = 0.0
        settle_ns = at_ns = end_ns = turns = 0
        while end_ns < trace.duration_ns:
            at_ns, turns = end_ns, turns + 1
            flushing = self.waiting >= 1.0 and not node.gate.closed
            end_ns = min(at_ns + (self.tick_ns if flushing else self.calm_ns), trace.duration_ns)
            self.now_ns = end_ns + 1
            self.engine.begin_turn(self.now_ns)
            if len(self.bodies) > 1:
                self.body = self.bodies[max(bisect_right(trace.sizes, (at_ns, constants.UNBOUNDED)) - 1, 0)][
                    1
                ]
            wanted = trace.offered.at(end_ns) / self.grain
            quota = trace.peak * (end_ns - at_ns) / SECOND_NS / self.grain
            sendable = self._produce(wanted - offered, min(sendable, 1.0) + quota)
            offered = wanted
            if end_ns >= settle_ns:
                settle_ns = end_ns + self.clients.batch_ns
                able = trace.served.at(end_ns) / self.grain
                served += self._consume(able - served)
                # What nobody was there to take is lost, but for the one that is being worked on.
                served = max(served, able - 1.0)
            self.engine.end_turn()
            self._note(at_ns, end_ns)
            if turns % 1024 == 0:
                show(end_ns / trace.duration_ns)
        show(1.0)
        return self._outcome(node)

    def _set_up(self) -> None:
        trace, settings = self.trace, self.settings
        for _ in range(trace.begin_msgs // self.grain):
            self.engine.intake.put(self.node, self.body, 0)
        for _ in range(min(max(trace.consumers, 1), MOST_LINKS)):
            window = Window(settings.consumer_flow_limit, settings.consumer_flow_threshold, None)
            self.takers.append(Taker(self, window))
            self.engine.delivery.add_consumer(self.node, self.takers[-1])
        for _ in range(min(max(trace.producers, 1), MOST_LINKS)):
            sender = ReplayedSender(self)
            sender.account = self.engine.producers.open(self.node, sender, True)
            self.senders.append(sender)
        weights = [float(self.clients.skew) ** -i for i in range(len(self.senders))]
        for sender, weight in zip(self.senders, weights, strict=True):
            sender.part = weight / sum(weights)
        self.engine.end_turn()

    def _produce(self, wanted: float, sendable: float) -> float:
        """Producers want their parts to be sent; what of ``sendable`` was not used."""
        engine, node, body = self.engine, self.node, self.body
        held = 0.0
        # Who sends first changes from tick to tick.
        self.first = (self.first + 1) % len(self.senders)
        for sender in (*self.senders[self.first :], *self.senders[: self.first]):
            sender.waiting += wanted * sender.part
            count = min(int(sender.waiting), int(sendable), sender.credit())
            for _ in range(count):
                sender.sent += 1
                if engine.intake.arrive(node, sender.account, body, 0, False) == constants.PARK:
                    engine.parking.park(node, sender.account, body, len(body), False)
            if count > 0:
                sender.waiting -= count
                sendable -= count
            held += sender.waiting
        self.waiting = held
        if held > self.held_msgs:
            self.held_msgs = int(held)
        return sendable

    def _consume(self, able: float) -> int:
        """Consumers settle in turn, as if each message went to whoever is free."""
        count, done = int(able), 0
        takers = self.takers
        if len(takers) == 1:
            return takers[0].settle(count)
        while count > done:
            before = done
            share = max((count - done) // len(takers), 1)
            for taker in takers:
                done += taker.settle(min(share, count - done))
            if done == before:
                break
        return done

    def _note(self, begin_ns: int, end_ns: int) -> None:
        gate = self.node.gate
        column = begin_ns * BINS // self.trace.duration_ns
        if gate.depth_msgs > self.depth[column]:
            self.depth[column] = gate.depth_msgs
        if gate.depth_bytes > self.depth_bytes[column]:
            self.depth_bytes[column] = gate.depth_bytes
        if gate.closed:
            self.closed[column] += end_ns - begin_ns
        if gate.promised_msgs and gate.enforced:
            if gate.stop_msgs:
                over = gate.depth_msgs + gate.promised_msgs - gate.stop_msgs
                self.overshoot_msgs = max(self.overshoot_msgs, over)
            if gate.stop_bytes and gate.depth_msgs + gate.promised_msgs > 1:
                over = gate.depth_bytes + gate.promised_bytes - gate.stop_bytes
                self.overshoot_bytes = max(self.overshoot_bytes, over)

    def _outcome(self, node: Node) -> Outcome:
        gate, grain, seconds = node.gate, self.grain, self.trace.seconds
        stopped_ns = gate.closed_total_ns + (self.now_ns - gate.closed_since_ns if gate.closed else 0)
        settled = node.accepted * grain
        width_ns = self.trace.duration_ns / BINS
        return Outcome(
            seconds=seconds,
            stop_seconds=stopped_ns / SECOND_NS,
            stops=gate.closed_count,
            settled=settled,
            throughput=settled / seconds,
            worst_msgs=gate.peak_msgs * grain,
            worst_bytes=gate.peak_bytes,
            stayed_msgs=(gate.depth_msgs + int(self.waiting)) * grain,
            held_msgs=self.held_msgs * grain,
            overshoot_msgs=max(self.overshoot_msgs, 0) * grain,
            overshoot_bytes=max(self.overshoot_bytes, 0),
            depth=tuple(depth * grain for depth in self.depth),
            depth_bytes=tuple(self.depth_bytes),
            closed=tuple(min(each / width_ns, 1.0) for each in self.closed),
            tick_ns=self.tick_ns,
            grain=grain,
        )


def grain_of(trace: Trace, settings: NodeSettings) -> int:
    """How many messages one stands for: 1 unless there are too many to play each of them."""
    largest = max(size for _, size in trace.sizes)
    wanted = int(min(trace.offered.total, trace.served.total)) // MOST_MSGS + 1
    bounds = [LARGEST_BYTES // max(largest, 1)]
    if settings.flow_stop_count:
        bounds.append(settings.flow_stop_count // FINENESS)
        bounds.append((settings.flow_stop_count - settings.flow_resume_count) // 5)
    if settings.flow_stop_size:
        bounds.append(settings.flow_stop_size // max(largest, 1) // FINENESS)
    bounds += [limit // 10 for limit in (settings.producer_window, settings.consumer_flow_limit) if limit]
    return max(min(wanted, *bounds), 1)


def coarse(settings: NodeSettings, grain: int) -> NodeSettings:
    """The settings in units of ``grain`` messages; rounded down, so that no bound is passed."""
    if grain == 1:
        return settings
    names = (
        "flow_stop_count",
        "flow_resume_count",
        "producer_window",
        "initial_credit",
        "consumer_flow_limit",
    )
    values = {name: getattr(settings, name) for name in names}
    return replace(settings, **{name: max(value // grain, 1) for name, value in values.items() if value})


def ticks_of(trace: Trace, settings: NodeSettings) -> tuple[int, int]:
    """Steps short enough for the way between the thresholds, up and down, long enough to get to the end."""
    size = max(size for _, size in trace.sizes)
    ways = [trace.duration_ns]
    if settings.flow_control and settings.flow_stop_count:
        ways.append(settings.flow_stop_count - settings.flow_resume_count)
    if settings.flow_control and settings.flow_stop_size:
        ways.append((settings.flow_stop_size - settings.flow_resume_size) // max(size, 1))
    way = max(min(ways), 1) * SECOND_NS
    shortest = max(SHORTEST_NS, trace.duration_ns // MOST_TICKS)
    longest = max(min(trace.duration_ns // FEWEST_TICKS, LONGEST_NS), shortest)
    down = max(trace.served.fastest(), 1.0)
    up = max(min(trace.peak, MOST_RATE), down)
    calm = min(max(int(way / down / STEPS_DOWN), shortest), longest)
    return min(max(int(way / up / STEPS), shortest), calm), calm


def replay(
    trace: Trace, settings: NodeSettings, clients: Clients, show: Callable[[float], None] = lambda part: None
) -> Outcome:
    """What ``settings`` would have made of the load. OperatorError if it has no length."""
    if trace.duration_ns <= 0:
        raise OperatorError(f"{trace.node}: the history has no length to replay")
    return Replay(trace, settings, clients).run(show)
