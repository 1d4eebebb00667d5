"""kill -9 at random instants under load: nothing accepted is lost, nothing confirmed comes back.

Producers record every id whose acceptance they heard of, consumers every id whose settlement the broker
confirmed (second settle mode). ``-s`` shows the counts.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.crash.conftest import Broker
from tests.crash.peers import Books, Consumer, Peer, Producer, turn_all
from tests.crash.shim import Shim

QUEUES = ("orders", "trades")
CHECK_EVERY = 20
JOURNAL_FILES = ("1MB", "4MB", "32MB")
SYNC_US = (0, 0, 1000, 3000)
KILLED_AT_START = 0.1
# Messages a round, on average.
ENOUGH = 100


def workers(books: Books) -> tuple[list[Producer], list[Consumer]]:
    producers = [Producer(books, QUEUES[n % 2], n, filler=(0, 100, 1000)[n % 3]) for n in range(3)]
    consumers = [
        Consumer(books, queue, second, f"{queue}-{second}") for queue in QUEUES for second in (True, False)
    ]
    return producers, consumers


def drain(broker: Broker, consumers: list[Consumer], books: Books) -> None:
    """Until all that was accepted came, and nothing more does."""
    deadline = time.monotonic() + 120
    quiet = 0
    while quiet < 3:
        before = books.deliveries
        turn_all([*consumers], 0.05)
        quiet = quiet + 1 if books.deliveries == before and not books.lost else 0
        assert time.monotonic() < deadline, f"{books}\n{sorted(books.lost)[:10]}\n{broker.read_log()[-2000:]}"


def run(broker: Broker, shim: Shim, rounds: int, seed: int) -> Books:
    """So many lives of a broker, more where a busy machine got little done in them. What differs from one
    to the next: how long it lives, the size of its journal files (so how often it makes checkpoints), how
    slow its disk is, and whether it gets to be ready at all.
    """
    dice = random.Random(seed)
    books = Books()
    producers, consumers = workers(books)
    begun = time.monotonic()
    early = 0
    number = 0
    while number < rounds or (len(books.accepted) <= rounds * ENOUGH and number < 4 * rounds):
        number += 1
        broker.configure(f"store: {{journal_file_size: {dice.choice(JOURNAL_FILES)}}}\n")
        shim.on("slow", str(dice.choice(SYNC_US)))
        if dice.random() < KILLED_AT_START:
            broker.start(env=shim.env, wait=False)
            time.sleep(dice.uniform(0.1, 0.4))
            broker.kill()
            early += 1
        broker.start(env=shim.env if dice.random() < 0.5 else None)
        peers: list[Peer] = [*producers, *(each for each in consumers if dice.random() < 0.8)]
        for peer in peers:
            peer.connect(broker.port)
        turn_all(peers, dice.uniform(0.05, 0.3))
        broker.kill()
        for peer in peers:
            peer.drop()
        if number % CHECK_EVERY == 0 or number >= rounds:
            broker.start()
            for consumer in consumers:
                consumer.connect(broker.port)
            drain(broker, consumers, books)
            check(books)
            broker.kill()
            for consumer in consumers:
                consumer.drop()
    took = time.monotonic() - begun
    print(
        f"\nseed {seed}, {number} rounds and {early} killed before they were ready, in {took:.0f} s: {books}"
    )
    return books


def check(books: Books) -> None:
    assert books.lost == set(), str(books)
    assert books.confirmed_again == [], str(books)
    assert books.unflagged_again == [], str(books)
    assert books.out_of_order == [], str(books)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_kill_9_at_random_instants(crashing: Broker, tmp_path: Path, rounds: int) -> None:
    books = run(crashing, Shim(tmp_path, crashing.data), rounds, seed=20261)
    assert len(books.accepted) > rounds * ENOUGH
    assert books.flagged_again > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_kill_9_for_an_hour(crashing: Broker, tmp_path: Path, seed: int) -> None:
    run(crashing, Shim(tmp_path, crashing.data), 600, seed)
