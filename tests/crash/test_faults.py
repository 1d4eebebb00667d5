"""A sync that fails, a second broker, a stopped process, a clock that is set."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from broker.store.disk import DiskStore
from tests.crash.conftest import Broker
from tests.crash.peers import Books, Consumer, Peer, Producer, turn_all
from tests.crash.shim import Shim
from tests.crash.watching import in_trouble, stalled, stat, until

SMALL = "store: {journal_file_size: 1MB}\n"
DURABLE = "policies:\n  - {match: '>', durable: true, max_size: 1GB, flow_stop_size: 0, flow_stop_count: 0}\n"


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "broker", DURABLE, SMALL)


@pytest.fixture(autouse=True)
def _gone_in_the_end(broker: Broker) -> object:
    yield
    if broker.process is not None and broker.process.poll() is None:
        broker.process.send_signal(signal.SIGCONT)
        broker.kill()


def test_a_sync_that_fails_confirms_nothing_any_more(broker: Broker, tmp_path: Path) -> None:
    shim = Shim(tmp_path, broker.data)
    broker.start(env=shim.env)
    books = Books()
    producer = Producer(books, "q", 1)
    producer.connect(broker.port)
    until([producer], lambda: len(books.accepted) > 500)
    shim.on("sync")
    until([producer], lambda: in_trouble(broker, "sync of"), what="the broker to notice")
    until([producer], lambda: stalled(producer, books), what="what was on its way to be told")
    accepted = len(books.accepted)
    # The sync would work again now; what the kernel dropped meanwhile it would not say.
    shim.off("sync")
    turn_all([producer], 1.0)
    assert len(books.accepted) == accepted
    assert producer.link.credit - producer.link.queued == 0
    until([producer], lambda: in_trouble(broker, "Input/output error"), what="the broker to say so still")
    assert "the store has failed" in broker.read_log()
    assert stat(broker)["storeState"] == "failed"
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
    until([consumer], lambda: not books.lost, what=books)
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


@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=pytest.mark.soak)])
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
    until([consumer], lambda: not books.lost, what=books)
    consumer.drop()
    producer.drop()


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("holds", "what is noted of 'holds' can't be read and is set aside"),
        ("bindings", "what is noted of 'bindings' can't be read and is set aside"),
        ("bridge/a", "what is noted of 'a' can't be read and is set aside"),
        ("sent/q", "the queue 'q' can't be restored and is set aside"),
    ],
)
def test_a_note_that_can_t_be_read_is_named_and_the_broker_starts(
    broker: Broker, note: str, said: str
) -> None:
    store = DiskStore.open(broker.data, file_bytes=1 << 20)
    store.open_log("q", b'{"kind": "queue", "arguments": {}, "capability": ""}')
    store.note(note, b"[1")
    store.close()
    broker.start()
    assert said in broker.read_log()
    assert "Traceback" not in broker.said
