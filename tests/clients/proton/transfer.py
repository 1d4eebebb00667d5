"""Sends numbered messages and receives them, over a cell whose owner may change: ``URLS ADDRESS COUNT``.

Proton finds another member by itself (``reconnect`` with several URLs) and attaches its links again. Messages
that had no outcome when a connection was lost are the application's to send again (``on_link_opened``).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

EVERY = 100


def say(**line: Any) -> None:
    """A line of the answer."""
    print(json.dumps(line), flush=True)


class Transfer(MessagingHandler):
    """Both ends, on a connection each."""

    def __init__(self, urls: list[str], address: str, count: int) -> None:
        super().__init__(prefetch=100)
        self.urls = urls
        self.address = address
        self.count = count
        self.left = list(range(count, 0, -1))
        self.open: dict[str, int] = {}
        self.accepted = 0
        self.received: set[int] = set()
        self.again = 0

    def on_start(self, event: Any) -> None:
        self.sending, self.receiving = (
            event.container.connect(urls=self.urls, reconnect=Backoff(), heartbeat=5) for _ in range(2)
        )
        self.sender = event.container.create_sender(self.sending, self.address)
        event.container.create_receiver(self.receiving, self.address)

    def on_link_opened(self, event: Any) -> None:
        if event.link == self.sender:
            self.left += self.open.values()
            self.open.clear()

    def on_sendable(self, event: Any) -> None:
        while self.left and self.sender.credit and len(self.open) < 20:
            number = self.left.pop()
            delivery = self.sender.send(Message(body=str(number), durable=True))
            self.open[delivery.tag] = number

    def on_accepted(self, event: Any) -> None:
        if self.open.pop(event.delivery.tag, None) is not None:
            self.accepted += 1
            if self.accepted % EVERY == 0:
                say(accepted=self.accepted, received=0, again=0)
            self.on_sendable(event)
            self.end_if_done(event)

    def on_message(self, event: Any) -> None:
        number = int(event.message.body)
        self.again += number in self.received
        self.received.add(number)
        self.end_if_done(event)

    def end_if_done(self, event: Any) -> None:
        """Stop once all were accepted and all have come."""
        if len(self.received) == self.accepted == self.count:
            say(accepted=self.accepted, received=len(self.received), again=self.again)
            event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        """It connects again by itself."""


if __name__ == "__main__":
    Container(Transfer(sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]))).run()
