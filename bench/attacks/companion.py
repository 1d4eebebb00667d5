"""A process that runs beside the pair in some slices of time and is held in the others."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """The calling process is killed when the one that began it is gone, even while it is held."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Companion:
    """Holds and lets go of one process of ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def go(self) -> None:
        """It runs."""
        os.kill(self.pid, signal.SIGCONT)

    def hold(self) -> None:
        """It doesn't."""
        os.kill(self.pid, signal.SIGSTOP)

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs while the block does."""
        self.go()
        try:
            yield
        finally:
            self.hold()


class Burner(Companion):
    """Takes a share of one processor, for nothing; ``share`` says which from now on."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.attacks.burner"], stdin=subprocess.PIPE
        )
        super().__init__(self._process.pid)
        self.hold()

    def share(self, share: float) -> None:
        """Heard when it runs."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{share:.4f}\n".encode())
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
