"""Attacks in a process of their own, which the system serves like every other.

``python -m bench.attacks.attacker PORT`` reads lines ``SECONDS NAME`` from stdin and says ``begun`` and
``done`` around each attack.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.attacks.catalogue import ATTACKS, Attack
from bench.attacks.companion import end_with_parent
from bench.attacks.guarded import GUARDED_ATTACKS
from bench.attacks.web import WEB_ATTACKS

EVERY: Mapping[str, Attack] = {**ATTACKS, **GUARDED_ATTACKS, **WEB_ATTACKS}


class Attacker:
    """A process that attacks one broker; ``close`` ends it, whatever it is doing."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.attacks.attacker", str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid

    def begin(self, name: str, seconds: float) -> None:
        """The attack has begun."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds} {name}\n")
        self._await("begun")

    def await_done(self) -> None:
        """Until its time is over."""
        self._await("done")

    def close(self) -> None:
        """No more attacks."""
        self._process.kill()
        self._process.communicate()

    def _await(self, word: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != f"{word}\n":
            raise RuntimeError(f"the attacker said {said!r} instead of {word!r}")


@contextmanager
def attacking(name: str, port: int, seconds: float) -> Iterator[int]:
    """The attack goes on while the block runs, but not longer than so many seconds; yields its process."""
    attacker = Attacker(port)
    try:
        attacker.begin(name, seconds)
        yield attacker.pid
    finally:
        attacker.close()


def main() -> None:
    """Attacks as it is told."""
    end_with_parent()
    for line in sys.stdin:
        seconds, _, name = line.strip().partition(" ")
        print("begun", flush=True)
        EVERY[name](int(sys.argv[1]), time.monotonic() + float(seconds))
        print("done", flush=True)


if __name__ == "__main__":
    main()
