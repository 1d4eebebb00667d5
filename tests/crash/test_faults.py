"""A disk that is full, a sync that fails, a stopped process, a clock that is set, a damaged directory."""

from __future__ import annotations

import random
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.conftest import Broker
from tests.crash.peers import Books, Consumer, Peer, Producer, turn_all
from tests.crash.shim import Shim

SMALL = "store: {journal_file_size: 1MB}\n"
DURABLE = "policies:\n  - {match: '>', durable: true, max_size: 1GB, flow_stop_size: 0, flow_stop_count: 0}\n"


def until(peers: list[Peer], condition: Callable[[], bool], seconds: float = 20, what: str = "") -> None:
    """Let the peers run until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        turn_all(peers, 0.02)


def ready(broker: Broker) -> tuple[int, str]:
    """What /readyz answers."""
    url = f"http://127.0.0.1:{broker.http_port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def stalled(producer: Producer, books: Books, seconds: float = 0.5) -> bool:
    """Whether nothing more is accepted."""
    before = len(books.accepted)
    turn_all([producer], seconds)
    return len(books.accepted) == before


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "broker", DURABLE, SMALL)


@pytest.fixture(autouse=True)
def _gone_in_the_end(broker: Broker) -> object:
    yield
    if broker.process is not None and broker.process.poll() is None:
        broker.process.send_signal(signal.SIGCONT)
        broker.kill()


def test_a_full_disk_blocks_producers_and_lets_consumers_drain(broker: Broker, tmp_path: Path) -> None:
    shim = Shim(tmp_path, broker.data)
    broker.start(env=shim.env)
    books = Books()
    producer = Producer(books, "q", 1, filler=1000)
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) > 2000)
    shim.on("full")
    until([producer], lambda: ready(broker)[0] == 503, what="the broker to notice")
    assert "No space left on device" in ready(broker)[1]
    until([producer], lambda: stalled(producer, books), what="producers to be blocked")
    assert producer.sock is not None
    assert producer.rejected == {} or "amqp:resource-limit-exceeded" in str(producer.rejected)

    # What was confirmed is there, and consuming it works though nothing more can be stored.
    consumer = Consumer(books, "q", second=True, name="c")
    consumer.connect(broker.port)
    until([producer, consumer], lambda: not books.lost and len(books.confirmed) > 1000, what=str(books))

    shim.off("full")
    accepted = len(books.accepted)
    until([producer, consumer], lambda: len(books.accepted) > accepted + 1000, what="it to go on by itself")
    assert ready(broker)[0] == 200
    producer.paused = True
    until([producer, consumer], lambda: not books.lost and producer.unsettled == 0)
    broker.kill()
    consumer.drop()
    broker.start()
    again = Consumer(books, "q", second=False, name="again")
    again.connect(broker.port)
    turn_all([again], 0.5)
    assert (books.lost, books.confirmed_again, books.unflagged_again) == (set(), [], [])
    for peer in (producer, again):
        peer.drop()


def test_a_sync_that_fails_confirms_nothing_any_more(broker: Broker, tmp_path: Path) -> None:
    shim = Shim(tmp_path, broker.data)
    broker.start(env=shim.env)
    books = Books()
    producer = Producer(books, "q", 1)
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) > 500)
    shim.on("sync")
    until([producer], lambda: ready(broker)[0] == 503, what="the broker to notice")
    turn_all([producer], 0.3)
    accepted = len(books.accepted)
    # The sync would work again now; what the kernel dropped meanwhile it would not say.
    shim.off("sync")
    turn_all([producer], 1.0)
    assert len(books.accepted) == accepted
    assert producer.link.credit - producer.link.queued == 0
    status, why = ready(broker)
    assert status == 503
    assert "sync" in why
    assert "Input/output error" in why
    assert "the store has failed" in broker.read_log()
    other = Producer(books, "elsewhere", 2)
    other.connect(broker.port)
    turn_all([other], 0.3)
    assert other.next == 0
    producer.drop()
    other.drop()
    broker.kill()

    broker.start()
    consumer = Consumer(books, "q", second=False, name="c")
    consumer.connect(broker.port)
    until([consumer], lambda: not books.lost, what=str(books))
    consumer.drop()


def test_a_second_broker_on_the_directory_refuses(broker: Broker, tmp_path: Path) -> None:
    broker.start()
    second = Broker(tmp_path / "second", DURABLE, SMALL)
    second.data = broker.data
    second.start(wait=False)
    assert second.wait_exit() == 1
    assert str(broker.data) in second.said
    assert "in use by another broker" in second.said
    assert broker.stop() == 0


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_a_stopped_process_goes_on_where_it_was(broker: Broker, seconds: int) -> None:
    broker.start()
    books = Books()
    producer = Producer(books, "q", 1)
    consumer = Consumer(books, "q", second=True, name="c")
    peers: list[Peer] = [producer, consumer]
    for peer in peers:
        peer.connect(broker.port)
    until(peers, lambda: len(books.confirmed) > 500)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    turn_all(peers, seconds)
    broker.process.send_signal(signal.SIGCONT)
    confirmed = len(books.confirmed)
    until(peers, lambda: len(books.confirmed) > confirmed + 500)
    producer.paused = True
    until(peers, lambda: not books.lost and producer.unsettled == 0)
    assert books.deliveries == len(books.received)
    for peer in peers:
        peer.drop()


@pytest.mark.parametrize("shift_s", [3600, -3600])
def test_a_clock_that_is_set_expires_nothing(broker: Broker, tmp_path: Path, shift_s: int) -> None:
    shim = Shim(tmp_path, broker.data)
    broker.start(env=shim.env)
    books = Books()
    producer = Producer(books, "q", 1)
    producer.limit = 200
    producer.ttl_ms = 60_000
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) == 200)
    shim.on("clock", str(shift_s))
    turn_all([producer], 1.5)
    consumer = Consumer(books, "q", second=False, name="c")
    consumer.connect(broker.port)
    until([consumer], lambda: not books.lost, what=str(books))
    consumer.drop()
    producer.drop()


# --- a damaged directory


def filled(broker: Broker) -> Books:
    """A directory of a broker that stopped in order, with messages in pages and in the journal."""
    broker.start()
    books = Books()
    producer = Producer(books, "q", 1, filler=900)
    producer.limit = 4000
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) == 4000)
    # The checkpoint that moves closed files to pages has time to end.
    turn_all([producer], 1.2)
    producer.drop()
    assert broker.stop() == 0
    return books


def outcome(broker: Broker, books: Books) -> str:
    """What a start makes of the directory: the refusal, or nothing where every message is there."""
    broker.start("--log-level", "error", wait=False)
    assert broker.process is not None
    deadline = time.monotonic() + 20
    while broker.process.poll() is None and "ready" not in broker.read_log():
        assert time.monotonic() < deadline, broker.said
        time.sleep(0.01)
    if broker.process.poll() is not None:
        assert broker.wait_exit() == 1, broker.said
        return broker.said
    broker.wait_ready()
    books.received.clear()
    consumer = Consumer(books, "q", second=False, name="c")
    consumer.connect(broker.port)
    deadline = time.monotonic() + 5
    while books.lost and time.monotonic() < deadline:
        turn_all([consumer], 0.02)
    consumer.drop()
    broker.kill()
    if books.lost:
        # What is read when it is needed is refused when it is needed.
        assert "checksum" in broker.read_log(), f"{len(books.lost)} lost in silence"
        return broker.said
    return ""


@pytest.mark.timeout(400)
def test_flipped_bits_are_refused_with_their_place(broker: Broker) -> None:
    """In every file, where bytes are used: refused, or (in room nobody uses) without effect."""
    books = filled(broker)
    whole = broker.folder / "whole"
    shutil.copytree(broker.data, whole)
    dice = random.Random(3)
    files = sorted(path for path in whole.iterdir() if path.is_file() and path.stat().st_size > 4096)
    assert {path.name.partition("-")[0] for path in files} >= {"journal", "pages", "directory.mdb"}
    refused = 0
    for number in range(50):
        shutil.rmtree(broker.data)
        shutil.copytree(whole, broker.data)
        victim = broker.data / files[number % len(files)].name
        data = bytearray(victim.read_bytes())
        used = [at for at in range(0, len(data), 512) if any(data[at : at + 512])]
        place = dice.choice(used) + dice.randrange(512)
        data[place] ^= 1 << dice.randrange(8)
        victim.write_bytes(data)
        said = outcome(broker, books)
        if said:
            refused += 1
            assert str(broker.data) in said, said
            assert "Traceback" not in said, said
    print(f"\n50 flipped bits: {refused} refused, {50 - refused} without effect, none in silence")
    assert refused > 10


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("kind", ["journal", "pages", "directory.mdb"])
def test_a_file_that_was_cut_is_refused(broker: Broker, kind: str, part: float) -> None:
    books = filled(broker)
    named = [path for path in broker.data.iterdir() if path.name.startswith(kind) and "lock" not in path.name]
    victim = min(named)
    with victim.open("r+b") as file:
        file.truncate(int(victim.stat().st_size * part))
    said = outcome(broker, books)
    assert "Traceback" not in said, said
    assert said or not books.lost
