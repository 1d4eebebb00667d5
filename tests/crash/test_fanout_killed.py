"""kill -9 under a durable topic with several queues: each of them has every message that was accepted.

Such a message is written once, and its other queues have a record that points to it. Each queue keeps books
of its own: nothing accepted is missing in any of them, and nothing confirmed comes back to the one that
confirmed it, though others still hold it. ``-s`` shows the counts.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from broker.client.request import Management
from tests.crash.conftest import Broker
from tests.crash.peers import Books, Consumer, Id, Peer, Producer, turn_all
from tests.crash.shim import Shim
from tests.crash.test_kill import JOURNAL_FILES, SYNC_US, check, drain

POLICIES = """
policies:
  - {match: news, kind: topic, durable: true}
  - {match: "copy.#", durable: true, max_count: 20000, consumer_flow_limit: 500}
"""
QUEUES = [f"copy.{number}" for number in range(4)]
CHECK_EVERY = 6
# Messages a round, on average.
ENOUGH = 50
# The producer of the last life, in which nobody consumes.
ALONE = 9
FEW = 100


class Shared(Books):
    """What producers were promised, in the books of every queue."""

    def __init__(self, books: list[Books]) -> None:
        super().__init__()
        self.books = books

    def note_accepted(self, id_: Id) -> None:
        super().note_accepted(id_)
        for each in self.books:
            each.note_accepted(id_)


class Topic:
    """A broker with a topic whose queues have consumers, in both settle modes, and books of each."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder / "broker", POLICIES)
        self.shim = Shim(folder, self.broker.data)
        self.books = [Books() for _ in QUEUES]
        self.promised = Shared(self.books)
        self.producers = [Producer(self.promised, "news", n, filler=(0, 3000)[n]) for n in range(2)]
        self.consumers = [
            Consumer(books, queue, second, f"{queue}-{second}")
            for books, queue in zip(self.books, QUEUES, strict=True)
            for second in (True, False)
        ]

    def begin(self) -> None:
        """Make the queues and bind them."""
        self.broker.start()
        with Management(self.broker.url) as management:
            management.call("CREATE", "org.sluice.topic", "news", {})
            for queue in QUEUES:
                management.call("CREATE", "org.sluice.queue", queue, {})
                management.call(
                    "CREATE", "org.sluice.binding", attributes={"source": "news", "target": queue}
                )
        self.broker.kill()

    def live(self, peers: list[Peer], seconds: float, env: dict[str, str] | None) -> None:
        """Run a broker under load, and kill it."""
        self.broker.start(env=env)
        for peer in peers:
            peer.connect(self.broker.port)
        turn_all(peers, seconds)
        self.broker.kill()
        for peer in peers:
            peer.drop()

    def look(self) -> None:
        """All that was accepted comes to every queue."""
        self.broker.start()
        for consumer in self.consumers:
            consumer.connect(self.broker.port)
        for books in self.books:
            drain(self.broker, self.consumers, books)
            check(books)
        self.broker.kill()
        for consumer in self.consumers:
            consumer.drop()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [12, pytest.param(200, marks=pytest.mark.soak)])
def test_every_queue_of_a_topic_has_what_was_accepted(tmp_path: Path, rounds: int) -> None:
    topic = Topic(tmp_path)
    dice = random.Random(20265)
    topic.begin()
    number = 0
    while number < rounds or (len(topic.promised.accepted) <= rounds * ENOUGH and number < 4 * rounds):
        number += 1
        topic.broker.configure(f"store: {{journal_file_size: {dice.choice(JOURNAL_FILES)}}}\n")
        topic.shim.on("slow", str(dice.choice(SYNC_US)))
        peers: list[Peer] = [*topic.producers, *(each for each in topic.consumers if dice.random() < 0.6)]
        topic.live(peers, dice.uniform(0.05, 0.3), topic.shim.env if dice.random() < 0.5 else None)
        if number % CHECK_EVERY == 0:
            topic.look()
    topic.look()
    for queue, books in zip(QUEUES, topic.books, strict=True):
        print(f"\n{queue}, {number} rounds: {books}")
    assert len(topic.promised.accepted) > rounds * ENOUGH
    assert sum(books.flagged_again for books in topic.books) > 0


def test_a_message_is_written_once_for_all_queues_and_each_has_it_after_a_kill(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.begin()
    producer = Producer(topic.promised, "news", ALONE, filler=100)
    # Fewer than a page, or the first of them are in the file of pages already.
    producer.limit = FEW
    topic.broker.configure("store: {journal_file_size: 32MB}\n")
    topic.live([producer], 1.0, None)
    accepted = sorted(number for _, number in topic.promised.accepted)
    assert len(accepted) == FEW
    journal = b"".join(path.read_bytes() for path in topic.broker.data.glob("**/journal-*"))
    written = Counter(map(int, re.findall(rb"%d:(\d+):[0-9a-f]" % ALONE, journal)))
    assert [written[number] for number in accepted] == [1] * len(accepted)
    topic.look()
