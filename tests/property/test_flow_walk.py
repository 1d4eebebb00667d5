"""Random verbs over many producers, consumers and threshold changes; the laws hold after every step."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.examples import examples
from tests.property.world import MS, World

COUNTS = st.integers(min_value=1, max_value=120)
pytestmark = pytest.mark.flow


class FlowWalk(RuleBasedStateMachine):
    """Zero overshoot, conservation of messages and credit, gate transitions (FLOW §2 rules 2–5, 8, 9, 11)."""

    @initialize(stop=COUNTS, size=st.sampled_from([0, 500, 5000]), window=st.integers(1, 150))
    def begin(self, stop: int, size: int, window: int) -> None:
        limits: dict[str, object] = {"flow_stop_count": stop, "producer_window": window}
        limits["flow_stop_size"] = size
        self.world = World(**limits)

    @rule()
    def open(self) -> None:
        if len(self.world.producers) < 12:
            self.world.open()

    @precondition(lambda self: self.world.producers)
    @rule(which=st.integers(0, 11))
    def close(self, which: int) -> None:
        producers = self.world.producers
        self.world.close(producers[which % len(producers)])

    @precondition(lambda self: self.world.producers)
    @rule(which=st.integers(0, 11))
    def hear(self, which: int) -> None:
        producers = self.world.producers
        producers[which % len(producers)].hear()

    @precondition(lambda self: self.world.producers)
    @rule(which=st.integers(0, 11), count=COUNTS, size=st.sampled_from([4, 20, 100, 3000]))
    def send(self, which: int, count: int, size: int) -> None:
        producer = self.world.producers[which % len(self.world.producers)]
        for _ in range(min(count, producer.heard - producer.sent)):
            producer.send(size, settled=False)

    @rule(credit=st.integers(1, 50))
    def attach(self, credit: int) -> None:
        if len(self.world.takers) < 4:
            self.world.consume(credit)

    @precondition(lambda self: self.world.takers)
    @rule(which=st.integers(0, 3), count=COUNTS)
    def settle(self, which: int, count: int) -> None:
        takers = self.world.takers
        self.world.settle(takers[which % len(takers)], count)

    @precondition(lambda self: self.world.takers)
    @rule(which=st.integers(0, 3))
    def lose(self, which: int) -> None:
        takers = self.world.takers
        self.world.drop(takers[which % len(takers)])

    @rule(stop=COUNTS, size=st.sampled_from([0, 300, 5000]), part=st.sampled_from([0.3, 0.7, 1.0]))
    def limits(self, stop: int, size: int, part: float) -> None:
        resume = max(int(stop * part), 1)
        self.world.change(
            flow_stop_count=stop,
            flow_resume_count=resume,
            flow_stop_size=size,
            flow_resume_size=int(size * part),
        )

    @rule(held=st.booleans())
    def operator(self, held: bool) -> None:
        self.world.engine.actions.hold(self.world.node, held)

    @rule(enabled=st.booleans())
    def switch(self, enabled: bool) -> None:
        self.world.engine.topology.switch_flow(enabled)

    @rule(ms=st.sampled_from([0, 1, 11, 101]))
    def wait(self, ms: int) -> None:
        self.world.turn(ms * MS)

    @invariant()
    def laws(self) -> None:
        if hasattr(self, "world"):
            self.world.turn()
            self.world.check()


TestFlowWalk = FlowWalk.TestCase
TestFlowWalk.settings = settings(
    max_examples=examples(400), stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.soak
def test_a_long_walk() -> None:
    """The same laws over fifty times as many walks."""
    run_state_machine_as_test(
        FlowWalk,
        settings=settings(
            max_examples=20_000,
            stateful_step_count=80,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
