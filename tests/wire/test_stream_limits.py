"""What a stream keeps, and what it costs: whatever policies say later, whoever reads, and nobody sends."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.reactor import AtMostOnce
from proton.utils import BlockingReceiver, LinkDetached

from broker.client.request import Management
from broker.errors import OperatorError
from broker.manage.definitions import Definition
from tests.store.test_set_aside import redefine
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import number_of, queue_of
from tests.wire.test_streams import connected, fill, offsets, reader, starting

pytestmark = pytest.mark.wire

FLIGHTS = "policies:\n  - match: flights\n    kind: stream\n    durable: true\n"
SMALL_QUEUES = "flow: {max_size: 1MB}\n"
MB = 1_000_000


def resident_bytes(broker: RunningBroker) -> int:
    """What a broker holds in memory."""
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fill_with(broker: RunningBroker, address: str, msgs: int, size: int) -> None:
    """Send messages of a size, each settled."""
    with connected(broker) as client:
        sender = client.create_sender(address)
        for _ in range(msgs):
            sender.send(Message(body="." * size, durable=True))


@pytest.mark.parametrize("gone", ["    kind: stream\n", "    durable: true\n"])
def test_a_policy_that_was_edited_takes_no_message_of_a_stream(start_broker: StartBroker, gone: str) -> None:
    """A queue keeps 1 MB here, and a stream on disk everything: so it stays, though no policy says so."""
    broker = start_broker(SMALL_QUEUES, FLIGHTS)
    fill_with(broker, "flights", 60, 100_000)
    edited = FLIGHTS.replace(gone, "")
    broker.policy_file.write_text(edited)
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("stays so")
    broker.stop()
    again = start_broker(SMALL_QUEUES, edited, ("--data", str(broker.config_file.parent / "data")))
    assert "stays so" in again.log
    # Longer than retention takes for a look.
    time.sleep(2.5)
    shown = queue_of(again, "flights")
    assert (shown["first_offset"], shown["stream_msgs"], shown["max_size"]) == (0, 60, 0)


@pytest.mark.parametrize("durable", ["true", "false"])
def test_what_is_too_old_goes_though_nothing_comes(start_broker: StartBroker, durable: str) -> None:
    policies = f"policies:\n  - {{match: s, kind: stream, durable: {durable}, max_age: 1s}}\n"
    broker = start_broker(policies=policies)
    with connected(broker) as client:
        fill(client, "s", 5)
        wait_until(lambda: number_of(broker, "s", "stream_msgs") == 0, 20, "them to go")
        assert number_of(broker, "s", "next_offset") == 5
        fill(client, "s", 1)
        assert offsets(reader(client, "s", "last"), 1) == [5]


def test_streams_in_memory_give_way_before_producers_wait_for_ever(start_broker: StartBroker) -> None:
    policies = "policies:\n  - {match: s, kind: stream, max_size: 100MB}\n  - {match: q, kind: queue}\n"
    broker = start_broker("memory_limit: 20MB\n", policies)
    fill_with(broker, "s", 300, 100_000)
    fill_with(broker, "q", 20, 100_000)
    assert number_of(broker, "s", "next_offset") == 300
    assert 0 < number_of(broker, "s", "first_offset") < 300
    assert number_of(broker, "q", "depth_msgs") == 20


def test_readers_that_stall_have_little_waiting_for_them(start_broker: StartBroker) -> None:
    """Each takes what its socket and a session's output hold, not the 40 MB that there are."""
    broker = start_broker(policies="policies:\n  - {match: s, kind: stream}\n")
    fill_with(broker, "s", 80, 500_000)
    before = resident_bytes(broker)
    with ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(connected(broker))
            # It gives much credit, and reads nothing of its socket from then on.
            given = [starting("first"), AtMostOnce()]
            client.create_receiver("s", credit=50, name="stalled", options=given)
        time.sleep(2)
        assert resident_bytes(broker) - before < 100 * MB


def takes_while_any_comes(receiver: BlockingReceiver) -> int:
    """Receive until nothing comes for a second; return how many came."""
    count = 0
    with suppress(Timeout):
        while True:
            receiver.receive(timeout=1)
            count += 1
    return count


@pytest.mark.parametrize("name", ["", "::billing"])
def test_messages_without_an_outcome_take_little_memory(start_broker: StartBroker, name: str) -> None:
    """A reader that settles nothing holds 32 MB, and goes on once it has settled some."""
    broker = start_broker(policies="policies:\n  - {match: s, kind: stream, durable: true}\n")
    fill_with(broker, "s", 300, 500_000)
    before = resident_bytes(broker)
    with connected(broker) as client:
        receiver = client.create_receiver(f"s{name}", credit=500, name="idle", options=[starting("first")])
        for _ in range(60):
            receiver.receive(timeout=30)
        rest = takes_while_any_comes(receiver)
        assert rest < 20
        assert resident_bytes(broker) - before < 80 * MB
        for _ in range(60):
            receiver.accept()
        for _ in range(60):
            receiver.receive(timeout=30)


