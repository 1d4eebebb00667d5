"""Failed deliveries are counted, and dead letters are in one place, over kills and restarts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.link import Connection
from broker.codec import sections
from broker.codec.message import LETTER_ADDRESS, LETTER_REASON, PROPERTY_COUNT
from tests.crash.conftest import Broker
from tests.wire.apiclient import Api
from tests.wire.conftest import wait_until
from tests.wire.vanishing import crashing, handed_over

CONFIG = "store: {journal_file_size: 1MB}\nlimits: {shutdown_timeout: 1ms}\n"
QUEUE = "policies:\n  - {match: q, durable: true, max_delivery_count: 3}\n"
MB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker", QUEUE, CONFIG)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def put(broker: Broker, *bodies: bytes) -> None:
    with Connection(f"amqp://127.0.0.1:{broker.port}", timeout_s=60) as connection:
        sender = connection.sender("q")
        for body in bodies:
            sender.send(sections.header(durable=True) + sections.binary_body(body), 60)
        sender.flush(60)


def depth(broker: Broker, name: str) -> int:
    """Its messages; none where it isn't there."""
    answer = Api(broker).call("GET", f"/queues/{name}")  # type: ignore[arg-type]
    return 0 if answer.status == 404 else int(answer.body["depth_msgs"])


def held(broker: Broker, name: str) -> int:
    return int(Api(broker).get(f"/queues/{name}")["unsettled_msgs"])  # type: ignore[arg-type]


def begin_again(broker: Broker, killed: bool) -> None:
    if killed:
        broker.kill()
    else:
        assert broker.stop() == 0
    broker.start()


def crash(broker: Broker, window: int) -> None:
    """A consumer takes so many messages, and is gone."""
    with crashing(broker.port, "q", window) as (connection, receiver):
        handed_over(connection, receiver, window)
    wait_until(lambda: held(broker, "q") == 0, 20, "what it held to come back")


def taken(broker: Broker, name: str, count: int) -> list[bytes]:
    with Connection(f"amqp://127.0.0.1:{broker.port}", timeout_s=60) as connection:
        receiver = connection.receiver(name, credit=count)
        return [receiver.take(1, 60)[0] for _ in range(count)]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_only_what_a_consumer_had_begun_on_is_counted_over_restarts(broker: Broker, killed: bool) -> None:
    """Three starts after each crash: by then a message is read from its page, not from the journal."""
    broker.start()
    put(broker, b"a", b"b", b"c")
    for number in range(1, 7):
        crash(broker, 3 if number <= 3 else 2)
        # What came back is noted with the next group; a kill before it would count one failure less.
        put(broker, b"later")
        for _ in range(3):
            begin_again(broker, killed)
        assert depth(broker, "DLQ") == number // 3
    letters = taken(broker, "DLQ", 2)
    assert [data[-1:] for data in letters] == [b"a", b"b"]
    assert all(LETTER_REASON in data and b"max-delivery-count" in data for data in letters)
    assert taken(broker, "q", 1)[0][-1:] == b"c"


def large_files(broker: Broker) -> list[Path]:
    return sorted((broker.data / "large").iterdir())


def fail_once(broker: Broker) -> None:
    """A consumer reads all of the first message and hands it back as a failed delivery (§3.4.5)."""
    with Connection(f"amqp://127.0.0.1:{broker.port}", timeout_s=60) as connection:
        receiver = connection.receiver("q", credit=1, manual=True)
        receiver.grant(1)
        [(number, _)] = handed_over(connection, receiver, 1)
        receiver.settle(number, "modified", failed=True)
        receiver.close()


def test_a_large_message_that_fails_over_restarts_is_one_dead_letter_with_all_of_its_body(
    tmp_path: Path,
) -> None:
    """Fifty megabytes, failed by a refusal and by a consumer that is gone, in four lives of the broker."""
    policies = "policies:\n  - {match: q, durable: true, max_delivery_count: 6}\n"
    broker = Broker(tmp_path / "broker", policies, CONFIG)
    broker.start()
    try:
        body = bytes(range(256)) * (50 * 4096)
        put(broker, body, b"neighbour")
        (file,) = large_files(broker)
        for killed in (True, False, True):
            fail_once(broker)
            assert depth(broker, "DLQ") == 0
            crash(broker, 1)
            # What is said of a message is on disk before the next one is confirmed.
            put(broker, b"later")
            begin_again(broker, killed)
        assert (depth(broker, "DLQ"), depth(broker, "q")) == (1, 4)
        assert len(large_files(broker)) == 1
        (letter,) = taken(broker, "DLQ", 1)
        assert hashlib.sha256(letter[-len(body) :]).digest() == hashlib.sha256(body).digest()
        assert LETTER_REASON in letter
        assert b"max-delivery-count" in letter[:1000]
        assert LETTER_ADDRESS + b"\xa1\x01q" in letter
        assert PROPERTY_COUNT + b"\x71\x00\x00\x00\x01" in letter
        wait_until(lambda: large_files(broker) == [], 20, f"{file} to go")
        begin_again(broker, True)
        assert (depth(broker, "DLQ"), depth(broker, "q")) == (0, 4)
        assert large_files(broker) == []
        assert [data[-9:] for data in taken(broker, "q", 1)] == [b"neighbour"]
    finally:
        if broker.process is not None and broker.process.poll() is None:
            broker.kill()
