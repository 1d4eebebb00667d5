"""Why a store has no room, and what is logged of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.store.shortage import Shortage


def test_a_store_with_room_has_no_reason() -> None:
    assert Shortage(Path("data")).judge(0) == ""


@pytest.mark.parametrize("what", ["file", "checkpoint", "reserve", "streams"])
def test_each_reason_is_one_until_it_is_gone(what: str) -> None:
    shortage = Shortage(Path("data"))
    setattr(shortage, what, f"no room for a {what}")
    assert shortage.judge(0) == f"no room for a {what}"
    setattr(shortage, what, "")
    assert shortage.judge(0) == ""


def test_a_write_that_waits_for_room_is_the_first_reason() -> None:
    shortage = Shortage(Path("data"))
    shortage.file = "no room for a file"
    assert shortage.judge(errno.EDQUOT) == os.strerror(errno.EDQUOT)


def test_it_is_logged_when_room_runs_out_and_when_there_is_some_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shortage = Shortage(Path("data"))
    shortage.judge(0)
    assert caplog.messages == []
    shortage.reserve = "disk full"
    shortage.judge(0)
    # Another reason is not another shortage.
    shortage.judge(errno.ENOSPC)
    assert caplog.messages == ["data: no room: disk full; durable nodes grant no credit until there is"]
    shortage.reserve = ""
    caplog.clear()
    shortage.judge(0)
    shortage.judge(0)
    assert caplog.messages == ["data: there is room again"]
