"""A peer that misbehaves by address: what the client's tests talk to. Run as ``python client_peer.py``;
it prints its port once it listens.

``forbidden`` refuses the link, ``picky`` rejects every second message, ``released`` and ``modified`` give
those outcomes, ``dry`` gives no credit, ``hangup`` closes the connection at the first message,
``$management`` answers, ``twice``, ``lossy`` and ``swapped`` pass messages on wrongly; any other address
accepts and forgets.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from proton import Condition, Delivery, Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

ANSWERS: dict[tuple[str, str | None], tuple[int, str]] = {
    ("READ", "there"): (200, "OK"),
    ("READ", "missing"): (404, "no queue 'missing'"),
    ("CREATE", "there"): (409, "queue 'there' exists"),
    ("UPDATE", "there"): (400, "flow_stop_count is above max_count"),
}


class Peer(MessagingHandler):
    """Proton's own server side, so that the client is tested against another implementation."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.seen = 0
        self.replies: dict[str, Any] = {}
        self.consumers: dict[str, Any] = {}
        self.kept: list[Any] = []

    def on_start(self, event: Any) -> None:
        acceptor = event.container.acceptor("127.0.0.1", 0)
        with socket.socket(fileno=os.dup(acceptor._selectable.fileno())) as listening:
            print(listening.getsockname()[1], flush=True)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            self._open_source(link)
        elif link.remote_target.address != "forbidden":
            link.target.address = link.remote_target.address
            link.flow(0 if link.remote_target.address == "dry" else 100)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if link.is_receiver and link.remote_target.address == "forbidden":
            link.condition = Condition("amqp:unauthorized-access", "no entry for you")
            link.close()

    def _open_source(self, link: Any) -> None:
        if link.remote_source.dynamic:
            link.source.address = f"reply-{len(self.replies)}"
            self.replies[link.source.address] = link
        else:
            link.source.address = link.remote_source.address
            self.consumers[link.source.address] = link

    def on_message(self, event: Any) -> None:
        address = event.link.target.address
        event.link.flow(1)
        if address == "$management":
            self._answer(event.message)
        if address == "hangup":
            event.connection.condition = Condition("amqp:internal-error", "out of order")
            event.connection.close()
            return
        if address in self.consumers:
            for message in self._twisted(address, event.message):
                self.consumers[address].send(message)
        self._settle(event.delivery, address)

    def _twisted(self, address: str, message: Any) -> list[Any]:
        """What a broken broker would pass on; each tenth message shows the fault."""
        tenth = self.seen % 10 == 0
        if address == "twice":
            return [message, message] if tenth else [message]
        if address == "lossy":
            return [] if tenth else [message]
        if tenth:
            self.kept = [message]
            return []
        kept, self.kept = self.kept, []
        return [message, *kept]

    def _settle(self, delivery: Any, address: str) -> None:
        self.seen += 1
        states = {"released": Delivery.RELEASED, "modified": Delivery.MODIFIED}
        state = states.get(address, Delivery.ACCEPTED)
        if address == "picky" and self.seen % 2 == 0:
            delivery.local.condition = Condition("amqp:resource-limit-exceeded", "the queue is full")
            state = Delivery.REJECTED
        delivery.update(state)
        delivery.settle()

    def _answer(self, request: Any) -> None:
        operation, name = request.properties["operation"], request.properties.get("name")
        if operation == "SLEEP":
            return
        status, text = ANSWERS.get((operation, name), (501, f"{operation} is not known"))
        answer = Message(
            body={"name": name, "asked": request.body},
            properties={"statusCode": status, "statusDescription": text},
            correlation_id=request.correlation_id,
        )
        link = self.replies[request.reply_to]
        if link.state & Endpoint.LOCAL_ACTIVE:
            link.send(answer)


if __name__ == "__main__":
    Container(Peer()).run()
