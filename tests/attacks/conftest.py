"""A broker, a well-behaved pair on it that never stops, and somebody who attacks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bench.attacks.attacker import Attacker
from broker.client.errors import ClientError
from broker.client.link import Connection
from broker.codec import sections
from tests.wire.conftest import RunningBroker, broker, start_broker, wait_until

__all__ = ["attacked", "attacker", "broker", "neighbours", "start_broker"]

AT_ONCE = 20


class Neighbours:
    """A producer and a consumer on connections of their own; ``moved`` counts what came through, in order."""

    def __init__(self, url: str) -> None:
        self.moved = 0
        self.fault: BaseException | None = None
        self._url = url
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_on(self, count: int = 200, seconds: float = 30) -> None:
        """Until so many more messages have come through."""
        upto = self.moved + count
        wait_until(lambda: self.moved >= upto or self.fault is not None, seconds, "messages to flow")
        assert self.fault is None, self.fault

    def stop(self) -> None:
        """No more messages."""
        self._running = False
        self._thread.join(30)

    def _run(self) -> None:
        try:
            with Connection(self._url) as one, Connection(self._url) as other:
                sender, receiver = one.sender("neighbours"), other.receiver("neighbours")
                while self._running:
                    bodies = [sections.text_body(str(self.moved + n)) for n in range(AT_ONCE)]
                    for body in bodies:
                        sender.send(body, 20)
                    sender.flush(20)
                    got: list[bytes] = []
                    while len(got) < len(bodies):
                        got += receiver.take(len(bodies), 20)
                    assert got == bodies
                    self.moved += len(got)
        except (ClientError, AssertionError) as fault:
            self.fault = fault


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker with the defaults for all attacks of a module: each begins where the last has left it."""
    running = RunningBroker(tmp_path_factory.mktemp("attacked") / "broker", "", "", ())
    yield running
    running.stop()
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def neighbours(attacked: RunningBroker) -> Iterator[Neighbours]:
    """The pair."""
    pair = Neighbours(attacked.url)
    yield pair
    with suppress(RuntimeError):
        pair.stop()


@pytest.fixture(scope="module")
def attacker(attacked: RunningBroker) -> Iterator[Attacker]:
    """Who attacks."""
    hostile = Attacker(attacked.port)
    yield hostile
    hostile.close()
