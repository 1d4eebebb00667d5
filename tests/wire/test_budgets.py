"""Budgets over all nodes, paging, and durable backlogs over a restart, with the broker's own fast client."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from broker.client.errors import ClientTimeoutError
from broker.client.link import Connection
from broker.codec import sections
from broker.codec.message import header_end
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.forked import run_sluice
from tests.wire.seeing import await_number, credit_comes, number_of, queue_of

pytestmark = [pytest.mark.wire, pytest.mark.flow]

MB = 1 << 20
# For those that all find room: a disk that stands still for a while is no end of it.
PATIENT_S = 30.0


def fill(
    broker: RunningBroker, address: str, count: int, size: int, durable: bool = False, wait_s: float = 2.0
) -> int:
    """Send numbered messages while credit comes within ``wait_s`` of the broker's; how many were settled."""
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        while sender.sent < count and (sender.may_send() or credit_comes(broker, connection, sender, wait_s)):
            body = str(sender.sent).encode().ljust(size, b".")
            sender.send(sections.header(durable=durable) + sections.binary_body(body), timeout_s=PATIENT_S)
        # What came on credit that was just taken back waits outside until there is room: it is not settled.
        with suppress(ClientTimeoutError):
            sender.flush(PATIENT_S)
        return int(sender.accepted)


def drained(broker: RunningBroker, address: str, count: int) -> list[int]:
    """The numbers of that many messages, in the order they come."""
    numbers: list[int] = []
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address, credit=1000, limit=count)
        while len(numbers) < count:
            taken = receiver.take(1000, timeout_s=PATIENT_S)
            assert taken, f"only {len(numbers)} of {count} came"
            numbers += [number_in(message) for message in taken]
    return numbers


def number_in(message: bytes) -> int:
    body = message[header_end(message) :]
    return int(body[8 if body[3] == 0xB0 else 5 :].split(b".")[0])


def sluice(broker: RunningBroker, *words: str) -> str:
    done = run_sluice(*words, "-b", broker.url)
    done.check_returncode()
    return done.stdout


def resident(broker: RunningBroker) -> int:
    broker.settle()
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_all_queues_together_stay_within_the_memory_limit(start_broker: StartBroker) -> None:
    broker = start_broker(args=("--memory-limit", "4MB"))
    assert "memory_limit 4 MB" in broker.log
    first = fill(broker, "a", 10_000, 1000)
    second = fill(broker, "b", 10_000, 1000)
    # 1008 bytes and 128 for each message's place.
    assert 3000 < first + second <= 4 * MB // 1136
    assert second < first
    with Connection(broker.url) as connection:
        sender = connection.sender("b")
        while sender.sent < 100 and credit_comes(broker, connection, sender, 0.3):
            sender.send(sections.binary_body(bytes(1000)), timeout_s=PATIENT_S)
        [why] = json.loads(sluice(broker, "why", "b", "--json"))
        assert why["cause"] == "memory_limit"
        assert "the broker's memory_limit is used up" in why["sentence"]
        # What leaves one queue lets producers of another go on.
        drained(broker, "a", first)
        sender.send(sections.binary_body(bytes(1000)), timeout_s=20.0)
        sender.flush(20)


def test_a_paging_queue_holds_more_than_memory_in_order(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: 'deep', overflow: page, memory_limit: 4MB}\n",
        args=("--memory-limit", "32MB"),
    )
    before = resident(broker)
    count = 200_000
    assert fill(broker, "deep", count, 400, wait_s=PATIENT_S) == count
    assert number_of(broker, "deep", "depth_msgs") == count
    assert number_of(broker, "deep", "paged_msgs") > count * 0.9
    assert resident(broker) - before < 40 * MB
    # A consumer that goes away in the middle leaves the rest in its order.
    first = drained(broker, "deep", 50_000)
    rest = drained(broker, "deep", count - 50_000)
    assert [*first, *rest] == list(range(count))
    await_number(broker, "deep", "depth_msgs", 0)
    assert resident(broker) - before < 60 * MB


def test_a_full_temporary_store_blocks_again(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: 'deep', overflow: page, memory_limit: 1MB}\n",
        args=("--memory-limit", "4MB", "--temp-limit", "8MB"),
    )
    # While runs are on their way to a slow disk there is no credit for a while.
    accepted = fill(broker, "deep", 100_000, 1000, wait_s=4.0)
    assert 8 * MB // 1136 < accepted <= 12 * MB // 1008
    assert number_of(broker, "deep", "paged_bytes") < 9 * MB
    assert drained(broker, "deep", accepted) == list(range(accepted))


