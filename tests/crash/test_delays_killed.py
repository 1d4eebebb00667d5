"""kill -9 while many durable messages wait for their time, around the waves in which others are due.

A crowd of messages waits all the time, of which operators cancel some. Beside it senders send messages due
together, takers take some for good and have others tried again later, and the broker is killed before,
during or behind such a wave, with its clock set to another time between lives and within them. No message
comes before its time, none is lost, none comes again whose settlement or whose cancelling was confirmed. At
the end the clock is set to the time of the crowd, and the broker is killed while that comes out.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import NotFoundError
from tests.crash.conftest import Broker
from tests.crash.delaying import DelayBooks, DelayingProducer, TryingConsumer, encoded, identified
from tests.crash.peers import turn_all
from tests.crash.shim import Shim

QUEUE = "later"
CROWD = 1000
HOUR_MS = 3_600_000
# The crowd is due in three hours; clocks of lives are set by minutes, so that it never is meanwhile.
CROWD_DUE_MS = 3 * HOUR_MS
CROWD_SPAN_MS = HOUR_MS
SHIFTS_S = (0, 0, 0, 7, -7, 240, -240)
# Microseconds that a sync takes longer.
SYNC_US = (0, 0, 3000, 30_000)
# Lives between two looks at whether all that was due has come.
CHECK_EVERY = 20
# Lives that end while the crowd comes out.
LAST_LIVES = 8
POLICIES = """
policies:
  - match: ">"
    durable: true
    max_count: 300000
    consumer_flow_limit: 500
    redelivery_delay: 400ms
    max_delivery_count: 0
