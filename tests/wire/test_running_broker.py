"""The brokers that tests start, where they don't start."""

from __future__ import annotations

import gc
import signal
import subprocess
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from tests.wire import forked
from tests.wire.conftest import RunningBroker, StartBroker

pytestmark = pytest.mark.wire


def descriptors() -> set[tuple[str, str]]:
    """Each with the file it leads to, but for the folder's own that is read here."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add((each.name, str(each.readlink())))
    return found


def test_a_broker_that_does_not_start_leaves_nothing_open(tmp_path: Path) -> None:
    """What stays open is warned of when it is collected: in another test, which fails.

    One is started before, for the process that brokers are forked from stays.
    """
    with pytest.raises(RuntimeError):
        RunningBroker(tmp_path / "first", "nonsense: 1\n", "", ())
    gc.collect()
    before = descriptors()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="unknown key 'nonsense'"):
            RunningBroker(tmp_path / "refused", "nonsense: 1\n", "", ())
        gc.collect()
    assert [str(each.message) for each in warned] == []
    assert descriptors() - before == set()


def test_a_broker_is_a_process_of_its_own_that_ends_as_one(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_LOG_FORMAT", "json")
    broker = start_broker()
    assert Path(f"/proc/{broker.pid}/cwd").resolve() == Path.cwd()
    assert all(line.startswith("{") for line in broker.lines)
    with pytest.raises(subprocess.TimeoutExpired):
        broker.process.wait(0)
    broker.process.kill()
    assert broker.process.wait(30) == -signal.SIGKILL
    assert broker.process.poll() == -signal.SIGKILL
    broker.process.terminate()


def test_a_broker_with_a_library_before_all_others_is_started_anew() -> None:
    assert forked.is_wanted({})
    assert not forked.is_wanted({"LD_PRELOAD": "shim.so"})
