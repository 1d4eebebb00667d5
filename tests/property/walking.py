"""What the walks over engines have in common: one size of message, and who takes them."""

from __future__ import annotations

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

MS = 1_000_000
SIZE = 200
BODY = b"\x00\x53\x77\xa0".ljust(SIZE, b".")
HELD = SIZE + constants.HELD_BYTES
DEFAULTS = BrokerDefaults(producer_window=40, initial_credit=10)


class Taker(Consumer):
    """A consumer without end to its credit that settles when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Entry] = []

    def capacity(self) -> int:
        return 1000

    def send(self, entry: Entry) -> None:
        self.held.append(entry)
        self.in_flight += 1
