"""Applications that send from a timer, at a real broker, with Proton's own container (FLOW §2 rule 12)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.wire.conftest import StartBroker

pytestmark = [pytest.mark.wire, pytest.mark.flow]

SMALL = "policies:\n  - {match: orders, flow_stop_count: 100, flow_resume_count: 50}\n"
TICK_S = 0.1
PER_TICK = 5
# How much the first of them sends before all are looked at.
ENOUGH = 150


class Timers(MessagingHandler):
    """Three producers: when the timer goes off each sends what is due, as far as its credit goes."""

    def __init__(self, url: str, slow: bool) -> None:
        super().__init__(prefetch=0 if slow else 100)
        self.url = url
        self.slow = slow
        self.senders: list[Any] = []
        self.sent: list[int] = []
        self.due: list[int] = []
        self.until = time.monotonic() + 120

    def on_start(self, event: Any) -> None:
        for number in range(3):
            connection = event.container.connect(self.url, reconnect=False)
            self.senders.append(event.container.create_sender(connection, "orders", name=f"p{number}"))
            self.sent.append(0)
            self.due.append(0)
        connection = event.container.connect(self.url, reconnect=False)
        self.receiver = event.container.create_receiver(connection, "orders")
        event.container.schedule(TICK_S, self)

    def on_timer_task(self, event: Any) -> None:
        for number, sender in enumerate(self.senders):
            self.due[number] += PER_TICK
            while self.due[number] > 0 and sender.credit > 0:
                sender.send(Message("hi"))
                self.due[number] -= 1
                self.sent[number] += 1
        if self.slow and self.receiver.credit == 0:
            # Fewer than the three send together.
            self.receiver.flow(10)
        if max(self.sent) >= ENOUGH or time.monotonic() > self.until:
            for each in (*self.senders, self.receiver):
                each.connection.close()
            return
        event.container.schedule(TICK_S, self)


@pytest.mark.parametrize("slow", [False, True], ids=["all taken at once", "a slow consumer"])
def test_three_timers_get_the_same(start_broker: StartBroker, slow: bool) -> None:
    broker = start_broker(policies=SMALL)
    timers = Timers(broker.url, slow)
    Container(timers).run()
    assert max(timers.sent) >= ENOUGH, timers.sent
    # Each has what it was given of the room when the last tick came, and that may be a third of it.
    assert min(timers.sent) >= 0.6 * max(timers.sent), timers.sent
