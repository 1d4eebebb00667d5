"""What is to happen at a time: its order, what is dropped, and what is kept of that."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp.loop.timers import FEW, NEVER_NS, Timers


def noting(seen: list[str], name: str) -> Callable[[int], None]:
    return lambda now_ns: seen.append(f"{name} at {now_ns}")


def test_in_the_order_of_times_and_then_of_being_asked_for() -> None:
    timers, seen = Timers(), list[str]()
    assert timers.first_ns == NEVER_NS
    for name, when_ns in (("b", 20), ("a", 10), ("c", 20), ("d", 30)):
        timers.at(when_ns, noting(seen, name))
    assert timers.first_ns == 10
    timers.run(9)
    assert seen == []
    timers.run(25)
    assert seen == ["a at 25", "b at 25", "c at 25"]
    assert timers.first_ns == 30


def test_what_one_asks_for_that_is_due_is_called_in_the_same_run() -> None:
    timers, seen = Timers(), list[str]()
    timers.at(
        10, lambda now_ns: (noting(seen, "one")(now_ns), timers.at(now_ns, noting(seen, "two")), None)[2]
    )
    timers.run(10)
    assert seen == ["one at 10", "two at 10"]
    assert timers.first_ns == NEVER_NS


def test_a_failure_ends_its_own_alone(caplog: pytest.LogCaptureFixture) -> None:
    timers, seen = Timers(), list[str]()

    def fails(_: int) -> None:
        raise ZeroDivisionError

    timers.at(10, fails)
    timers.at(10, noting(seen, "next"))
    timers.run(10)
    assert seen == ["next at 10"]
    assert "a timer failed" in caplog.text


def test_what_is_dropped_is_let_go_of_at_once() -> None:
    class Held:
        def look(self, now_ns: int) -> None:
            raise AssertionError

    timers, held = Timers(), Held()
    gone = weakref.ref(held)
    timer = timers.at(10, held.look)
    gc.disable()
    try:
        del held
        timers.drop(timer)
        assert gone() is None
    finally:
        gc.enable()
    timers.drop(timer)
    timers.run(10)


def test_half_of_all_places_are_the_most_that_dropped_ones_take() -> None:
    timers, seen = Timers(), list[str]()
    kept = timers.at(5, noting(seen, "kept"))
    for number in range(100 * FEW):
        timers.drop(timers.at(100 + number, noting(seen, "dropped")))
        assert len(timers) <= 2 * FEW
    assert timers.first_ns == 5
    timers.run(10)
    assert seen == ["kept at 10"]
    timers.drop(kept)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60),
    st.lists(st.integers(0, 50), max_size=5).map(sorted),
)
def test_whatever_is_dropped_the_others_are_called_once_and_in_time(
    asked: list[tuple[int, bool]], looks: list[int]
) -> None:
    timers = Timers()
    called: list[int] = []

    def calling(number: int) -> Callable[[int], None]:
        return lambda _: called.append(number)

    asked_for = [timers.at(when, calling(number)) for number, (when, _) in enumerate(asked)]
    for timer, (_, dropped) in zip(asked_for, asked, strict=True):
        if dropped:
            timers.drop(timer)
    for now in looks:
        timers.run(now)
        due = [n for n, (when, dropped) in enumerate(asked) if not dropped and when <= now]
        assert sorted(called) == due
    timers.run(50)
    assert called == sorted(
        (n for n, (_, dropped) in enumerate(asked) if not dropped), key=lambda n: (asked[n][0], n)
    )
