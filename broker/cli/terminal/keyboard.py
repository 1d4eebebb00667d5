"""Keys as they are pressed, not line by line; the terminal is as before afterwards."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

# What terminals send for keys that are no characters.
NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1bOH": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\x1bOF": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x04": "end of input",
}
MOST = 64  # bytes read at once


class Keyboard:
    """A context manager around standard input, which must be a terminal. Ctrl-C still interrupts."""

    def __enter__(self) -> Keyboard:
        self._fd = sys.stdin.fileno()
        self._before: list[Any] = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def keys(self, seconds: float) -> list[str]:
        """The keys pressed since the last time, waiting this long for the first. A terminal that is gone
        presses `end of input`."""
        ready, _, _ = select.select([self._fd], [], [], max(seconds, 0.0))
        if not ready:
            return []
        data = os.read(self._fd, MOST)
        return named(data.decode(errors="replace")) if data else ["end of input"]


def named(text: str) -> list[str]:
    """The keys a terminal sent: characters as they are, others by name, unknown sequences left out."""
    keys: list[str] = []
    while text:
        known = max((each for each in NAMES if text.startswith(each)), key=len, default=text[0])
        if known == "\x1b" and len(text) > 1 and text[1] in "[O":
            text = _after_sequence(text)
            continue
        if known in NAMES or known.isprintable():
            keys.append(NAMES.get(known, known))
        text = text[len(known) :]
    return keys


def _after_sequence(text: str) -> str:
    """What follows a sequence nobody knows: it ends with a letter or a tilde (ECMA-48 §5.4)."""
    for at, character in enumerate(text[2:], 3):
        if "@" <= character <= "~":
            return text[at:]
    return ""
