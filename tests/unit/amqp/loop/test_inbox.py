"""Functions posted from other threads: run in their order, each once, a failure alone."""

from __future__ import annotations

import os
import select
import threading

import pytest

from broker.amqp.loop.inbox import Inbox


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def rings(inbox: Inbox) -> bool:
    poll = select.poll()
    poll.register(inbox.bell, select.POLLIN)
    return bool(poll.poll(0))


def test_the_bell_rings_until_it_is_silenced(inbox: Inbox) -> None:
    assert not rings(inbox)
    thread = threading.Thread(target=lambda: inbox.post(lambda: None))
    thread.start()
    thread.join()
    assert rings(inbox)
    inbox.silence()
    assert not rings(inbox)
    inbox.close()


def test_a_function_that_is_posted_meanwhile_has_the_next_turn(inbox: Inbox) -> None:
    done: list[str] = []

    def first() -> None:
        done.append("first")
        inbox.post(lambda: done.append("third"))

    inbox.post(first)
    inbox.post(lambda: done.append("second"))
    inbox.run()
    assert done == ["first", "second"]
    inbox.run()
    assert done == ["first", "second", "third"]
    inbox.close()


def test_a_failure_is_logged_and_the_others_are_run(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    inbox.post(lambda: [][0])
    inbox.post(lambda: done.append("second"))
    inbox.run()
    assert done == ["second"]
    assert "a posted task failed" in caplog.text
    inbox.close()


def test_the_loop_may_end_while_a_function_is_posted(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the function between the two steps of posting it, and the function ends the loop."""
    ring = os.eventfd_write

    def late(bell: int, value: int) -> None:
        inbox.run()
        ring(inbox.bell, value)

    monkeypatch.setattr(os, "eventfd_write", late)
    inbox.post(inbox.close)
    assert inbox.bell < 0


def test_nothing_is_taken_behind_the_end(inbox: Inbox) -> None:
    inbox.close()
    inbox.post(lambda: None)
    assert not inbox.waiting
