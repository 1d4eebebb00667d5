"""The line between a cell and its supervisor: a socket pair, and an object of JSON a line each way."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from broker.errors import OperatorError

log = logging.getLogger("sluice.cells")

# How long a cell waits for an answer of its supervisor, which only writes small files.
ANSWER_S = 30.0
READ_BYTES = 1 << 16

Line = dict[str, Any]


class SilentError(Exception):
    """The supervisor doesn't answer: nobody knows what it has decided."""


class ControlLine:
    """The supervisor's end: nothing here waits. ``read`` gives the lines that came, ``send`` writes one."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = b""
        self._unsent = b""

    @property
    def is_full(self) -> bool:
        """Whether some of what was sent waits for the cell to read."""
        return bool(self._unsent)

    def read(self) -> list[Line] | None:
        """Return the lines that have come; None once the cell has closed its end."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(each) for each in lines]

    def send(self, line: Mapping[str, object]) -> None:
        """Send a line, now or when there is room."""
        self._unsent += json.dumps(line).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as there is room."""
        with suppress(OSError):
            while self._unsent:
                self._unsent = self._unsent[self.sock.send(self._unsent) :]

    def close(self) -> None:
        """Close the supervisor's end."""
        self.sock.close()


class CellControl:
    """A cell's end. ``on_line`` is called on a thread of its own with each line that answers nothing."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        self._lock = threading.Lock()
        self._answers: dict[int, tuple[threading.Event, Line]] = {}
        self._asked = 0
        self._received = b""
        self.on_line: Callable[[Line], None] = lambda line: None

    def start(self) -> None:
        """Hear the supervisor from now on."""
        threading.Thread(target=self._run, name="control", daemon=True).start()

    def tell(self, line: Mapping[str, object]) -> None:
        """Tell the supervisor something that has no answer."""
        with self._lock, suppress(OSError):
            self._sock.sendall(json.dumps(line).encode() + b"\n")

    def ask(self, line: Mapping[str, object]) -> Line:
        """Return the supervisor's answer, on any thread but that of ``on_line``. Raises SilentError."""
        answered, answer = threading.Event(), Line()
        with self._lock:
            self._asked += 1
            number = self._asked
            self._answers[number] = answered, answer
            with suppress(OSError):
                self._sock.sendall(json.dumps({**line, "id": number}).encode() + b"\n")
        if not answered.wait(ANSWER_S):
            raise SilentError("the supervisor doesn't answer")
        return answer

    def read(self) -> Line | None:
        """Wait for the next line and return it; None at the end. For one thread at a time."""
        while b"\n" not in self._received:
            try:
                data = self._sock.recv(READ_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        found: Line = json.loads(line)
        return found

    def ask_now(self, line: Mapping[str, object]) -> Line:
        """Return the supervisor's answer, before ``start``; other lines that come meanwhile are dropped.

        OperatorError where it is gone.
        """
        self.tell({**line, "id": 0})
        while (found := self.read()) is not None:
            if found.get("answer") == 0:
                return found
        raise OperatorError("the supervisor is gone")

    def _run(self) -> None:
        while (line := self.read()) is not None:
            waiting = self._answers.pop(line["answer"], None) if "answer" in line else None
            if waiting is not None:
                answered, answer = waiting
                answer.update(line)
                answered.set()
            elif "answer" not in line:
                try:
                    self.on_line(line)
                except Exception:
                    log.exception("what the supervisor has said can't be done: %s", line)
