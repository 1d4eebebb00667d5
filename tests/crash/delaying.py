"""Applications of delayed messages: books of what may come when, senders, and takers that try some again.

Times are milliseconds of the clock that the broker has: ours with ``shift_ms``, as its life began. A broker
keeps the clock of its start, whatever the machine's is set to later.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from proton import Delivery, Link, Message, symbol, timestamp

from tests.crash.peers import Id, Peer

TEXT = b"\x00\x53\x77\xb1"
# Two clocks are compared, one of them read anew and one carried on: NTP may slew them apart.
TOLERANCE_MS = 2.0
RETRY_MS = 400
LATER_MS = 700


def encoded(id_: Id, annotations: dict[str, Any]) -> bytes:
    """Encode a durable message with its id as text, and message annotations."""
    named = {symbol(key): value for key, value in annotations.items()}
    header = b"\x00\x53\x70\xc0\x06\x05\x41\x40\x40\x41\x40"
    made = Message(annotations=named)
    made.durable = False
    sections = bytes(made.encode()) if named else b""
    # Only the annotations of what Proton encodes: from their descriptor on, up to the body's.
    first = sections.find(b"\x00\x53\x72")
    text = f"{id_[0]}:{id_[1]}:".encode()
    middle = sections[first : _end_of_map(sections, first)] if first >= 0 else b""
    return header + middle + TEXT + len(text).to_bytes(4, "big") + text


def _end_of_map(data: bytes, at: int) -> int:
    code = data[at + 3]
    if code == 0xC1:
        return at + 5 + data[at + 4]
    assert code == 0xD1
    return at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")


def identified(data: bytes) -> tuple[Id, bool]:
    """Read the id, and whether the broker says that the message may have been delivered before."""
    found = Message()
    found.decode(data)
    producer, number, _ = str(found.body).split(":")
    return (int(producer), int(number)), not found.first_acquirer


@dataclass(slots=True)
class Try:
    """An outcome by which a message is tried again, not before a time; in doubt until it is confirmed."""

    not_before_ms: float
    confirmed: bool = False


class DelayBooks:
    """All that was sent, and the breaches of what may come: each is a sentence."""

    def __init__(self) -> None:
        self.shift_ms = 0.0
        self.due_ms: dict[Id, float] = {}
        self.tries: dict[Id, Try] = {}
        self.accepted: set[Id] = set()
        # Taken for good, as its consumer said; and as the broker confirmed.
        self.ended: set[Id] = set()
        self.confirmed: set[Id] = set()
        self.cancelling: set[Id] = set()
        self.cancelled: set[Id] = set()
        self.received: set[Id] = set()
        self.breaches: list[str] = []
        self.deliveries = self.again = self.waits = 0

    def now_ms(self) -> float:
        """Return the time of the broker's clock."""
        return time.time() * 1000 + self.shift_ms

    @property
    def missing(self) -> set[Id]:
        """The messages that were accepted and have to come still."""
        return self.accepted - self.ended - self.cancelling

    def end_life(self) -> None:
        """Forget what only this life of the broker was told: the broker may never have heard of it.

        A message whose time has come by this life's clock stays ready, however the next one's is set.
        """
        now_ms = self.now_ms()
        self.tries = {
            id_: each for id_, each in self.tries.items() if each.confirmed and each.not_before_ms > now_ms
        }
        for id_, due_ms in self.due_ms.items():
            if due_ms <= now_ms:
                self.due_ms[id_] = 0

    def note_received(self, id_: Id, flagged: bool) -> None:
        """Check a message that has come."""
        now_ms = self.now_ms()
        self.deliveries += 1
        if id_ not in self.due_ms:
            self.breaches.append(f"{id_} was never sent")
            return
        if now_ms + TOLERANCE_MS < self.due_ms[id_]:
            self.breaches.append(f"{id_} came {self.due_ms[id_] - now_ms:.1f} ms early")
        tried = self.tries.pop(id_, None)
        if tried is not None:
            self.waits += tried.not_before_ms > 0
            if now_ms + TOLERANCE_MS < tried.not_before_ms:
                self.breaches.append(f"{id_} was tried again {tried.not_before_ms - now_ms:.1f} ms early")
        if id_ in self.confirmed:
            self.breaches.append(f"{id_} came again although its settlement was confirmed")
        if id_ in self.cancelled:
            self.breaches.append(f"{id_} came although it was cancelled")
        if id_ in self.received:
            self.again += 1
            if not flagged:
                self.breaches.append(f"{id_} came again and isn't flagged")
        self.received.add(id_)

    def __str__(self) -> str:
        return (
            f"{len(self.due_ms):,} sent, {len(self.accepted):,} accepted, {self.deliveries:,} deliveries,"
            f" {self.again:,} of them again, {self.waits:,} after a wait, {len(self.confirmed):,} confirmed,"
            f" {len(self.cancelled):,} cancelled, {len(self.missing):,} have to come,"
            f" {len(self.breaches)} breaches {self.breaches[:5]}"
        )


