"""The program for Proton's MessagingHandler: events, with a Container that is turned until they came."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from proton import Connection as ProtonConnection
from proton import Delivery, Endpoint, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, DynamicNodeProperties, LinkOption

from tests.clients.proton.program import main
from tests.clients.proton.scene import ANSWER_S, URL, WAIT_S, Failure, Refused, hang_up
from tests.clients.proton.terminus import Asks

_STATES = {
    "accepted": Delivery.ACCEPTED,
    "released": Delivery.RELEASED,
    "rejected": Delivery.REJECTED,
    "modified": Delivery.MODIFIED,
}


class HandlerScene(MessagingHandler):
    """One container and its events."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.links: dict[Link, HandlerSender | HandlerReceiver] = {}
        self.refusals: dict[Link, str] = {}
        self.detached: set[Link] = set()
        self.containers: list[Container] = []
        self.connections: list[HandlerConnection] = []

    def open(self, container: str = "", idle_s: float = 0.0) -> HandlerConnection:
        made = Container(self)
        if container:
            made.container_id = container
        made.timeout = 0.05
        made.start()
        self.containers.append(made)
        opened = made.connect(URL, reconnect=False, heartbeat=idle_s or None)
        self.until(lambda: bool(opened.state & Endpoint.REMOTE_ACTIVE), "the connection to open")
        connection = HandlerConnection(self, made, opened)
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def turn(self) -> None:
        for container in self.containers:
            container.do_work(0.01)

    def until(self, condition: Callable[[], bool], what: str, wait_s: float = ANSWER_S) -> None:
        deadline = time.monotonic() + wait_s
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"waited {wait_s} s for {what}")
            self.turn()

    def on_message(self, event: Any) -> None:
        receiver = self.links.get(event.receiver)
        if isinstance(receiver, HandlerReceiver):
            receiver.messages.append((event.message, event.delivery))

    def on_accepted(self, event: Any) -> None:
        self._outcome(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        condition = event.delivery.remote.condition
        self._outcome(event, str(condition.name if condition else "rejected"))

    def on_released(self, event: Any) -> None:
        self._outcome(event, "released")

    def _outcome(self, event: Any, text: str) -> None:
        sender = self.links.get(event.sender)
        if isinstance(sender, HandlerSender):
            sender.outcomes[event.delivery.tag] = text

    def on_link_error(self, event: Any) -> None:
        self.refusals[event.link] = str(event.link.remote_condition.name)

    def detach(self, link: Link) -> None:
        """Both sides, so that its name is free again."""
        link.detach()
        self.until(lambda: link in self.detached, "the detach to be answered")
        link.free()

    def on_link_remote_detach(self, event: Any) -> None:
        self.detached.add(event.link)

    def on_connection_error(self, event: Any) -> None:
        """Whoever waits for something finds out by not getting it."""

    def on_transport_error(self, event: Any) -> None:
        """Likewise."""


class HandlerConnection:
    """A connection, in a container of its own."""

    def __init__(self, scene: HandlerScene, container: Container, connection: ProtonConnection) -> None:
        self.scene = scene
        self.container = container
        self.connection = connection

    def sender(self, address: str | None, asks: Asks | None = None, name: str | None = None) -> HandlerSender:
        link = self.container.create_sender(self.connection, address, name=name, options=_options(asks))
        self._await(link)
        return HandlerSender(self.scene, link)

    def receiver(
        self,
        address: str | None,
        asks: Asks | None = None,
        name: str | None = None,
        credit: int = 100,
        dynamic: bool = False,
    ) -> HandlerReceiver:
        options = _options(asks)
        if dynamic:
            options.append(DynamicNodeProperties({}))
        link = self.container.create_receiver(
            self.connection, address, name=name, dynamic=dynamic, options=options
        )
        receiver = HandlerReceiver(self.scene, link)
        self._await(link)
        link.flow(credit)
        self.scene.turn()
        return receiver

    def _await(self, link: Link) -> None:
        scene = self.scene
        scene.until(
            lambda: link in scene.refusals or bool(link.state & Endpoint.REMOTE_ACTIVE), "the link to open"
        )
        # A refused attach is an attach with no terminus, and a detach behind it (§2.6.3).
        refused = link.remote_target.type if link.is_sender else link.remote_source.type
        if refused == 0:
            scene.until(lambda: link in scene.refusals or _has_terminus(link), "the link's error", 1.0)
        if link in scene.refusals:
            raise Refused(scene.refusals[link])

    def close(self) -> None:
        if self.connection.state & Endpoint.LOCAL_ACTIVE:
            self.connection.close()
            self.scene.until(
                lambda: not self.connection.state & Endpoint.REMOTE_ACTIVE, "the connection to close"
            )

    def drop(self) -> None:
        hang_up(self.connection)
        with suppress(Failure):
            self.scene.until(lambda: self.connection.transport is None, "the socket to end", 1.0)
        self.connection.close()


def _has_terminus(link: Link) -> bool:
    return link.is_sender and link.target.address is None


def _options(asks: Asks | None) -> list[LinkOption]:
    return [] if asks is None else [asks]


class HandlerSender:
    """A link to send on; what it is told of each delivery."""

    def __init__(self, scene: HandlerScene, link: Any) -> None:
        self.scene = scene
        self.link = link
        self.address = link.remote_target.address
        self.outcomes: dict[str, str] = {}
        scene.links[link] = self

    def send(self, message: Message, wait_s: float = WAIT_S) -> bool:
        delivery = self.link.send(message)
        if delivery.settled or self.link.snd_settle_mode == Link.SND_SETTLED:
            self.scene.turn()
            return True
        try:
            self.scene.until(lambda: delivery.tag in self.outcomes, "the outcome", wait_s)
        except Failure:
            return False
        outcome = self.outcomes[delivery.tag]
        if outcome != "accepted":
            raise Refused(outcome)
        return True

    def detach(self) -> None:
        self.scene.detach(self.link)

    def close(self) -> None:
        self.link.close()
        self.scene.turn()


class HandlerReceiver:
    """A link to receive on; what came and is not settled."""

    def __init__(self, scene: HandlerScene, link: Any) -> None:
        self.scene = scene
        self.link = link
        self.messages: deque[tuple[Message, Delivery]] = deque()
        self.unsettled: deque[Delivery] = deque()
        scene.links[link] = self

    @property
    def address(self) -> str | None:
        return str(self.link.remote_source.address)

    def next(self, wait_s: float = WAIT_S) -> Message | None:
        try:
            self.scene.until(lambda: bool(self.messages), "a message", wait_s)
        except Failure:
            return None
        message, delivery = self.messages.popleft()
        self.unsettled.append(delivery)
        return message

    def settle(self, how: str) -> None:
        delivery = self.unsettled.popleft()
        if how == "modified":
            delivery.local.failed = True
        delivery.update(_STATES[how])
        delivery.settle()
        self.link.flow(1)
        self.scene.turn()

    def drain(self) -> int:
        self.link.drain(0)
        self.scene.until(lambda: not self.link.draining(), "the drain", 3.0)
        return int(self.link.credit)

    def detach(self) -> None:
        self.scene.detach(self.link)

    def close(self) -> None:
        self.link.close()
        self.scene.turn()


if __name__ == "__main__":
    main(HandlerScene, {})
