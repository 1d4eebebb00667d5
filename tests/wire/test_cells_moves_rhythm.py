"""Clients of a queue that moves go on: nobody waits longer than a few seconds, and nobody for good.

This is the other side of "one cell has it, and nothing changes meanwhile": a queue that stood still for ever
would be safe as well.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from proton import Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.wire.cells import names_in
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.test_cells_moves import ARGS, CELLS, move
from tests.wire.test_rhea import FOLDER, node

__all__ = ["node"]

POLICIES = 'policies:\n  - {match: "orders.>", durable: true, flow_stop_count: 200}\n'
EVERY_S = 0.02
# A move of a small queue takes half a second, coming back as long.
BOUND_S = 5.0
ROUND = (1, 2, 0)


class Rhythm:
    """How many there were, and the longest time, in seconds, without any."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_s = 0.0
        self._last = time.monotonic()

    def beat(self) -> None:
        self.count += 1
        self.rest()

    def rest(self) -> None:
        """Count the time until now."""
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now


class Clients(MessagingHandler):
    """Senders by a timer, and receivers, each on a connection that comes back as Proton's do by default.

    ``firsts``: an address elsewhere that a connection has a link to before, so that the queue's is passed on,
    or nothing; ``by_relay``: messages say themselves where they go.
    """

    def __init__(self, url: str, name: str, firsts: tuple[str, ...], *, by_relay: bool) -> None:
        super().__init__(prefetch=10)
        self._url = url
        self._name = name
        self._firsts = firsts
        self._by_relay = by_relay
        self._is_over = False
        self._container: Container | None = None
        self._senders: dict[Any, Rhythm] = {}
        self._receivers: dict[Any, Rhythm] = {}

    @property
    def rhythms(self) -> list[Rhythm]:
        return [*self._senders.values(), *self._receivers.values()]

    def on_start(self, event: Any) -> None:
        self._container = container = event.container
        for first in self._firsts:
            for _ in range(2):
                connection = container.connect(self._url, heartbeat=5)
                if first:
                    container.create_sender(connection, first)
                target = None if self._by_relay else self._name
                self._senders[container.create_sender(connection, target)] = Rhythm()
            connection = container.connect(self._url, heartbeat=5)
            if first:
                container.create_sender(connection, first)
            self._receivers[container.create_receiver(connection, self._name)] = Rhythm()
        container.schedule(EVERY_S, self)

    def on_timer_task(self, event: Any) -> None:
        if self._is_over:
            for each in (*self._senders, *self._receivers):
                each.connection.close()
            event.container.stop()
            return
        for sender in self._senders:
            if sender.credit > 0 and sender.state & Endpoint.REMOTE_ACTIVE:
                sender.send(Message("rhythm", durable=True, address=self._name if self._by_relay else None))
        event.container.schedule(EVERY_S, self)

    def on_accepted(self, event: Any) -> None:
        if event.link in self._senders:
            self._senders[event.link].beat()

    def on_message(self, event: Any) -> None:
        self._receivers[event.receiver].beat()

    def finish(self) -> None:
        self._is_over = True


def kept_busy(clients: Clients, work: Callable[[], None]) -> list[Rhythm]:
    """Do some work while clients go on for a while before and after; return their rhythms."""
    thread = threading.Thread(target=lambda: Container(clients).run(), daemon=True)
    thread.start()
    time.sleep(2)
    before = [each.count for each in clients.rhythms]
    assert min(before) > 0, before
    work()
    time.sleep(BOUND_S)
    for each in clients.rhythms:
        each.rest()
    clients.finish()
    thread.join(20)
    return clients.rhythms


def moved_round(broker: RunningBroker, name: str) -> Callable[[], None]:
    def work() -> None:
        for cell in ROUND:
            move(broker, name, cell)
            time.sleep(1)

    return work


@pytest.mark.parametrize("by_relay", [False, True], ids=["links", "relay"])
def test_every_client_goes_on_within_a_bounded_time(start_broker: StartBroker, by_relay: bool) -> None:
    """Those in the queue's cell, and those whose links are passed on to it."""
    broker = start_broker(policies=POLICIES, args=ARGS)
    [name] = names_in(0, CELLS, 1)
    firsts = ("", *(names_in(cell, CELLS, 1, "first")[0] for cell in (1, 2)))
    rhythms = kept_busy(Clients(broker.url, name, firsts, by_relay=by_relay), moved_round(broker, name))
    assert max(each.longest_s for each in rhythms) < BOUND_S, [each.longest_s for each in rhythms]


@pytest.mark.clients
def test_rhea_comes_back_by_itself_and_goes_on(node: str, start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    [name] = names_in(0, CELLS, 1)
    words = [node, "rhythm.js", str(broker.port), name, "20"]
    client = subprocess.Popen(words, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(2)
        moved_round(broker, name)()
        time.sleep(BOUND_S)
        said, _ = client.communicate("", timeout=20)
    finally:
        with suppress(ProcessLookupError):
            client.kill()
    found = json.loads(said)
    assert found["disconnected"] >= 2 * len(ROUND)
    assert min(found["accepted"], found["received"]) > 100, found
    assert found["longest"] < BOUND_S * 1000, found
