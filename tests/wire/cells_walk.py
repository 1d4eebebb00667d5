"""A random walk over cells: real clients, moves and deaths of cells, and the laws of flow over the whole.

``run`` does so with a seed, which it names where a law doesn't hold. Clients are all in the walk's thread.
Their outcomes follow from the seed and the message; how far each gets between two steps is up to the system.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from proton import Delivery, Message, ProtonException
from proton.handlers import IOHandler, MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container

from broker.client.request import Management
from broker.errors import NotFoundError, OperatorError, SluiceError
from tests.wire.cells import kill_cell, names_in, pids_of
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.test_cells_links import Browsing

STOP = 12
STOP_BYTES = 24 * 1024
MESSAGE_BYTES = 2 * 1024
# A relay's messages that don't fit are held unsettled: so many of each sender are under way here.
RELAYED = 4
# How long anything may take on a busy machine that isn't waiting for something else.
BOUND_S = 45.0
POLICIES = f"""policies:
  - {{match: "kept.>", durable: true, flow_stop_count: {STOP}, flow_resume_count: 6}}
  - {{match: "once.>", durable: true, flow_stop_count: {STOP}, duplicate_window: 100000}}
  - {{match: "brief.>", flow_stop_count: {STOP}, flow_resume_count: {STOP}}}
  - match: "sized.>"
    durable: true
    byte_reservation: strict
    max_message_size: {MESSAGE_BYTES}
    flow_stop_size: {STOP_BYTES}
    flow_resume_size: {STOP_BYTES // 2}
"""
FIGURES = [
    *("name", "depth_msgs", "promised_msgs", "peak_msgs", "overrun_msgs", "depth_bytes", "promised_bytes"),
    *("ready_msgs", "unsettled_msgs", "producers", "consumers", "parked_msgs", "heldBy"),
]
QUEUE = "org.sluice.queue"
BROKER = "org.sluice.broker"
Key = tuple[int, int, int]


@dataclass
class Sent:
    """A message: where it went, and its producer's knowledge of it, of ``state``.

    ``kills`` and ``moves`` are how many the walk had had when it was sent.
    """

    queue: str
    settled: bool
    kills: int
    moves: int
    state: str = "sent"


@dataclass
class Books:
    """All messages, and how far each has come; ``breaches`` are the laws that didn't hold."""

    sent: dict[Key, Sent] = field(default_factory=dict)
    seen: set[Key] = field(default_factory=set)
    # Accepted by a consumer, and where the broker is known to have heard so.
    consumed: set[Key] = field(default_factory=set)
    surely: set[Key] = field(default_factory=set)
    letters: set[Key] = field(default_factory=set)
    breaches: list[str] = field(default_factory=list)

    def breach(self, text: str) -> None:
        """Note a law that didn't hold."""
        self.breaches.append(text)


class Sockets(IOHandler):
    """Proton's sockets; one whose time is over in the turn in which it ends is let be."""

    def on_selectable_expired(self, event: Any) -> None:
        if event.selectable._transport is not None:
            super().on_selectable_expired(event)


class Client(MessagingHandler):
    """A connection that the walk opens again whenever it is lost; ``epoch`` counts them."""

    def __init__(self, walk: Walk, number: int, first: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.walk = walk
        self.number = number
        self.first = first
        self.epoch = 0
        self.connection: Any = None
        self.link: Any = None
        self.is_open = False
        self.reason = ""
        self.not_before_s = 0.0

    @property
    def name(self) -> str:
        """The name of its present link."""
        return f"{self.number}.{self.epoch}"

    def connect(self) -> None:
        """Open a connection and its link."""
        self.epoch += 1
        self.is_open = False
        container = self.walk.container
        self.connection = container.connect(self.walk.broker.url, reconnect=False, handler=self)
        if self.first:
            container.create_sender(self.connection, self.first, name="first")
        self.link = self.attach(container)

    def attach(self, container: Container) -> Any:
        """Return the client's link, which is attached."""
        raise NotImplementedError

    def lose(self, reason: str) -> None:
        """Know that the connection is no more; the next one begins a little later."""
        if self.connection is None:
            return
        connection, self.connection, self.link = self.connection, None, None
        self.reason = reason
        self.is_open = False
        # In the rhythm in which clients usually come back.
        self.not_before_s = time.monotonic() + 0.1
        self.forget()
        with suppress(ProtonException):
            connection.close()

    def forget(self) -> None:
        """Do what the end of a connection means for the client's messages."""

    def detach(self) -> None:
        """End the link and attach another one on the same connection."""
        if not self.is_open:
            return
        old = self.link
        self.is_open = False
        self.epoch += 1
        self.forget()
        old.close()
        self.link = self.attach(self.walk.container)

    def cut(self) -> None:
        """End the connection as the death of a client does."""
        selectable = self.connection.transport and self.connection.transport._selectable
        if selectable:
            with suppress(OSError):
                selectable._delegate.shutdown(socket.SHUT_RDWR)

    def on_link_opened(self, event: Any) -> None:
        if event.link == self.link:
            self.is_open = True
            self.opened()

    def opened(self) -> None:
        """Begin, as the link is there."""

    def _of_now(self, event: Any) -> bool:
        return self.connection is not None and event.connection == self.connection

    def on_link_closed(self, event: Any) -> None:
        # Not where it is the end of a link that this side has detached.
        if self._of_now(event) and (event.link == self.link or event.link.name == "first"):
            self.lose(f"link closed: {event.link.remote_condition}")

    on_link_error = on_link_closed

    def on_connection_closed(self, event: Any) -> None:
        if self._of_now(event):
            self.lose(f"closed: {event.connection.remote_condition}")

    on_connection_error = on_connection_closed

    def on_disconnected(self, event: Any) -> None:
        if self._of_now(event):
            self.lose("disconnected")

    on_transport_error = on_disconnected


class Producer(Client):
    """Sends to its queues in turn whatever it may, as long as there is a ``quota``.

    To a queue that knows duplicates it sends ``again`` what it has no outcome of.
    """

    def __init__(self, walk: Walk, number: int, first: str, queues: list[str], settled: bool) -> None:
        super().__init__(walk, number, first)
        self.queues = queues
        self.settled = settled
        self.resends = queues[0].startswith("once")
        self.again: list[Key] = []
        self.quota = 0
        self.count = 0
        self.pending: dict[tuple[str, str], Key] = {}

    @property
    def is_relay(self) -> bool:
        """Whether its link names no queue."""
        return len(self.queues) > 1

    def attach(self, container: Container) -> Any:
        options = AtMostOnce() if self.settled else AtLeastOnce()
        address = None if self.is_relay else self.queues[0]
        return container.create_sender(self.connection, address, name=self.name, options=options)

    def forget(self) -> None:
        for key in self.pending.values():
            self.walk.books.sent[key].state = "unknown"
        if self.resends:
            self.again = sorted({*self.pending.values(), *self.again})
        self.pending.clear()

    def opened(self) -> None:
        self.push()

    def on_sendable(self, event: Any) -> None:
        self.push()

    def push(self) -> None:
        """Send."""
        while (
            self.is_open
            and (self.quota > 0 or self.again)
            and self.link.credit > 0
            and not (self.is_relay and len(self.pending) >= RELAYED)
        ):
            self._send(self.queues[self.count % len(self.queues)])

    def _send(self, queue: str) -> None:
        walk = self.walk
        if self.again:
            key = self.again.pop(0)
        else:
            self.quota -= 1
            self.count += 1
            key = self.number, 0 if self.resends else self.epoch, self.count
        body = bytes(zlib.crc32(repr(key).encode()) % 1500)
        # So that one that comes again reads otherwise: unset would read false as well.
        message = Message(
            body, durable=True, first_acquirer=True, properties=dict(zip("pen", key, strict=True))
        )
        if self.resends:
            message.id = f"{key[0]}.{key[2]}"
        if self.is_relay:
            message.address = queue
        walk.books.sent[key] = Sent(queue, self.settled, walk.kills, walk.moves)
        delivery = self.link.send(message)
        if not self.settled:
            self.pending[self.name, delivery.tag] = key

    def _outcome(self, event: Any, state: str) -> None:
        key = self.pending.pop((event.link.name, event.delivery.tag), None)
        if key is not None:
            self.walk.books.sent[key].state = state
        self.push()

    def on_accepted(self, event: Any) -> None:
        self._outcome(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        self._outcome(event, "refused")

    def on_released(self, event: Any) -> None:
        self._outcome(event, "refused")

    def on_settled(self, event: Any) -> None:
        self._outcome(event, "unknown")


class Consumer(Client):
    """Takes from a queue with a small window; ``mode``: "accept", "mixed" outcomes, or "hold" everything."""

    def __init__(self, walk: Walk, number: int, first: str, queue: str, window: int) -> None:
        super().__init__(walk, number, first)
        self.queue = queue
        self.window = window
        self.mode = "mixed"
        self.granted = self.received = 0
        self.held: list[tuple[Any, Key]] = []
        # Accepted on this connection, since the broker was last known to have heard everything.
        self.accepted: set[Key] = set()
        self.last: dict[tuple[int, int], int] = {}
        self.drains = False

    def attach(self, container: Container) -> Any:
        self.granted = self.received = 0
        self.last = {}
        self.drains = False
        return container.create_receiver(self.connection, self.queue, name=self.name)

    def forget(self) -> None:
        self.held.clear()
        self.accepted.clear()

    def opened(self) -> None:
        self.top_up()

    def top_up(self) -> None:
        """Give as much credit as the window has room for."""
        if not self.is_open or self.drains or self.walk.is_quiet:
            return
        room = self.window - self.link.credit - len(self.held)
        if room > 0 and room >= self.window // 2:
            self.granted += room
            self.link.flow(room)

    def drain(self) -> None:
        """Take back all credit in the way of AMQP."""
        if self.is_open and not self.drains and self.link.credit > 0:
            self.drains = True
            self.link.drain(0)

    def look(self) -> None:
        """Go on once a drain is over."""
        if self.is_open and self.drains and self.link.credit == 0:
            self.drains = False
            self.link.drain_mode = False
            self.top_up()

    def on_message(self, event: Any) -> None:
        if self.link is None or event.link != self.link:
            return
        message, books = event.message, self.walk.books
        key = tuple(int(message.properties[name]) for name in "pen")
        self.received += 1
        if self.received > self.granted:
            books.breach(f"consumer {self.number} got {self.received} on {self.granted}")
        flagged = message.delivery_count > 0 or not message.first_acquirer
        self._check(key, flagged)  # type: ignore[arg-type]
        self._settle(event.delivery, key)  # type: ignore[arg-type]

    def _check(self, key: Key, flagged: bool) -> None:
        books = self.walk.books
        sent = books.sent.get(key)
        if sent is None or sent.queue != self.queue:
            books.breach(f"{self.queue} has {key}, which was sent to {sent}")
            return
        if sent.state == "refused":
            books.breach(f"{self.queue} has {key}, which its producer was told it hasn't")
        if key in books.surely or key in books.letters:
            books.breach(f"{key} of {self.queue} comes again though it was settled")
        if key in books.seen and not flagged:
            books.breach(f"{key} of {self.queue} comes again and doesn't say so")
        books.seen.add(key)
        if not flagged:
            last = self.last.get(key[:2], 0)
            if key[2] <= last:
                books.breach(f"{key} of {self.queue} comes after {last}")
            self.last[key[:2]] = key[2]

    def _settle(self, delivery: Any, key: Key) -> None:
        chance = zlib.crc32(repr((self.walk.seed, key, self.epoch)).encode()) % 100
        if self.walk.is_quiet or self.mode == "hold" or (self.mode == "mixed" and chance < 8):
            self.held.append((delivery, key))
            return
        if self.mode == "accept" or chance < 75:
            self.take(delivery, key)
        elif chance < 83:
            delivery.update(Delivery.RELEASED)
            delivery.settle()
        elif chance < 92:
            delivery.local.failed = True
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
        else:
            delivery.update(Delivery.REJECTED)
            delivery.settle()
        self.top_up()

    def take(self, delivery: Any, key: Key) -> None:
        """Take a message for good."""
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.accepted.add(key)
        self.walk.books.consumed.add(key)

    def accept_held(self) -> None:
        """Take all that it holds."""
        held, self.held = self.held, []
        for delivery, key in held:
            self.take(delivery, key)
        self.top_up()


class Letters(Consumer):
    """Takes all dead letters of a cell."""

    def __init__(self, walk: Walk, number: int, cell: int) -> None:
        super().__init__(walk, number, "", f"$cell/{cell}/DLQ", 50)
        self.mode = "accept"

    def _check(self, key: Key, flagged: bool) -> None:
        books = self.walk.books
        if key in books.surely or (key in books.letters and not flagged):
            books.breach(f"{key} is a dead letter though it was settled")
        books.letters.add(key)


class Browser(Consumer):
    """Looks at copies, of which none counts."""

    copies = 0

    def attach(self, container: Container) -> Any:
        self.granted = 0
        return container.create_receiver(self.connection, self.queue, name="copies", options=Browsing())

    def _check(self, key: Key, flagged: bool) -> None:
        self.copies += 1
        if self.walk.books.sent[key].queue != self.queue:
            self.walk.books.breach(f"a copy of {key} is in {self.queue}")

    def _settle(self, delivery: Any, key: Key) -> None:
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.top_up()


class Walk:
    """Cells, their clients and the steps."""

    def __init__(self, start_broker: StartBroker, seed: int, cells: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.cells = cells
        self.broker: RunningBroker = start_broker(policies=POLICIES, args=("--cells", str(cells)))
        self.books = Books()
        self.container: Any = Container()
        cast(Any, self.container._global_handler).base = Sockets()
        self.container.timeout = 0.01
        self.container.start()
        self.is_quiet = False
        self.kills = self.moves = self.moved = self.checks = self.looks = self.most = 0
        self.down: dict[int, int] = {}
        # Queues whose producers an operator has stopped, with whether all cells were told.
        self.held: dict[str, bool] = {}
        self._asking: dict[int, Management] = {}
        self._steps: list[str] = []
        self._numbers = iter(range(1, 10**9))
        self.queues = self._some_queues()
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.browsers: list[Browser] = []
        self._some_clients()

    def _some_queues(self) -> list[str]:
        found = []
        for place, kind in enumerate(["once", "kept", "brief", "sized", "kept"]):
            begin = f"{kind}.{place}"
            found += names_in((place + self.seed) % self.cells, self.cells, 1, begin)
        return found

    def _first(self, which: int) -> str:
        """Return a node that takes a connection to a cell, or none: then its own link decides."""
        cell = which % (self.cells + 1)
        return "" if cell == self.cells else names_in(cell, self.cells, 1, "first")[0]

    def _some_clients(self) -> None:
        for place, queue in enumerate(self.queues[:4]):
            for each in range(3):
                first = self._first(self.chance.randrange(self.cells + 1))
                # Exact in bytes, and exact in messages, are those without pre-settled messages.
                settled = place in (1, 2) and each == 2
                self.producers.append(Producer(self, next(self._numbers), first, [queue], settled))
            for _ in range(2):
                first = self._first(self.chance.randrange(self.cells + 1))
                window = self.chance.choice([1, 3, 10])
                self.consumers.append(Consumer(self, next(self._numbers), first, queue, window))
        # The last queue is the relays', which also send to one that others fill.
        for settled in (False, False, True):
            first = self._first(self.chance.randrange(self.cells + 1))
            queues = [self.queues[4], self.queues[4]] if settled else [self.queues[4], self.queues[1]]
            self.producers.append(Producer(self, next(self._numbers), first, queues, settled))
        self.consumers.append(Consumer(self, next(self._numbers), "", self.queues[4], 5))

    @property
    def clients(self) -> list[Client]:
        """All that come back."""
        return [*self.producers, *self.consumers]

    def fail(self, text: str) -> None:
        """End the walk for a reason."""
        steps = "\n".join(self._steps[-40:])
        raise AssertionError(f"seed {self.seed}: {text}\nafter {steps}\n{self.broker.log}")

    # Time.

    def pump(self, seconds: float) -> None:
        """Let the clients do what they do for so long, and look at the laws then."""
        deadline = time.monotonic() + seconds
        while True:
            self._turn()
            if time.monotonic() >= deadline:
                break
        self.look()

    def _turn(self) -> None:
        self.container.process()
        now = time.monotonic()
        for client in self.clients:
            if client.connection is None and now >= client.not_before_s:
                client.connect()
        for consumer in self.consumers:
            consumer.look()

    def until(self, condition: Any, said: Any, seconds: float = BOUND_S) -> None:
        """Let the clients go on until a condition holds.

        It is a breach of liveness that it doesn't after so long in which no message got any further.
        """
        deadline, before = time.monotonic() + seconds, -1
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"waited {seconds} s for {said()}")
            self.pump(0.25)
            if before != (before := self._progress()):
                deadline = time.monotonic() + seconds

    def _progress(self) -> int:
        """Return a number that rises with each step of a message."""
        books = self.books
        outcomes = sum(each.state != "sent" for each in books.sent.values())
        return len(books.sent) + outcomes + len(books.consumed) + len(books.letters)

    # The broker's word.

    def ask(self, cell: int, operation: str, of: str, *more: Any, **body: Any) -> Any:
        """Return a cell's answer; None where it can't be asked now. OperatorError where it refuses."""
        if cell in self._still_down():
            return None
        try:
            if cell not in self._asking:
                self._asking[cell] = Management(self.broker.url, cell=cell, timeout_s=5)
            return self._asking[cell].call(operation, of, *more, **body).body
        except OperatorError:
            raise
        except (SluiceError, ProtonException, OSError):
            found = self._asking.pop(cell, None)
            if found is not None:
                with suppress(Exception):
                    found.close()
            return None

    def _still_down(self) -> dict[int, int]:
        """Return the cells that were killed and aren't there again."""
        for cell, before in list(self.down.items()):
            if self._returns(cell) > before:
                del self.down[cell]
        return self.down

    def _returns(self, cell: int) -> int:
        return sum(f"cell {cell} is there again" in line for line in list(self.broker.lines))

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the figures of each queue in every cell that has it and answers."""
        found: dict[str, list[dict[str, Any]]] = {}
        for cell in range(self.cells):
            body = self.ask(cell, "QUERY", QUEUE, body={"attributeNames": FIGURES})
            for values in () if body is None else body["results"]:
                row = dict(zip(FIGURES, values, strict=True)) | {"cell": cell}
                found.setdefault(str(row["name"]), []).append(row)
        return found

    # Laws.

    def look(self) -> None:
        """See that no queue has more than it may, in any cell."""
        self.looks += 1
        for name, rows in self.rows().items():
            for row in rows if name in self.queues else []:
                self._look_at(name, row)
        if self.books.breaches:
            self.fail("\n".join(self.books.breaches[:10]))

    def _look_at(self, name: str, row: dict[str, Any]) -> None:
        if name.startswith("sized"):
            if row["depth_bytes"] + row["promised_bytes"] > STOP_BYTES:
                self.books.breach(f"{name} has more bytes than {STOP_BYTES}: {row}")
            return
        relays = sum(name in each.queues for each in self.producers if each.is_relay)
        settled = any(each.settled for each in self.producers if name in each.queues)
        if name == self.queues[4]:
            # Its pre-settled messages come as they like.
            return
        most = STOP + relays * RELAYED + (row["overrun_msgs"] if settled else 0)
        self.most = max(self.most, row["depth_msgs"] + row["promised_msgs"])
        # Relayed messages take no promise, and those of relays that were lost stay held.
        if relays == 0 and max(row["depth_msgs"] + row["promised_msgs"], row["peak_msgs"]) > most:
            self.books.breach(f"{name} has more than {most}: {row}")

    def check(self) -> None:
        """Have everybody be quiet, and see that the broker's books are the clients'."""
        self.checks += 1
        self.is_quiet = True
        self.heal()
        difference = [""]

        def agrees() -> bool:
            difference[:] = self._differences()
            return not difference

        self.until(agrees, lambda: "\n".join(difference))
        for consumer in self.consumers:
            self.books.surely |= consumer.accepted
            consumer.accepted.clear()
        for cell in range(self.cells):
            found = self.ask(cell, "audit", BROKER)
            if found is not None and found["breaches"]:
                self.fail(f"cell {cell}: {found['breaches']}")
        self.is_quiet = False
        for consumer in self.consumers:
            consumer.top_up()
        for producer in self.producers:
            producer.push()

    def _differences(self) -> list[str]:
        """Return where the figures of clients and of the broker differ."""
        rows = self.rows()
        found = [
            f"{each.number} is not connected: {each.reason}" for each in self.clients if not each.is_open
        ]
        for name in self.queues:
            if len(rows.get(name, [])) > 1 or name not in rows:
                found.append(f"{name} is in {rows.get(name)}")
                continue
            [row] = rows[name]
            senders = [p for p in self.producers if p.queues == [name] and p.is_open]
            takers = [c for c in self.consumers if c.queue == name and c.is_open]
            credit = sum(each.link.credit for each in senders)
            held = sum(len(each.held) for each in takers)
            free = sum(each.link.credit for each in takers)
            if self.held.get(name) and not (row["heldBy"] and row["promised_msgs"] == 0):
                found.append(f"producers of {name} are not stopped: {row}")
            if credit != row["promised_msgs"]:
                found.append(f"producers of {name} have {credit} credits, of {row['promised_msgs']}")
            if held != row["unsettled_msgs"]:
                found.append(f"consumers of {name} hold {held} messages, of {row['unsettled_msgs']}")
            if free > 0 and row["ready_msgs"] > 0 and not any(each.drains for each in takers):
                found.append(f"consumers of {name} have {free} credits, {row['ready_msgs']} messages wait")
        return found

    def heal(self) -> None:
        """Have all cells up."""
        self.until(lambda: not self._still_down(), lambda: f"cells {self.down}")

    # Steps.

    def step(self) -> None:
        """Take one."""
        steps = {
            self._send: 10,
            self._change_mode: 5,
            self._settle_held: 5,
            self._drain: 3,
            self._browse: 2,
            self._cut: 4,
            self._close: 2,
            self._detach: 3,
            self._move: 5,
            self._move_before_resending: 2,
            self._kill: 1,
            self._kill_in_move: 2,
            self._stand_still: 1,
            self._hold: 2,
            self._start_again: 2,
        }
        [step] = self.chance.choices(list(steps), list(steps.values()))
        self._steps.append(f"{step.__name__}{step() or ''}")
        self.pump(self.chance.choice([0.0, 0.02, 0.1, 0.3]))

    def _send(self) -> object:
        for producer in self.chance.sample(self.producers, 5):
            producer.quota = min(producer.quota + self.chance.randrange(1, 30), 40)
            producer.push()
        return None

    def _change_mode(self) -> object:
        consumer = self.chance.choice(self.consumers)
        consumer.mode = self.chance.choice(["accept", "mixed", "mixed", "hold"])
        return consumer.number, consumer.mode

    def _settle_held(self) -> object:
        for consumer in self.chance.sample(self.consumers, 4):
            consumer.accept_held()
        return None

    def _drain(self) -> object:
        for consumer in self.chance.sample(self.consumers, 3):
            consumer.drain()
        return None

    def _browse(self) -> object:
        for browser in self.browsers:
            browser.lose("has seen enough")
        queue = self.chance.choice(self.queues)
        self.browsers = [Browser(self, next(self._numbers), self._first(self.chance.randrange(5)), queue, 20)]
        self.browsers[0].connect()
        return queue

    def _cut(self) -> object:
        client = self.chance.choice(self.clients)
        if client.connection is not None:
            client.cut()
        return client.number

    def _close(self) -> object:
        client = self.chance.choice(self.clients)
        client.lose("closed by the walk")
        return client.number

    def _tell_all(self, operation: str, queue: str) -> bool:
        """Stop or start the producers of a queue in each cell that answers; return whether all did."""
        told = 0
        for cell in range(self.cells):
            told += self.ask(cell, operation, BROKER, body={"target": queue}) is not None
        return told == self.cells

    def _hold(self) -> object:
        queue = self.chance.choice(self.queues)
        self.held[queue] = self._tell_all("stop-producers", queue) or self.held.get(queue, False)
        return queue, self.held[queue]

    def _start_again(self) -> object:
        if not self.held:
            return None
        queue = self.chance.choice(sorted(self.held))
        if self._tell_all("start-producers", queue):
            del self.held[queue]
        else:
            self.held[queue] = False
        return queue

    def _detach(self) -> object:
        client = self.chance.choice(self.clients)
        client.detach()
        return client.number

    def _kill_in_move(self) -> object:
        moved = self._move()
        deadline = time.monotonic() + self.chance.random() * 0.15
        while time.monotonic() < deadline:
            self._turn()
        return moved, self._kill()

    def _stand_still(self) -> object:
        up = sorted(set(range(self.cells)) - set(self._still_down()))
        cell = self.chance.choice(up)
        pid = pids_of(self.broker)[cell]
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + self.chance.random()
        while time.monotonic() < deadline:
            self._turn()
        os.kill(pid, signal.SIGCONT)
        return cell

    def _move_before_resending(self) -> object:
        """Have a producer that sends again miss outcomes of what is taken, and move its queue."""
        producer = self.chance.choice([each for each in self.producers if each.resends])
        producer.quota += 5
        producer.push()
        self.container.process()
        # The outcomes stay unread.
        time.sleep(0.1)
        producer.lose("closed by the walk before it read")
        producer.not_before_s += 0.5
        return self._move(producer.queues[0])

    def _move(self, queue: str = "") -> object:
        queue = queue or self.chance.choice(self.queues)
        there = self.chance.randrange(self.cells)
        for cell in range(self.cells):
            with suppress(NotFoundError):
                if cell != there and self.ask(cell, "READ", QUEUE, queue) is not None:
                    wait_ms = self.chance.choice([0, 0, 200])
                    body = {"name": queue, "cell": there, "wait": wait_ms}
                    try:
                        begun = self.ask(cell, "move-node", BROKER, body=body)
                    except OperatorError as refusal:
                        return queue, there, str(refusal)
                    self.moves += 1
                    return queue, cell, there, wait_ms, begun
        return queue, there, "not moved"

    def _kill(self) -> object:
        up = [cell for cell in range(self.cells) if cell not in self._still_down()]
        if len(up) < 2:
            return "nobody"
        cell = self.chance.choice(up)
        self.down[cell] = self._returns(cell)
        found = self._asking.pop(cell, None)
        kill_cell(self.broker, cell)
        self.kills += 1
        if found is not None:
            with suppress(Exception):
                found.close()
        return cell

    # The end.

    def finish(self) -> None:
        """Have everything healed, and see that all is where it should be and nobody waits."""
        self.heal()
        for queue in self.held:
            self.until(lambda queue=queue: self._tell_all("start-producers", queue), lambda: "all cells")
        self.held.clear()
        for browser in self.browsers:
            browser.lose("the end")
        for consumer in self.consumers:
            consumer.mode = "accept"
            consumer.accept_held()
        for producer in self.producers:
            producer.quota += 5
            producer.push()

        def waiting() -> list[str]:
            rows = self.rows()
            return [
                *(
                    f"producer {p.number}: {p.quota} to send, {p.reason}"
                    for p in self.producers
                    if p.quota or p.again
                ),
                *(f"producer {p.number}: {len(p.pending)} unsettled" for p in self.producers if p.pending),
                *(f"{name}: {rows.get(name)}" for name in self.queues if self._is_busy(rows.get(name, []))),
            ]

        self.until(lambda: not waiting(), lambda: "\n".join(waiting()))
        self.check()
        self._take_letters()
        self._account()
        for client in self.clients:
            client.lose("the end")
        self.producers, self.consumers, old = [], [], self.consumers

        def left() -> list[Any]:
            rows = self.rows()
            return [
                row
                for name in rows
                for row in rows[name]
                if name in self.queues
                and (row["promised_msgs"] or row["producers"] or row["consumers"] or row["depth_msgs"])
            ]

        self.until(lambda: not left(), left)
        del old
        self.container.stop()
        for each in self._asking.values():
            each.close()
        if "Traceback" in self.broker.log:
            self.fail("a traceback")

    @staticmethod
    def _is_busy(rows: list[dict[str, Any]]) -> bool:
        return len(rows) != 1 or rows[0]["depth_msgs"] > 0 or rows[0]["parked_msgs"] > 0

    def _take_letters(self) -> None:
        takers = []
        for row in self.rows().get("DLQ", []):
            takers.append(Letters(self, next(self._numbers), row["cell"]))
        self.consumers += takers

        def taken() -> bool:
            return not any(row["depth_msgs"] for row in self.rows().get("DLQ", []))

        self.until(taken, lambda: f"dead letters: {self.rows().get('DLQ')}")
        for taker in takers:
            self.consumers.remove(taker)
            taker.lose("the end")

    def _account(self) -> None:
        books = self.books
        for key, sent in books.sent.items():
            if key not in books.consumed and key not in books.letters and self._must_come(key, sent):
                books.breach(f"{key} is lost: {sent}")
        if books.breaches:
            self.fail("\n".join(books.breaches[:20]))

    def _must_come(self, key: Key, sent: Sent) -> bool:
        same = sent.kills == self.kills
        if sent.settled:
            [producer] = [each for each in self.producers if each.number == key[0]]
            return same and sent.moves == self.moves and producer.epoch == key[1]
        return sent.state == "accepted" and (same or not sent.queue.startswith("brief"))


def run(start_broker: StartBroker, seed: int, cells: int, steps: int) -> Walk:
    """Walk with a seed over so many cells."""
    walk = Walk(start_broker, seed, cells)
    for client in walk.clients:
        client.connect()
    walk.check()
    for number in range(steps):
        walk.step()
        if number % 8 == 7:
            walk.check()
    walk.finish()
    return walk