"""


class DelayedLives:
    """One data directory, its books, and those who use it."""

    def __init__(self, broker: Broker, shim: Shim, crowd: int, seed: int) -> None:
        self.broker = broker
        self.shim = shim
        self.dice = random.Random(seed)
        self.books = DelayBooks()
        self.crowd = crowd
        self.producers = [DelayingProducer(self.books, QUEUE, n, self.dice) for n in range(2)]
        self.consumers = [TryingConsumer(self.books, QUEUE, f"c{n}", self.dice) for n in range(2)]
        self.lives = self.killed_in_waves = self.fewest_waiting = 0

    def begin(self, shift_s: int) -> None:
        """Start the broker with its clock set to another time."""
        self.shim.on("clock", str(shift_s))
        self.books.shift_ms = shift_s * 1000
        self.broker.start(env=self.shim.env)

    def end(self) -> None:
        """kill -9."""
        self.broker.kill()
        for peer in (*self.producers, *self.consumers):
            peer.drop()
        self.books.end_life()
        self.lives += 1

    def send_crowd(self) -> None:
        """Send what waits all the time."""
        with Connection(self.broker.url) as connection:
            sender = connection.sender(QUEUE)
            for number in range(self.crowd):
                id_ = CROWD, number
                due_ms = int(self.books.now_ms()) + CROWD_DUE_MS + self.dice.randrange(CROWD_SPAN_MS)
                self.books.due_ms[id_] = due_ms
                sender.send(encoded(id_, {"x-opt-delivery-time": due_ms}), 60)
                self.books.accepted.add(id_)
            sender.flush(60)
            assert sender.rejections == []
            assert sender.accepted == self.crowd

    def live(self) -> None:
        """One life that ends somewhere around a wave."""
        books, dice = self.books, self.dice
        self.shim.on("slow", str(dice.choice(SYNC_US)))
        self.begin(dice.choice(SHIFTS_S))
        wave_ms = books.now_ms() + dice.uniform(100, 900)
        for producer in self.producers:
            producer.wave_ms = wave_ms
            producer.wave_width_ms = dice.choice((1, 60, 300))
            producer.limit = dice.choice((0, 100, 400))
        peers = [*self.producers, *(each for each in self.consumers if dice.random() < 0.7)]
        for peer in peers:
            peer.connect(self.broker.port)
        until_ms = wave_ms + dice.uniform(-100, 250)
        half_s = max(until_ms - books.now_ms(), 0) / 2000
        turn_all([*peers], half_s)
        # This changes nothing before the next start.
        self.shim.on("clock", str(dice.choice((-3600, 3600, 86400))))
        turn_all([*peers], half_s)
        self.killed_in_waves += until_ms >= wave_ms
        if dice.random() < 0.5:
            self.cancel(dice.randint(1, 10))
        self.end()

    def cancel(self, count: int) -> None:
        """Have an operator cancel some, of which the last was confirmed just before the broker is killed."""
        books = self.books
        with Management(self.broker.url) as management:
            given = {"name": QUEUE, "offset": self.dice.randrange(2000), "count": count}
            found = management.call("delayed", "org.sluice.broker", body=given).body
            assert isinstance(found, dict)
            for each in found["messages"]:
                id_, _ = identified(bytes(each["message"]))
                books.cancelling.add(id_)
                asked = {"name": QUEUE, "number": each["number"]}
                try:
                    management.call("cancel", "org.sluice.broker", body=asked)
                except NotFoundError:
                    # Its time has come meanwhile.
                    books.cancelling.discard(id_)
                else:
                    books.cancelled.add(id_)

    def waiting(self) -> int:
        """Count what waits for its time, as the broker says."""
        with Management(self.broker.url) as management:
            found = management.call("READ", "org.sluice.queue", QUEUE).body
            assert isinstance(found, dict)
            return int(found["delayed_msgs"])

    def take_what_is_due(self) -> None:
        """Everything but the crowd comes once its time is over; the crowd is complete."""
        self.shim.off("slow")
        self.begin(600)
        self.await_all(crowd=False)
        crowd = {id_ for id_ in self.books.missing if id_[0] == CROWD}
        unsure = self.books.cancelling - self.books.cancelled
        assert len(crowd) <= self.waiting() <= len(crowd) + len(unsure), str(self.books)
        self.fewest_waiting = self.waiting()
        self.end()
        print(f"{self.lives} lives: {self.books}", flush=True)

    def await_all(self, crowd: bool, seconds: float = 120) -> None:
        """Take until nothing has to come any more."""
        for consumer in self.consumers:
            consumer.takes_all = True
            consumer.connect(self.broker.port)
        deadline = time.monotonic() + seconds
        while any(crowd or id_[0] != CROWD for id_ in self.books.missing):
            turn_all([*self.consumers], 0.2)
            assert time.monotonic() < deadline, f"{self.books}\n{sorted(self.books.missing)[:5]}"
        turn_all([*self.consumers], 0.5)
        for consumer in self.consumers:
            consumer.takes_all = False
        self.check()

    def check(self) -> None:
        assert self.books.breaches == [], str(self.books)

    def release_crowd(self) -> None:
        """Set the clock to the time at which the crowd is due, and kill the broker while it comes out."""
        for _ in range(LAST_LIVES):
            self.begin(5 * 3600)
            for consumer in self.consumers:
                consumer.connect(self.broker.port)
            turn_all([*self.consumers], self.dice.uniform(0.02, 0.3))
            self.end()
            self.check()
        self.begin(5 * 3600)
        self.await_all(crowd=True)
        assert self.waiting() == 0
        self.end()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("lives", "crowd"), [(5, 2000), pytest.param(200, 110_000, marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_a_killed_broker_delivers_each_message_in_its_time(tmp_path: Path, lives: int, crowd: int) -> None:
    broker = Broker(tmp_path / "broker", POLICIES)
    walk = DelayedLives(broker, Shim(tmp_path, broker.data), crowd, seed=20193)
    begun = time.monotonic()
    try:
        walk.begin(0)
        walk.send_crowd()
        walk.end()
        for life in range(1, lives):
            walk.live()
            walk.check()
            if life % CHECK_EVERY == 0 or life == lives - 1:
                walk.take_what_is_due()
        # On a busy machine fewer kills meet a wave of messages whose time has come.
        while walk.killed_in_waves <= lives // 4 and walk.lives < 4 * lives:
            walk.live()
            walk.check()
        around = walk.lives
        walk.release_crowd()
    finally:
        if broker.process is not None and broker.process.poll() is None:
            broker.kill()
    books = walk.books
    print(
        f"\n{around} lives with {walk.fewest_waiting:,} and more waiting, {walk.killed_in_waves} killed"
        f" in a wave, {walk.lives - around} while all came out, in {time.monotonic() - begun:.0f} s: {books}"
    )
    assert walk.killed_in_waves > lives // 4
    assert books.waits > 0
    assert books.again > 0
    assert books.cancelled
