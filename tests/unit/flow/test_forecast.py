"""When a stopped gate opens again, and how far off such forecasts were."""

from __future__ import annotations

import pytest

from broker.flow.forecast import WORST, Forecast
from tests.unit.manage_world import World

pytestmark = pytest.mark.flow

SECOND = 1_000_000_000


def drain(forecast: Forecast, excess: int, rate: float, every_s: float = 1.0, start_s: float = 0.0) -> float:
    """Fall by ``rate`` a second until nothing is left, with a forecast now and then; when that was."""
    now_s = start_s
    while (left := excess - int((now_s - start_s) * rate)) > 0:
        forecast.say({"count": left}, {"count": rate}, "terms", int(now_s * SECOND))
        now_s += every_s
    end_s = start_s + excess / rate
    forecast.opened("terms", int(end_s * SECOND))
    return end_s


def test_a_steady_drain_is_foretold() -> None:
    forecast = Forecast()
    drain(forecast, 1000, 100.0)
    assert forecast.compared == 10
    assert forecast.error is not None
    assert forecast.error < 0.02


def test_the_first_seconds_go_by_the_rate_it_is_told_then_by_what_it_sees() -> None:
    forecast = Forecast()
    assert forecast.seconds({"count": 100}, {"count": 10.0}, 1 * SECOND) == 10.0
    assert forecast.seconds({"count": 80}, {"count": 10.0}, 2 * SECOND) == pytest.approx(4.0)


def test_a_drain_that_stands_still_has_no_end() -> None:
    forecast = Forecast()
    for second in range(1, 100):
        seconds = forecast.seconds({"count": 100}, {"count": 10.0}, second * SECOND)
    assert seconds is None
    assert forecast.seconds({"count": 100}, {}, 200 * SECOND) is None


def test_a_slow_drain_is_seen_over_a_longer_time() -> None:
    forecast = Forecast()
    for second in range(41):
        seconds = forecast.seconds({"count": 100 - second // 10}, {}, (second + 1) * SECOND)
    assert seconds == pytest.approx(96 / 0.1, rel=0.3)


def test_a_rate_that_changes_is_noticed_within_seconds() -> None:
    forecast = Forecast()
    for second in range(20):
        forecast.seconds({"count": 10_000 - 10 * second}, {}, (second + 1) * SECOND)
    left = 10_000 - 10 * 19
    for second in range(20, 28):
        left -= 1000
        seconds = forecast.seconds({"count": left}, {}, (second + 1) * SECOND)
    assert seconds == pytest.approx(left / 1000, rel=0.1)


def test_the_slower_unit_counts() -> None:
    forecast = Forecast()
    assert forecast.seconds({"count": 10, "bytes": 5000}, {"count": 10.0, "bytes": 100.0}, SECOND) == 50.0
    assert forecast.seconds({"count": 10, "bytes": 5000}, {"count": 10.0}, SECOND) is None


def test_the_error_is_a_mean_in_which_newer_ones_count_more() -> None:
    forecast = Forecast()
    # Foretold 10 s, came true after 5: off by 100 %.
    forecast.say({"count": 100}, {"count": 10.0}, "terms", 0)
    forecast.opened("terms", 5 * SECOND)
    assert forecast.error == pytest.approx(1.0)
    for stop in range(1, 40):
        drain(forecast, 100, 10.0, every_s=20.0, start_s=stop * 100.0)
    assert forecast.error == pytest.approx(0.0, abs=0.05)


def test_a_forecast_under_other_thresholds_is_not_compared() -> None:
    forecast = Forecast()
    forecast.say({"count": 100}, {"count": 10.0}, "before", 0)
    forecast.opened("after", SECOND)
    assert (forecast.compared, forecast.error) == (0, None)


def test_one_hopeless_forecast_counts_so_much_and_no_more() -> None:
    forecast = Forecast()
    forecast.say({"count": 10**9}, {"count": 1.0}, "terms", 0)
    forecast.opened("terms", SECOND)
    assert forecast.error == WORST


def test_a_long_stop_keeps_a_bounded_number_of_forecasts() -> None:
    forecast = Forecast()
    drain(forecast, 100_000, 10.0)
    assert forecast.compared <= 64
    assert forecast.error is not None
    assert forecast.error < 0.05


# --- in the sentences


def test_the_error_stands_beside_the_forecast() -> None:
    world = World()
    node = world.queue(flow_stop_count=100, flow_resume_count=50)
    consumer = world.consumer(node)
    account = world.producer(node)
    second = 0
    for _ in range(3):
        while not node.gate.closed:
            world.fill(node, account, 1)
        while node.gate.closed:
            second += 1
            world.at(second)
            world.model.diagnostics.forecasts.sample()
            for _ in range(5):
                consumer.in_flight -= 1
                world.engine.settlement.acknowledge(node, consumer.held.pop(0))
            world.engine.sampler.sample(world.engine.turn.now_ns)
            world.engine.end_turn()
    while not node.gate.closed:
        world.fill(node, account, 1)
    world.at(second + 1)
    [answer] = [each for each in world.model.diagnostics.why("orders") if each.subject == "producer"]
    assert answer.eta_s == pytest.approx(51 / 5, rel=0.1)
    assert answer.eta_error is not None
    assert answer.eta_error < 0.3
    assert f"at the present rate (± {answer.eta_error * 100:.0f} % lately)" in answer.sentence
    assert "± " in answer.sentence


def test_an_operators_hold_ends_what_was_foretold() -> None:
    world = World()
    node = world.queue(flow_stop_count=10)
    world.fill(node, world.producer(node), 10)
    node.rate_out = 1.0
    world.at(1)
    world.model.diagnostics.forecasts.sample()
    world.model.operators.hold("orders", True)
    world.model.diagnostics.forecasts.sample()
    world.model.operators.hold("orders", False)
    world.at(60)
    world.engine.actions.purge(node)
    assert world.model.diagnostics.forecasts.error_of(node.gate) is None


def test_a_spent_budget_has_a_forecast() -> None:
    world = World()
    world.engine.limit(10_000, 0, 0)
    node = world.queue()
    world.put(node, 80)
    account = world.producer(node)
    node.rate_out = 10.0
    assert world.engine.depths.memory.closed
    assert account.outstanding == 0
    [answer] = world.model.diagnostics.why("orders")
    assert answer.cause == "memory_limit"
    assert answer.eta_s is not None
    assert "at the present rate" in answer.sentence
