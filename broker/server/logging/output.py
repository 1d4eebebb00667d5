"""Where lines go: standard error, within the bound for peers, in the format that is set."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

from broker.loggers import JSON, LEVELS, ROOT, TEXT, TRACE
from broker.server.logging.bound import WINDOW_S, Bound, host_of
from broker.server.logging.descriptor import Descriptor
from broker.server.logging.formats import JsonFormatter, TextFormatter, fields_of

FORMATS = {TEXT: TextFormatter, JSON: JsonFormatter}


class Output(logging.Handler):
    """Writes lines; those about peers as far as the bound admits them.

    ``write`` takes a line with its end and says whether it is written. ``lines_total`` counts those that
    were, by level; ``left_out_total`` what is in no log: beyond the bound, or there was nobody to read it.
    """

    def __init__(
        self, write: Callable[[str], bool], format_: str, lines_per_peer: int, cell: int | None = None
    ) -> None:
        super().__init__()
        self.bound = Bound(lines_per_peer)
        self.lines_total = dict.fromkeys(LEVELS, 0)
        self._write_line = write
        self._unread = self._unread_total = 0
        self._cell = cell
        self.setFormatter(FORMATS[format_](cell))

    @property
    def left_out_total(self) -> int:
        return self.bound.left_out_total + self._unread_total

    def emit(self, record: logging.LogRecord) -> None:
        """One line, and before it what was left out, if its time has come."""
        self.tell_left_out()
        peer = fields_of(record).get("peer")
        if record.name != TRACE and isinstance(peer, str) and not self.bound.admits(host_of(peer)):
            return
        try:
            self._write(record)
        except Exception:  # noqa: BLE001 - what goes wrong with a line is told where logging tells it
            self.handleError(record)

    def tell_left_out(self) -> None:
        """Say what was left out of the last window, once it is over; ``sweep`` is for other callers."""
        if self._unread and self._put(_warning(f"{self._unread} lines were left out: nobody read them")):
            self._unread = 0
        for text in self.bound.turn(time.monotonic()):
            self._write(_warning(f"{text} within {WINDOW_S:g} s"))

    def sweep(self) -> None:
        """The same where no line comes; call it now and then."""
        self.acquire()
        try:
            self.tell_left_out()
        finally:
            self.release()

    def reconfigure(self, format_: str, lines_per_peer: int) -> None:
        """From the next line on."""
        self.setFormatter(FORMATS[format_](self._cell))
        self.bound.lines = lines_per_peer

    def _write(self, record: logging.LogRecord) -> None:
        # Nothing is written behind what is missing before that has been told.
        if self._unread or not self._put(record):
            self._unread += 1
            self._unread_total += 1

    def _put(self, record: logging.LogRecord) -> bool:
        if not self._write_line(f"{self.format(record)}\n"):
            return False
        level = record.levelname.lower()
        self.lines_total[level] = self.lines_total.get(level, 0) + 1
        return True


def _warning(text: str) -> logging.LogRecord:
    return logging.LogRecord(ROOT, logging.WARNING, "", 0, text, None, None)


def begin(format_: str, lines_per_peer: int, cell: int | None = None) -> Output:
    """Everything this process logs goes to standard error from now on; ``cell``: its number among several."""
    output = Output(Descriptor(sys.stderr.fileno()).write, format_, lines_per_peer, cell)
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(output)
    return output
