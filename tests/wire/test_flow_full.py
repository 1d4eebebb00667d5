"""FLOW.md §3 and §4 on the wire: what happens at the hard limit, and budgets as what holds or refuses."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from proton import Message

from broker import constants
from broker.client.errors import ClientTimeoutError
from broker.client.link import Connection, Sender
from broker.client.request import Management
from broker.codec import sections
from broker.codec.message import header_end
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.seeing import await_number, credit_comes, number_of, numbers_of, queue_of

pytestmark = [pytest.mark.wire, pytest.mark.flow]

KB = 1024
FULL = "amqp:resource-limit-exceeded"


def numbered(number: int, size: int = 100) -> bytes:
    return sections.binary_body(str(number).encode().ljust(size, b"."))


def number_in(message: bytes) -> int:
    body = message[header_end(message) :]
    return int(body[8 if body[3] == 0xB0 else 5 :].split(b".")[0])


def send(broker: RunningBroker, address: str, count: int) -> Sender:
    """So many numbered messages, settled one way or the other; the closed link tells which."""
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for number in range(count):
            sender.send(numbered(number), timeout_s=10)
        sender.flush(10)
        return sender


def held(broker: RunningBroker, address: str) -> list[int]:
    """What a queue holds, taken out of it."""
    count = number_of(broker, address, "depth_msgs")
    found: list[int] = []
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address)
        while len(found) < count:
            found += [number_in(each) for each in receiver.take(100, timeout_s=10)]
    return found


def sent_until_blocked(broker: RunningBroker, connection: Connection, sender: Sender, size: int) -> int:
    while credit_comes(broker, connection, sender):
        sender.send(numbered(sender.sent, size), timeout_s=20)
    return sender.sent


def late_bytes(broker: RunningBroker) -> int:
    """What was under way when its credit was taken back, and waits outside: it counts as held as well."""
    return broker_number(broker, "parked_bytes") + broker_number(broker, "parked_msgs") * constants.HELD_BYTES


def why(broker: RunningBroker, address: str) -> list[dict[str, str]]:
    done = run_sluice("why", address, "--json", "-b", broker.url)
    done.check_returncode()
    answer = json.loads(done.stdout)
    assert isinstance(answer, list)
    return answer


# --- the hard limit: ten messages, thirty sent, nothing throttled

FirstTen, LastTen = list(range(10)), list(range(20, 30))


@pytest.mark.parametrize(
    ("overflow", "accepted", "kept", "counted"),
    [
        ("reject", 10, FirstTen, {"refused": 20, "dropped": 0}),
        ("ring", 30, LastTen, {"refused": 0, "dropped": 20}),
        ("drop_newest", 30, FirstTen, {"refused": 0, "dropped": 20}),
        ("dead_letter", 30, FirstTen, {"refused": 0, "dead_lettered": 20}),
    ],
)
def test_overflow_at_the_hard_limit(
    start_broker: StartBroker, overflow: str, accepted: int, kept: list[int], counted: dict[str, int]
) -> None:
    letters = ", dead_letter_address: dead" if overflow == "dead_letter" else ""
    broker = start_broker(
        policies="policies:\n"
        f"  - {{match: q, max_count: 10, flow_control: false, overflow: {overflow}{letters}}}\n"
    )
    sender = send(broker, "q", 30)
    assert (sender.accepted, sender.rejected) == (accepted, 30 - accepted)
    if accepted == 10:
        assert {condition for _, condition, _ in sender.rejections} == {FULL}
    for name, count in counted.items():
        assert number_of(broker, "q", name) == count, name
    assert held(broker, "q") == kept
    if letters:
        assert number_of(broker, "dead", "depth_msgs") == 20


def test_what_was_refused_is_no_duplicate_when_it_comes_again(start_broker: StartBroker) -> None:
    limits = "max_count: 1, flow_control: false, overflow: reject, duplicate_window: 100"
    broker = start_broker(policies=f"policies:\n  - {{match: q, {limits}}}\n")
    first, second = (bytes(Message(id=name, body=name).encode()) for name in ("first", "second"))
    with Connection(broker.url) as connection:
        sender = connection.sender("q")
        for each in (first, second, second):
            sender.send(each, timeout_s=20)
        sender.flush(20)
        assert (sender.accepted, sender.rejected) == (1, 2)
        receiver = connection.receiver("q")
        assert len(receiver.take(1, timeout_s=20)) == 1
        connection.pump()
        await_number(broker, "q", "depth_msgs", 0)
        for _ in range(2):
            sender.send(second, timeout_s=20)
        sender.flush(20)
        assert (sender.accepted, sender.rejected) == (3, 2)
        assert [bytes(each)[-6:] for each in receiver.take(1, timeout_s=20)] == [b"second"]
        assert (number_of(broker, "q", "received"), number_of(broker, "q", "duplicated")) == (2, 1)


@pytest.mark.parametrize("address", ["q", "t"])
@pytest.mark.parametrize("presettled", [False, True], ids=["unsettled", "pre-settled"])
def test_messages_larger_than_their_credit_foresaw_wait_at_the_hard_limit(
    start_broker: StartBroker, address: str, presettled: bool
) -> None:
    """A new link's credit reserves little; what doesn't fit below the limit is parked, told and kept."""
    policies = "policies:\n  - {match: t, kind: topic}\n  - {match: q, max_size: 100KB}\n"
    broker = start_broker(policies=policies)
    kind = "topic" if address == "t" else "queue"
    with Connection(broker.url) as connection:
        connection.sender("q").close()
        connection.sender("t").close()
        with Management(broker.url) as management:
            management.call("CREATE", "org.sluice.binding", "t/q", {"source": "t", "target": "q"})
        sender = connection.sender(address, presettled=presettled, window=1000)
        for number in range(60):
            sender.send(numbered(number, 10_000), timeout_s=20)

        def there() -> int:
            connection.pump()  # what its socket didn't take at once
            return number_of(broker, address, "parked_msgs", kind) + number_of(broker, "q", "depth_msgs")

        wait_until(lambda: there() == 60, 10, "all of them to be queued or parked")
        assert number_of(broker, "q", "depth_bytes") <= 100 * KB
        receiver = connection.receiver("q")
        found: list[int] = []
        while len(found) < 60:
            found += [number_in(each) for each in receiver.take(100, timeout_s=10)]
        sender.flush(10)
        assert found == list(range(60))
        assert (sender.accepted, sender.rejected) == (0 if presettled else 60, 0)
        assert (number_of(broker, "q", "dropped"), number_of(broker, "q", "refused")) == (0, 0)


@pytest.mark.parametrize("control", ["true", "false"])
def test_overflow_page_keeps_everything_and_stops_nobody(start_broker: StartBroker, control: str) -> None:
    policy = f"{{match: q, overflow: page, memory_limit: 64KB, max_count: 10, flow_control: {control}}}"
    broker = start_broker(policies=f"policies:\n  - {policy}\n")
    assert send(broker, "q", 3000).accepted == 3000
    assert number_of(broker, "q", "paged_msgs") > 0
    assert queue_of(broker, "q")["flowStoppedCount"] == 0
    assert held(broker, "q") == list(range(3000))


SWITCHED_OFF = {
    "node": ("", "max_count: 10, max_size: 20KB, flow_control: false"),
    "broker": ("flow:\n  flow_control: false\n", "max_count: 10, max_size: 20KB"),
}


@pytest.mark.parametrize("address", ["q", "t"])
@pytest.mark.parametrize("where", SWITCHED_OFF)
def test_switching_flow_control_off_loses_nothing(
    start_broker: StartBroker, where: str, address: str
) -> None:
    """Nobody said what to drop, so whatever is accepted is kept: beyond the limit it is on disk."""
    config, limits = SWITCHED_OFF[where]
    broker = start_broker(config, f"policies:\n  - {{match: t, kind: topic}}\n  - {{match: q, {limits}}}\n")
    with Connection(broker.url) as connection, Management(broker.url) as management:
        connection.sender("q").close()
        connection.sender("t").close()
        management.call("CREATE", "org.sluice.binding", "t/q", {"source": "t", "target": "q"})
    assert send(broker, address, 3000).accepted == 3000
    assert number_of(broker, "q", "paged_msgs") > 0
    assert number_of(broker, "q", "dropped") == number_of(broker, "q", "refused") == 0
    assert held(broker, "q") == list(range(3000))


def test_a_queue_that_loses_flow_control_at_runtime_pages_from_then_on(start_broker: StartBroker) -> None:
    policy = "policies:\n  - {{match: q, max_count: 10, max_size: 20KB{more}}}\n"
    broker = start_broker(policies=policy.format(more=""))
    with Connection(broker.url) as connection:
        sender = connection.sender("q")
        sender.send(numbered(0), timeout_s=20)
        broker.policy_file.write_text(policy.format(more=", flow_control: false"))
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("settings and policies reloaded")
        for number in range(1, 3000):
            sender.send(numbered(number), timeout_s=20)
        sender.flush(20)
        assert (sender.accepted, sender.rejected) == (3000, 0)
    assert held(broker, "q") == list(range(3000))


def test_a_queue_too_sheds_the_oldest_that_wait(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: q, pending_message_limit: 5}\n")
    send(broker, "q", 30)
    await_number(broker, "q", "dropped", 25)
    assert held(broker, "q") == list(range(25, 30))


# --- budgets: the same words, whatever has no room

Setting = tuple[str, str, tuple[str, ...], str]
BUDGETS: dict[str, Setting] = {
    "broker": ("", "", ("--memory-limit", "64KB"), "memory_limit"),
    "node": ("", "memory_limit: 32KB", (), "flow_stop_size"),
    "connection": ("flow: {connection_memory_limit: 16KB}\n", "max_count: 20", (), "flow_stop_count"),
}


@pytest.fixture
def budget(start_broker: StartBroker) -> Callable[..., tuple[RunningBroker, str]]:
    def start(which: str, setting: str) -> tuple[RunningBroker, str]:
        config, own, args, cause = BUDGETS[which]
        line = ", ".join(word for word in ("match: q", own, setting) if word)
        return start_broker(config, f"policies:\n  - {{{line}}}\n", args), cause

    return start


@pytest.mark.parametrize("which", BUDGETS)
def test_a_budget_blocks_and_room_in_it_lets_go_on(
    budget: Callable[..., tuple[RunningBroker, str]], which: str
) -> None:
    broker, cause = budget(which, "")
    with Connection(broker.url) as connection:
        sender = connection.sender("q")
        sent = sent_until_blocked(broker, connection, sender, KB)
        assert 10 < sent < 64
        [answer] = why(broker, "q")
        assert answer["cause"] == cause
        with Connection(broker.url) as other:
            receiver = other.receiver("q")
            for _ in range(sent):
                receiver.take(1, timeout_s=20)
            other.pump()
        assert connection.wait_until(sender.may_send, 20)


@pytest.mark.parametrize("which", ["broker", "node"])
@pytest.mark.parametrize(
    "setting",
    ["send_fail_if_no_space: true", "send_fail_if_no_space_after_timeout: 300", "when_full: reject"],
)
def test_a_send_fails_where_a_budget_has_no_space(
    budget: Callable[..., tuple[RunningBroker, str]], which: str, setting: str
) -> None:
    broker, _ = budget(which, setting)
    with Connection(broker.url) as connection:
        sender = connection.sender("q")
        for number in range(100):
            sender.send(numbered(number, KB), timeout_s=20)
        sender.flush(10)
        assert 10 < sender.accepted < 64
        assert sender.accepted + sender.rejected == 100
        assert {condition for _, condition, _ in sender.rejections} == {FULL}
        assert number_of(broker, "q", "depth_msgs") == sender.accepted


def test_messages_that_wait_do_not_keep_each_other_out(start_broker: StartBroker) -> None:
    """A relay has credit whatever is full: what it sent fills all memory, and goes on as there is room."""
    limits = "flow_stop_count: 5, flow_resume_count: 3"
    broker = start_broker("memory_limit: 1MB\n", f"policies:\n  - {{match: q, {limits}}}\n")
    with Connection(broker.url) as connection, Connection(broker.url) as other:
        relay = connection.sender(None)
        for number in range(480):
            relay.send(addressed("q", number, 4 * KB), timeout_s=10)
        with suppress(ClientTimeoutError):
            relay.flush(0.5)
        await_number(broker, "q", "parked_msgs", 475)
        receiver = other.receiver("q")
        taken: list[bytes] = []
        while len(taken) < 480:
            more = receiver.take(100, timeout_s=10)
            assert more, f"{len(taken)} came, and no more"
            taken += more
        relay.flush(10)
        assert relay.accepted == 480


def test_memory_is_not_overdrawn_by_who_sends_larger_ones_than_before(start_broker: StartBroker) -> None:
    broker = start_broker("memory_limit: 4MB\n")
    with Connection(broker.url) as connection, Connection(broker.url) as other:
        sender, receiver = connection.sender("q"), other.receiver("q")
        taken = 0
        for number in range(3000):
            sender.send(numbered(number, 50), timeout_s=10)
            if number % 100 == 99:
                sender.flush(10)
                while taken <= number:
                    taken += len(receiver.take(100, timeout_s=10))
        receiver.close()
        sent_until_blocked(broker, connection, sender, 40 * KB)
        # It had 750 credits.
        late = late_bytes(broker)
        assert 3 << 20 < broker_number(broker, "held_bytes") - late <= 4 << 20
        assert late < 8 << 20


def test_memory_is_not_overdrawn_where_more_come_to_want_a_copy(start_broker: StartBroker) -> None:
    broker = start_broker("memory_limit: 4MB\n", "policies:\n  - {match: t, kind: topic}\n")
    with Connection(broker.url) as connection:
        sender = connection.sender("t")
        for number in range(50):
            sender.send(numbered(number, 5 * KB), timeout_s=20)
            sender.flush(20)
        with Management(broker.url) as management:
            for number in range(20):
                ends = {"source": "t", "target": f"q{number}"}
                management.call("CREATE", "org.sluice.queue", f"q{number}", {})
                management.call("CREATE", "org.sluice.binding", f"t/q{number}", ends)
        sent_until_blocked(broker, connection, sender, 5 * KB)
        # It had 750 credits, and may not have read yet that they were taken back.
        late = late_bytes(broker)
        assert 3 << 20 < broker_number(broker, "held_bytes") - late <= 4 << 20
        assert late < 4 << 20


def test_strict_bytes_are_exact_whatever_the_topic_reckons_with(start_broker: StartBroker) -> None:
    strict = "flow_stop_size: 100KB, byte_reservation: strict, max_message_size: 10KB"
    broker = start_broker(
        policies=f"policies:\n  - {{match: t, kind: topic}}\n  - {{match: q, max_size: 10MB, {strict}}}\n"
    )
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "q", {})
        management.call("CREATE", "org.sluice.topic", "t", {})
        management.call("CREATE", "org.sluice.binding", "t/q", {"source": "t", "target": "q"})
    with Connection(broker.url) as connection:
        sent_until_blocked(broker, connection, connection.sender("t"), 10_000)
    assert 90 * KB < number_of(broker, "q", "peak_bytes") <= 100 * KB


def addressed(to: str, number: int, size: int) -> bytes:
    """For a relay."""
    return bytes(Message(address=to, body=str(number).encode().ljust(size, b".")).encode())


def broker_number(broker: RunningBroker, attribute: str) -> int:
    with Management(broker.url) as management:
        body: Any = management.call("READ", "org.sluice.broker").body
    value: int = body[attribute]
    return value


# --- one connection's own budget


def test_all_links_of_a_connection_share_what_it_may_be_promised(start_broker: StartBroker) -> None:
    broker = start_broker("flow: {connection_memory_limit: 32KB}\n")
    with Connection(broker.url) as one, Connection(broker.url) as other:
        senders = [one.sender(f"q{number}") for number in range(5)]
        for sender in senders:
            for number in range(200):
                sender.send(numbered(number, KB), timeout_s=10)
            sender.flush(10)
        assert [sender.accepted for sender in senders] == [200] * 5
        lone = other.sender("q0")
        assert other.wait_until(lone.may_send, 20), "another connection has its own"
        # All of one moment: idle credit is lent on, and read one after another it would count again.
        promised = numbers_of(broker, "promised_bytes")
        assert sum(promised[f"q{number}"] for number in range(1, 5)) <= 32 * KB
        # Whoever is left without tells why; what lies idle is lent on, so all of them can send.
        for sender in senders:
            sender.send(numbered(0, KB), timeout_s=20)


def test_a_link_blocked_by_its_connection_says_so(start_broker: StartBroker) -> None:
    """What waits parked at a full queue is what the connection holds; its other link gets nothing."""
    broker = start_broker(
        "flow: {connection_memory_limit: 4KB}\n",
        "policies:\n  - {match: full, max_count: 3, flow_stop_count: 2, reject_after: 60s}\n",
    )
    with Connection(broker.url) as one, Connection(broker.url) as other:
        parking, waiting = one.sender("full"), one.sender("free")
        for number in range(8):
            parking.send(numbered(number, KB), timeout_s=20)
        one.pump()
        await_number(broker, "full", "parked_msgs", 6)
        while waiting.sent < 1000 and credit_comes(broker, one, waiting, 0.3):
            waiting.send(numbered(waiting.sent, KB), timeout_s=20)
        wait_until(
            lambda: any(each["cause"] == "connection_memory_limit" for each in why(broker, "free")),
            10,
            "the link to be blocked by its connection",
        )
        [answer] = why(broker, "free")
        assert "its connection's connection_memory_limit is used up" in answer["sentence"]
        receiver = other.receiver("full")
        for _ in range(8):
            receiver.take(1, timeout_s=20)
        other.pump()
        assert one.wait_until(waiting.may_send, 20)
