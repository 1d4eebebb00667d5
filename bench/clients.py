"""Clients that stand beside what is measured, each in a process of its own until it is terminated.

``idle``: links that attach and send nothing, on connections that go on reading (``awake``) or are not
looked at again (``asleep``, as Proton's BlockingConnection between two calls). ``taker``: a consumer that
takes so many messages a second. ``listener``: reads the topic of events. They print ``ready`` when every
link is attached.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.contenders import BenchError
from broker.client.link import Connection

START_S = 60.0
FOREVER_S = 1e8
TAKEN_EVERY_S = 0.001


@contextmanager
def beside(*words: str) -> Iterator[None]:
    """Runs ``python -m bench.clients WORDS`` while the block does."""
    command = [sys.executable, "-m", "bench.clients", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise BenchError(f"the clients beside it did not start: {' '.join(words)}")
            yield
            if process.poll() is not None:
                raise BenchError(f"the clients beside it ended by themselves: {' '.join(words)}")
        finally:
            process.terminate()


def idle(url: str, address: str, links: int, connections: int, *, awake: bool) -> None:
    """``links`` senders over ``connections`` that send nothing."""
    opened = [Connection(url) for _ in range(connections)]
    for number in range(links):
        opened[number % connections].sender(address)
    _ready()
    if awake:
        for connection in opened:
            threading.Thread(target=_read, args=(connection,), daemon=True).start()
    time.sleep(FOREVER_S)


def _read(connection: Connection) -> None:
    connection.wait_until(lambda: False, FOREVER_S)


def taker(url: str, address: str, rate: float) -> None:
    """Takes ``rate`` messages a second, a millisecond's worth together; it doesn't catch up."""
    with Connection(url) as connection:
        receiver = connection.receiver(address)
        _ready()
        due_s, batch = time.monotonic(), max(round(rate * TAKEN_EVERY_S), 1)
        while True:
            due_s = max(due_s + batch / rate, time.monotonic())
            connection.wait_until(lambda: False, due_s - time.monotonic())
            if receiver.has_message():
                receiver.take(batch)
                connection.pump()


def listener(url: str) -> None:
    """Takes every event as it comes."""
    with Connection(url) as connection:
        receiver = connection.receiver("$sluice/events")
        _ready()
        while True:
            receiver.take(1000, FOREVER_S)


def _ready() -> None:
    print("ready", flush=True)


def main() -> int:
    """``idle URL ADDRESS LINKS CONNECTIONS awake|asleep``, ``taker URL ADDRESS RATE`` or ``listener URL``."""
    kind, url, *others = sys.argv[1:]
    if kind == "listener":
        listener(url)
        return 0
    address, *rest = others
    if kind == "idle":
        idle(url, address, int(rest[0]), int(rest[1]), awake=rest[2] == "awake")
    else:
        taker(url, address, float(rest[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
