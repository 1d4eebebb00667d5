"""Print the files that a message, and a grant of credit, pass in the broker: ``python -m tests.docs.walks``.

A real broker serves a client of Proton in this process, built so that Python's profiler sees the calls of
compiled modules too (``tests.builds``). Noted are the broker's files in which a function begins on the
reactor's thread, in the order of their first one. Only what each of some times has passed counts: all else
was due at its time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from broker.config.broker import load_settings
from broker.server.server import Server

STOP = 10
POLICIES = f"""policies:
- match: credit
  flow_stop_count: {STOP}
  flow_resume_count: {STOP // 2}
"""
TIMES = 5
# The last frames of both sides have come by then.
QUIET_S = 0.1
OF_BROKER = re.compile(r".*\bbroker/(.+)\.(?:pyx|pxd|py)$")


class Notes:
    """The files that are passed between ``begin`` and ``end``; ``times`` has what was passed each time."""

    def __init__(self) -> None:
        self.times: list[list[str]] = []
        self._passed: dict[str, None] | None = None

    def __call__(self, frame: FrameType, event: str, _value: object) -> None:
        if self._passed is not None and event == "call":
            self._passed[frame.f_code.co_filename] = None

    def begin(self) -> None:
        """Forget what was passed before."""
        self._passed = {}

    def end(self) -> None:
        """Write down the files since then, below ``broker`` and without what says if they are compiled."""
        passed, self._passed = self._passed or {}, None
        found = (OF_BROKER.match(path) for path in passed)
        self.times.append(list(dict.fromkeys(each[1] for each in found if each is not None)))

    def common(self) -> list[str]:
        """Return what was passed each time; all is forgotten then."""
        times, self.times = self.times, []
        return [path for path in times[0] if all(path in each for each in times)]


class Application(MessagingHandler):
    """Sends to an address and receives from it, as its steps have it; time goes by after each."""

    def __init__(self, url: str, address: str, steps: Callable[[Application], Iterator[None]]) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.came: list[Any] = []
        self._url, self._address = url, address
        self._steps = steps(self)

    def on_start(self, event: Any) -> None:
        self._connection = event.container.connect(self._url)
        self.sender = event.container.create_sender(self._connection, self._address)
        self.receiver = event.container.create_receiver(self._connection, self._address)
        event.container.schedule(QUIET_S, self)

    def on_timer_task(self, event: Any) -> None:
        if next(self._steps, self) is self:
            self._connection.close()
        else:
            event.container.schedule(QUIET_S, self)

    def on_message(self, event: Any) -> None:
        self.came.append(event.delivery)

    def send(self, *, durable: bool = False) -> None:
        """Send a message. Raises AssertionError without credit for it."""
        assert self.sender.credit > 0
        self.sender.send(Message("x" * 100, durable=durable))

    def take(self) -> None:
        """Accept the message that has waited longest."""
        oldest = self.came.pop(0)
        oldest.update(Delivery.ACCEPTED)
        oldest.settle()


def of_a_message(notes: Notes, application: Application, *, durable: bool) -> Iterator[None]:
    """From the transfer of the sender to the acceptance of the receiver."""
    application.receiver.flow(10 * TIMES)
    yield
    for _ in range(TIMES):
        notes.begin()
        application.send(durable=durable)
        while not application.came:
            yield
        application.take()
        yield
        notes.end()


def of_a_credit(notes: Notes, application: Application) -> Iterator[None]:
    """From the acceptance that lets a full queue take messages again to the new credit of its producer."""
    yield
    for _ in range(TIMES):
        while application.sender.credit:
            application.send()
            yield
        application.receiver.flow(STOP)
        while len(application.came) < STOP:
            yield
        while not application.sender.credit:
            notes.begin()
            application.take()
            yield
            notes.end()
            if not application.sender.credit:
                notes.times.pop()
        while application.came:
            application.take()
            yield


def follow(url: str, notes: Notes, found: dict[str, list[str]]) -> None:
    """Have applications do what each walk is about, one after the other, and the broker end then."""
    walks = {
        "message": partial(of_a_message, notes, durable=False),
        "durable": partial(of_a_message, notes, durable=True),
        "credit": partial(of_a_credit, notes),
    }
    try:
        for name, steps in walks.items():
            Container(Application(url, name, steps)).run()
            found[name] = notes.common()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Print them as JSON: the files of each, by its name."""
    with tempfile.TemporaryDirectory() as name:
        policies = Path(name) / "policies.yaml"
        policies.write_text(POLICIES)
        given = {"policies": [str(policies)], "data": name, "listen": ["amqp://127.0.0.1:0"]}
        server = Server(load_settings(None, {}, {**given, "http": "127.0.0.1:0"}))
        [url, *_] = server.start()
        found: dict[str, list[str]] = {}
        notes = Notes()
        client = threading.Thread(target=follow, args=(url, notes, found))
        client.start()
        sys.setprofile(notes)
        server.run()
        sys.setprofile(None)
        client.join()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
