"""A client that sends and takes messages piece by piece, on Proton's engine and a plain socket.

The fast client of ours has a message in memory as a whole; here many links of one connection have
messages under way at once, and nobody holds more than a piece.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from proton import SASL, Collector, Connection, Delivery, Endpoint, Event, Link, Session, Transport

PIECE = 1 << 16
# Bytes of a session that may wait in Proton before more is sent.
AHEAD = 1 << 19


class Incoming:
    """What one delivery on a receiver has brought."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self.nbytes = 0
        self.whole = False
        self.aborted = False
        self.delivery: Delivery | None = None


class Streamer:
    """One connection with one session; ``turn`` moves bytes, everything else only asks Proton."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.transport = Transport(mode=Transport.CLIENT)
        self.transport.max_frame_size = PIECE
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.connection.container = "streamer"
        sasl: SASL = self.transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        self.transport.bind(self.connection)
        self.connection.open()
        self.session: Session = self.connection.session()
        self.session.open()
        self.outcomes: dict[str, Delivery] = {}
        self.received: dict[str, list[Incoming]] = {}
        self.errors: dict[str, tuple[str, str]] = {}
        self.eof = False
        self._take: dict[str, Callable[[bytes], None]] = {}
        self._number = 0

    def sender(self, address: str | None, presettled: bool = False) -> Link:
        """A sender with credit."""
        link = self.session.sender(f"{address}-{len(self._take)}-{self._number}")
        self._number += 1
        if address is not None:
            link.target.address = address
        link.snd_settle_mode = Link.SND_SETTLED if presettled else Link.SND_UNSETTLED
        link.open()
        self.until(lambda: link.credit > 0 or link.name in self.errors, f"credit for {address}")
        return link

    def receiver(
        self,
        address: str,
        credit: int,
        take: Callable[[bytes], None] | None = None,
        presettled: bool = False,
        session: Session | None = None,
    ) -> Link:
        """A receiver; ``take`` gets every piece of its messages, ``received`` what became of them."""
        link = (session or self.session).receiver(f"{address}-{self._number}")
        self._number += 1
        link.source.address = address
        link.snd_settle_mode = Link.SND_SETTLED if presettled else Link.SND_UNSETTLED
        self._take[link.name] = take or (lambda _: None)
        self.received[link.name] = []
        link.open()
        link.flow(credit)
        self.until(lambda: bool(link.state & Endpoint.REMOTE_ACTIVE), f"{address} to be attached")
        return link

    def begin(self, link: Link, tag: str) -> Delivery:
        """A delivery to be sent in pieces."""
        return link.delivery(tag)

    def feed(self, link: Link, data: bytes) -> None:
        """More of the link's present delivery, once the socket has taken what came before."""
        self.until(lambda: self.session.outgoing_bytes < AHEAD or link.name in self.errors, "the socket")
        if link.name not in self.errors:
            link.stream(data)
            self.turn(0)

    def send(self, link: Link, tag: str, data: bytes) -> Delivery:
        """A small message; settles at once where the link is for that."""
        self.until(lambda: link.credit > 0 or link.name in self.errors, "credit")
        delivery = link.delivery(tag)
        link.stream(data)
        link.advance()
        if link.snd_settle_mode == Link.SND_SETTLED:
            delivery.settle()
        self.turn(0)
        return delivery

    def flush(self) -> None:
        """Until the socket has taken all there is."""
        self.until(lambda: not self.session.outgoing_bytes and not self.transport.pending(), "the socket")

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Turn until it holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert not self.eof, f"the connection ended while waiting for {what}"
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            self.turn(0.05)

    def turn(self, wait: float) -> None:
        """Read and write what can be; wait that long at most for the broker."""
        pending = self.transport.pending()
        writers = [self.socket] if pending > 0 else []
        readable, writable, _ = select.select([self.socket], writers, [], wait)
        if writable:
            with contextlib.suppress(BlockingIOError):
                self.transport.pop(self.socket.send(self.transport.peek(pending) or b""))
        if readable:
            self._read()
        self._events()

    def close(self) -> None:
        """As a crash would: the socket is closed, nothing is said."""
        self.socket.close()
        self.transport.unbind()
        self.connection.free()

    def __enter__(self) -> Streamer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        capacity = self.transport.capacity()
        if capacity <= 0:
            return
        try:
            data = self.socket.recv(capacity)
        except ConnectionResetError:
            data = b""
        if data:
            self.transport.push(data)
        else:
            self.eof = True

    def _events(self) -> None:
        while (event := self.collector.peek()) is not None:
            self._on(event)
            self.collector.pop()

    def _on(self, event: Any) -> None:
        if event.type == Event.DELIVERY:
            self._on_delivery(event.delivery)
        elif event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            condition = event.link.remote_condition
            self.errors[event.link.name] = (
                (condition.name, condition.description) if condition is not None else ("", "")
            )
            event.link.close()

    def _on_delivery(self, delivery: Delivery) -> None:
        link = delivery.link
        if link.is_sender:
            if delivery.updated:
                self.outcomes[delivery.tag] = delivery
                if delivery.settled:
                    delivery.settle()
            return
        items = self.received[link.name]
        if not items or items[-1].whole or items[-1].aborted:
            items.append(Incoming(self._take[link.name]))
        item = items[-1]
        item.delivery = delivery
        if delivery.aborted:
            item.aborted = True
            delivery.settle()
            return
        data = link.recv(delivery.pending) if delivery.pending else b""
        if data:
            item.nbytes += len(data)
            item.take(data)
        if not delivery.partial:
            item.whole = True
            link.advance()
