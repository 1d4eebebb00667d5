"""The lock of a data directory: one broker has it, or one command, until that process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from broker.store.faults import StoreInUse

LOCK = "lock"
# How long the child of a broker that was killed may take to go, too.
ORPHAN_SECONDS = 10.0


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Have a directory alone for a while; StoreInUse while a broker has it."""
    fd = lock(path)
    try:
        yield
    finally:
        os.close(fd)


def lock(path: Path) -> int:
    """Have a directory alone until the returned descriptor is closed or the process is gone. StoreInUse.

    A broker that was killed may leave the child by which it looked at its directory: that is waited for, up
    to ``ORPHAN_SECONDS``.
    """
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            if not _is_gone(owner) or time.monotonic() > deadline:
                os.close(fd)
                text = f"the data directory {path} is in use by another broker (process {owner})"
                raise StoreInUse(text) from None
        time.sleep(0.01)
    # Where the disk is full the room of the last broker's number will do.
    os.ftruncate(fd, os.pwrite(fd, str(os.getpid()).encode(), 0))
    return fd


def _is_gone(owner: str) -> bool:
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False
