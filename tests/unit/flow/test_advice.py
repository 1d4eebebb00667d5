"""Settings that can't work well are told with their reason and a number; those that can are not."""

from __future__ import annotations

import pytest

from broker.config.flow import BrokerDefaults
from broker.flow.advice import of_budget, of_resume, of_stop, of_window
from broker.manage.advise.hints import hints
from broker.manage.advise.history import SECOND_NS, FlowHistory, HistorySample
from broker.units import GB, MB
from tests.unit.manage_world import World


@pytest.mark.parametrize(("stop", "resume", "number"), [(100, 100, 70), (1000, 950, 700), (2, 2, 1)])
def test_a_resume_at_its_stop_lets_the_gate_flap(stop: int, resume: int, number: int) -> None:
    found = of_resume("count", stop, resume, 1000, 4.0)
    assert found is not None
    assert (found.setting, found.now, found.number) == ("flow_resume_count", resume, number)
    assert found.number < stop
    assert found.reason.startswith("the gate stopped 1,000 times, for 4 ms on average: flow_resume_count is ")


@pytest.mark.parametrize(
    ("stop", "resume", "stops", "stopped_s"),
    [
        (1000, 700, 1000, 4.0),  # far enough apart: stops are short because consumers are fast
        (80, 70, 1000, 4.0),  # the defaults
        (100, 100, 19, 0.1),  # it hardly ever stops
        (100, 100, 100, 60.0),  # long stops: nothing flaps
        (1, 1, 1000, 4.0),  # there is nothing below it
        (0, 0, 1000, 4.0),
    ],
)
def test_another_resume_is_none_to_speak_of(stop: int, resume: int, stops: int, stopped_s: float) -> None:
    assert of_resume("count", stop, resume, stops, stopped_s) is None


def test_a_stop_below_the_number_of_producers() -> None:
    found = of_stop(5, 8)
    assert found is not None
    assert (found.setting, found.now, found.number) == ("flow_stop_count", 5, 80)
    for stop, producers in ((8, 8), (1000, 8), (0, 8), (5, 0)):
        assert of_stop(stop, producers) is None


def test_a_stop_that_memory_never_lets_it_reach() -> None:
    found = of_budget(2 * GB, 512 * MB)
    assert found is not None
    assert (found.setting, found.number) == ("flow_stop_size", 128 * MB)
    for stop, memory in ((100 * MB, 512 * MB), (2 * GB, 0), (0, 512 * MB)):
        assert of_budget(stop, memory) is None


def test_a_window_below_what_its_client_takes_at_once() -> None:
    found = of_window(10, 200, 10_000, 1000, 500.0)
    assert found is not None
    assert (found.setting, found.now, found.number) == ("consumer_flow_limit", 10, 200)
    wide = of_window(10, 50_000, 10_000, 1000, 500.0)
    assert wide is not None
    assert wide.number == 1000


@pytest.mark.parametrize(
    ("limit", "wanted", "settled", "full", "rate"),
    [
        (10, 10, 10_000, 1000, 500.0),  # the client wants no more
        (10, 200, 5_000, 1000, 500.0),  # it settles one by one: the window reopens at half
        (10, 200, 10_000, 1000, 20.0),  # it takes half a second for each batch
        (10, 200, 100, 10, 500.0),  # too early to say
        (0, 200, 10_000, 1000, 500.0),  # no limit
        (1000, 2000, 500_000, 100, 0.0),
    ],
)
def test_another_window_is_none_to_speak_of(
    limit: int, wanted: int, settled: int, full: int, rate: float
) -> None:
    assert of_window(limit, wanted, settled, full, rate) is None


def said(world: World, name: str) -> list[str]:
    return [each.frees for each in world.model.diagnostics.why(name) if each.cause == "advice"]


def test_why_a_node_waits_says_what_to_set() -> None:
    world = World()
    node = world.queue("orders", flow_stop_count=4, flow_resume_count=2)
    for number in range(4):
        world.producer(node, f"s{number}")
    assert said(world, "orders") == []
    world.producer(node, "s4")
    assert said(world, "orders") == ["set flow_stop_count to 50"]
    world.model.nodes.update("orders", {"flow_stop_count": 50})
    assert said(world, "orders") == []


def test_a_size_that_somebody_set_is_compared_with_the_budget() -> None:
    world = World(defaults=BrokerDefaults())
    world.engine.limit(64 * MB, 0, 0)
    world.queue("plain")
    world.queue("large", max_size="2 GB", flow_stop_size="1 GB")
    world.queue("small", flow_stop_size="16 MB")
    assert said(world, "large") == ["set flow_stop_size to 16 MB"]
    assert said(world, "small") == []
    # Nobody set the default, which is 80 MB here: nothing is wrong with the queue.
    assert said(world, "plain") == []


def sample(**said: int) -> HistorySample:
    numbers = dict.fromkeys(HistorySample.__dataclass_fields__, 0) | {"interval_ns": SECOND_NS} | said
    return HistorySample(**{**numbers, "closed": False})  # type: ignore[arg-type]


def test_a_recording_is_told_of_its_own_thresholds() -> None:
    wide = {"stop_msgs": 100, "resume_msgs": 70, "producers": 3}
    narrow = {"stop_msgs": 10, "resume_msgs": 10, "producers": 30}

    def recorded(said: dict[str, int]) -> FlowHistory:
        seconds = [number * SECOND_NS for number in range(1, 6)]
        stops = [{"at_ns": at_ns, "stops": at_ns // 10**7, "stopped_ns": at_ns // 2} for at_ns in seconds]
        return FlowHistory("orders", [sample(**each, **said) for each in stops])

    assert hints(recorded(wide)) == []
    one, other = hints(recorded(narrow))
    assert one.endswith("; set flow_resume_count to 7")
    assert other.endswith("; set flow_stop_count to 300")
    assert hints(FlowHistory("orders")) == []
