"""Brokers and commands forked from a process that has loaded their modules: imports are most of a start.

Each is a process of its own as any other, with its own settings, environment, folder and standard streams.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
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
    return _started(_run, [*words], {**os.environ, **env}, Path.cwd(), DupFd(stderr))


def run_sluice(
    *words: str,
    env: Mapping[str, str] | None = None,
    given: str = "",
    timeout: float = 60,
    warnings_are_errors: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `sluice WORDS` to its end, with variables beside ours and ``given`` on its standard input.

    Raises subprocess.TimeoutExpired after ``timeout`` seconds; it is killed then.
    """
    with ExitStack() as opened:
        streams = [opened.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(given.encode())
        streams[0].seek(0)
        handed = [DupFd(each.fileno()) for each in streams]
        told = {**os.environ, **(env or {})}
        process = _started(_command, [*words], told, Path.cwd(), handed, warnings_are_errors)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        said = []
        for each in streams[1:]:
            each.seek(0)
            said.append(each.read().decode())
    return subprocess.CompletedProcess(["sluice", *words], status, *said)


def _started(run: Callable[..., None], *given: Any) -> ForkedProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*MODULES, API])
    process = context.Process(target=run, args=given, daemon=True)
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
    from broker.store import files

    os.dup2(stderr.detach(), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    files.LARGEST_BYTES = JOURNAL_FILE_BYTES
    _be(words, env, folder)


def _command(
    words: list[str], env: dict[str, str], folder: Path, streams: list[Any], warnings_are_errors: bool
) -> None:
    """Be `sluice WORDS` with standard streams."""
    for number, each in enumerate(streams):
        os.dup2(each.detach(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    if warnings_are_errors:
        warnings.simplefilter("error")
    _be(words, env, folder)


def _be(words: list[str], env: dict[str, str], folder: Path) -> None:
    # A collection would write to, and so copy, every page with objects that were there before the fork.
    gc.freeze()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    from broker.cli.main import main

    sys.argv = ["sluice", *words]
    sys.exit(main(words))
