"""Has a move between cells wait at a step that a test names, so that the test can kill somebody meanwhile.

``waiting_at`` has the cells of a broker that starts within it load this module before all else, by a file
``sitecustomize.py`` in their path. A step is before or after a call that a move's own threads make.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

STEP = "SLUICE_TESTS_MOVE_STEP"
WAIT_S = 2.0


class Call(NamedTuple):
    """The so manieth call of an attribute of ``broker.server.cells.moves`` (or of one of its attributes)."""

    place: str
    number: int
    before: bool
    is_meant: Callable[..., bool] = lambda *_: True


def _commits(_control: object, line: dict[str, object]) -> bool:
    return line["do"] == "commit"


# Steps of the cell that gives a queue away, and of the one that gets it.
GIVING = {
    "copying": Call("parcels.written_messages", 2, before=True),
    "copied": Call("_check", 2, before=False),
    "noted": Call("CellControl.ask", 1, True, _commits),
    "decided": Call("CellControl.ask", 1, False, _commits),
}
GETTING = {
    "receiving": Call("parcels.head_of", 2, before=True),
    "received": Call("CellMoves._receive_all", 1, before=False),
    "staged": Call("_answer", 2, before=True),
}


@contextmanager
def waiting_at(step: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the first move of each cell wait at a step, and say `waiting at STEP` in its log."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("from tests.wire import move_steps\nmove_steps.install()\n")
    root = str(Path(__file__).parents[2])
    with monkeypatch.context() as patch:
        patch.setenv(STEP, step)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), root, os.environ.get("PYTHONPATH", "")]))
        yield


def install() -> None:
    """Have this process wait at the step that its environment names."""
    from broker.server.cells import moves
    from broker.server.cells.place import VARIABLE

    if VARIABLE not in os.environ:
        return
    step = os.environ[STEP]
    call = {**GIVING, **GETTING}[step]
    *path, name = call.place.split(".")
    owner: Any = functools.reduce(getattr, path, moves)
    setattr(owner, name, _waiting(getattr(owner, name), call, step))


def _waiting(function: Callable[..., Any], call: Call, step: str) -> Callable[..., Any]:
    calls = 0

    @functools.wraps(function)
    def wrapped(*given: Any) -> Any:
        nonlocal calls
        calls += call.is_meant(*given)
        is_it = calls == call.number and call.is_meant(*given)
        if is_it and call.before:
            _wait(step)
        answer = function(*given)
        if is_it and not call.before:
            _wait(step)
        return answer

    return wrapped


def _wait(step: str) -> None:
    logging.getLogger("sluice.cells").error("waiting at %s", step)
    time.sleep(WAIT_S)
