"""kill -9 while newer values replace older ones: exactly one of each key is there afterwards, never none.

Senders of durable values go on until the broker is killed, beside consumers that release, accept and hold
them. The value that is there after the next start is the last one that was confirmed or a later one, unless a
consumer took that.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy

from tests.crash.conftest import Broker
from tests.crash.movers import run_for

KEYS = "abcdefghij"
QUEUE = "prices"
POLICIES = """
policies:
  - match: "prices"
    durable: true
    last_value_key: share
"""


class Valuer(MessagingHandler):
    """Sends values of all keys; ``confirmed`` has the last one of each that was accepted."""

    def __init__(self, url: str, numbers: Counter[str], seed: int) -> None:
        super().__init__()
        self.url = url
        self.numbers = numbers
        self.dice = random.Random(seed)
        self.under_way: dict[Delivery, tuple[str, int]] = {}
        self.confirmed: dict[str, int] = {}

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        connection = event.container.connect(self.url, reconnect=False)
        self.sender = event.container.create_sender(connection, QUEUE)

    def on_sendable(self, event) -> None:  # type: ignore[no-untyped-def]
        while self.sender.credit and len(self.under_way) < 100:
            key = self.dice.choice(KEYS)
            self.numbers[key] += 1
            number = self.numbers[key]
            made = Message(body=f"{key}{number}", durable=True, properties={"share": key})
            self.under_way[self.sender.send(made)] = (key, number)

    def on_accepted(self, event) -> None:  # type: ignore[no-untyped-def]
        key, number = self.under_way.pop(event.delivery)
        self.confirmed[key] = max(number, self.confirmed.get(key, 0))
        self.on_sendable(event)

    def on_transport_error(self, event) -> None:  # type: ignore[no-untyped-def]
        """The broker was killed."""


class Chooser(MessagingHandler):
    """Releases, accepts or holds each value; ``taken`` has the highest of each key that it accepted."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(prefetch=5, auto_accept=False)
        self.url = url
        self.dice = random.Random(seed)
        self.taken: dict[str, int] = {}
        self.got = 0

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        connection = event.container.connect(self.url, reconnect=False)
        event.container.create_receiver(connection, QUEUE)

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        self.got += 1
        if event.message.body == "end":
            self.accept(event.delivery)
            return
        fate = self.dice.random()
        if fate < 0.5:
            self.release(event.delivery, delivered=fate < 0.1)
        elif fate < 0.8:
            key, number = event.message.body[0], int(event.message.body[1:])
            self.taken[key] = max(number, self.taken.get(key, 0))
            self.accept(event.delivery)

    def on_transport_error(self, event) -> None:  # type: ignore[no-untyped-def]
        """The broker was killed."""


class Reader(MessagingHandler):
    """Reads copies of all values, up to a message that is sent behind them."""

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=500)
        self.url = url
        self.values: list[str] = []

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        self.connection = event.container.connect(self.url)
        event.container.create_sender(self.connection, QUEUE)

    def on_sendable(self, event) -> None:  # type: ignore[no-untyped-def]
        if event.sender.credit and not self.values:
            self.values.append("")
            event.sender.send(Message(body="end"))

    def on_accepted(self, event) -> None:  # type: ignore[no-untyped-def]
        event.container.create_receiver(self.connection, QUEUE, options=Copy())

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        if event.message.body == "end":
            self.connection.close()
        else:
            self.values.append(event.message.body)


def read_values(url: str) -> list[str]:
    reader = Reader(url)
    Container(reader).run()
    return reader.values[1:]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("consumers", [0, 2])
@pytest.mark.parametrize("lives", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_one_value_of_each_key_is_left(crashing: Broker, lives: int, consumers: int) -> None:
    (crashing.folder / "policies.yaml").write_text(POLICIES)
    dice = random.Random(20207 + consumers)
    numbers: Counter[str] = Counter()
    confirmed: dict[str, int] = {}
    taken: dict[str, int] = {}
    got = 0
    crashing.start()
    for life in range(lives):
        url = f"127.0.0.1:{crashing.port}"
        valuer = Valuer(url, numbers, life)
        choosers = [Chooser(url, 1000 * life + number) for number in range(consumers)]
        run_for([Container(each) for each in (valuer, *choosers)], dice.uniform(0.05, 0.4))
        crashing.kill()
        confirmed |= valuer.confirmed
        for chooser in choosers:
            got += chooser.got
            for key, number in chooser.taken.items():
                taken[key] = max(number, taken.get(key, 0))
        crashing.start()
        values = read_values(f"127.0.0.1:{crashing.port}")
        found = {value[0]: int(value[1:]) for value in values}
        assert len(found) == len(values), f"one value a key: {sorted(values)}"
        for key, number in confirmed.items():
            last = max(found.get(key, 0), taken.get(key, 0))
            assert last >= number, f"{key}{number} was confirmed, and there is {last}"
            assert consumers or key in found, f"no value of {key}"
    assert len(confirmed) == len(KEYS)
    assert got >= 10 * consumers
    print(f"\n{lives} lives, {sum(numbers.values())} values sent, {got} delivered")