def test_producers_wait_for_named_readers_that_are_there(start_broker: StartBroker) -> None:
    policies = (
        "policies:\n  - {match: s, kind: stream, flow_stop_count: 10, flow_resume_count: 5,"
        " enforce_flow: with_active_consumers}\n"
    )
    broker = start_broker(policies=policies)
    with connected(broker) as reading, connected(broker) as client:
        receiver = reading.create_receiver("s::billing", credit=50, name="billing")
        sender = client.create_sender("s")
        for number in range(10):
            sender.send(Message(body=number), timeout=10)
        with pytest.raises(Timeout):
            sender.send(Message(body=10), timeout=1)
        for _ in range(10):
            receiver.receive(timeout=10)
            receiver.accept()


OF_QUEUES = [
    ("consumers: exclusive", "consumers: exclusive"),
    ("dispatch: fill", "dispatch: fill"),
    ("consumer_timeout: 30s", "consumer_timeout"),
    ("slow_consumer: 10/s for 30s", "slow_consumer"),
    ("non_destructive: true", "non_destructive"),
    ("redelivery_jitter: 10%", "redelivery_jitter"),
    ("group_rebalance: true", "group_rebalance"),
    ("priority_reserve_from: 7", "priority_reserve_from"),
]


@pytest.mark.parametrize(("line", "named"), OF_QUEUES)
@pytest.mark.parametrize("wide", [False, True])
def test_a_setting_that_does_nothing_for_a_stream_is_refused_with_its_place(
    start_broker: StartBroker, line: str, named: str, wide: bool
) -> None:
    if wide:
        policies = f'policies:\n  - match: "#"\n    {line}\n  - match: s\n    kind: stream\n'
    else:
        policies = f"policies:\n  - match: s\n    kind: stream\n    {line}\n"
    broker = start_broker(policies=policies)
    place = re.escape(str(broker.policy_file)) + (":3:" if wide else ":4:")
    with connected(broker) as client:
        with pytest.raises(LinkDetached, match=rf"s: a stream has no {named} \(.* from {place}"):
            client.create_receiver("s", credit=1)
        # The policy is no fault for a queue.
        client.create_sender("q").send(Message(body="x"))
        with Management(broker.url) as management, pytest.raises(OperatorError, match=f"has no {named}"):
            management.call("CREATE", "org.sluice.queue", "t", {"queue_type": "stream", **parsed(line)})


def parsed(line: str) -> dict[str, object]:
    name, _, value = line.partition(": ")
    return {name: value}


@pytest.mark.parametrize("how", ["a policy", "an argument"])
def test_a_stream_that_is_there_goes_on_without_settings_that_do_nothing(
    start_broker: StartBroker, how: str
) -> None:
    broker = start_broker(policies=FLIGHTS)
    folder = broker.config_file.parent / "data"
    fill_with(broker, "flights", 5, 10)
    broker.stop()
    policies = FLIGHTS
    if how == "a policy":
        policies += '  - match: "#"\n    consumer_timeout: 30s\n    consumers: exclusive\n'
    else:
        # As a version that took them has noted them.
        given = {"consumer_timeout": "30s", "consumers": "exclusive"}
        redefine(folder, "flights", Definition("queue", given).encode())
    again = start_broker("", policies, ("--data", str(folder)))
    for named in ("consumer_timeout", "consumers: exclusive"):
        again.wait_for_log(f"flights: a stream has no {named}")
    shown = queue_of(again, "flights")
    assert (shown["consumer_timeout_ms"], shown["next_offset"]) == (0, 5)
    fill_with(again, "flights", 5, 10)
    assert Api(again).call("POST", "/reload", {}).status < 300
    with Management(again.url) as management:
        taken = {} if how == "a policy" else {"consumer_timeout": None, "consumers": None}
        changed = {"max_age": "7D", "consumer_timeout": 0, "consumers": "shared"} | taken
        management.call("UPDATE", "org.sluice.queue", "flights", changed)
    assert queue_of(again, "flights")["max_age_ms"] == 7 * 86_400_000


def test_a_reader_that_gives_no_credit_keeps_no_file_that_retention_removed(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        "store: {journal_file_size: 1MB}\n",
        "policies:\n  - {match: s, kind: stream, durable: true, max_size: 8MB}\n",
    )
    fill_with(broker, "s", 60, 100_000)
    with connected(broker) as client:
        receiver = client.create_receiver("s", credit=1, name="idle", options=[starting("first")])
        receiver.receive(timeout=30)
        while number_of(broker, "s", "first_offset") < 20:
            fill_with(broker, "s", 50, 100_000)
        folder = Path(f"/proc/{broker.pid}/fd")

        def removed() -> list[str]:
            found = []
            for each in folder.iterdir():
                try:
                    target = str(each.readlink())
                except FileNotFoundError:
                    continue
                if ".segment" in target and "(deleted)" in target:
                    found.append(target)
            return found

        wait_until(lambda: not removed(), 20, "the file to be let go of")
