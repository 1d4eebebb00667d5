"""Brokers forked from a process that has loaded their modules: imports are most of what a start costs.

Each is a process of its own as any other, with its own settings, environment, folder and standard error.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

# All that `sluice serve` loads, and its HTTP port with the API.
MODULES = ("tests.wire.forked", "broker.cli.verbs.serve", "broker.server.server", "broker.http.server.loop")
API = "broker.http.api.application"

# A start fills two files of the journal, which of 32 MB each costs more than the rest of it.
JOURNAL_FILE_BYTES = 4 << 20


def is_wanted(env: Mapping[str, str]) -> bool:
    """Whether a broker with these variables beside ours may be forked: in tests, for benchmarks measure its
    memory, and where no library has to be loaded before all others.
    """
    return "PYTEST_CURRENT_TEST" in os.environ and not {"LD_PRELOAD", "PYTHONMALLOC"} & {*os.environ, *env}


def started(words: Sequence[str], env: Mapping[str, str], stderr: int) -> ForkedProcess:
    """Start `sluice WORDS` with its standard error at a file descriptor, which the caller closes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*MODULES, API])
    given = [*words], {**os.environ, **env}, Path.cwd(), DupFd(stderr)
    process = context.Process(target=_run, args=given, daemon=True)
    process.start()
    return ForkedProcess(process)


class ForkedProcess:
    """As much of ``subprocess.Popen`` as tests need."""

    def __init__(self, process: multiprocessing.process.BaseProcess) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self.returncode: int | None = None
        self._process = process
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, -N after signal N; None while it runs."""
        with self._lock:
            if self.returncode is None and wait([self._process.sentinel], 0):
                self._process.join()
                self.returncode = self._process.exitcode
                self._process.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; subprocess.TimeoutExpired after so many seconds."""
        if self.returncode is None:
            with suppress(ValueError, OSError):  # another thread has seen its end
                wait([self._process.sentinel], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("sluice serve", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal; one that has ended doesn't get it."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(words: list[str], env: dict[str, str], folder: Path, stderr: Any) -> None:
    """Be `sluice WORDS`. Its journal's files are small where its settings don't say how large."""
    # A collection would write to, and so copy, every page with objects that were there before the fork.
    gc.freeze()
    os.dup2(stderr.detach(), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    from broker.cli.main import main
    from broker.store import disk

    disk.LARGEST_FILE = JOURNAL_FILE_BYTES
    sys.argv = ["sluice", *words]
    sys.exit(main(words))
