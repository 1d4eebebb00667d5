"""Random sends with and without delays beside a plain model: nothing early, nothing lost, nothing twice.

The model is a list of what was sent: the body, when it is due, when it expires. After each step the depth
is exactly what the model has, the audit of the broker finds nothing, and no consumer has held a message
before its time. At the end everything that is left is delivered, whatever happened, restarts included.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from proton import Message, symbol

from broker import constants
from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.engine.schedules import LOG_NAME
from broker.manage.audit import audit
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry, Extra
from broker.store.memory import MemoryStore
from tests.examples import examples

MS = 1_000_000
EPOCH_NS = 1_700_000_000_000 * MS
RETRY_MS = 50
FAILURES = 4
pytestmark = pytest.mark.flow


@dataclass
class Sent:
    """One message as the model has it; times in milliseconds since the epoch, 0 for none."""

    body: int
    due_ms: int
    expires_ms: int
    durable: bool
    # Deliveries that count, and whether one of them is no failure of its own.
    failures: int = 0
    spared: bool = False


class Window(Consumer):
    """A consumer that holds up to so many messages and checks the time of each."""

    def __init__(self, walk: DelayWalk, most: int) -> None:
        Consumer.__init__(self)
        self.walk = walk
        self.most = most
        self.got: list[Entry] = []

    def capacity(self) -> int:
        return self.most - len(self.got)

    def send(self, entry: Entry) -> None:
        self.walk.delivered(entry)
        self.got.append(entry)
        self.in_flight += 1


class DelayWalk(RuleBasedStateMachine):
    """One durable queue with delays, retries, expiry, a hard limit, consumers, operators and restarts."""

    @initialize(limit=st.sampled_from([0, 8, 40]))
    def begin(self, limit: int) -> None:
        self.wall_ns = EPOCH_NS + 1000 * MS
        self.limit = limit
        self.store = MemoryStore()
        self.model: dict[int, Sent] = {}
        self.windows: list[Window] = []
        self.numbers = 0
        self._start(EPOCH_NS)

    def _start(self, epoch_ns: int) -> None:
        """Begin a life of the broker, whose monotonic clock starts anywhere."""
        self.engine = Engine(True, self.store)
        self.engine.turn.epoch_ns = epoch_ns
        self.engine.begin_turn(self.wall_ns - epoch_ns)
        given: dict[str, object] = {"durable": True, "redelivery_delay": RETRY_MS, "dead_letter_address": ""}
        given |= {"max_delivery_count": FAILURES, "redelivery_multiplier": 2}
        if self.limit:
            given["max_count"] = self.limit
        settings = resolve(given, BrokerDefaults())
        shelf = self.store.shelves.get("orders")
        self.node: Node = self.engine.lifecycle.create("orders", settings, b"{}", shelf)
        if shelf is not None:
            kept = sorted((seq, *rest) for seq, rest in shelf.messages.items())
            self.node.maybe_delivered_upto = max([seq for seq, *_ in kept], default=0)
            self.engine.lifecycle.restore(self.node, kept)
            log = self.store.shelves.get(LOG_NAME + "orders")
            if log is not None:
                waiting = [(seq, *rest) for seq, rest in sorted(log.messages.items())]
                self.engine.schedules.restore(self.node, log, waiting)
        self._settle()

    def _now_ms(self) -> int:
        return self.wall_ns // MS

    def _turn(self, ms: int = 0) -> None:
        self.engine.end_turn()
        self.engine.seal()
        self.wall_ns += ms * MS
        self.engine.begin_turn(self.wall_ns - self.engine.turn.epoch_ns)
        # Those that expired left the node; a consumer's own expire when they come back.
        held = {self._body(entry) for window in self.windows for entry in window.got}
        for sent in list(self.model.values()):
            if sent.expires_ms and sent.expires_ms <= self._now_ms() and sent.body not in held:
                del self.model[sent.body]

    def _settle(self) -> None:
        for _ in range(3):
            self._turn()
            self.engine.attend_store()
        # What expires on its way to disk is looked at a little later.
        self._turn()

    def _body(self, entry: Entry) -> int:
        found = Message()
        found.decode(entry.data)
        assert isinstance(found.body, int)
        return found.body

    def delivered(self, entry: Entry) -> None:
        sent = self.model[self._body(entry)]
        assert self._now_ms() >= sent.due_ms, "delivered before its time"
        assert entry.delivery_count == sent.failures
        held = [self._body(each) for window in self.windows for each in window.got]
        assert sent.body not in held, "delivered twice"

    # --- what happens

    @rule(
        delay_ms=st.sampled_from([0, 0, 1, 20, 200, 2000]),
        durable=st.booleans(),
        ttl_ms=st.sampled_from([0, 0, 700]),
    )
    def send(self, delay_ms: int, durable: bool, ttl_ms: int) -> None:
        self.numbers += 1
        annotations = {symbol("x-opt-delivery-delay"): delay_ms} if delay_ms else None
        made = Message(body=self.numbers, durable=durable, annotations=annotations, ttl=ttl_ms / 1000)
        data = bytes(made.encode())
        if delay_ms:
            data = message.with_delivery_time(data, self._now_ms() + delay_ms)
        depth = self.node.gate.depth_msgs
        code = self.engine.intake.put(self.node, data, message.scan(data))
        if code == constants.REFUSED:
            assert self.limit
            assert depth == self.limit
            return
        due_ms = self._now_ms() + delay_ms if delay_ms else 0
        expires_ms = self._now_ms() + ttl_ms if ttl_ms else 0
        self.model[self.numbers] = Sent(self.numbers, due_ms, expires_ms, durable)
        self._settle()

    @rule(ms=st.sampled_from([0, 1, 19, 20, 50, 300, 1000]))
    def wait(self, ms: int) -> None:
        self._turn(ms)
        self._settle()

    @precondition(lambda self: len(self.windows) < 3)
    @rule(most=st.integers(1, 10))
    def attach(self, most: int) -> None:
        self.windows.append(Window(self, most))
        self.engine.delivery.add_consumer(self.node, self.windows[-1])
        self._settle()

    def _held(self, which: int) -> tuple[Window, Entry] | None:
        holding = [(window, entry) for window in self.windows for entry in window.got]
        return holding[which % len(holding)] if holding else None

    @rule(which=st.integers(0, 30), outcome=st.sampled_from(["accept", "release", "fail", "later"]))
    def settle(self, which: int, outcome: str) -> None:
        found = self._held(which)
        if found is None:
            return
        window, entry = found
        window.got.remove(entry)
        window.in_flight -= 1
        body = self._body(entry)
        if outcome == "accept":
            del self.model[body]
            self.engine.settlement.acknowledge(self.node, entry)
            return
        sent = self.model[body]
        if outcome == "later":
            due_ms = self._now_ms() + 100
            annotations = {symbol("x-opt-delivery-time"): due_ms}
            added = message.annotations_of(bytes(Message(annotations=annotations).encode()))
            entry.extra = entry.extra or Extra()
            entry.extra.annotations = message.merged_outcome(message.annotations_of(entry.data), added)
            sent.due_ms = due_ms
        elif outcome == "fail":
            self._count_failure(sent)
        self._forget_expired(sent)
        self.engine.settlement.requeue(self.node, entry, outcome == "fail")

    def _count_failure(self, sent: Sent) -> None:
        sent.failures += 1
        own = sent.failures - sent.spared
        sent.due_ms = self._now_ms() + RETRY_MS * 2 ** (own - 1)
        if own >= FAILURES:
            del self.model[sent.body]

    def _forget_expired(self, sent: Sent) -> None:
        if sent.body in self.model and sent.expires_ms and sent.expires_ms <= self._now_ms():
            del self.model[sent.body]

    @precondition(lambda self: self.windows)
    @rule(which=st.integers(0, 2))
    def lose(self, which: int) -> None:
        """A link is lost: what it was sent first counts as a failure, the rest is spared."""
        window = self.windows.pop(which % len(self.windows))
        for number, entry in enumerate(window.got):
            sent = self.model[self._body(entry)]
            if number == 0:
                self._count_failure(sent)
            elif sent.failures == 0:
                sent.failures, sent.spared = 1, True
            self._forget_expired(sent)
            if number == 0:
                self.engine.settlement.requeue(self.node, entry, True)
            else:
                self.engine.settlement.spare(self.node, entry)
        window.got.clear()
        self.engine.delivery.remove_consumer(self.node, window)

    @rule(which=st.integers(0, 10))
    def cancel(self, which: int) -> None:
        if self.node.schedule is None:
            return
        for each in self.node.schedule.first(which, 1):
            found = Message()
            found.decode(each.data)
            assert isinstance(found.body, int)
            del self.model[found.body]
            self.engine.schedules.cancel(self.node, each)

    @rule()
    def purge(self) -> None:
        self._settle()
        held = {self._body(entry) for window in self.windows for entry in window.got}
        self.engine.actions.purge(self.node)
        self.model = {body: sent for body, sent in self.model.items() if body in held}

    @rule(epoch_ms=st.integers(0, 500))
    def restart(self, epoch_ms: int) -> None:
        """The durable ones come back, with their times; the monotonic clock begins anew."""
        self._settle()
        for window in self.windows:
            window.got.clear()
        self.windows.clear()
        self.model = {body: sent for body, sent in self.model.items() if sent.durable}
        self._start(EPOCH_NS + epoch_ms * MS)

    # --- the laws

    @invariant()
    def the_depth_is_what_was_sent_and_has_not_left(self) -> None:
        if not hasattr(self, "node"):
            return
        assert self.node.gate.depth_msgs == len(self.model)
        assert audit(self.engine).breaches == ()
        if self.limit:
            assert self.node.gate.depth_msgs <= self.limit

    def teardown(self) -> None:
        """Everything that is left comes to a consumer in bounded time."""
        if not hasattr(self, "node"):
            return
        window = Window(self, 10_000)
        self.windows.append(window)
        self.engine.delivery.add_consumer(self.node, window)
        self._settle()
        self._turn(10_000)
        self._settle()
        found = [self._body(entry) for each in self.windows for entry in each.got]
        assert sorted(found) == sorted(self.model)


TestDelayWalk = DelayWalk.TestCase
TestDelayWalk.settings = settings(
    max_examples=examples(60), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
