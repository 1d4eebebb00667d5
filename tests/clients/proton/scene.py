"""What the features are made of; the blocking and the handler program each have their own."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Any, Protocol

from proton import Message

from broker.codec.owned import owned
from tests.clients.proton.terminus import Asks

URL = os.environ.get("URL", "amqp://127.0.0.1:5672")
WAIT_S = 5.0
# For what the broker has to answer: fifty clients on two processors are slow to ask.
ANSWER_S = 15.0


class Failure(Exception):  # noqa: N818 - what came is not what was to come
    """A feature doesn't hold."""


class Refused(Exception):  # noqa: N818 - the broker's word
    """A link, or a message, was refused; the text has the condition."""


class NotApplicable(Exception):  # noqa: N818 - no error at all
    """The library's API can't say it."""


class Sender(Protocol):
    """A link to send on."""

    address: str | None

    def send(self, message: Message, wait_s: float = WAIT_S) -> bool:
        """Whether it was accepted within the time; Refused with the outcome's condition if not at all."""

    def detach(self) -> None: ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """A link to receive on, with credit."""

    address: str | None

    def next(self, wait_s: float = WAIT_S) -> Message | None:
        """The next message, unsettled; None if none comes."""

    def settle(self, how: str) -> None:
        """The oldest unsettled one: accepted, released, rejected or modified (delivery failed)."""

    def drain(self) -> int:
        """Ask for what there is and no more; the credit that is left after it."""

    def detach(self) -> None: ...

    def close(self) -> None: ...


class Connection(Protocol):
    """A connection of a container."""

    def sender(self, address: str | None, asks: Asks | None = None, name: str | None = None) -> Sender: ...

    def receiver(
        self,
        address: str | None,
        asks: Asks | None = None,
        name: str | None = None,
        credit: int = 100,
        dynamic: bool = False,
    ) -> Receiver: ...

    def close(self) -> None: ...

    def drop(self) -> None:
        """End its socket without a word."""


class Scene(Protocol):
    """Opens connections and closes what a feature left open."""

    def open(self, container: str = "", idle_s: float = 0.0) -> Connection: ...

    def close(self) -> None: ...


def expect(what: str, wanted: Any, came: Any) -> None:
    """Failure where they differ."""
    if wanted != came:
        raise Failure(f"{what}: expected {wanted!r}, came {came!r}")


def send(sender: Sender, *bodies: Any, **fields: Any) -> None:
    """Each accepted."""
    for body in bodies:
        if not sender.send(Message(body=body, **fields)):
            raise Failure(f"{body!r} was not accepted")


def take(receiver: Receiver, count: int) -> list[Any]:
    """The bodies of so many messages, each accepted."""
    bodies = []
    for number in range(count):
        message = receiver.next()
        if message is None:
            raise Failure(f"only {number} of {count} messages came")
        receiver.settle("accepted")
        bodies.append(owned(message.body))
    return bodies


def silent(receiver: Receiver, seconds: float = 0.4) -> None:
    """Failure if a message comes."""
    message = receiver.next(seconds)
    if message is not None:
        raise Failure(f"{message.body!r} came, nothing was to come")


def refused(condition: str, action: Any) -> None:
    """Failure unless the broker refuses it so."""
    try:
        action()
    except Refused as fault:
        if condition not in str(fault):
            raise Failure(f"expected {condition}, came {fault}") from None
        return
    raise Failure(f"expected {condition}, and it worked")


def hang_up(connection: Any) -> None:
    """End a Proton connection's socket under it, as a pulled cable would."""
    selectable = connection.transport and connection.transport._selectable
    if selectable is not None:
        with suppress(OSError), socket.socket(fileno=os.dup(selectable.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)


def pause(seconds: float) -> None:
    """Time that the feature is about."""
    time.sleep(seconds)
