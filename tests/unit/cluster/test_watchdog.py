"""Signs of life during a step without turns."""

from __future__ import annotations

import threading

import pytest

from broker.cluster.watchdog import telling


class SignsOfLife:
    """Counts what it is told; ``wait`` waits for so many."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, 30)


def test_a_step_is_told_of_until_it_ends() -> None:
    signs = SignsOfLife()
    with telling(signs, every_s=0.01):
        signs.wait(5)
    count = signs.count
    assert "sluice-watchdog" not in {each.name for each in threading.enumerate()}
    assert signs.count == count


def test_a_step_that_fails_is_told_of_no_more() -> None:
    signs = SignsOfLife()

    def fails() -> None:
        with telling(signs, every_s=0.01):
            signs.wait(1)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert "sluice-watchdog" not in {each.name for each in threading.enumerate()}


def test_a_step_that_hangs_is_told_of_for_so_long_only() -> None:
    signs = SignsOfLife()
    with telling(signs, most_s=0.1, every_s=0.01):
        [thread] = [each for each in threading.enumerate() if each.name == "sluice-watchdog"]
        thread.join(30)
        assert not thread.is_alive()
    assert signs.count >= 1
