"""Sends numbered messages and receives them, over a cell whose owner may change: ``URLS ADDRESS COUNT``.

Proton finds another member of several URLs by itself and attaches its links again. Messages
that had no outcome when a connection was lost are the application's to send again (``on_link_opened``).
With a COUNT of 0 it sends until its standard input ends; with SLUICE_PAUSE_MS it sends a window, at most,
each time a timer rings. A message is confirmed once the broker has settled it, and must not come again then
unless it was sent again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

EVERY = 20
WINDOW = 20
LOOK_S = 0.05
PAUSE_S = int(os.environ.get("SLUICE_PAUSE_MS", "0")) / 1000


class SecondMode(LinkOption):
    """The receiver settles once the broker has (rcv-settle-mode second)."""

    def apply(self, link: Any) -> None:
        link.rcv_settle_mode = 1


class Transfer(MessagingHandler):
    """Both ends, on a connection each."""

    def __init__(self, urls: list[str], address: str, count: int) -> None:
        super().__init__(prefetch=100, auto_accept=False)
        self.urls = urls
        self.address = address
        self.count = count
        self.ending = bool(count)
        self.next = 1
        self.left: list[int] = []
        self.sent_again: set[int] = set()
        self.open: dict[str, int] = {}
        self.accepted = 0
        self.unconfirmed: dict[str, int] = {}
        self.received: set[int] = set()
        self.confirmed: set[int] = set()
        self.again = 0
        self.confirmed_again = 0

    def on_start(self, event: Any) -> None:
        self.sending, self.receiving = (
            event.container.connect(urls=self.urls, heartbeat=5) for _ in range(2)
        )
        self.sender = event.container.create_sender(self.sending, self.address)
        self.receiver = event.container.create_receiver(self.receiving, self.address, options=SecondMode())
        self.container = event.container
        self.container.schedule(0, self)
        if not self.count:
            threading.Thread(target=self.read_input, daemon=True).start()

    def read_input(self) -> None:
        """Wait for the end of standard input."""
        sys.stdin.read()
        self.ending = True

    def on_timer_task(self, event: Any) -> None:
        if self.ending and not self.count:
            self.count = self.next - 1
        self.end_if_done()
        self.send()
        self.container.schedule(PAUSE_S or LOOK_S, self)

    def on_link_opened(self, event: Any) -> None:
        if event.link == self.sender:
            self.left += self.open.values()
            self.sent_again.update(self.open.values())
            self.open.clear()
        elif event.link == self.receiver:
            self.unconfirmed.clear()

    def on_sendable(self, event: Any) -> None:
        if not PAUSE_S:
            self.send()

    def send(self) -> None:
        """Send while there is credit, room in the window, and something to send."""
        while self.sender.credit and len(self.open) < WINDOW and (number := self.taken()):
            delivery = self.sender.send(Message(body=str(number), durable=True))
            self.open[delivery.tag] = number

    def taken(self) -> int:
        """Return what to send next; 0 for nothing."""
        if self.left:
            return self.left.pop()
        if self.next > self.count > 0:
            return 0
        self.next += 1
        return self.next - 1

    def on_accepted(self, event: Any) -> None:
        if self.open.pop(event.delivery.tag, None) is not None:
            self.accepted += 1
            if self.accepted % EVERY == 0:
                self.say()
            self.on_sendable(event)
            self.end_if_done()

    def on_message(self, event: Any) -> None:
        number = int(event.message.body)
        self.again += number in self.received
        self.confirmed_again += number in self.confirmed and number not in self.sent_again
        self.received.add(number)
        self.unconfirmed[event.delivery.tag] = number
        event.delivery.update(Delivery.ACCEPTED)
        self.end_if_done()

    def on_settled(self, event: Any) -> None:
        if event.link == self.receiver and event.delivery.tag in self.unconfirmed:
            self.confirmed.add(self.unconfirmed.pop(event.delivery.tag))
            event.delivery.settle()

    def end_if_done(self) -> None:
        """Stop once all were accepted and all have come."""
        if self.count and len(self.received) == self.accepted == self.count:
            self.say()
            self.container.stop()

    def say(self) -> None:
        """Print how far it is."""
        line = {
            "accepted": self.accepted,
            "received": len(self.received),
            "again": self.again,
            "confirmed_again": self.confirmed_again,
        }
        print(json.dumps(line), flush=True)

    def on_transport_error(self, event: Any) -> None:
        """It connects again by itself."""


if __name__ == "__main__":
    Container(Transfer(sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]))).run()
