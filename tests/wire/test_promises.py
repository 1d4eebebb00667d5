"""What is promised of a message holds in memory, on disk for want of memory, and after a kill."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message, Timeout, symbol
from proton.utils import BlockingReceiver

from broker.cli.main import main
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.terminus import close, connected, flush

pytestmark = pytest.mark.wire

# Small enough for a backlog of some megabytes to be paged, and to be in pages of the store after a restart.
CONFIG = "store: {journal_file_size: 1 MB}\n"
COUNT, SIZE = 3000, 1000
PAGING = ", overflow: page, memory_limit: 300 KB"
# The first of them fail once; every tenth has expired by the time it could be taken.
FAILED = 3


@pytest.fixture(params=["memory", "paged"])
def policies(request: pytest.FixtureRequest) -> str:
    paging = PAGING if request.param == "paged" else ""
    limits = f"max_count: 10000, max_delivery_count: 2, dead_letter_address: dead{paging}"
    others = "".join(f"  - {{match: {name}, durable: true}}\n" for name in ("dead", "written-last"))
    return f"policies:\n  - {{match: q, durable: true, {limits}}}\n{others}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "broker"


def fill(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        sender: Any = connection.create_sender("q")
        sent = []
        for number in range(COUNT):
            connection.wait(lambda: sender.link.credit > 0, timeout=60)
            sent.append(sender.link.send(made(number)))
        connection.wait(lambda: all(each.remote_state for each in sent), timeout=60)


def await_expiry(broker: RunningBroker, *, paged: bool) -> None:
    """Until all that expired before it was on disk is gone: the broker looks at it again half a second later.
    Messages that were paged out leave when they are read.
    """
    api, filled_s = Api(broker), time.monotonic()

    def is_over() -> bool:
        expired = api.get("/queues/q")["expired"]
        return bool(expired == COUNT // 10 or (paged and time.monotonic() - filled_s > 1))

    wait_until(is_over, 30, "messages to expire")


def made(number: int) -> Message:
    ttl = 0.001 if number % 10 == 9 else 0
    return Message(id=number, body=bytes(SIZE), durable=True, ttl=ttl)


def fail(broker: RunningBroker) -> None:
    """Deliveries that end with their failure."""
    with connected(broker.url) as connection:
        receiver: Any = connection.create_receiver("q", credit=0)
        receiver.link.flow(FAILED)
        came = receiver.fetcher.incoming
        connection.wait(lambda: len(came) == FAILED, timeout=30)
        assert [each.id for each, _ in came] == list(range(FAILED))
        for _, delivery in came:
            delivery.local.failed = True
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
        came.clear()
        flush(connection)


def number_of(message: Message) -> int:
    assert isinstance(message.id, int)
    return message.id


def taken(receiver: BlockingReceiver, count: int) -> Iterator[Message]:
    for _ in range(count):
        yield receiver.receive(30)
        receiver.accept()


@pytest.mark.parametrize("kill", [False, True], ids=["running", "killed"])
def test_order_counts_expiry_and_letters_hold_wherever_a_message_lies(
    folder: Path, policies: str, kill: bool
) -> None:
    broker = RunningBroker(folder, CONFIG, policies, ())
    try:
        fill(broker)
        await_expiry(broker, paged="page" in policies)
        fail(broker)
        if kill:
            # A failure is confirmed to nobody: it is on disk once a message behind it is.
            with connected(broker.url) as connection:
                connection.create_sender("written-last").send(Message(body="x", durable=True))
            broker.signal(signal.SIGKILL)
            broker.stop()
            broker = RunningBroker(folder, CONFIG, policies, ())
            with connected(broker.url) as connection:
                assert len(list(taken(connection.create_receiver("written-last"), 1))) == 1
                flush(connection)
        api = Api(broker)
        if "page" in policies:
            assert api.get("/queues/q")["paged_msgs"] > 0
        # The second failure of each is its last.
        fail(broker)
        kept = [number for number in range(FAILED, COUNT) if number % 10 != 9]
        with connected(broker.url) as connection:
            receiver = connection.create_receiver("q", credit=200)
            found = list(taken(receiver, len(kept)))
            flush(connection)
            assert [number_of(each) for each in found] == kept
            assert {each.delivery_count for each in found} == {0}
            close(receiver)
            dead = connection.create_receiver("dead", credit=COUNT)
            letters = [number_of(each) for each in taken(dead, FAILED + COUNT // 10)]
        assert [each for each in letters if each < FAILED] == list(range(FAILED))
        assert sorted(letters)[FAILED:] == list(range(9, COUNT, 10))
        wait_until(lambda: api.get("/broker")["depth_msgs"] == 0, 20, "everything to be taken")
    finally:
        broker.stop()


REASON = symbol("x-opt-sluice-dead-letter-reason")
REJECTED = 20
ROOM = 5


def reject(broker: RunningBroker, count: int) -> None:
    """Of so many messages, the first."""
    with connected(broker.url) as connection:
        receiver: Any = connection.create_receiver("q", credit=0)
        receiver.link.flow(count)
        came = receiver.fetcher.incoming
        connection.wait(lambda: len(came) == count, timeout=30)
        for _, delivery in came:
            delivery.update(Delivery.REJECTED)
            delivery.settle()
        came.clear()
        flush(connection)


def reason_of(letter: Message) -> str:
    assert letter.annotations is not None
    return str(dict(letter.annotations)[REASON])


@pytest.mark.parametrize("paging", ["", PAGING], ids=["memory", "paged"])
@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL], ids=["running", "stopped", "killed"])
def test_dead_letters_that_find_no_room_are_in_one_place_with_their_reason(
    folder: Path, paging: str, end: signal.Signals | None
) -> None:
    q = f"{{match: q, durable: true, max_count: 10000, dead_letter_address: dead{paging}}}"
    dead = f"{{match: dead, durable: true, max_count: {ROOM}, flow_control: false, overflow: reject}}"
    policies = f"policies:\n  - {q}\n  - {dead}\n"
    broker = RunningBroker(folder, CONFIG, policies, ())
    try:
        fill_with(broker, COUNT)
        reject(broker, REJECTED)
        api = Api(broker)
        wait_until(lambda: api.get("/queues/q")["unsettled_msgs"] == REJECTED - ROOM, 20, "letters to wait")
        assert api.get("/queues/dead")["depth_msgs"] == ROOM
        if end is not None:
            broker.signal(end)
            broker.stop()
            broker = RunningBroker(folder, CONFIG, policies, ())
            api = Api(broker)
        if paging:
            assert api.get("/queues/q")["paged_msgs"] > 0
        assert (api.get("/queues/q")["depth_msgs"], api.get("/queues/dead")["depth_msgs"]) == (
            COUNT - ROOM,
            ROOM,
        )
        with connected(broker.url) as connection:
            letters = connection.create_receiver("dead", credit=100)
            count = REJECTED if end is None else ROOM
            found = list(taken(letters, count))
            assert [number_of(each) for each in found] == list(range(count))
            assert {reason_of(each) for each in found} == {"rejected"}
            receiver = connection.create_receiver("q", credit=200)
            rest = list(taken(receiver, COUNT - count))
            assert [number_of(each) for each in rest] == list(range(count, COUNT))
            assert not any(each.first_acquirer for each in rest[: REJECTED - count])
    finally:
        broker.stop()


def fill_with(broker: RunningBroker, count: int, size: int = SIZE) -> None:
    """Messages that don't expire, from 0 on."""
    with connected(broker.url) as connection:
        sender: Any = connection.create_sender("q")
        sent = []
        for number in range(count):
            connection.wait(lambda: sender.link.credit > 0, timeout=60)
            sent.append(
                sender.link.send(Message(id=number, body=bytes(size), durable=True, first_acquirer=True))
            )
        connection.wait(lambda: all(each.remote_state for each in sent), timeout=60)