class DelayingProducer(Peer):
    """Sends messages that are due soon: most of them together, in a wave at ``wave_ms``."""

    def __init__(self, books: DelayBooks, address: str, number: int, dice: random.Random) -> None:
        super().__init__(None, address)  # type: ignore[arg-type]
        self.told = books
        self.number = number
        self.dice = dice
        self.next = 0
        self.limit = 0
        self.wave_ms = 0.0
        self.wave_width_ms = 60.0

    def attach(self, session: Any) -> Any:
        link = session.sender(f"d{self.number}-{self.next}")
        link.target.address = self.address
        return link

    def work(self) -> None:
        budget = 100
        while budget and self.limit > 0 and self.link.credit > 0:
            budget -= 1
            self.limit -= 1
            id_ = self.number, self.next
            self.next += 1
            self.link.delivery(str(id_[1]))
            self.link.send(encoded(id_, self._when(id_)))
            self.link.advance()

    def _when(self, id_: Id) -> dict[str, Any]:
        """Annotate by one of the three ways, or not at all."""
        now_ms = self.told.now_ms()
        kind = self.dice.random()
        if kind < 0.1:
            self.told.due_ms[id_] = 0
            return {}
        due_ms = int(self.wave_ms + self.dice.uniform(0, self.wave_width_ms))
        if kind < 0.2:
            delay_ms = self.dice.randint(1, 1500)
            self.told.due_ms[id_] = now_ms + delay_ms
            return {"x-opt-delivery-delay": delay_ms}
        self.told.due_ms[id_] = due_ms
        if kind < 0.3:
            return {"x-opt-scheduled-enqueue-time": timestamp(due_ms)}
        return {"x-opt-delivery-time": due_ms}

    def on_delivery(self, delivery: Any) -> None:
        if delivery.updated and delivery.remote_state:
            if delivery.remote_state == Delivery.ACCEPTED:
                self.told.accepted.add((self.number, int(delivery.tag)))
            delivery.settle()


class TryingConsumer(Peer):
    """Takes some for good, gives others back: as they are, as failed, or to be tried at a time.

    It settles second: the broker's settlement confirms an outcome. ``takes_all``: it gives nothing back.
    """

    def __init__(self, books: DelayBooks, address: str, name: str, dice: random.Random) -> None:
        super().__init__(None, address)  # type: ignore[arg-type]
        self.told = books
        self.name = name
        self.dice = dice
        self.takes_all = False
        self.credit = 200

    def attach(self, session: Any) -> Any:
        link = session.receiver(self.name)
        link.source.address = self.address
        link.rcv_settle_mode = Link.RCV_SECOND
        self.said: dict[str, tuple[Id, Try | None]] = {}
        link.flow(self.credit)
        return link

    def on_delivery(self, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            id_, flagged = identified(bytes(self.link.recv(delivery.pending)))
            self.link.advance()
            self.told.note_received(id_, flagged)
            self.said[delivery.tag] = id_, self._tell(delivery, id_)
            if self.link.credit < self.credit // 2:
                self.link.flow(self.credit - self.link.credit)
        elif delivery.settled:
            id_, tried = self.said.pop(delivery.tag)
            if tried is None:
                self.told.confirmed.add(id_)
            else:
                tried.confirmed = True
            delivery.settle()

    def _tell(self, delivery: Any, id_: Id) -> Try | None:
        """Give an outcome; the Try that it asks for, None where the message is taken for good."""
        kind = 1.0 if self.takes_all else self.dice.random()
        if kind >= 0.35:
            self.told.ended.add(id_)
            delivery.update(Delivery.ACCEPTED)
            return None
        now_ms = self.told.now_ms()
        if kind < 0.05:
            delivery.update(Delivery.RELEASED)
            tried = Try(0)
        elif kind < 0.20:
            delivery.local.failed = True
            delivery.update(Delivery.MODIFIED)
            tried = Try(now_ms + RETRY_MS)
        else:
            later_ms = int(now_ms) + LATER_MS
            delivery.local.annotations = {symbol("x-opt-delivery-time"): later_ms}
            delivery.update(Delivery.MODIFIED)
            tried = Try(later_ms)
        self.told.tries[id_] = tried
        return tried
