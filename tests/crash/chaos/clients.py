"""Producers and consumers of one life, which tell the books all they do and are told."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from proton import Delivery, Link, Terminus

from tests.crash import peers
from tests.crash.chaos.books import Books, Id
from tests.crash.chaos.messages import encoded, understood
from tests.wire.terminus import Asks, selector

# Bytes of a piece of a large message: what is read at once would be in memory as a whole.
PIECE = 20_000


class Producer(peers.Peer):
    """Sends to an address while it has credit; ``places`` are where its messages come to lie."""

    def __init__(
        self, books: Books, address: str, places: tuple[str, ...], number: int, dice: Random
    ) -> None:
        super().__init__(peers.Books(), address)
        self.told = books
        self.places = places
        self.number = number
        self.dice = dice
        self.next = 0
        self.limit = 0
        self.sizes: tuple[int, ...] = (0,)
        self.resends = False
        self.unanswered: dict[int, int] = {}
        self._rest: memoryview | None = None
        self._again: list[tuple[int, int]] = []
        self._lives = 0

    def attach(self, session: Any) -> Any:
        self._lives += 1
        link = session.sender(f"p{self.number}-{self._lives}")
        link.target.address = self.address
        self._rest = None
        # Where the broker knows duplicates, what it didn't answer to is sent again; else nobody knows.
        self._again = sorted(self.unanswered.items()) if self.resends else []
        self.unanswered = dict(self._again)
        return link

    def work(self) -> None:
        if self._rest is not None:
            self._feed()
        for _ in range(20):
            if self._rest is not None or self.link.credit <= 0 or len(self.unanswered) > 200:
                return
            if self._again:
                self._send(*self._again.pop(0))
            elif self.limit > 0:
                self.limit -= 1
                self._send(self.next, self.dice.choice(self.sizes))
                self.next += 1
            else:
                return

    def _send(self, number: int, size: int) -> None:
        id_ = self.number, number
        self.told.note_sent(self.places, id_)
        self.unanswered[number] = size
        self.link.delivery(str(number))
        data = encoded(id_, size)
        if len(data) > 2 * PIECE:
            self._rest = memoryview(data)
            return
        self.link.send(data)
        self.link.advance()

    def _feed(self) -> None:
        """A piece of a large message; the next in another turn."""
        assert self._rest is not None
        if self.link.session.outgoing_bytes > PIECE:
            return
        self.link.stream(bytes(self._rest[:PIECE]))
        self._rest = self._rest[PIECE:]
        if not self._rest:
            self._rest = None
            self.link.advance()

    def on_delivery(self, delivery: Any) -> None:
        if delivery.updated and (delivery.remote_state or delivery.settled):
            number = int(delivery.tag)
            if delivery.remote_state == Delivery.ACCEPTED:
                self.told.note_accepted(self.places, (self.number, number))
            else:
                self.told.note((self.number, number), f"refused: {delivery.remote_state}")
            self.unanswered.pop(number, None)
            delivery.settle()

    @property
    def idle(self) -> bool:
        """Whether all was sent and answered."""
        return self.sock is None or not (self.limit or self._again or self._rest or self.unanswered)


class Consumer(peers.Peer):
    """Takes from one place and does with each message what its dice say, by ``ways`` (verb to weight)."""

    def __init__(self, books: Books, place: str, address: str, dice: Random, subscription: str = "") -> None:
        super().__init__(peers.Books(), address)
        self.told = books
        self.place = place
        self.dice = dice
        self.subscription = subscription
        self.ways: Mapping[str, float] = {"accept": 1.0}
        self.credit = 50
        self.pending: dict[str, Id] = {}

    def attach(self, session: Any) -> Any:
        link = session.receiver(self.subscription or f"c-{self.place}")
        link.source.address = self.address
        if self.subscription:
            link.source.durability = Terminus.DELIVERIES
            link.source.expiry_policy = Terminus.EXPIRE_NEVER
        link.rcv_settle_mode = Link.RCV_SECOND
        self.pending = {}
        self.held = 0
        link.flow(self.credit)
        return link

    def connect(self, port: int) -> None:
        super().connect(port)
        if self.sock is not None and self.subscription:
            self.connection.container = "chaos"

    def on_delivery(self, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            if delivery.aborted:
                self.link.advance()
                delivery.settle()
                return
            data = bytes(self.link.recv(delivery.pending))
            self.link.advance()
            id_, flagged, sound = understood(data)
            self.told.note_delivered(self.place, id_, flagged, sound)
            self._do(delivery, id_)
            if self.link.credit < self.credit // 2:
                self.link.flow(self.credit // 2)
        elif delivery.settled and delivery.tag in self.pending:
            id_ = self.pending.pop(delivery.tag)
            # With an outcome of its own the broker says that ours doesn't hold.
            if delivery.remote_state in (0, None, Delivery.ACCEPTED):
                self._confirmed(delivery, id_)
            delivery.settle()

    def _confirmed(self, delivery: Any, id_: Id) -> None:
        if delivery.local_state == Delivery.ACCEPTED:
            self.told.note_confirmed(self.place, id_)

    def _do(self, delivery: Any, id_: Id) -> None:
        (way,) = self.dice.choices(list(self.ways), list(self.ways.values()))
        if way == "hold":
            self.held += 1
            return
        self.pending[delivery.tag] = id_
        if way == "accept":
            self.told.note_ended(self.place, id_, "accepted")
            delivery.update(Delivery.ACCEPTED)
        elif way == "reject":
            self.told.note(id_, f"rejected in {self.place}")
            delivery.update(Delivery.REJECTED)
        else:
            delivery.local.failed = way == "fail"
            self.told.note(id_, f"given back to {self.place} ({way})")
            delivery.update(Delivery.RELEASED if way == "release" else Delivery.MODIFIED)


class Browser(peers.Peer):
    """Looks at what a place holds and takes nothing; where ``one`` is given, at that message alone."""

    def __init__(self, books: Books, address: str, one: Id | None = None) -> None:
        super().__init__(peers.Books(), address)
        self.told = books
        self.one = one
        self.seen: set[Id] = set()

    def attach(self, session: Any) -> Any:
        link = session.receiver(f"b-{self.address}")
        link.source.address = self.address
        asked = None
        if self.one is not None:
            asked = selector("JMSMessageID LIKE 'ID:{}:{}:%'".format(*self.one))
        Asks(copy=True, filters=asked).apply(link)
        link.flow(1000)
        return link

    def on_delivery(self, delivery: Any) -> None:
        if not delivery.readable or delivery.partial:
            return
        id_, _, sound = understood(bytes(self.link.recv(delivery.pending)))
        self.link.advance()
        delivery.settle()
        self.seen.add(id_)
        if not sound:
            self.told.breach(f"{self.address}: a browser reads what wasn't sent", [id_])
        if self.link.credit < 500:
            self.link.flow(500)


class Intruder(peers.Peer):
    """Attaches a producer to a name that isn't for producers; the next start succeeds all the same."""

    def __init__(self, address: str) -> None:
        super().__init__(peers.Books(), address)

    def attach(self, session: Any) -> Any:
        link = session.sender("intruder")
        link.target.address = self.address
        return link

    def on_delivery(self, delivery: Any) -> None:
        raise AssertionError("nothing is sent")
