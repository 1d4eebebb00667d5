"""A data directory is one broker's, until that one is gone with all it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.store.check import check
from broker.store.disk import DiskStore
from broker.store.faults import StoreInUse
from broker.store.lock import LOCK, locked

# A broker that was killed while the child, by which it looks at its directory first, was at work.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from broker.store.lock import locked
with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(float(sys.argv[2]))
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_a_child(path: Path, seconds: float) -> None:
    command = [sys.executable, "-c", KILLED, str(path), str(seconds)]
    done = subprocess.run(command, check=False, timeout=60, stdout=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL


def test_a_child_of_a_killed_broker_is_waited_for(tmp_path: Path) -> None:
    leave_a_child(tmp_path, 0.5)
    with locked(tmp_path):
        pass


def test_a_child_that_stays_is_not_waited_for_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_child(tmp_path, 3)
    monkeypatch.setattr("broker.store.lock.ORPHAN_SECONDS", 0.05)
    with pytest.raises(StoreInUse, match="in use by another broker"), locked(tmp_path):
        pass


@pytest.mark.parametrize("owner", [b"", b"no number", b"9" * 30])
def test_a_lock_that_somebody_holds_without_a_number_is_not_waited_for(tmp_path: Path, owner: bytes) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).write_bytes(owner)
        said = owner.decode() or "unknown"
        with pytest.raises(StoreInUse, match=rf"\(process {said}\)"), locked(tmp_path):
            pass


def test_the_lock_names_the_process_that_has_it(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(b"1" * 30)
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_bytes() == b"%d" % os.getpid()
    with locked(tmp_path):
        pass


def test_two_stores_on_one_directory(tmp_path: Path) -> None:
    store = DiskStore.open(tmp_path)
    with pytest.raises(StoreInUse, match="in use by another broker"):
        DiskStore.open(tmp_path)
    with pytest.raises(StoreInUse):
        check(tmp_path)
    store.close()


def test_a_broker_that_lives_is_not_waited_for(tmp_path: Path) -> None:
    with locked(tmp_path):
        begun = time.monotonic()
        with pytest.raises(StoreInUse, match=f"process {os.getpid()}"), locked(tmp_path):
            pass
        assert time.monotonic() - begun < 2


def test_the_child_that_looks_ends_with_its_broker(tmp_path: Path) -> None:
    """However large the directory is that it reads."""
    DiskStore.open(tmp_path).close()
    command = """
import sys, time
from pathlib import Path
from broker.store import directory
from broker.store.disk import DiskStore
def slowly(*_):
    print("looking", flush=True)
    time.sleep(60)
directory._read_all = slowly
DiskStore.open(Path(sys.argv[1]))
"""
    with subprocess.Popen([sys.executable, "-c", command, str(tmp_path)], stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"looking\n"
        begun = time.monotonic()
        broker.kill()
        # The pipe is the child's, too.
        assert broker.stdout.read() == b""
        assert time.monotonic() - begun < 30
    DiskStore.open(tmp_path).close()
