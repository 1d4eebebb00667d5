"""A program that runs until it is stopped, and the lines it has printed so far."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path


class Running:
    """A program and what it has printed so far."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def tail(self) -> str:
        """The last lines it printed."""
        return "\n".join(self.lines[-20:])

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def end_input(self) -> None:
        """Let it read the end of its standard input, which is open until then."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop(self) -> None:
        """End it and close what it wrote to; nothing the second time."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.end_input()
        assert self.process.stdout is not None
        self.process.stdout.close()
