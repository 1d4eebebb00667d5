"""The program for Proton's blocking clients."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from proton import ConnectionException, Delivery, Link, Message, ProtonException, Timeout
from proton.handlers import IncomingMessageHandler
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.clients.proton.program import main
from tests.clients.proton.scene import ANSWER_S, URL, WAIT_S, Refused, hang_up
from tests.clients.proton.terminus import Asks

_STATES = {
    "accepted": Delivery.ACCEPTED,
    "released": Delivery.RELEASED,
    "rejected": Delivery.REJECTED,
    "modified": Delivery.MODIFIED,
}


class BlockingScene:
    """Blocking connections, closed at the end."""

    def __init__(self) -> None:
        self.connections: list[Opened] = []

    def open(self, container: str = "", idle_s: float = 0.0) -> Opened:
        options: dict[str, Any] = {"container_id": container} if container else {}
        connection = BlockingConnection(URL, timeout=ANSWER_S, heartbeat=idle_s or None, **options)
        self.connections.append(Opened(connection))
        return self.connections[-1]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Opened:
    """One connection."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self.is_open = True

    def sender(self, address: str | None, asks: Asks | None = None, name: str | None = None) -> Sending:
        try:
            return Sending(self, self.connection.create_sender(address, name=name, options=asks))
        except LinkDetached as fault:
            raise Refused(str(fault)) from None

    def receiver(
        self,
        address: str | None,
        asks: Asks | None = None,
        name: str | None = None,
        credit: int = 100,
        dynamic: bool = False,
    ) -> Receiving:
        inbox = _Inbox()
        try:
            link = self.connection.create_receiver(
                address, credit=credit, dynamic=dynamic, name=name, options=asks, handler=inbox
            )
        except LinkDetached as fault:
            raise Refused(str(fault)) from None
        receiving = Receiving(self, link, inbox)
        # Its credit goes out now, not when somebody waits for a message.
        receiving.flush()
        return receiving

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.connection.close()

    def drop(self) -> None:
        hang_up(self.connection.conn)
        # It hears of it, and lets the socket go.
        with suppress(ProtonException):
            self.connection.wait(lambda: False, timeout=1.0)
        with suppress(ProtonException):
            self.close()


class _Inbox(IncomingMessageHandler):
    """Keeps what comes; BlockingReceiver's own would add credit for each message by itself."""

    def __init__(self) -> None:
        super().__init__(auto_accept=False)
        self.messages: deque[tuple[Message, Delivery]] = deque()

    def on_message(self, event: Any) -> None:
        self.messages.append((event.message, event.delivery))

    def on_link_error(self, event: Any) -> None:
        if event.link.state & Link.LOCAL_ACTIVE:
            event.link.close()
        raise LinkDetached(event.link)


class Sending:
    """A BlockingSender."""

    def __init__(self, opened: Opened, sender: Any) -> None:
        self.opened = opened
        self.sender = sender
        self.address = sender.link.remote_target.address

    def send(self, message: Message, wait_s: float = WAIT_S) -> bool:
        try:
            self.sender.send(message, timeout=wait_s)
        except Timeout:
            return False
        except SendException as fault:
            raise Refused(str(fault)) from None
        return True

    def detach(self) -> None:
        _detach(self.opened, self.sender.link)

    def close(self) -> None:
        self.sender.close()


class Receiving:
    """A BlockingReceiver with a handler of ours."""

    def __init__(self, opened: Opened, receiver: Any, inbox: _Inbox) -> None:
        self.opened = opened
        self.receiver = receiver
        self.inbox = inbox
        self.unsettled: deque[Delivery] = deque()

    @property
    def address(self) -> str | None:
        return str(self.receiver.link.remote_source.address)

    def next(self, wait_s: float = WAIT_S) -> Message | None:
        try:
            self.opened.connection.wait(lambda: bool(self.inbox.messages), timeout=wait_s)
        except Timeout:
            return None
        message, delivery = self.inbox.messages.popleft()
        self.unsettled.append(delivery)
        return message

    def settle(self, how: str) -> None:
        delivery = self.unsettled.popleft()
        if how == "modified":
            delivery.local.failed = True
        delivery.update(_STATES[how])
        delivery.settle()
        self.receiver.link.flow(1)
        self.flush()

    def drain(self) -> int:
        link = self.receiver.link
        link.drain(0)
        self.opened.connection.wait(lambda: not link.draining(), timeout=3.0)
        return int(link.credit)

    def detach(self) -> None:
        _detach(self.opened, self.receiver.link)

    def close(self) -> None:
        self.receiver.close()

    def flush(self) -> None:
        """All that was said is written."""
        conn = self.opened.connection.conn
        transport = None if conn is None else conn.transport
        if transport is None:
            raise ConnectionException("the connection is gone")
        self.opened.connection.wait(lambda: transport.pending() <= 0, timeout=WAIT_S)


def _detach(opened: Opened, link: Any) -> None:
    heard: list[bool] = []
    link.handler = _Detaching(heard)
    link.detach()
    opened.connection.wait(lambda: bool(heard), timeout=WAIT_S)
    link.free()


class _Detaching:
    """Hears the answer to a detach."""

    def __init__(self, heard: list[bool]) -> None:
        self.heard = heard

    def on_link_remote_detach(self, event: Any) -> None:
        self.heard.append(True)


if __name__ == "__main__":
    main(BlockingScene, {})
