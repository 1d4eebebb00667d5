"""Random legal things from a seeded generator until the time is over, then everything is closed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proton import Described, Message, ulong

from tests.clients.proton.features import LASTING, SELECTOR
from tests.clients.proton.scene import Refused
from tests.clients.proton.terminus import Asks

MOST_CONNECTIONS = 3
MOST_LINKS = 6
NAME = "lasting"


@dataclass
class Place:
    """A scene with one connection, and its links."""

    scene: Any
    connection: Any
    senders: list[Any] = field(default_factory=list)
    receivers: list[Any] = field(default_factory=list)


class Walk:
    """What is open, and what to do next."""

    def __init__(self, make_scene: Callable[[], Any], prefix: str, seed: int) -> None:
        self.make_scene = make_scene
        self.prefix = prefix
        self.dice = random.Random(seed)
        self.container = f"{prefix}-{make_scene.__name__}-{seed}"
        self.places: list[Place] = []
        self.lasting: set[str] = set()
        self.number = 0

    def step(self) -> None:
        """One of them."""
        if not self.places:
            self.connect()
        else:
            self.dice.choices([each for each, _ in STEPS], [weight for _, weight in STEPS])[0](self)

    def connect(self) -> None:
        if len(self.places) < MOST_CONNECTIONS:
            self.places.append(self._place(f"{self.container}-{self._next()}"))

    def open_sender(self) -> None:
        place = self.dice.choice(self.places)
        if len(place.senders) < MOST_LINKS:
            asks = Asks(settled=self.dice.random() < 0.2)
            place.senders.append(place.connection.sender(self._address(), asks, self._name()))

    def open_receiver(self) -> None:
        place = self.dice.choice(self.places)
        if len(place.receivers) >= MOST_LINKS:
            return
        kind = self.dice.randrange(6)
        red = Described(ulong(SELECTOR), "colour = 'red'")
        asks = [
            None,
            Asks(copy=True),
            Asks(filters={"jms-selector": red}),
            Asks(settled=True),
            Asks(("shared",)),
            Asks(("temporary-queue",)),
        ][kind]
        name = f"mixed|{self._next()}" if kind == 4 else self._name()
        address, credit = None if kind == 5 else self._address(), self.dice.randint(1, 50)
        place.receivers.append(place.connection.receiver(address, asks, name, credit, dynamic=kind == 5))

    def send(self) -> None:
        senders = [each for place in self.places for each in place.senders]
        if not senders:
            return
        sender = self.dice.choice(senders)
        for _ in range(self.dice.randint(1, 20)):
            size = 100_000 if self.dice.random() < 0.05 else self.dice.randrange(500)
            colour, ttl = self.dice.choice(("red", "blue")), self.dice.choice((0, 0, 0.05))
            message = Message("x" * size, properties={"colour": colour}, ttl=ttl)
            if not sender.send(message, 0.3):
                return

    def receive(self) -> None:
        receivers = [each for place in self.places for each in place.receivers]
        if not receivers:
            return
        receiver = self.dice.choice(receivers)
        for _ in range(self.dice.randint(1, 20)):
            if receiver.next(0.05) is None:
                return
            (outcome,) = self.dice.choices(
                ("accepted", "released", "rejected", "modified", ""), (70, 10, 7, 8, 5)
            )
            if outcome:
                receiver.settle(outcome)

    def close_link(self) -> None:
        place = self.dice.choice(self.places)
        kinds = [each for each in (place.senders, place.receivers) if each]
        if kinds:
            links = self.dice.choice(kinds)
            links.pop(self.dice.randrange(len(links))).close()

    def subscribe(self) -> None:
        """Comes back to a durable subscription, which is kept or ended."""
        container = f"{self.container}-lasting{self.dice.randrange(2)}"
        place = self._place(container)
        receiver = place.connection.receiver(f"{self.prefix}.news.lasting", LASTING, NAME)
        if receiver.next(0.02) is not None:
            receiver.settle("accepted")
        if self.dice.random() < 0.5:
            self.lasting.add(container)
            receiver.detach()
        else:
            self.lasting.discard(container)
            receiver.close()
        place.scene.close()

    def leave(self) -> None:
        """Ends a connection: its links closed, with them open, or without a word."""
        place = self.places.pop(self.dice.randrange(len(self.places)))
        how = self.dice.random()
        if how < 0.3:
            for link in (*place.senders, *place.receivers):
                link.close()
        if how < 0.6:
            place.scene.close()
        else:
            place.connection.drop()

    def end(self) -> None:
        """Everything is closed, and every subscription ended."""
        while self.places:
            self.leave()
        for container in sorted(self.lasting):
            place = self._place(container)
            place.connection.receiver(f"{self.prefix}.news.lasting", LASTING, NAME).close()
            place.scene.close()

    def _place(self, container: str) -> Place:
        scene = self.make_scene()
        return Place(scene, scene.open(container))

    def _address(self) -> str:
        if self.dice.random() < 0.7:
            return f"{self.prefix}.mixed{self.dice.randrange(4)}"
        return f"{self.prefix}.news.{self.dice.choice(('mixed0', 'mixed1', 'lasting'))}"

    def _name(self) -> str:
        return f"link{self._next()}"

    def _next(self) -> int:
        self.number += 1
        return self.number


STEPS: list[tuple[Callable[[Walk], None], int]] = [
    (Walk.connect, 3),
    (Walk.open_sender, 7),
    (Walk.open_receiver, 9),
    (Walk.send, 31),
    (Walk.receive, 35),
    (Walk.close_link, 9),
    (Walk.subscribe, 2),
    (Walk.leave, 4),
]


def soak(make_scene: Callable[[], Any], prefix: str, seconds: float, seed: int) -> int:
    """How many things were done."""
    walk, end, done = Walk(make_scene, prefix, seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            walk.step()
        except Refused as refusal:
            # A shared subscription of another address: this walk asked for that itself.
            if "amqp:resource-locked" not in str(refusal):
                raise
        done += 1
    walk.end()
    return done
