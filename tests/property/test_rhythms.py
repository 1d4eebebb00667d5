"""Producers that send from a timer get their share beside others, in whatever rhythm (FLOW §2 rule 12)."""

from __future__ import annotations

import pytest

from bench.rhythms import Cell, Rhythm, play

pytestmark = pytest.mark.flow

SMALL: dict[str, object] = {"flow_stop_count": 100, "flow_resume_count": 50}
BYTES: dict[str, object] = {"flow_stop_size": 10_000, "flow_resume_size": 5000}


def stops(count: int) -> dict[str, object]:
    return {"flow_stop_count": count, "flow_resume_count": max(count // 2, 1)}


def timers(count: int, per_second: float, tick_ms: float, timed: bool) -> list[Rhythm]:
    return [Rhythm(per_second, tick_ms, timed)] * count


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize(
    ("count", "per_second", "tick_ms", "settings", "drain", "least"),
    [
        pytest.param(3, 50, 100, SMALL, 0, 0.95, id="three, all taken at once"),
        pytest.param(3, 50, 100, SMALL, 70, 0.9, id="three, a slow consumer"),
        pytest.param(3, 50, 100, BYTES, 0, 0.95, id="in bytes"),
        pytest.param(3, 50, 100, BYTES, 70, 0.9, id="in bytes, a slow consumer"),
        pytest.param(2, 50, 100, stops(2), 0, 0.9, id="room for two"),
        pytest.param(20, 20, 100, stops(2), 100, 0.9, id="more producers than room"),
        pytest.param(20, 20, 50, stops(1000), 200, 0.9, id="twenty"),
        pytest.param(60, 20, 100, stops(1000), 600, 0.9, id="sixty"),
        pytest.param(3, 50, 1, SMALL, 0, 0.95, id="a short tick"),
    ],
)
def test_equal_producers_get_equal_parts(
    count: int,
    per_second: float,
    tick_ms: float,
    settings: dict[str, object],
    drain: float,
    least: float,
    timed: bool,
) -> None:
    outcome = play(Cell(timers(count, per_second, tick_ms, timed), settings, drain))
    assert outcome.overshoot == 0
    assert outcome.worst >= least, outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize("drain", [0, 100], ids=["all taken at once", "a slow consumer"])
def test_unequal_producers_get_what_they_want_or_the_same(timed: bool, drain: float) -> None:
    rhythms = [Rhythm(rate, 100, timed) for rate in (150, 80, 20)]
    outcome = play(Cell(rhythms, {"flow_stop_count": 900, "flow_resume_count": 700}, drain, seconds=30))
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.9, outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize("drain", [0, 300], ids=["all taken at once", "a slow consumer"])
def test_timers_beside_one_that_sends_all_it_can(timed: bool, drain: float) -> None:
    outcome = play(Cell([Rhythm(1e4, 0), *timers(3, 50, 100, timed)], SMALL, drain, seconds=10))
    assert outcome.overshoot == 0
    assert min(outcome.sent[1:]) >= 0.9 * 50 * 10, outcome.sent
    # And it has what is left.
    assert outcome.sent[0] >= (0.9 * 150 * 10 if drain else 0.9 * 1e4 * 10), outcome.sent


def test_long_ticks_grow_into_their_share() -> None:
    """A producer that sends once in ten seconds is not taken for one that needs little."""
    outcome = play(Cell(timers(3, 50, 10_000, True), SMALL, seconds=300))
    later = play(Cell(timers(3, 50, 10_000, True), SMALL, seconds=600))
    gained = [after - before for before, after in zip(outcome.sent, later.sent, strict=True)]
    assert outcome.overshoot == later.overshoot == 0
    assert min(gained) >= 0.9 * sum(gained) / 3, gained
    assert sum(gained) >= 0.9 * 100 * 30, gained


def test_one_busy_producer_beside_many_idle_ones_has_the_room() -> None:
    alone = play(Cell([Rhythm(1e6, 0)], stops(1000), seconds=1))
    beside = play(Cell([Rhythm(1e6, 0), *[Rhythm(0, 100)] * 299], stops(1000), seconds=1))
    assert sum(beside.sent) >= 0.75 * sum(alone.sent)


def test_links_that_come_and_go_take_nothing_along() -> None:
    """Half of them end; the others then have the room."""
    rhythms = [Rhythm(100, 100, True, end_ms=5000)] * 3 + [Rhythm(100, 100, True)] * 3
    outcome = play(Cell(rhythms, SMALL, drain=240, seconds=20))
    assert outcome.overshoot == 0
    assert min(outcome.sent[3:]) >= 0.9 * (40 * 5 + 80 * 15), outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize("drain", [0, 100], ids=["all taken at once", "a slow consumer"])
@pytest.mark.parametrize("room", ["memory", "disk", "connection", "topic"])
def test_room_that_is_not_a_queues_own_is_shared_alike(room: str, drain: float, timed: bool) -> None:
    if room == "connection" and drain:
        pytest.skip("what waits for a consumer is not on the connection any more")
    rhythms = [Rhythm(rate, 100, timed) for rate in (150, 80, 20)]
    settings = stops(100) if room == "topic" else {}
    outcome = play(Cell(rhythms, settings, drain, room=room, budget=0 if settings else 100, seconds=30))
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.9, (outcome.sent, outcome.share)


@pytest.mark.parametrize("queues", [1, 4])
def test_links_that_send_all_they_can_share_their_connections_budget(queues: int) -> None:
    """None of them is ever idle, and those that never sent expect larger messages than theirs are."""
    outcome = play(Cell([Rhythm(1e5, 0)] * 4, {}, room="connection", budget=30, queues=queues))
    assert outcome.overshoot == 0
    assert min(outcome.sent) >= 0.4 * max(outcome.sent), outcome.sent
    assert max(outcome.longest_ms) < 200


@pytest.mark.parametrize("room", ["memory", "disk"])
def test_queues_that_wait_for_a_budget_all_get_on(room: str) -> None:
    """Each has a consumer of 100/s; the one that is first to fill the budget doesn't keep it for itself."""
    cell = Cell([Rhythm(1e5, 0)] * 4, {}, 400, room=room, budget=30, queues=4, seconds=20)
    outcome = play(cell)
    assert outcome.overshoot == 0
    assert min(outcome.sent) >= 0.9 * 100 * 20, outcome.sent
    assert max(outcome.longest_ms) < 2000


def test_a_run_can_be_repeated() -> None:
    """Whose turn is first depends on what happened, not on where a node lies in memory."""
    cell = Cell([Rhythm(1e5, 0)] * 4, {}, 400, room="disk", budget=30, queues=4, seconds=2)
    first = play(cell)
    elsewhere = [object() for _ in range(10_007)]
    assert play(cell) == first
    del elsewhere


@pytest.mark.parametrize("ended_ms", [100, 1000])
def test_a_link_never_used_keeps_no_other_of_its_connection_waiting(ended_ms: int) -> None:
    """Three that have sent hold what they may need; the fourth sends on, beside one that was never used."""
    before = [Rhythm(1e4, 0, end_ms=ended_ms)] * 3
    cell = Cell([*before, Rhythm(1e4, 0), Rhythm(0, 100)], {}, room="connection", budget=30, queues=5)
    outcome = play(cell)
    assert outcome.longest_ms[3] < 1000
    assert outcome.sent[3] > 20 * 15, outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize("stop", [2, 100])
def test_two_hundred_take_turns_with_few_credits(stop: int, timed: bool) -> None:
    outcome = play(Cell(timers(200, 5, 100, timed), stops(stop), 100, seconds=300))
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.9, outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
def test_links_that_live_shortly_get_their_share(timed: bool) -> None:
    cell = Cell(timers(10, 20, 100, timed), SMALL, 100, seconds=30, churn_ms=2000)
    outcome = play(cell)
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.85, outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize("room", ["memory", "disk"])
def test_a_backlog_leaves_its_neighbour_room_of_a_budget(room: str, timed: bool) -> None:
    """The first queue's producers ask for more than its consumer takes: it doesn't fill the budget."""
    rhythms = [Rhythm(rate, 100, timed) for rate in (150, 80, 20)]
    outcome = play(Cell(rhythms, {}, 100, room=room, budget=100, queues=2, seconds=30))
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.9, (outcome.sent, outcome.share)


@pytest.mark.parametrize("sizes", [(100, 700), (700, 100)], ids=["small first", "large first"])
@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
@pytest.mark.parametrize("room", ["memory", "disk"])
def test_larger_messages_get_room_of_a_budget(room: str, timed: bool, sizes: tuple[int, int]) -> None:
    """What comes free are crumbs of the neighbour's size."""
    rhythms = [Rhythm(1e4, 100 if timed else 0, timed)] * 2
    outcome = play(Cell(rhythms, {}, 100, room=room, budget=100, queues=2, seconds=30, sizes=sizes))
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.85, outcome.sent


@pytest.mark.parametrize("timed", [False, True], ids=["on credit", "on its timer"])
def test_messages_of_a_third_of_a_budget_get_on(timed: bool) -> None:
    """One at a time: at each tick a timer sends the one for which room was kept."""
    rhythms = [Rhythm(1e4, 100 if timed else 0, timed)] * 2
    cell = Cell(rhythms, {}, 100, room="disk", budget=100, queues=2, seconds=30, sizes=(100, 3000))
    outcome = play(cell)
    assert outcome.sent[0] >= 0.9 * 50 * 30, outcome.sent
    assert outcome.sent[1] >= 0.9 * (10 if timed else 50) * 30, outcome.sent


@pytest.mark.parametrize("round_trip_ms", [0.2, 5, 50, 200])
def test_clients_that_hear_late_get_their_share(round_trip_ms: float) -> None:
    outcome = play(Cell(timers(3, 50, 100, True), SMALL, round_trip_ms=round_trip_ms))
    assert outcome.overshoot == 0
    assert outcome.worst >= 0.9, outcome.sent
