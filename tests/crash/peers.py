"""Producers and consumers that keep books, and go on when the broker is gone and back.

All of them run on one thread, in turns. An id is ``(producer, number)``; a message's header says
first-acquirer, so that a broker which sends it again has to say so.
"""

from __future__ import annotations

import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from proton import Collector, Connection, Delivery, Endpoint, Link, Transport
from proton._events import Event

from broker.codec import message

Id = tuple[int, int]


def encoded(producer: int, number: int, filler: int = 0, ttl_ms: int = 0) -> bytes:
    """A durable message with its id as text."""
    # Nobody who stores it can make it shorter.
    random = Random(number).randbytes(filler // 2).hex()
    text = f"{producer}:{number}:{random}".encode()
    ttl = b"\x70" + ttl_ms.to_bytes(4, "big") if ttl_ms else b"\x40"
    header = b"\x00\x53\x70\xc0" + bytes((4 + len(ttl), 4)) + b"\x41\x40" + ttl + b"\x41"
    return header + b"\x00\x53\x77\xb1" + len(text).to_bytes(4, "big") + text


def identified(data: bytes) -> tuple[Id, bool]:
    """The id, and whether the broker says that it may have been delivered before."""
    fields = message.header_fields(data)
    producer, number, _ = data[message.header_end(data) + 8 :].decode().split(":")
    return (int(producer), int(number)), len(fields) < 4 or fields[3] != b"\x41"


class Books:
    """What was promised, and what came: the laws of the house in numbers."""

    def __init__(self) -> None:
        self.accepted: set[Id] = set()
        self.received: set[Id] = set()
        self.confirmed: set[Id] = set()
        self.unflagged: set[Id] = set()
        # When those came first that came flagged.
        self._flagged_s: dict[Id, float] = {}
        self.deliveries = 0
        self.flagged_again = 0
        self.unflagged_again: list[Id] = []
        self.confirmed_again: list[Id] = []
        self.out_of_order: list[tuple[Id, int]] = []

    def note_received(self, id_: Id, flagged: bool, since_s: float) -> None:
        """A message came to a consumer, over a connection that it has had since then.

        One delivery of each may be unflagged: the first. Over different connections that one may be read
        behind another, unless its connection was made after that.
        """
        self.deliveries += 1
        if id_ in self.confirmed:
            self.confirmed_again.append(id_)
        if id_ in self.received:
            if flagged:
                self.flagged_again += 1
            elif id_ in self.unflagged or since_s > self._flagged_s[id_]:
                self.unflagged_again.append(id_)
        elif flagged:
            self._flagged_s[id_] = time.monotonic()
        self.received.add(id_)
        if not flagged:
            self.unflagged.add(id_)

    def note_accepted(self, id_: Id) -> None:
        """Its producer was told that it was accepted."""
        self.accepted.add(id_)

    def note_confirmed(self, id_: Id) -> None:
        """Its consumer was told that the broker has settled it."""
        self.confirmed.add(id_)

    @property
    def lost(self) -> set[Id]:
        """Accepted and never seen by any consumer."""
        return self.accepted - self.received

    def __str__(self) -> str:
        counts = {
            "accepted": self.accepted,
            "received": self.received,
            "confirmed": self.confirmed,
            "lost": self.lost,
            "confirmed and again": self.confirmed_again,
            "again, not flagged": self.unflagged_again,
            "out of order": self.out_of_order,
        }
        told = ", ".join(f"{what} {len(ids):,}" for what, ids in counts.items())
        return f"{told}; {self.deliveries:,} deliveries, {self.flagged_again:,} of them again and flagged"


class Peer:
    """A connection with one link, made anew whenever it is lost."""

    def __init__(self, books: Books, address: str) -> None:
        self.books = books
        self.address = address
        self.port = 0
        self.sock: socket.socket | None = None
        self.refused = ""
        # When its connection was made.
        self.since_s = 0.0

    def connect(self, port: int) -> None:
        """Open a connection and attach; nothing is sent before the first turn."""
        self.drop()
        self.port = port
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=2)
        except OSError:
            return
        sock.setblocking(False)
        self.sock, self.since_s = sock, time.monotonic()
        self.transport = Transport()
        self.connection = Connection()
        self.connection.container = f"crash-{id(self):x}"
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        session = self.connection.session()
        session.open()
        self.link = self.attach(session)
        self.link.open()

    def attach(self, session: Any) -> Any:
        """The one link."""
        raise NotImplementedError

    def on_delivery(self, delivery: Any) -> None:
        """A delivery changed."""
        raise NotImplementedError

    def work(self) -> None:
        """What there is to do of one's own accord."""

    def drop(self) -> None:
        """The connection is gone."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def turn(self) -> None:
        """Read, handle, write, without waiting."""
        if self.sock is None:
            return
        try:
            self._read()
            self._handle()
            self.work()
            self._write()
        except OSError:
            self.drop()

    def ask(self) -> Callable[[], bool]:
        """Whether the broker has answered a question put now: what it said before has come by then, too."""
        session = self.connection.session()
        session.open()

        def answered() -> bool:
            if not session.state & Endpoint.REMOTE_ACTIVE:
                return False
            session.close()
            return True

        return answered

    def _read(self) -> None:
        assert self.sock is not None
        while True:
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionError("closed")
            while data:
                room = self.transport.capacity()
                if room <= 0:
                    raise ConnectionError("closed")
                self.transport.push(data[:room])
                data = data[room:]
                self._handle()

    def _handle(self) -> None:
        while (event := self.collector.peek()) is not None:
            if event.type == Event.DELIVERY:
                self.on_delivery(event.delivery)
            elif event.type == Event.LINK_REMOTE_CLOSE and event.link is not None:
                self.refused = str(event.link.remote_condition or "")
            self.collector.pop()

    def _write(self) -> None:
        assert self.sock is not None
        while (pending := self.transport.pending()) > 0:
            try:
                sent = self.sock.send(self.transport.peek(pending) or b"")
            except BlockingIOError:
                return
            self.transport.pop(sent)
            self._handle()
        if pending < 0 or self.connection.state & Endpoint.REMOTE_CLOSED:
            raise ConnectionError("closed")


class Producer(Peer):
    """Sends while it has credit, up to a window; what it wasn't told of by a lost connection it leaves."""

    def __init__(self, books: Books, address: str, number: int, filler: int = 0) -> None:
        super().__init__(books, address)
        self.number = number
        self.next = 0
        self.filler = filler
        self.ttl_ms = 0
        self.window = 500
        self.limit: int | None = None
        self.paused = False
        self.rejected: dict[int, str] = {}

    def attach(self, session: Any) -> Any:
        link = session.sender(f"p{self.number}-{self.next}")
        link.target.address = self.address
        self.unsettled = 0
        return link

    def work(self) -> None:
        budget = 200
        while budget and not self.paused and self.link.credit > 0 and self.unsettled < self.window:
            if self.limit is not None and self.next >= self.limit:
                return
            budget -= 1
            self.link.delivery(str(self.next))
            self.link.send(encoded(self.number, self.next, self.filler, self.ttl_ms))
            self.link.advance()
            self.next += 1
            self.unsettled += 1

    def on_delivery(self, delivery: Any) -> None:
        if delivery.updated and delivery.remote_state:
            if delivery.remote_state == Delivery.ACCEPTED:
                self.books.note_accepted((self.number, int(delivery.tag)))
            elif delivery.remote_state == Delivery.REJECTED:
                self.rejected[int(delivery.tag)] = str(delivery.remote.condition)
            delivery.settle()
            self.unsettled -= 1