ENDS = pytest.mark.parametrize("paging", ["", PAGING], ids=["memory", "paged"])


def plain(paging: str, more: str = "") -> str:
    return f"policies:\n  - {{match: q, durable: true, max_count: 10000{more}{paging}}}\n"


def count_of(api: Api, node: str, figure: str = "depth_msgs") -> int:
    return int(api.get(f"/queues/{node}")[figure])


class Lives:
    """One data directory, whose broker is killed and started again; ``api`` asks the present one."""

    def __init__(self, folder: Path, policies: str, config: str = CONFIG) -> None:
        self.policies, self.config, self.folder = policies, config, folder
        self.broker = RunningBroker(folder, config, policies, ())
        self.api = Api(self.broker)

    def again(self, end: signal.Signals = signal.SIGKILL) -> None:
        """End it and start the next one."""
        self.broker.signal(end)
        self.broker.stop()
        self.broker = RunningBroker(self.folder, self.config, self.policies, ())
        self.api = Api(self.broker)

    def until_on_disk(self, count: int) -> None:
        """Start again until a checkpoint has taken so many to pages, where they are now."""
        for _ in range(20):
            self.again(signal.SIGTERM)
            if count_of(self.api, "q", "paged_msgs") >= count:
                return
        raise AssertionError(count_of(self.api, "q", "paged_msgs"))


