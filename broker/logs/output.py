"""Where lines go: standard error, within the bound for peers, in the format that is set."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from broker.loggers import JSON, LEVELS, ROOT, TEXT, TRACE
from broker.logs.bound import WINDOW_S, Bound, host_of
from broker.logs.formats import JsonFormatter, TextFormatter, fields_of

FORMATS = {TEXT: TextFormatter, JSON: JsonFormatter}


class Output(logging.StreamHandler[TextIO]):
    """Writes lines; those about peers as far as the bound admits them.

    ``lines_total`` counts what was written, by level.
    """

    def __init__(self, stream: TextIO, format_: str, lines_per_peer: int) -> None:
        super().__init__(stream)
        self.bound = Bound(lines_per_peer)
        self.lines_total = dict.fromkeys(LEVELS, 0)
        self.setFormatter(FORMATS[format_]())

    def emit(self, record: logging.LogRecord) -> None:
        """One line, and before it what was left out, if its time has come."""
        self.tell_left_out()
        peer = fields_of(record).get("peer")
        if record.name != TRACE and isinstance(peer, str) and not self.bound.admits(host_of(peer)):
            return
        self._write(record)

    def tell_left_out(self) -> None:
        """Say what was left out of the last window, once it is over; ``sweep`` is for other callers."""
        for text in self.bound.turn(time.monotonic()):
            said = f"{text} within {WINDOW_S:g} s"
            self._write(logging.LogRecord(ROOT, logging.WARNING, "", 0, said, None, None))

    def sweep(self) -> None:
        """The same where no line comes; call it now and then."""
        self.acquire()
        try:
            self.tell_left_out()
        finally:
            self.release()

    def reconfigure(self, format_: str, lines_per_peer: int) -> None:
        """From the next line on."""
        self.setFormatter(FORMATS[format_]())
        self.bound.lines = lines_per_peer

    def _write(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        self.lines_total[level] = self.lines_total.get(level, 0) + 1
        super().emit(record)


def begin(format_: str, lines_per_peer: int) -> Output:
    """Everything this process logs goes to standard error from now on."""
    output = Output(sys.stderr, format_, lines_per_peer)
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(output)
    return output