def test_a_full_store_blocks_and_room_in_it_lets_go_on(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: 'kept', durable: true}\n", args=("--store-limit", "1MB")
    )
    accepted = fill(broker, "kept", 100_000, 1000, durable=True, wait_s=4.0)
    assert 300 < accepted <= MB // 1000
    with Connection(broker.url) as connection:
        sender = connection.sender("kept")
        [answer] = json.loads(sluice(broker, "why", "kept", "--json"))
        assert answer["cause"] == "store_limit"
        assert drained(broker, "kept", accepted) == list(range(accepted))
        assert connection.wait_until(sender.may_send, PATIENT_S)


def test_a_slow_subscriber_pages_and_others_are_not_slowed(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: 'news', kind: topic, overflow: page, memory_limit: 1MB}\n"
    )
    with Connection(broker.url) as slow, Connection(broker.url) as quick, Connection(broker.url) as source:
        asleep = slow.receiver("news", credit=10)
        awake = quick.receiver("news", credit=1000)
        sender = source.sender("news")
        heard: list[int] = []
        for number in range(20_000):
            sender.send(sections.binary_body(str(number).encode().ljust(500, b".")), timeout_s=PATIENT_S)
            if number % 500 == 499:
                sender.flush(PATIENT_S)
                while len(heard) <= number:
                    heard += [number_in(message) for message in awake.take(500, timeout_s=PATIENT_S)]
        assert heard == list(range(20_000))
        late: list[int] = []
        while len(late) < 20_000:
            late += [number_in(message) for message in asleep.take(10, timeout_s=PATIENT_S)]
        assert late == heard


def test_purge_and_dry_run_count_what_is_on_disk(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: 'deep', overflow: page, memory_limit: 1MB}\n")
    assert fill(broker, "deep", 30_000, 500, wait_s=PATIENT_S) == 30_000
    assert json.loads(sluice(broker, "purge", "deep", "--dry-run", "--json")) == {"purged": 30_000}
    assert json.loads(sluice(broker, "purge", "deep", "--json")) == {"purged": 30_000}
    await_number(broker, "deep", "depth_msgs", 0)
    assert number_of(broker, "deep", "depth_bytes") == 0
    assert fill(broker, "deep", 100, 500, wait_s=PATIENT_S) == 100
    assert drained(broker, "deep", 100) == list(range(100))


