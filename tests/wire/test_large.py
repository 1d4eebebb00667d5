"""Large messages: through a file, in and out, while memory stays small and small messages go on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from proton import Delivery, Message

from broker.client.link import Connection
from broker.codec import sections
from broker.store.largefiles import LARGE
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.seeing import await_number, number_of
from tests.wire.streamer import Streamer

pytestmark = pytest.mark.wire

MB = 1 << 20
ACCEPTED = Delivery.ACCEPTED
REJECTED = Delivery.REJECTED
CONFIG = "limits: {max_message_size: 4 GB}\nflow: {max_size: 8 GB}\n"
NO_LETTERS = "policies:\n  - {match: big, dead_letter_address: ''}\n"
# What streaming may take beside the budget: pieces under way to the disk, Proton's buffers, threads.
OVERHEAD = 24 * MB
BLOCK = bytes(range(251)) * 261


def pieces(nbytes: int, durable: bool = False, ttl_ms: int = 0) -> list[bytes]:
    """A message with one data section of so many bytes, cut as it is fed."""
    head = sections.header(durable=durable)
    if ttl_ms:
        head = b"\x00\x53\x70\xc0\x08\x03\x42\x40\x70" + ttl_ms.to_bytes(4, "big")
    blocks = [BLOCK] * (nbytes // len(BLOCK))
    blocks.append(BLOCK[: nbytes % len(BLOCK)])
    return [head + b"\x00\x53\x75\xb0" + nbytes.to_bytes(4, "big"), *blocks]


def hashed(parts: list[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()


def body_hash(nbytes: int) -> str:
    return hashed(pieces(nbytes)[1:])


def send(
    client: Streamer, address: str, nbytes: int, tag: str = "big", durable: bool = False, ttl_ms: int = 0
) -> object:
    """A large message, sent and settled; its outcome."""
    link = client.sender(address)
    client.begin(link, tag)
    for part in pieces(nbytes, durable, ttl_ms):
        client.feed(link, part)
    link.advance()
    client.until(lambda: tag in client.outcomes, "the outcome")
    link.close()
    return client.outcomes[tag].remote_state


class Taken:
    """What a receiver got: its length and the hash of what follows the head."""

    def __init__(self, head_bytes: int) -> None:
        self.left = head_bytes
        self.body = hashlib.sha256()
        self.head = b""

    def __call__(self, data: bytes) -> None:
        cut = min(self.left, len(data))
        self.head += data[:cut]
        self.left -= cut
        self.body.update(data[cut:])


def files(broker: RunningBroker) -> list[str]:
    return sorted(path.name for path in folder(broker).iterdir())


def folder(broker: RunningBroker) -> Path:
    return broker.config_file.parent / "data" / LARGE


def memory(broker: RunningBroker, name: str = "VmHWM") -> int:
    broker.settle()
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def descriptors(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def idle_descriptors(broker: RunningBroker) -> int:
    """How many it has once all its threads have begun, that of the HTTP port too, and what it loads."""
    broker.settle()
    seen: list[int] = []

    def is_settled() -> bool:
        time.sleep(0.1)
        seen.append(descriptors(broker))
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    wait_until(is_settled, 10, "the broker's descriptors to settle")
    return seen[-1]


def broker_number(broker: RunningBroker, name: str) -> int:
    return int(json.loads(sluice(broker, "store", "stats", "--json"))[name])


def gone(broker: RunningBroker) -> None:
    """Nothing is left of any large message."""
    wait_until(lambda: not files(broker), 10, "the files to go")
    wait_until(lambda: broker_number(broker, "temp_bytes") == 0, 10, "the budget to be free")


def in_and_out(broker: RunningBroker, nbytes: int, seconds: float) -> None:
    """Through the broker on one connection, with small messages beside it both ways."""
    before = memory(broker, "VmRSS")
    waits: list[float] = []
    with Streamer(broker.port) as client:
        small = client.sender("small")
        got = client.receiver("small", 1000)
        big = client.sender("big")
        client.begin(big, "big")
        arrived = client.received[got.name]

        def ping() -> None:
            begun = time.monotonic()
            count = len(arrived)
            client.send(small, f"s{count}", sections.binary_body(b"ping"))
            client.until(lambda: len(arrived) > count and arrived[-1].whole, "a small message", 30)
            delivery = arrived[-1].delivery
            assert delivery is not None
            delivery.update(ACCEPTED)
            delivery.settle()
            waits.append(time.monotonic() - begun)

        for number, part in enumerate(pieces(nbytes)):
            client.feed(big, part)
            if number % 100 == 50:
                ping()
        big.advance()
        client.until(lambda: "big" in client.outcomes, "the outcome", seconds)
        assert client.outcomes["big"].remote_state == ACCEPTED
        assert memory(broker) - before < OVERHEAD
        assert number_of(broker, "big", "depth_bytes") > nbytes
        taken = Taken(len(pieces(nbytes)[0]))
        taker = client.receiver("big", 10, taken)
        received = client.received[taker.name]
        while not (received and received[0].whole):
            at = received[0].nbytes if received else 0
            client.until(
                lambda at=at: bool(received) and (received[0].nbytes > at + 5 * MB or received[0].whole),  # type: ignore[misc]
                "more of it",
                seconds,
            )
            ping()
        assert taken.body.hexdigest() == body_hash(nbytes)
        assert received[0].delivery is not None
        received[0].delivery.update(ACCEPTED)
        received[0].delivery.settle()
        client.until(lambda: not files(broker), "the file to go")
    assert memory(broker) - before < OVERHEAD
    # Bounded by what is under way before it, on a machine that has other things to do as well.
    assert sorted(waits)[len(waits) // 2] < 0.25
    # One or two may have met a disk that stood still.
    assert sorted(waits)[-3] < 3
    gone(broker)


def test_a_message_larger_than_memory_streams_through(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, args=("--memory-limit", "16MB"))
    in_and_out(broker, 300 * MB, 60)


@pytest.mark.soak
def test_a_gibibyte_streams_through(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, args=("--memory-limit", "16MB"))
    in_and_out(broker, 1024 * MB, 300)


def test_a_sender_that_vanishes_leaves_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    before = idle_descriptors(broker)
    with Streamer(broker.port) as client:
        link = client.sender("big")
        client.begin(link, "half")
        for part in pieces(30 * MB)[:200]:
            client.feed(link, part)
        wait_until(lambda: len(files(broker)) == 1, 10, "the file to be there")
        assert descriptors(broker) > before
    gone(broker)
    # A client of before may have been counted whose socket the broker had not closed yet.
    wait_until(lambda: descriptors(broker) <= before, 10, "every descriptor to be closed")
    assert number_of(broker, "big", "depth_msgs") == 0


def test_an_aborted_message_leaves_nothing_and_its_link_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        link = client.sender("big")
        delivery = client.begin(link, "cut")
        for part in pieces(30 * MB)[:200]:
            client.feed(link, part)
        wait_until(lambda: len(files(broker)) == 1, 10, "the file to be there")
        delivery.abort()
        client.until(lambda: not files(broker), "the file to go")
        client.send(link, "small", sections.binary_body(b"after it"))
        client.until(lambda: "small" in client.outcomes, "the small one's outcome")
        assert number_of(broker, "big", "depth_msgs") == 1
    gone(broker)


def test_what_comes_behind_a_large_message_keeps_its_place(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        for presettled in (False, True):
            link = client.sender("big", presettled)
            for number in range(3):
                delivery = client.begin(link, f"{presettled}{number}")
                for part in pieces(2 * MB):
                    client.feed(link, part)
                link.advance()
                if presettled:
                    delivery.settle()
                client.send(link, f"{presettled}s{number}", sections.binary_body(b"%d" % number))
        client.flush()
        await_number(broker, "big", "depth_msgs", 12)
        got = client.receiver("big", 100)
        client.until(
            lambda: len(client.received[got.name]) == 12 and client.received[got.name][-1].whole, "all"
        )
        sizes = [item.nbytes > MB for item in client.received[got.name]]
        assert sizes == [True, False] * 6


def test_a_receiver_that_vanishes_gets_nothing_half(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, NO_LETTERS)
    nbytes = 40 * MB
    with Streamer(broker.port) as client:
        assert send(client, "big", nbytes) == ACCEPTED
    before = idle_descriptors(broker)
    for presettled in (False, True):
        with Streamer(broker.port) as client:
            link = client.receiver("big", 1, presettled=presettled)
            items = client.received[link.name]
            client.until(lambda items=items: bool(items), "the first piece")  # type: ignore[misc]
            assert not items[0].whole
        await_number(broker, "big", "ready_msgs", 1)
    wait_until(lambda: descriptors(broker) <= before, 10, "every descriptor to be closed")
    with Streamer(broker.port) as client:
        parts: list[bytes] = []
        link = client.receiver("big", 1, parts.append)
        client.until(
            lambda: bool(client.received[link.name]) and client.received[link.name][0].whole, "all of it"
        )
        message = Message()
        message.decode(b"".join(parts))
        assert (message.delivery_count, message.first_acquirer) == (2, False)
        assert hashlib.sha256(bytes(cast("bytes", message.body))).hexdigest() == body_hash(nbytes)
        delivery = client.received[link.name][0].delivery
        assert delivery is not None
        delivery.update(REJECTED)
        delivery.settle()
        client.until(lambda: not files(broker), "the file to go")


def test_an_answer_before_the_end_stops_the_rest(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, NO_LETTERS)
    with Streamer(broker.port) as client:
        assert send(client, "big", 40 * MB) == ACCEPTED
        client.send(client.sender("big"), "small", sections.binary_body(b"behind it"))
        link = client.receiver("big", 10)
        items = client.received[link.name]
        client.until(lambda: bool(items) and items[0].nbytes > 0, "the first piece")
        assert items[0].delivery is not None
        items[0].delivery.update(REJECTED)
        client.until(lambda: items[0].aborted, "the end of it")
        client.until(lambda: len(items) == 2 and items[1].whole, "the next one")
    gone(broker)


def test_two_subscribers_share_a_file(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, "policies:\n  - {match: news, kind: topic}\n")
    nbytes = 20 * MB
    with Streamer(broker.port) as client, Streamer(broker.port) as other:
        links = [(each, each.receiver("news", 1, Taken(len(pieces(nbytes)[0])))) for each in (client, other)]
        assert send(client, "news", nbytes) == ACCEPTED
        assert len(files(broker)) == 1
        assert nbytes <= broker_number(broker, "temp_bytes") < nbytes + MB
        for each, link in links:
            items = each.received[link.name]
            each.until(lambda items=items: bool(items) and items[0].whole, "all of it")  # type: ignore[misc]
            assert len(files(broker)) == 1
            delivery = items[0].delivery
            assert delivery is not None
            delivery.update(ACCEPTED)
            delivery.settle()
            each.turn(0.1)
        client.until(lambda: not files(broker), "the file to go")
    gone(broker)


def test_the_temporary_store_is_a_budget(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, args=("--temp-limit", "8MB"))
    with Streamer(broker.port) as client:
        link = client.sender("big")
        client.begin(link, "big")
        for part in pieces(20 * MB):
            client.feed(link, part)
        client.until(lambda: link.name in client.errors, "the link to be detached")
        assert client.errors[link.name] == (
            "amqp:resource-limit-exceeded",
            "the broker's temp_limit leaves no room for the rest",
        )
        # The connection goes on.
        assert send(client, "big", 4 * MB, "fits") == ACCEPTED
        assert len(files(broker)) == 1


def test_a_malformed_large_message_is_rejected(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        link = client.sender("big")
        client.begin(link, "bad")
        for part in [*pieces(3 * MB), b"what is this?", *pieces(3 * MB)]:
            client.feed(link, part)
        link.advance()
        client.until(lambda: "bad" in client.outcomes, "the outcome")
        remote = client.outcomes["bad"]
        assert remote.remote_state == REJECTED
        assert remote.remote.condition is not None
        assert remote.remote.condition.name == "amqp:decode-error"
        assert number_of(broker, "big", "depth_msgs") == 0
    gone(broker)


@pytest.mark.parametrize("paged", [False, True])
def test_a_durable_large_message_survives_a_kill(
    start_broker: StartBroker, tmp_path: Path, paged: bool
) -> None:
    nbytes = 20 * MB
    more = ", overflow: page, memory_limit: 64KB" if paged else ""
    policies = f"policies:\n  - {{match: kept, durable: true{more}}}\n"
    data = tmp_path / "kept"
    broker = start_broker(CONFIG, policies, ("--data", str(data)))
    with Streamer(broker.port) as client:
        assert send(client, "kept", nbytes, "one", durable=True) == ACCEPTED
        link = client.sender("kept")
        client.begin(link, "half")
        for part in pieces(nbytes, durable=True)[:100]:
            client.feed(link, part)
        wait_until(lambda: len(list((data / LARGE).iterdir())) == 2, 10, "both files")
        broker.signal(signal.SIGKILL)
        broker.process.wait()
    assert "1 large messages' files" in check(data, "check")
    broker = start_broker(CONFIG, policies, ("--data", str(data)))
    assert [path.name for path in (data / LARGE).iterdir()] == ["00000001"]
    assert number_of(broker, "kept", "depth_msgs") == 1
    assert number_of(broker, "kept", "depth_bytes") > nbytes
    assert broker_number(broker, "store_bytes") > nbytes
    with Streamer(broker.port) as client:
        taken = Taken(len(pieces(nbytes, durable=True)[0]))
        link = client.receiver("kept", 1, taken)
        items = client.received[link.name]
        client.until(lambda: bool(items) and items[0].whole, "all of it")
        assert taken.body.hexdigest() == body_hash(nbytes)
        assert items[0].delivery is not None
        items[0].delivery.update(ACCEPTED)
        items[0].delivery.settle()
        client.until(lambda: not list((data / LARGE).iterdir()), "the file to go")
    wait_until(lambda: broker_number(broker, "store_bytes") == 0, 10, "the store's budget to be free")
    assert broker.stop() == 0
    broker = start_broker(CONFIG, policies, ("--data", str(data)))
    assert number_of(broker, "kept", "depth_msgs") == 0


def test_a_backup_has_the_files_too(start_broker: StartBroker, tmp_path: Path) -> None:
    policies = "policies:\n  - {match: kept, durable: true}\n"
    broker = start_broker(CONFIG, policies)
    with Streamer(broker.port) as client:
        assert send(client, "kept", 3 * MB, durable=True) == ACCEPTED
        said = sluice(broker, "store", "backup", "copy")
        shutil.copytree(said.split()[-1], tmp_path / "copy")
        sluice(broker, "purge", "kept")
    gone(broker)
    broker = start_broker(CONFIG, policies, ("--data", str(tmp_path / "copy")))
    with Streamer(broker.port) as client:
        taken = Taken(len(pieces(1, durable=True)[0]))
        link = client.receiver("kept", 1, taken)
        items = client.received[link.name]
        client.until(lambda: bool(items) and items[0].whole, "all of it")
        assert taken.body.hexdigest() == body_hash(3 * MB)


def check(data: Path, action: str) -> str:
    done = run_sluice("store", action, "--data", str(data))
    return done.stdout + done.stderr


@pytest.mark.parametrize("damage", ["gone", "short", "flipped"])
def test_a_damaged_file_is_found(start_broker: StartBroker, tmp_path: Path, damage: str) -> None:
    policies = "policies:\n  - {match: kept, durable: true}\n"
    data = tmp_path / "kept"
    broker = start_broker(CONFIG, policies, ("--data", str(data)))
    with Streamer(broker.port) as client:
        assert send(client, "kept", 3 * MB, durable=True) == ACCEPTED
    assert broker.stop() == 0
    file = data / LARGE / "00000001"
    if damage == "gone":
        file.unlink()
    elif damage == "short":
        os.truncate(file, 1000)
    else:
        raw = bytearray(file.read_bytes())
        raw[MB] ^= 1
        file.write_bytes(raw)
    said = check(data, "check")
    assert str(file) in said
    assert {"gone": "is missing", "short": "should have", "flipped": "checksum"}[damage] in said
    if damage != "flipped":
        done = run_sluice("serve", "--data", str(data))
        assert done.returncode == 1
        assert str(file) in done.stderr


def test_a_damaged_file_ends_the_receivers_link(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        assert send(client, "big", 5 * MB) == ACCEPTED
        os.truncate(folder(broker) / "00000001", MB)
        link = client.receiver("big", 1)
        client.until(lambda: link.name in client.errors, "the link to be detached")
        name, text = client.errors[link.name]
        assert name == "amqp:internal-error"
        assert "cut short" in text
        assert not any(item.whole for item in client.received[link.name])
        await_number(broker, "big", "ready_msgs", 1)
        assert send(client, "other", 5 * MB, "two") == ACCEPTED


def sluice(broker: RunningBroker, *words: str) -> str:
    done = run_sluice(*words, "-b", broker.url)
    done.check_returncode()
    return done.stdout


def purge(broker: RunningBroker) -> None:
    assert json.loads(sluice(broker, "purge", "big", "--json")) == {"purged": 3}


def delete(broker: RunningBroker) -> None:
    sluice(broker, "config", "del", "queue", "big")


def move_and_purge(broker: RunningBroker) -> None:
    sluice(broker, "move", "big", "other")
    await_number(broker, "other", "depth_msgs", 3)
    # Each leaves once the other queue has it for good, of durable ones on disk.
    await_number(broker, "big", "depth_bytes", 0)
    assert number_of(broker, "other", "depth_bytes") > 6 * MB
    assert len(files(broker)) == 3
    sluice(broker, "purge", "other")


@pytest.mark.parametrize("end", [purge, delete, move_and_purge])
@pytest.mark.parametrize("durable", [False, True])
def test_operators_ends_let_go_of_the_files(
    start_broker: StartBroker, end: Callable[[RunningBroker], None], durable: bool
) -> None:
    policies = f"policies:\n  - {{match: '>', durable: {str(durable).lower()}}}\n"
    broker = start_broker(CONFIG, policies)
    with Streamer(broker.port) as client:
        for number in range(3):
            assert send(client, "big", 2 * MB, f"m{number}", durable=durable) == ACCEPTED
    [row, *_] = [json.loads(line) for line in sluice(broker, "browse", "big", "--json").splitlines()]
    assert row["bytes"] > 2 * MB
    assert len(files(broker)) == 3
    end(broker)
    gone(broker)
    wait_until(lambda: broker_number(broker, "store_bytes") == 0, 10, "the store's budget to be free")


def test_a_dead_letter_keeps_its_body(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, "policies:\n  - {match: big, dead_letter_address: dead}\n")
    nbytes = 3 * MB
    with Streamer(broker.port) as client:
        parts: list[bytes] = []
        link = client.receiver("dead", 1, parts.append)
        assert send(client, "big", nbytes, ttl_ms=50) == ACCEPTED
        items = client.received[link.name]
        client.until(lambda: bool(items) and items[0].whole, "all of it")
        whole = b"".join(parts)
        assert b"x-opt-sluice-dead-letter-reason" in whole[:1000]
        assert hashlib.sha256(whole[-nbytes:]).hexdigest() == body_hash(nbytes)
        assert len(files(broker)) == 1
        assert items[0].delivery is not None
        items[0].delivery.update(ACCEPTED)
        items[0].delivery.settle()
        client.until(lambda: not files(broker), "the file to go")
    gone(broker)


def test_a_sender_stopped_within_a_message_goes_on(start_broker: StartBroker) -> None:
    """Proton sends no more of a message once its credit is taken back."""
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        link = client.sender("big")
        client.begin(link, "big")
        parts = pieces(3 * MB)
        for part in parts[:-5]:
            client.feed(link, part)
        sluice(broker, "producers", "stop", "big")
        for part in parts[-5:]:
            client.feed(link, part)
        link.advance()
        sluice(broker, "producers", "start", "big")
        client.until(lambda: "big" in client.outcomes, "the outcome")
        assert number_of(broker, "big", "depth_msgs") == 1


def park(broker: RunningBroker, client: Streamer) -> None:
    """A large message through the relay waits for a stopped queue."""
    client.sender("big").close()
    sluice(broker, "producers", "stop", "big")
    link = client.sender(None)
    client.begin(link, "big")
    data, *rest = pieces(3 * MB)
    for part in (
        sections.section(sections.PROPERTIES) + b"\xc0\x08\x03\x40\x40\xa1\x03big" + data,
        *rest,
    ):
        client.feed(link, part)
    link.advance()
    client.flush()
    await_number(broker, "big", "parked_msgs", 1)
    assert number_of(broker, "big", "depth_msgs") == 0
    assert len(files(broker)) == 1


def test_a_parked_large_message_waits_outside_and_comes_in(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        park(broker, client)
        sluice(broker, "producers", "start", "big")
        client.until(lambda: "big" in client.outcomes, "the outcome")
        assert number_of(broker, "big", "depth_msgs") == 1
        assert number_of(broker, "big", "depth_bytes") > 3 * MB


def test_a_parked_message_whose_sender_vanishes_leaves_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Streamer(broker.port) as client:
        park(broker, client)
    gone(broker)


def test_the_anonymous_relay_takes_large_messages(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Connection(broker.url) as connection:
        sender = connection.sender(None)
        to_big = sections.section(sections.PROPERTIES) + b"\xc0\x08\x03\x40\x40\xa1\x03big"
        sender.send(to_big + sections.binary_body(bytes(5 * MB)), timeout_s=10.0)
        sender.flush(10.0)
        assert sender.accepted == 1
    assert number_of(broker, "big", "depth_msgs") == 1
    assert len(files(broker)) == 1
