"""How long a message is kept by policy, and how long a queue or a subscription that nobody uses."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol

from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of, queue_of
from tests.wire.terminus import LASTING, Asks, close, connected, detach, send, take

pytestmark = pytest.mark.wire

Again = Callable[..., RunningBroker]
REASON = symbol("x-opt-sluice-dead-letter-reason")

TTL = """\
policies:
  - {match: "given", message_ttl: 10m}
  - {match: "short", message_ttl: 300ms, dead_letter_address: dead}
  - {match: "capped", max_ttl: 5m}
  - {match: "both", message_ttl: 10m, max_ttl: 1m}
  - {match: "news", kind: topic, message_ttl: 10m}
"""


@pytest.fixture
def again(tmp_path: Path) -> Iterator[Again]:
    """Start a broker on one data directory, after the one before was killed."""
    running: list[RunningBroker] = []

    def start(policies: str = "", config: str = "") -> RunningBroker:
        if running:
            running[-1].signal(signal.SIGKILL)
            running[-1].stop()
        running.append(RunningBroker(tmp_path / "broker", config, policies, ()))
        return running[-1]

    yield start
    running[-1].stop()
    assert "Traceback" not in running[-1].log, running[-1].log


def event_of(broker: RunningBroker, kind: str, node: str) -> dict[str, Any] | None:
    """The last event of a kind about a node, if there is one."""
    path = broker.config_file.parent / "data/events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = [each for each in lines if each["event"] == kind and each["node"] == node]
    return found[-1] if found else None


def names(broker: RunningBroker) -> set[str]:
    return {row["name"] for row in Api(broker).get("/queues")["items"]}


def subscriptions(broker: RunningBroker, topic: str) -> list[str]:
    return [row["name"] for row in Api(broker).get(f"/subscriptions?topic={topic}")["items"]]


# --- messages


@pytest.mark.parametrize(
    ("address", "brought", "at_most"),
    [
        ("given", {}, 600),
        ("given", {"ttl": 60}, 60),
        ("given", {"ttl": 3600}, 3600),
        ("capped", {}, 300),
        ("capped", {"ttl": 60}, 60),
        ("capped", {"ttl": 3600}, 300),
        ("both", {}, 60),
        ("both", {"ttl": 3600}, 60),
    ],
)
def test_a_message_reads_what_it_has_left_by_policy(
    start_broker: StartBroker, address: str, brought: dict[str, Any], at_most: float
) -> None:
    with connected(start_broker(policies=TTL).url) as connection:
        connection.create_sender(address).send(Message(body="x", **brought))
        receiver = connection.create_receiver(address, credit=1)
        message = receiver.receive(timeout=10)
        assert at_most - 30 < message.ttl <= at_most
        receiver.accept()


def test_a_time_of_its_own_is_not_given_another_one(start_broker: StartBroker) -> None:
    """An absolute-expiry-time counts as one; nothing is written into a message that brought it."""
    ends = time.time() + 3600
    with connected(start_broker(policies=TTL).url) as connection:
        connection.create_sender("given").send(Message(body="x", expiry_time=ends))
        receiver = connection.create_receiver("given", credit=1)
        message = receiver.receive(timeout=10)
        assert (message.ttl, round(message.expiry_time)) == (0, round(ends))
        receiver.accept()


@pytest.mark.parametrize("large", [False, True])
def test_a_message_that_brings_no_time_expires_into_the_named_box(
    start_broker: StartBroker, large: bool
) -> None:
    broker = start_broker("limits: {large_message_size: 64 KB}\n", TTL)
    body = "x" * (200_000 if large else 1)
    with connected(broker.url) as connection:
        sender = connection.create_sender("short")
        sender.send(Message(body=body))
        letters = connection.create_receiver("dead", credit=1)
        letter = letters.receive(timeout=20)
        assert letter.body == body
        assert letter.annotations is not None
        assert letter.annotations[REASON] == "expired"
        letters.accept()
        assert (number_of(broker, "short", "depth_msgs"), number_of(broker, "short", "expired")) == (0, 1)


def test_an_absolute_time_is_cut_to_the_longest(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: q, max_ttl: 300ms, dead_letter_address: dead}\n")
    with connected(broker.url) as connection:
        connection.create_sender("q").send(Message(body="x", expiry_time=time.time() + 3600))
        await_number(broker, "dead", "depth_msgs", 1)


def test_subscriptions_have_their_topic_s_time(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=TTL).url) as connection:
        receiver = connection.create_receiver("news", credit=1)
        connection.create_sender("news").send(Message(body="x"))
        assert 570 < receiver.receive(timeout=10).ttl <= 600


def test_what_is_paged_expires_too(start_broker: StartBroker) -> None:
    policies = (
        "policies:\n  - {match: q, overflow: page, memory_limit: 200 KB, message_ttl: 3s,"
        " dead_letter_address: dead}\n"
    )
    broker = start_broker(policies=policies)
    with connected(broker.url) as connection:
        send(connection.create_sender("q"), *["y" * 10_000 for _ in range(100)])
        assert number_of(broker, "q", "paged_msgs") > 0
        await_number(broker, "dead", "depth_msgs", 100)
        assert number_of(broker, "q", "depth_msgs") == 0


def test_a_durable_message_keeps_its_deadline_over_a_restart(again: Again) -> None:
    policies = "policies:\n  - {match: q, durable: true, message_ttl: 4s, dead_letter_address: dead}\n"
    broker = again(policies)
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        sender.send(Message(body="x", durable=True))
        sent = time.monotonic()
    # The policy that gave it its time is gone by then; the time is the message's.
    broker = again("policies:\n  - {match: q, durable: true, dead_letter_address: dead}\n")
    assert number_of(broker, "q", "depth_msgs") == 1 or time.monotonic() - sent > 3
    await_number(broker, "dead", "depth_msgs", 1)
    assert time.monotonic() - sent > 3.9


def test_a_reload_is_about_what_comes_from_then_on(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: q, dead_letter_address: dead}\n")
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        sender.send(Message(body="before"))
        broker.policy_file.write_text(
            "policies:\n  - {match: q, message_ttl: 300ms, dead_letter_address: dead}\n"
        )
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reloaded")
        sender.send(Message(body="after"))
        letters = connection.create_receiver("dead", credit=1)
        assert letters.receive(timeout=10).body == "after"
        letters.accept()
        assert number_of(broker, "q", "depth_msgs") == 1
        assert take(connection.create_receiver("q", credit=1), 1) == ["before"]


def test_a_pattern_that_names_the_box_does_not_empty_it(start_broker: StartBroker) -> None:
    """What one pattern says of all addresses would end dead letters, and their box, too."""
    policies = (
        'policies:\n  - {match: "#", message_ttl: 200ms, expire_after: 1s, dead_letter_address: dead}\n'
    )
    broker = start_broker(policies=policies)
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        sender.send(Message(body="x"))
        await_number(broker, "dead", "depth_msgs", 1)
        close(sender)
        # A queue that the same pattern is about comes, expires and goes meanwhile.
        wait_until(lambda: "q" not in names(broker), 15, "the idle queue to go")
        assert number_of(broker, "dead", "depth_msgs") == 1
        assert number_of(broker, "dead", "expired") == 0


def test_explain_shows_the_times_and_where_they_come_from(start_broker: StartBroker) -> None:
    settings = Api(start_broker(policies=TTL)).get("/explain/both")["settings"]
    found = {each["name"]: (each["value"], each["origin"]) for each in settings}
    assert found["max_ttl_ms"][0] == found["message_ttl_ms"][0] == 60_000
    assert found["message_ttl_ms"][1].endswith("(lowered to max_ttl)")
    assert found["expire_after_ms"] == (0, "default")


# --- idle queues

IDLE = 'policies:\n  - {match: "idle.#", expire_after: 2s}\n'


def test_an_idle_queue_goes_in_time_and_a_used_one_never(start_broker: StartBroker) -> None:
    broker = start_broker(policies=IDLE)
    with connected(broker.url) as connection:
        for name in ("idle.taken", "idle.sent", "idle.full", "other"):
            close(connection.create_sender(name))
        consumer = connection.create_receiver("idle.taken", credit=1)
        producer = connection.create_sender("idle.sent")
        send(connection.create_sender("idle.full"), "x")
        began = time.monotonic()
        close(connection.create_sender("idle.gone"))
        wait_until(lambda: "idle.gone" not in names(broker), 15, "the idle queue to go")
        waited = time.monotonic() - began
        assert waited >= 1.9
        # Looked at once a second; the rest is the time of a busy machine.
        assert waited < 8
        time_passes(broker, 3)
        assert names(broker) >= {"idle.taken", "idle.sent", "idle.full", "other"}
        close(consumer)
        close(producer)
        wait_until(lambda: names(broker) & {"idle.taken", "idle.sent"} == set(), 15, "both to go")
        assert "idle.full" in names(broker)
        assert take(connection.create_receiver("idle.full", credit=1), 1) == ["x"]
    wait_until(lambda: "idle.full" not in names(broker), 15, "the empty queue to go")
    wait_until(lambda: event_of(broker, "idle_deleted", "idle.full") is not None, 10, "the event")
    event = event_of(broker, "idle_deleted", "idle.full")
    assert event is not None
    assert (event["kind"], event["messages"]) == ("queue", 0)
    assert 2000 <= event["idle_ms"] < 8000
    assert "deleted queue 'idle.full' with 0 messages: nobody had used it for" in broker.log


def test_a_short_use_now_and_then_keeps_a_queue(start_broker: StartBroker) -> None:
    """A link that comes and goes between two looks at the queue is use."""
    broker = start_broker(policies=IDLE)
    with connected(broker.url) as connection:
        for number in range(8):
            sender = connection.create_sender("idle.q")
            if number % 2:
                receiver = connection.create_receiver("idle.q", credit=1)
                send(sender, str(number))
                assert take(receiver, 1) == [str(number)]
                close(receiver)
            close(sender)
            time_passes(broker, 0.9)
            assert event_of(broker, "idle_deleted", "idle.q") is None


def test_a_relay_keeps_a_queue_only_while_it_sends_there(start_broker: StartBroker) -> None:
    """It stays for as long as its application, and may have sent to any number of reply queues by then."""
    broker = start_broker(policies=IDLE)
    with connected(broker.url) as connection:
        relay = connection.create_sender(None)
        for _ in range(5):
            send(relay, "x", address="idle.reply")
            receiver = connection.create_receiver("idle.reply", credit=1)
            assert take(receiver, 1) == ["x"]
            close(receiver)
            time_passes(broker, 1)
            assert event_of(broker, "idle_deleted", "idle.reply") is None
        wait_until(lambda: "idle.reply" not in names(broker), 15, "the idle queue to go")
        send(relay, "again", address="idle.reply")
        assert take(connection.create_receiver("idle.reply", credit=1), 1) == ["again"]


def test_the_time_of_idleness_begins_anew_at_a_start(again: Again) -> None:
    policies = "policies:\n  - {match: q, durable: true, expire_after: 3s}\n"
    broker = again(policies)
    with connected(broker.url) as connection:
        close(connection.create_sender("q"))
        time_passes(broker, 2)
    broker = again(policies)
    began = time.monotonic()
    assert "q" in names(broker)
    wait_until(lambda: "q" not in names(broker), 15, "the idle queue to go")
    assert time.monotonic() - began > 1.5
    # It is gone from the disk too.
    assert "q" not in names(again(policies))


def test_a_reload_begins_the_time_anew(start_broker: StartBroker) -> None:
    broker = start_broker()
    with connected(broker.url) as connection:
        close(connection.create_sender("idle.q"))
    time_passes(broker, 3)
    broker.policy_file.write_text(IDLE)
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded")
    began = time.monotonic()
    assert "idle.q" in names(broker)
    wait_until(lambda: "idle.q" not in names(broker), 15, "the idle queue to go")
    assert time.monotonic() - began > 1.5


@pytest.mark.parametrize("shared", [False, True])
def test_a_subscription_goes_with_its_messages(start_broker: StartBroker, shared: bool) -> None:
    policies = (
        "policies:\n  - {match: news, kind: topic}\n"
        '  - {match: "news/#", kind: subscription, expire_after: 2s}\n'
    )
    asks = Asks("shared", durable=LASTING.durable, expiry=LASTING.expiry) if shared else LASTING
    broker = start_broker(policies=policies)
    with connected(broker.url, "absent") as absent, connected(broker.url, "present") as present:
        gone = absent.create_receiver("news", credit=1, name="one", options=asks)
        there = present.create_receiver("news", credit=10, name="two", options=asks)
        assert len(subscriptions(broker, "news")) == 2
        detach(gone)
        sender = present.create_sender("news")
        send(sender, "a", "b")
        wait_until(lambda: len(subscriptions(broker, "news")) == 1, 15, "the one without a receiver to go")
        [kept] = subscriptions(broker, "news")
        assert kept.endswith("two")
        time_passes(broker, 3)
        assert subscriptions(broker, "news") == [kept]
        assert take(there, 2) == ["a", "b"]
    name = kept.replace("present", "absent").replace("two", "one")
    wait_until(lambda: event_of(broker, "idle_deleted", name) is not None, 10, "the event")
    event = event_of(broker, "idle_deleted", name)
    assert event is not None
    assert (event["kind"], event["address"], event["messages"]) == ("subscription", "news", 2)
    # A topic stays.
    assert queue_of(broker, "news", "topic")["name"] == "news"


def time_passes(broker: RunningBroker, seconds: float) -> None:
    """So long by the broker's clock: it answers meanwhile, so that it did get its turns."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        names(broker)
        time.sleep(0.02)
