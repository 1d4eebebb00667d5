"""Long answers: worked out one after the other on a thread, handed over on the loop's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from broker.amqp.loop.inbox import Inbox
from broker.amqp.loop.later import MOST_WAITING, AskLoop, LongAnswers

PATIENCE_S = 10.0


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    found = Inbox()
    yield found
    found.close()


def until(inbox: Inbox, condition: Callable[[], bool]) -> None:
    """Run the inbox as the loop does, until something is true."""
    rung = threading.Event()
    for _ in range(10_000):
        if condition():
            return
        inbox.run()
        rung.wait(PATIENCE_S / 10_000)
    raise AssertionError("it did not come")


def test_answers_come_in_their_order_on_the_loops_thread(inbox: Inbox) -> None:
    got: list[tuple[bytes, str]] = []
    answers = LongAnswers(inbox.post, lambda _: None)
    for number in range(3):
        done = lambda reply: got.append((reply, threading.current_thread().name))  # noqa: E731
        assert answers.submit(lambda ask, number=number: b"%d" % number, done)  # type: ignore[misc]
    until(inbox, lambda: len(got) == 3)
    here = threading.current_thread().name
    assert got == [(b"0", here), (b"1", here), (b"2", here)]


def test_a_question_is_answered_by_the_loop(inbox: Inbox) -> None:
    got: list[bytes] = []

    def steps() -> Iterator[None]:
        yield
        asked.append(threading.current_thread())

    asked: list[threading.Thread] = []

    def work(ask: AskLoop) -> bytes:
        ask(lambda: steps())  # type: ignore[arg-type,return-value]
        return b"worked out"

    LongAnswers(inbox.post, lambda _: None).submit(work, got.append)
    until(inbox, lambda: bool(got))
    assert got == [b"worked out"]
    assert asked == [threading.current_thread()]


def test_a_failure_is_logged_and_the_next_is_answered(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    got: list[bytes] = []
    answers = LongAnswers(inbox.post, lambda _: None)
    answers.submit(lambda ask: [b""][1], got.append)
    answers.submit(lambda ask: b"next", got.append)
    until(inbox, lambda: bool(got))
    assert got == [b"next"]
    assert "could not be answered" in caplog.text


def test_too_many_are_turned_away(inbox: Inbox) -> None:
    got: list[bytes] = []
    go = threading.Event()

    def waits(ask: AskLoop) -> bytes:
        go.wait(PATIENCE_S)
        return b""

    answers = LongAnswers(inbox.post, lambda _: None)
    taken = [answers.submit(waits, got.append) for _ in range(MOST_WAITING + 2)]
    assert not taken[-1]
    go.set()
    until(inbox, lambda: len(got) == sum(taken))