@ENDS
def test_purge_move_and_delete_are_for_good(folder: Path, paging: str) -> None:
    """Of messages in memory, put on disk, or in pages since a restart: none of them comes back."""
    lives = Lives(folder, plain(paging))
    try:
        fill_with(lives.broker, COUNT)
        lives.api.post("/queues/q/move", {"target": "q.moved", "count": 100})
        wait_until(lambda: count_of(lives.api, "q") == COUNT - 100, 20, "messages to move")
        lives.until_on_disk(COUNT // 2)
        assert count_of(lives.api, "q") == COUNT - 100
        lives.api.post("/queues/q/move", {"target": "other", "count": COUNT})
        wait_until(lambda: count_of(lives.api, "q") == 0, 30, "messages to move")
        with connected(lives.broker.url) as connection:
            moved = [number_of(each) for each in taken(connection.create_receiver("other"), COUNT - 100)]
            assert moved == list(range(100, COUNT))
        fill_with(lives.broker, COUNT)
        lives.until_on_disk(COUNT // 2)
        assert lives.api.post("/queues/q/purge", {}) == {"purged": COUNT}
        lives.again()
        assert count_of(lives.api, "q") == 0
        fill_with(lives.broker, COUNT)
        lives.until_on_disk(COUNT // 2)
        lives.api.delete("/queues/q")
        lives.again()
        lives.api.post("/queues", {"name": "q"}, 201)
        assert count_of(lives.api, "q") == 0
        assert lives.api.get("/broker")["depth_msgs"] == 0
    finally:
        lives.broker.stop()


@ENDS
@pytest.mark.parametrize("again", [False, True], ids=["running", "restarted"])
def test_a_move_that_ends_at_a_hard_limit_leaves_the_rest_in_order(
    folder: Path, paging: str, again: bool
) -> None:
    small = "{match: small, max_count: 5, flow_control: false, overflow: reject}"
    lives = Lives(folder, plain(paging) + f"  - {small}\n")
    try:
        fill_with(lives.broker, COUNT)
        if again:
            lives.until_on_disk(COUNT // 2)
        lives.api.post("/queues", {"name": "small"}, 201)
        lives.api.post("/queues/q/move", {"target": "small"})
        wait_until(lambda: count_of(lives.api, "small") == 5, 20, "messages to move")
        with connected(lives.broker.url) as connection:
            receiver = connection.create_receiver("q", credit=200)
            rest = [number_of(each) for each in taken(receiver, COUNT - 5)]
            assert rest == list(range(5, COUNT))
            assert [number_of(each) for each in taken(connection.create_receiver("small"), 5)] == [*range(5)]
        wait_until(lambda: lives.api.get("/broker")["depth_msgs"] == 0, 20, "everything to be taken")
    finally:
        lives.broker.stop()


@ENDS
def test_what_comes_twice_is_kept_once_wherever_the_first_lies(folder: Path, paging: str) -> None:
    lives = Lives(folder, plain(paging, f", duplicate_window: {COUNT}"))
    try:
        fill_with(lives.broker, COUNT)
        fill_with(lives.broker, COUNT)
        assert (count_of(lives.api, "q"), count_of(lives.api, "q", "paged_msgs") > 0) == (COUNT, bool(paging))
        lives.until_on_disk(COUNT // 2)
        fill_with(lives.broker, COUNT)
        assert count_of(lives.api, "q") == COUNT
    finally:
        lives.broker.stop()


@ENDS
def test_a_backup_is_all_that_was_durable_and_nothing_else(folder: Path, paging: str) -> None:
    """In memory, put on disk, in pages since a restart; and what was consumed since it was made."""
    policies = plain(paging) + "  - {match: passing, durable: false}\n"
    lives = Lives(folder, policies)
    restored = None
    try:
        fill_with(lives.broker, COUNT // 2)
        lives.until_on_disk(1)
        fill_with(lives.broker, COUNT // 2)
        with connected(lives.broker.url) as connection:
            connection.create_sender("passing").send(Message(body="gone with the broker"))
            assert main(["store", "backup", "copy", "-b", lives.broker.url]) == 0
            assert len(list(taken(connection.create_receiver("q"), 100))) == 100
            flush(connection)
        assert count_of(lives.api, "q") == COUNT - 100
        restored = RunningBroker(
            folder.parent / "restored",
            CONFIG,
            policies,
            ("--data", str(folder / "data" / "backups" / "copy")),
        )
        assert (count_of(Api(restored), "q"), Api(restored).get("/broker")["depth_msgs"]) == (COUNT, COUNT)
        with connected(restored.url) as connection:
            found = [number_of(each) for each in taken(connection.create_receiver("q", credit=200), COUNT)]
            assert found == [*range(COUNT // 2)] * 2
    finally:
        lives.broker.stop()
        if restored is not None:
            restored.stop()


@ENDS
def test_a_store_limit_stops_producers_before_the_disk_does(folder: Path, paging: str) -> None:
    """All that is kept counts, also what an earlier broker has left."""
    config = CONFIG + "store_limit: 1MB\n"
    lives = Lives(folder, plain(paging, ", flow_control: false"), config)
    try:
        accepted = fill_until_stopped(lives.broker)
        assert 700 * SIZE < accepted * SIZE <= 1 << 20
        lives.again()
        assert count_of(lives.api, "q") == accepted
        assert fill_until_stopped(lives.broker) == 0
        with connected(lives.broker.url) as connection:
            connection.create_sender("q")
            wait_until(lambda: "store_limit" in str(lives.api.get("/why/q")), 20, "it to say why")
        with connected(lives.broker.url) as connection:
            assert len(list(taken(connection.create_receiver("q"), accepted))) == accepted
            flush(connection)
        assert fill_until_stopped(lives.broker) > 700
    finally:
        lives.broker.stop()


def fill_until_stopped(broker: RunningBroker) -> int:
    """How many are taken in until a producer has had no credit for a while."""
    with connected(broker.url) as connection:
        sender: Any = connection.create_sender("q")
        sent: list[Any] = []
        while True:
            try:
                connection.wait(lambda: sender.link.credit > 0, timeout=2)
            except Timeout:
                # A broker that stood still for so long has given nothing: it answers first.
                flush(connection)
                if not sender.link.credit:
                    break
            sent.append(sender.link.send(Message(id=len(sent), body=bytes(SIZE), durable=True)))
        connection.wait(lambda: all(each.remote_state for each in sent), timeout=60)
        return sum(each.remote_state == Delivery.ACCEPTED for each in sent)
