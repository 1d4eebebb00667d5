"""The two clients: one sends every row as fast as it may, one takes them slowly and then freely.

Each runs in a process of its own and returns what it saw; nothing here asks the broker how it is doing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import sha256

from broker.client.link import Connection, Receiver
from broker.codec import sections
from broker.errors import OperatorError
from examples.flights import table

PUMP_EVERY = 256  # messages between two looks at the socket
CREDIT = 1000
BATCH = 20  # rows taken together while slow: 10 ms apart at 2,000/s
AT_LEAST_S = 0.2  # how long to wait for a row too many
STALL_S = 30.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What the producer saw; ``digest`` is over every row in the order sent."""

    rows: int
    accepted: int
    blocked_s: float
    seconds: float
    digest: str


@dataclass(frozen=True, slots=True)
class Received:
    """What the consumer saw; ``in_order`` if row followed row from 1, none missing and none twice."""

    rows: int
    in_order: bool
    repeated: int
    slow_rows: int
    slow_s: float
    free_s: float
    digest: str


def produce(url: str, address: str, count: int) -> Sent:
    """Sends ``count`` rows and waits for their outcomes."""
    digest = sha256()
    with Connection(url) as connection:
        sender = connection.sender(address)
        begin_s = time.monotonic()
        for row in table.rows(count):
            digest.update(row.encode())
            sender.send(sections.text_body(row), STALL_S)
            if sender.sent % PUMP_EVERY == 0:
                connection.pump()
        sender.flush(STALL_S)
        seconds = time.monotonic() - begin_s
        return Sent(sender.sent, sender.accepted, sender.blocked_ns / 1e9, seconds, digest.hexdigest())


def consume(url: str, address: str, count: int, slow_rate: float, slow_s: float) -> Received:
    """Takes ``count`` rows, at ``slow_rate`` a second for the first ``slow_s`` seconds."""
    with Connection(url) as connection:
        receiver = connection.receiver(address, credit=CREDIT)
        tally = _Tally()
        begin_s = time.monotonic()
        while tally.rows < count and (passed_s := time.monotonic() - begin_s) < slow_s:
            # Between two batches the connection goes on talking to the broker.
            connection.wait_until(lambda: False, tally.rows / slow_rate - passed_s)
            _take(receiver, tally, min(BATCH, count - tally.rows))
        slow_rows, free_from_s = tally.rows, time.monotonic()
        while tally.rows < count:
            _take(receiver, tally, min(PUMP_EVERY, count - tally.rows))
            connection.pump()
        end_s = time.monotonic()
        tally.note(receiver.take(CREDIT, AT_LEAST_S))
        return Received(
            rows=tally.rows,
            in_order=tally.in_order,
            repeated=tally.rows - len(tally.seen),
            slow_rows=slow_rows,
            slow_s=free_from_s - begin_s,
            free_s=end_s - free_from_s,
            digest=tally.digest.hexdigest(),
        )


def _take(receiver: Receiver, tally: _Tally, most: int) -> None:
    messages = receiver.take(most, STALL_S)
    if not messages:
        raise OperatorError(f"nothing came for {STALL_S:g} s after row {tally.last:,}")
    tally.note(messages)


class _Tally:
    """What came so far."""

    def __init__(self) -> None:
        self.rows = 0
        self.last = 0
        self.in_order = True
        self.seen: set[int] = set()
        self.digest = sha256()

    def note(self, messages: list[bytes]) -> None:
        for message in messages:
            row = sections.shown(message)
            self.digest.update(row.encode())
            number = table.number_of(row)
            self.in_order = self.in_order and number == self.last + 1
            self.last = number
            self.rows += 1
            self.seen.add(number)