class Consumer(Peer):
    """Accepts what it gets; in second mode an id is confirmed when the broker settles."""

    def __init__(self, books: Books, address: str, second: bool, name: str) -> None:
        super().__init__(books, address)
        self.second = second
        self.name = name
        self.credit = 300
        # By producer; over all lives of the broker, for what comes late says that it does.
        self.newest: dict[int, int] = defaultdict(lambda: -1)

    def attach(self, session: Any) -> Any:
        link = session.receiver(self.name)
        link.source.address = self.address
        link.rcv_settle_mode = Link.RCV_SECOND if self.second else Link.RCV_FIRST
        self.ids: dict[str, Id] = {}
        link.flow(self.credit)
        return link

    def on_delivery(self, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            id_, flagged = identified(bytes(self.link.recv(delivery.pending)))
            self.link.advance()
            self._order(id_, flagged)
            self.books.note_received(id_, flagged, self.since_s)
            delivery.update(Delivery.ACCEPTED)
            if self.second:
                self.ids[delivery.tag] = id_
            else:
                delivery.settle()
            if self.link.credit < self.credit - self.credit // 2:
                self.link.flow(self.credit - self.credit // 2)
        elif delivery.settled and self.second:
            self.books.note_confirmed(self.ids.pop(delivery.tag))
            delivery.settle()

    def _order(self, id_: Id, flagged: bool) -> None:
        producer, number = id_
        if not flagged and id_ not in self.books.received:
            if number < self.newest[producer]:
                self.books.out_of_order.append((id_, self.newest[producer]))
            self.newest[producer] = number


def turn_all(peers: list[Peer], seconds: float) -> None:
    """Let them all run for a while."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for peer in peers:
            peer.turn()
        socks = [peer.sock for peer in peers if peer.sock is not None]
        if not socks:
            time.sleep(min(left, 0.01))
            continue
        select.select(socks, [], [], min(left, 0.001))
