"""Output that can't be written, for the reader has gone or there is no room: no traceback, a line at most."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLI = (sys.executable, "-m", "broker.cli.main")
VERBS = (("schema",), ("--help",), ("--version",))
NO_ROOM = "No space left on device"


def run(*words: str, into: int, buffered: bool) -> tuple[int, str]:
    """The exit status, and what is said on standard error."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    if not buffered:
        env["PYTHONUNBUFFERED"] = "1"
    done = subprocess.run(
        [*CLI, *words], stdout=into, stderr=subprocess.PIPE, text=True, env=env, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_reader_that_has_gone(words: tuple[str, ...], buffered: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run(*words, into=writing, buffered=buffered) == (1, "")
    finally:
        os.close(writing)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("words", [("schema",), ("--help",)], ids=" ".join)
def test_no_room(words: tuple[str, ...], buffered: bool) -> None:
    with Path("/dev/full").open("wb") as full:
        found = run(*words, into=full.fileno(), buffered=buffered)
    assert found == (1, f"sluice {words[0]}: {NO_ROOM}\n")
