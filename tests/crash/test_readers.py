"""Selectors and browsers reach messages that are on disk only: after a restart, or of a paged backlog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from proton import Message, ProtonException
from proton.utils import BlockingReceiver

from broker.cli.main import main
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.engine.spool import READ_AHEAD
from tests.crash.conftest import Broker
from tests.crash.test_come_back import CONFIG as LARGE_CONFIG
from tests.crash.test_come_back import forge, lose_bodies
from tests.wire.conftest import wait_until
from tests.wire.terminus import Asks, connected, flush, is_silent, selector

CONFIG = "store: {journal_file_size: 1MB}\n"
LIMITS = "flow_control: false, max_count: 0, max_size: 1GB"
DURABLE = f"policies:\n  - {{match: '>', durable: true, {LIMITS}}}\n"
PAGES = "policies:\n  - {match: '>', overflow: page, memory_limit: 1MB, flow_control: false}\n"
DEAD_LETTERS = (
    f"policies:\n  - {{match: orders, durable: true, dead_letter_address: dead, {LIMITS}}}\n"
    "  - {match: dead, durable: true}\n"
)
ALL = 22_000
EVERY = 2_200
SECONDS = 60.0
# A header that says durable and first-acquirer, so that a broker which sends it again has to say so.
FIRST = b"\x00\x53\x70\xc0\x05\x04\x41\x40\x40\x41"
BLUE = selector("colour = 'blue'")


def encoded(number: int, durable: bool, size: int, blue: bool) -> bytes:
    properties = sections.application_properties({"colour": "blue" if blue else "red", "number": number})
    body = sections.text_body(f"{number} ".ljust(size, "."))
    return (FIRST if durable else b"") + properties + body


def fill(broker: Broker, address: str, count: int, durable: bool, size: int = 20, every: int = EVERY) -> None:
    """Messages from 0 on, one in ``every`` of them blue."""
    with Connection(url(broker)) as connection:
        sender = connection.sender(address)
        for number in range(count):
            sender.send(encoded(number, durable, size, number % every == every - 1), SECONDS)
        sender.flush(SECONDS)


def url(broker: Broker) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


def number_of(message: Message) -> int:
    properties: dict[str, int] = message.properties or {}
    return properties["number"]


def receive(receiver: BlockingReceiver, count: int, accept: bool = True) -> list[int]:
    """The numbers of so many messages."""
    numbers = []
    for _ in range(count):
        numbers.append(number_of(receiver.receive(timeout=SECONDS)))
        if accept:
            receiver.accept()
    flush(receiver.connection)
    return numbers


def browse(broker: Broker, address: str, count: int) -> list[int]:
    """The numbers of so many messages as a browser sees them, and nothing behind them."""
    with connected(url(broker)) as connection:
        receiver = connection.create_receiver(address, credit=count + 1, options=Asks(copy=True))
        numbers = receive(receiver, count)
        assert is_silent(receiver)
        return numbers


def listed(broker: Broker, address: str, capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    """The numbers of what `sluice browse` lists."""
    assert main(["browse", address, "-b", url(broker), "--json", *words]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [row["application_properties"]["number"] for row in rows]


def listed_over_http(broker: Broker, address: str, offset: int) -> list[int]:
    at = f"http://127.0.0.1:{broker.http_port}/api/v1/queues/{address}/messages?offset={offset}&count=100"
    with urlopen(at, timeout=SECONDS) as answer:
        rows = json.load(answer)["messages"]
    return [row["message"]["application_properties"]["number"] for row in rows]


def paged(broker: Broker, address: str) -> int:
    """How many are on disk only."""
    with Management(url(broker)) as management:
        body = management.call("browse", body={"name": address, "count": 1}).body
    assert isinstance(body, dict)
    return int(body["paged"])


def depth(broker: Broker, address: str) -> int:
    with Management(url(broker)) as management:
        body = management.call("READ", "org.sluice.queue", address).body
    assert isinstance(body, dict)
    return int(body["depth_msgs"])


def restart(broker: Broker, end: str, least: int) -> None:
    """End and start it until so many are on disk only: a checkpoint takes them there in its own time."""
    for _ in range(20):
        if end == "SIGTERM":
            broker.stop()
        else:
            broker.kill()
        broker.start()
        if paged(broker, "orders") > least:
            return
    raise AssertionError(f"{paged(broker, 'orders')} are on disk only")


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Broker]:
    """A broker that keeps everything, in many small files."""
    yield from started(Broker(tmp_path / "broker", DURABLE, CONFIG))


@pytest.fixture
def paging(tmp_path: Path) -> Iterator[Broker]:
    """A broker that keeps nothing, and a megabyte of each queue in memory."""
    yield from started(Broker(tmp_path / "broker", PAGES))


def started(broker: Broker) -> Iterator[Broker]:
    broker.start()
    yield broker
    assert broker.process is not None
    if broker.process.poll() is None:
        broker.kill()


@pytest.mark.parametrize("end", ["SIGTERM", "kill -9"])
def test_a_selector_finds_its_ten_of_many_after_a_restart(durable: Broker, end: str) -> None:
    fill(durable, "orders", ALL, True)
    restart(durable, end, ALL // 2)
    with connected(url(durable)) as connection:
        receiver = connection.create_receiver("orders", credit=20, options=Asks(filters=BLUE))
        assert receive(receiver, 10) == list(range(EVERY - 1, ALL, EVERY))
    wait_until(lambda: depth(durable, "orders") == ALL - 10, 20, "what was accepted to be gone")
    durable.kill()
    durable.start()
    assert depth(durable, "orders") == ALL - 10


@pytest.mark.parametrize("end", ["SIGTERM", "kill -9"])
def test_browsers_and_lists_show_what_a_restart_left_on_disk(
    durable: Broker, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 3_000
    fill(durable, "orders", count, True, 1000)
    restart(durable, end, 1000)
    assert listed(durable, "orders", capsys, "--count", "1200") == list(range(1200))
    assert listed(durable, "orders", capsys, "--offset", "2990") == list(range(2990, count))
    assert listed_over_http(durable, "orders", 700) == list(range(700, 800))
    assert listed_over_http(durable, "orders", 2950) == list(range(2950, count))
    assert browse(durable, "orders", count) == list(range(count))
    assert depth(durable, "orders") == count


def test_readers_reach_what_a_running_broker_paged(
    paging: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 6_000
    fill(paging, "orders", count, False, 500, 600)
    assert paged(paging, "orders") > 2_000
    assert browse(paging, "orders", count) == list(range(count))
    assert listed(paging, "orders", capsys, "--offset", "3000", "--count", "1000") == list(range(3000, 4000))
    assert listed_over_http(paging, "orders", 5_950) == list(range(5_950, count))
    blue = list(range(599, count, 600))
    with connected(url(paging)) as connection:
        receiver = connection.create_receiver("orders", credit=20, options=Asks(filters=BLUE))
        assert receive(receiver, 10, accept=False) == blue
    # All of them came back when their consumer left.
    with connected(url(paging)) as connection:
        receiver = connection.create_receiver("orders", credit=20, options=Asks(filters=BLUE))
        assert receive(receiver, 10) == blue
        assert is_silent(receiver)
    wait_until(lambda: depth(paging, "orders") == count - 10, 20, "what was accepted to be gone")
    # One that takes all gets all the others, in order.
    with connected(url(paging)) as connection:
        receiver = connection.create_receiver("orders", credit=500)
        assert receive(receiver, count - 10) == [each for each in range(count) if each not in blue]
    wait_until(lambda: depth(paging, "orders") == 0, 20, "the queue to be empty")


def test_what_a_selector_took_from_disk_comes_back_flagged_after_a_crash(durable: Broker) -> None:
    count = 4_000
    fill(durable, "orders", count, True, 1000, 400)
    restart(durable, "SIGTERM", 1000)
    blue = list(range(399, count, 400))
    with suppress(ProtonException), connected(url(durable)) as connection:
        receiver = connection.create_receiver("orders", credit=20, options=Asks(filters=BLUE))
        got = [receiver.receive(timeout=SECONDS) for _ in blue]
        assert [(number_of(each), each.first_acquirer) for each in got] == [(each, True) for each in blue]
        durable.kill()
        # Nobody answers its close any more.
        connection.timeout = 0.1
    durable.start()
    with connected(url(durable)) as connection:
        receiver = connection.create_receiver("orders", credit=20, options=Asks(filters=BLUE))
        got = [receiver.receive(timeout=SECONDS) for _ in blue]
        assert [number_of(each) for each in got] == blue
        assert not any(each.first_acquirer for each in got)
    assert depth(durable, "orders") == count


def test_a_drain_is_answered_once_the_disk_was_searched(paging: Broker) -> None:
    fill(paging, "orders", 5_000, False, 500, 4_000)
    with connected(url(paging)) as connection:
        receiver = connection.create_receiver("orders", credit=0, options=Asks(filters=BLUE))
        receiver.link.drain(10)
        connection.wait(lambda: receiver.link.credit == 0, timeout=SECONDS)
        assert receive(receiver, 1) == [3_999]


def test_why_says_what_a_selector_has_searched(paging: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    fill(paging, "orders", 5_000, False, 500, 6_000)
    with connected(url(paging)) as connection:
        connection.create_receiver("orders", credit=10, options=Asks(filters=BLUE))

        def said() -> str:
            main(["why", "orders", "-b", url(paging)])
            return capsys.readouterr().out

        wanted = "its selector matched none of 5,000 messages"
        wait_until(lambda: f"{wanted}; it goes on" in said(), 20, "it to have searched all")


@pytest.fixture
def lettered(tmp_path: Path) -> Iterator[Broker]:
    """A broker that keeps everything, large messages in files, and has a place for dead letters."""
    yield from started(Broker(tmp_path / "broker", DEAD_LETTERS, LARGE_CONFIG))


@pytest.mark.parametrize("end", ["SIGTERM", "kill -9"])
def test_readers_pass_over_a_large_message_that_has_lost_its_body(lettered: Broker, end: str) -> None:
    """It becomes a dead letter once it is read ahead; until then no reader of the disk gets what is left."""
    broker, small, large = lettered, 2 * READ_AHEAD, 10
    fill(broker, "orders", small, True, 500, small + 1)
    for _ in range(large):
        # One that comes behind another is in memory as a whole before it is looked at.
        fill(broker, "orders", 1, True, 200_000, 1)
    # All of it is on disk only, and the large ones behind what is read ahead.
    restart(broker, end, small + large - 1)
    assert broker.stop() == 0
    forge(broker, lose_bodies)
    broker.start()
    assert depth(broker, "orders") == small + large
    with connected(url(broker)) as connection:
        receiver = connection.create_receiver("orders", credit=large, options=Asks(filters=BLUE))
        assert is_silent(receiver)
    assert browse(broker, "orders", small) == list(range(small))
    assert listed_over_http(broker, "orders", small - 50) == list(range(small - 50, small))
    assert depth(broker, "orders") == small + large
    with connected(url(broker)) as connection:
        receiver = connection.create_receiver("orders", credit=500)
        assert receive(receiver, small) == list(range(small))
        assert is_silent(receiver)
    wait_until(lambda: depth(broker, "dead") == large, 20, "what is left to be dead letters")
    assert depth(broker, "orders") == 0