def test_a_durable_backlog_over_a_restart_stops_producers_from_the_first_instant(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    policies = "policies:\n  - {match: 'kept', durable: true, max_count: 20000, flow_stop_count: 15000}\n"
    config = "store: {journal_file_size: 1MB}\n"
    broker = start_broker(config, policies, ("--data", str(tmp_path / "kept")))
    assert fill(broker, "kept", 15_000, 500, durable=True, wait_s=PATIENT_S) == 15_000
    assert fill(broker, "kept", 10, 500, durable=False) == 0
    broker.stop()
    broker = start_broker(config, policies, ("--data", str(tmp_path / "kept")))
    assert number_of(broker, "kept", "depth_msgs") == 15_000
    assert fill(broker, "kept", 1, 500, durable=True) == 0, "it is stopped"
    assert sluice(broker, "move", "kept", "other", "--count", "500").startswith("moving 500 ")
    await_number(broker, "other", "depth_msgs", 500)
    assert number_of(broker, "kept", "dead_lettered") == 0
    assert drained(broker, "other", 500) == list(range(500))
    assert drained(broker, "kept", 14_500) == list(range(500, 15_000))


def test_memory_stays_within_its_limit_with_a_backlog_of_before(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """A backlog much larger than memory comes in order after a restart, and is never in memory as a whole."""
    policies = "policies:\n  - {match: 'kept', durable: true, max_count: 0, flow_control: false}\n"
    config = "store: {journal_file_size: 1MB}\n"
    count = 100_000
    broker = start_broker(config, policies, ("--data", str(tmp_path / "kept")))
    before = resident(broker)
    assert fill(broker, "kept", count, 1000, durable=True, wait_s=PATIENT_S) == count
    for _ in range(20):
        broker.stop()
        broker = start_broker(config, policies, ("--data", str(tmp_path / "kept"), "--memory-limit", "4MB"))
        if number_of(broker, "kept", "paged_msgs") > count * 0.95:
            break
    assert number_of(broker, "kept", "depth_msgs") == count
    assert drained(broker, "kept", count) == list(range(count))
    assert resident(broker) - before < 40 * MB


def test_a_message_without_end_is_bounded_by_memory(start_broker: StartBroker) -> None:
    """Where none is large enough for a file."""
    broker = start_broker("limits: {large_message_size: 100MB}\n", args=("--memory-limit", "2MB"))
    with Connection(broker.url) as connection:
        sender = connection.sender("large")
        sender.send(sections.binary_body(bytes(8 * MB)), timeout_s=20.0)
        with pytest.raises(Exception, match="memory_limit leaves no room"):
            sender.flush(20)
    assert fill(broker, "large", 10, 100, wait_s=PATIENT_S) == 10, "its pieces are not held any more"


def held_in_memory(broker: RunningBroker) -> int:
    """What the broker counts against its memory_limit."""
    held = queue_of(broker, "broker", "broker")["held_bytes"]
    assert isinstance(held, int)
    return held


DURABLE_IN_MEMORY = {
    "the broker's": ("durable: true", ("--memory-limit", "4MB"), "memory_limit"),
    "the node's": ("durable: true, memory_limit: 4MB", (), "flow_stop_size"),
}


@pytest.mark.parametrize("whose", DURABLE_IN_MEMORY)
def test_durable_messages_that_fill_the_memory_hold_their_producers_over_a_restart(
    start_broker: StartBroker, tmp_path: Path, whose: str
) -> None:
    """Never more than the limit, what was recovered included; room lets them go on, and all of it comes."""
    settings, limit, cause = DURABLE_IN_MEMORY[whose]
    policies = f"policies:\n  - {{match: kept, {settings}}}\n"
    args = ("--data", str(tmp_path / "kept"), *limit)
    # What moves from the journal to pages needn't be in memory.
    config = "store: {journal_file_size: 32MB}\n"
    # A node's own limit counts the messages, the broker's their places as well.
    most = 4 * MB + (0 if limit else 4 * MB // 1008 * 128)
    broker = start_broker(config, policies, args)
    accepted = fill(broker, "kept", 20_000, 1000, durable=True)
    assert 2500 < accepted <= 4 * MB // 1008
    assert held_in_memory(broker) <= most
    broker.stop()
    for _ in range(2):
        broker = start_broker(config, policies, args)
        assert number_of(broker, "kept", "depth_msgs") == accepted
        assert held_in_memory(broker) <= most
        with Connection(broker.url) as connection:
            sender = connection.sender("kept")
            assert not credit_comes(broker, connection, sender), "recovered messages count"
            [answer] = json.loads(sluice(broker, "why", "kept", "--json"))
            assert answer["cause"] == cause
        broker.stop()
    broker = start_broker(config, policies, args)
    with Connection(broker.url) as connection:
        sender = connection.sender("kept")
        first = drained(broker, "kept", accepted // 2)
        assert first == list(range(accepted // 2)), "none is lost"
        assert connection.wait_until(sender.may_send, PATIENT_S)
    more = fill(broker, "kept", 20_000, 1000, durable=True)
    assert accepted // 2 * 0.5 < more <= accepted // 2 + accepted * 0.31
    assert held_in_memory(broker) <= most
    assert number_of(broker, "kept", "depth_msgs") == accepted - accepted // 2 + more
    rest = drained(broker, "kept", accepted - accepted // 2 + more)
    assert rest == [*range(accepted // 2, accepted), *range(more)]
    await_number(broker, "kept", "depth_msgs", 0)


def test_a_backlog_read_from_disk_while_memory_is_full_passes_the_limit_by_one_run_at_most(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """After restarts most of it lies in pages, and newer messages fill the memory that it is read into."""
    policies = "policies:\n  - {match: kept, durable: true}\n"
    args = ("--data", str(tmp_path / "kept"), "--memory-limit", "4MB")
    accepted = 0
    for _ in range(4):
        broker = start_broker("store: {journal_file_size: 1MB}\n", policies, args)
        accepted += fill(broker, "kept", 20_000, 1000, durable=True)
        assert held_in_memory(broker) <= 4 * MB
        if number_of(broker, "kept", "paged_msgs") > 5000:
            break
        broker.stop()
    assert number_of(broker, "kept", "paged_msgs") > 5000
    assert number_of(broker, "kept", "depth_msgs") == accepted
    got, most = 0, 0
    with Connection(broker.url) as connection:
        receiver = connection.receiver("kept", credit=10)
        while got < accepted:
            got += len(receiver.take(10, timeout_s=PATIENT_S))
            connection.pump()
            if got % 100 == 0:
                most = max(most, held_in_memory(broker))
    # A run is 64 KB on disk; each of its messages has a place of 128 bytes more in memory.
    assert most <= 4 * MB + 80 * 1024
    await_number(broker, "kept", "depth_msgs", 0)
    assert held_in_memory(broker) < MB
