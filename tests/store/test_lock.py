"""A data directory is one broker's, until that one is gone with all it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.store.disk import DiskStore, locked
from broker.store.faults import StoreInUse

# A broker that was killed while the child, by which it looks at its directory first, was at work.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from broker.store.disk import locked
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
