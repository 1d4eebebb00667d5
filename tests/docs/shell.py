"""A reader's terminals: one shell for a page's blocks, others for what goes on beside it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.docs.pages import ROOT

BLOCK_S = 60.0
LEAVE_S = 30.0
UNTIL_S = 30.0


class Terminals:
    """Bash in ``folder``, with ``sluice`` and Python of this environment first on the path."""

    def __init__(self, folder: Path, url: str, http: str) -> None:
        self.folder = folder
        self.here, self.there = (url, http), ("127.0.0.1:5672", "127.0.0.1:8672")
        commands = folder.parent / "bin"
        commands.mkdir()
        # The checkout's own, whatever else is installed in this environment.
        (commands / "sluice").write_text(f'#!/bin/sh\nexec {sys.executable} -m broker.cli.main "$@"\n')
        (commands / "sluice").chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SLUICE_BROKER": f"amqp://{url}",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
        }
        self.beside: list[tuple[subprocess.Popen[str], Path, bool]] = []
        self.number = 0
        self.shell = self._bash(["-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, text: str, fails: bool = False) -> str:
        """What the block printed; AssertionError where it failed, or with ``fails`` where it didn't."""
        self.number += 1
        script = self._script(text)
        mark = f"-- end of {script.name}: "
        run = f"( . {script} )" if fails else f". {script}"
        assert self.shell.stdin is not None
        strict = "set -eo pipefail" if not fails else "set +e"
        self.shell.stdin.write(f"{strict}; {run} </dev/null; echo {shlex.quote(mark)}$?\n")
        self.shell.stdin.flush()
        said, status = self._until(mark)
        assert (status != "0") == fails, f"exit status {status}:\n{text}\n{said}"
        return self._as_written(said)

    def begin(self, text: str, endless: bool) -> Path:
        """Run a block in a terminal of its own; what it prints is in the file that is returned."""
        self.number += 1
        out = self.folder.parent / f"beside-{self.number}"
        with out.open("w") as screen:
            process = self._bash(
                ["-eo", "pipefail", str(self._script(text))], stdout=screen, stdin=subprocess.DEVNULL
            )
        self.beside.append((process, out, endless))
        return out

    def until(self, command: str) -> None:
        """Until the command succeeds."""
        deadline = time.monotonic() + UNTIL_S
        while True:
            done = subprocess.run(
                ["bash", "-c", self._rewritten(command)],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=UNTIL_S,
            )
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, f"never true: {command}\n{done.stdout}{done.stderr}"

    def wait(self, told: Callable[[], bool]) -> None:
        """Until a terminal beside has told what it should, or time is up."""
        deadline = time.monotonic() + LEAVE_S
        while not told() and time.monotonic() < deadline:
            time.sleep(0.05)

    def read(self, out: Path) -> str:
        """What a terminal beside has shown so far."""
        # Opened anew each time: a place in the file that both share would be where it writes next.
        return self._as_written(out.read_text(errors="replace"))

    def finish(self) -> list[str]:
        """End what goes on beside the page; what did not end well, as sentences."""
        faults = []
        for process, out, endless in self.beside:
            if endless:
                os.killpg(process.pid, signal.SIGINT)
            try:
                status = process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                status = None
            if status is None or (status != 0 and not endless):
                faults.append(f"{process.args!r} ended with {status}: {self.read(out)}")
        return faults

    def close(self) -> None:
        """Nothing that was begun goes on."""
        for process, _, _ in self.beside:
            _kill(process)
        for pipe in (self.shell.stdin, self.shell.stdout):
            assert pipe is not None
            pipe.close()
        _kill(self.shell)

    def _bash(self, args: list[str], **streams: object) -> subprocess.Popen[str]:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            ["bash", "--noprofile", "--norc", *args],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **streams,
        )

    def _script(self, text: str) -> Path:
        script = self.folder.parent / f"block-{self.number}.sh"
        script.write_text(self._rewritten(text))
        return script

    def _until(self, mark: str) -> tuple[str, str]:
        """What came before the mark, and the status behind it; a shell that hangs is killed."""
        assert self.shell.stdout is not None
        said: list[str] = []
        alarm = _Alarm(self.shell)
        with alarm:
            for line in self.shell.stdout:
                before, found, status = line.partition(mark)
                if found:
                    return "".join([*said, before]), status.strip()
                said.append(line)
        return "".join(said), f"none after {BLOCK_S:g} s" if alarm.rang else str(self.shell.wait())

    def _rewritten(self, text: str) -> str:
        """The default ports may be somebody else's here."""
        for ours, theirs in zip(self.here, self.there, strict=True):
            text = text.replace(theirs, ours)
        return text

    def _as_written(self, text: str) -> str:
        for ours, theirs in zip(self.here, self.there, strict=True):
            text = text.replace(ours, theirs)
        return text


class _Alarm:
    """Kills a process if it isn't told otherwise in time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.rang = False
        self._process = process
        self._timer = threading.Timer(BLOCK_S, self._ring)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def _ring(self) -> None:
        self.rang = True
        _kill(self._process)


def _kill(process: subprocess.Popen[str]) -> None:
    """A shell and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
