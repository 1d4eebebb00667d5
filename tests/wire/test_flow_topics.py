"""FLOW.md §3 and §6 on the wire: topics, one subscriber that stalls, and what queues inherit from topics."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from proton import Terminus

from broker.client.link import Connection, Receiver, Sender
from broker.codec import sections
from broker.codec.message import header_end
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.seeing import await_number, credit_comes, number_of, queue_of
from tests.wire.terminus import LASTING, Asks, connected, detach, flush, send, take

pytestmark = [pytest.mark.wire, pytest.mark.flow]

# The link names of these clients have no dots to rely on.
TOPIC = "  - {match: news, kind: topic, max_count: 200, flow_stop_count: 100, flow_resume_count: 90}\n"


def policies(*lines: str) -> str:
    return "policies:\n" + TOPIC + "".join(f"  - {line}\n" for line in lines)


def numbered(number: int) -> bytes:
    return sections.binary_body(str(number).encode().ljust(200, b"."))


def number_in(message: bytes) -> int:
    body = message[header_end(message) :]
    return int(body[8 if body[3] == 0xB0 else 5 :].split(b".")[0])


def publish(sender: Sender, count: int, readers: list[Receiver], first: int = 0) -> list[list[int]]:
    """Send so many numbered messages while everybody reads on; what each of the readers has read."""
    heard: list[list[int]] = [[] for _ in readers]
    for sent in range(first, first + count):
        sender.send(numbered(sent), timeout_s=10)
        if sent % 20 == 19 or sent == first + count - 1:
            sender.flush(10)
            for reader, read in zip(readers, heard, strict=True):
                while len(read) <= sent - first:
                    taken = reader.take(50, timeout_s=10)
                    assert taken, f"a healthy reader stands still at {len(read)} of {sent + 1}"
                    read += [number_in(each) for each in taken]
    return heard


def sent_until_blocked(broker: RunningBroker, connection: Connection, sender: Sender) -> int:
    """Send for as long as there is credit within a second and a half of the broker's."""
    while credit_comes(broker, connection, sender):
        sender.send(numbered(sender.sent), timeout_s=20)
    sender.flush(10)
    return sender.accepted


def sluice(broker: RunningBroker, *words: str) -> str:
    done = run_sluice(*words, "-b", broker.url)
    done.check_returncode()
    return done.stdout


def subscription_of(broker: RunningBroker, container: str = "slow") -> str:
    """The name of the subscription whose effective policy is this container's: the first made."""
    answer = json.loads(sluice(broker, "stat", "-q", "--json"))
    names = [row["name"] for row in answer["queues"] if row["kind"] == "subscription"]
    return next(str(name) for name in sorted(names) if container in name or name.endswith("/s1"))


MODES = {
    "page": "overflow: page, memory_limit: 1MB",
    "pending": "pending_message_limit: 50",
    "ring": "overflow: ring, max_count: 120",
    "newest": "overflow: drop_newest, max_count: 120",
    "uncontrolled": "flow_control: false, max_count: 120",
    "uncontrolled, rejecting": "flow_control: false, max_count: 120, overflow: reject",
    "uncontrolled, paging": "flow_control: false, overflow: page, memory_limit: 1MB",
}


@pytest.mark.parametrize("mode", MODES)
def test_a_stalled_subscriber_beside_healthy_ones_slows_nobody(start_broker: StartBroker, mode: str) -> None:
    count = 2000
    line = f'{{match: "news/slow.#", kind: subscription, {MODES[mode]}}}'
    broker = start_broker(policies=policies(line))
    with ExitStack() as stack:
        slow = stack.enter_context(Connection(broker.url, container_id="slow"))
        stalled = slow.receiver("news", credit=10)
        healthy = [stack.enter_context(Connection(broker.url)).receiver("news") for _ in range(3)]
        source = stack.enter_context(Connection(broker.url))
        sender = source.sender("news")
        heard = publish(sender, count, healthy)
        assert heard == [list(range(count))] * 3
        assert sender.accepted == count
        name = subscription_of(broker)
        seen = queue_of(broker, name, "subscription")
        assert (seen["flowStopped"], seen["flowStoppedCount"], seen["promised_msgs"]) == (False, 0, 0)
        assert number_of(broker, "news", "flowStoppedCount", "topic") == 0
        dropped = seen["dropped"]
        got: list[int] = []
        while len(got) < count - int(str(dropped)):
            got += [number_in(each) for each in stalled.take(10, timeout_s=10)]
    first, last = list(range(10)), list(range(count))
    expected = {
        "page": last,
        "pending": first + last[-50:],
        "ring": first + last[-110:],
        "newest": last[:120],
        "uncontrolled": last,
        "uncontrolled, rejecting": last[:120],
        "uncontrolled, paging": last,
    }[mode]
    assert got == expected
    assert dropped == count - len(expected)


def test_without_such_a_policy_the_slowest_subscription_is_everybody_s_pace(
    start_broker: StartBroker,
) -> None:
    """Credit of a publisher is the least room over the subscriptions, each reserved."""
    broker = start_broker(policies=policies())
    with Connection(broker.url) as slow, Connection(broker.url) as quick, Connection(broker.url) as source:
        stalled = slow.receiver("news", credit=10)
        healthy = quick.receiver("news", credit=1000)
        sender = source.sender("news")
        assert sent_until_blocked(broker, source, sender) == 100
        got = 0
        while got < 100:
            got += len(healthy.take(100, timeout_s=20))
        quick.pump()
        assert not source.wait_until(sender.may_send, 0.3)
        # The client tells of what it took with its next request.
        got = 0
        while got < 30:
            got += len(stalled.take(10, timeout_s=20))
        slow.pump()
        assert source.wait_until(sender.may_send, 20)


def test_a_backlog_is_bounded_without_what_was_already_sent(start_broker: StartBroker) -> None:
    """`pending_message_limit` on the topic itself: for each of its subscriptions."""
    broker = start_broker(policies="policies:\n  - {match: news, kind: topic, pending_message_limit: 20}\n")
    with Connection(broker.url) as slow, Connection(broker.url) as source:
        stalled = slow.receiver("news", credit=30)
        sender = source.sender("news")
        publish(sender, 500, [])
        seen = queue_of(broker, "news/s1", "subscription")
        assert (seen["unsettled_msgs"], seen["ready_msgs"], seen["dropped"]) == (30, 20, 450)
        got: list[int] = []
        while len(got) < 50:
            got += [number_in(each) for each in stalled.take(50, timeout_s=20)]
        assert got == [*range(30), *range(480, 500)]


def test_explain_names_the_line_of_a_subscription_s_values(start_broker: StartBroker) -> None:
    line = '{match: "news/slow.#", kind: subscription, overflow: page}'
    broker = start_broker(policies=policies(line))
    with Connection(broker.url, container_id="slow") as slow:
        slow.receiver("news")
        answer = json.loads(sluice(broker, "explain", "news/s1", "--json"))
        assert (answer["kind"], answer["exists"]) == ("subscription", True)
        found = {row["name"]: (row["value"], row["origin"]) for row in answer["settings"]}
        file = broker.policy_file
        assert found["overflow"] == ("page", f"{file}:3:48")
        assert found["max_count"] == (200, f"{file}:2:32 (by topic news)")


def test_a_policy_withdrawn_lets_a_blocked_producer_go_on_though_nobody_consumes(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(policies="policies:\n  - {match: orders, flow_stop_count: 40}\n")
    with Connection(broker.url) as source:
        sender = source.sender("orders")
        assert sent_until_blocked(broker, source, sender) == 40
        broker.policy_file.write_text("policies: []\n")
        broker.signal(signal.SIGHUP)
        assert source.wait_until(sender.may_send, 10)
        assert (number_of(broker, "orders", "depth_msgs"), number_of(broker, "orders", "consumers")) == (
            40,
            0,
        )


def test_policies_applied_at_runtime_move_a_subscription_between_holding_and_not(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(policies=policies())
    pages = tmp_path / "pages.yaml"
    pages.write_text("policies:\n  - {match: 'news/slow.#', kind: subscription, overflow: page}\n")
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text("policies:\n  - {match: 'news/slow.#', kind: subscription}\n")
    with Connection(broker.url, container_id="slow") as slow, Connection(broker.url) as source:
        slow.receiver("news", credit=10)
        sender = source.sender("news")
        assert sent_until_blocked(broker, source, sender) == 100
        sluice(broker, "config", "apply", str(pages))
        assert source.wait_until(sender.may_send, 20), "no consumer had to settle anything"
        publish(sender, 400, [], first=100)
        assert number_of(broker, "news/s1", "depth_msgs", "subscription") == 500
        sluice(broker, "config", "apply", str(nothing))
        # What is promised beyond the threshold is taken back.
        await_number(broker, "news", "promised_msgs", 0, "topic")
        assert queue_of(broker, "news", "topic")["flowStopped"] is True
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("settings and policies reloaded")
        assert queue_of(broker, "news", "topic")["flowStopped"] is True
        sluice(broker, "config", "apply", str(pages))
        assert source.wait_until(sender.may_send, 20)


# --- enforce_flow: with_active_consumers

ACTIVE = (
    "policies:\n  - {match: 'foo.>', kind: topic, flow_stop_count: 10, max_count: 30,"
    " enforce_flow: with_active_consumers}\n"
)


def test_a_topic_with_only_inactive_durable_subscribers_does_not_stop(start_broker: StartBroker) -> None:
    broker = start_broker(policies=ACTIVE)
    with connected(broker.url, "app") as reader, Connection(broker.url) as source:
        durable = reader.create_receiver("foo.bar", name="keeps", options=LASTING, credit=5)
        sender = source.sender("foo.bar")
        assert sent_until_blocked(broker, source, sender) == 10, "somebody receives: it holds"
        detach(durable)
        # Nobody does any more: publishers go on, up to the hard limit and beyond, where it pages.
        publish(sender, 100, [], first=10)
        kept = queue_of(broker, "foo.bar", "topic")
        assert (kept["flowStopped"], kept["flowEnforced"], kept["depth_msgs"]) == (False, False, 110)
        # A wildcard's receiver makes the topic an active one: it holds publishers, the other still doesn't.
        parent = reader.create_receiver("foo.*", credit=5)
        assert queue_of(broker, "foo.bar", "topic")["flowEnforced"] is True
        before = sender.accepted
        assert sent_until_blocked(broker, source, sender) - before == 10
        assert queue_of(broker, "foo.bar", "topic")["flowStopped"] is True
        detach(parent)
        assert source.wait_until(sender.may_send, 20)
        assert number_of(broker, "foo.bar", "dropped", "topic") == 0


@pytest.mark.parametrize("parent", ["foo.*", "foo.>", "foo.bar"])
def test_a_subscriber_of_a_parent_wildcard_counts_once_it_has_given_credit(
    start_broker: StartBroker, parent: str
) -> None:
    broker = start_broker(policies=ACTIVE)
    with connected(broker.url) as quiet, Connection(broker.url) as source:
        receiver = quiet.create_receiver(parent, credit=0)
        sender = source.sender("foo.bar")
        publish(sender, 25, [])
        assert queue_of(broker, "foo.bar", "topic")["flowStopped"] is False
        receiver.link.flow(1)
        flush(quiet)
        await_number(broker, "foo.bar", "promised_msgs", 0, "topic")
        assert queue_of(broker, "foo.bar", "topic")["flowStopped"] is True


def test_a_queue_without_a_started_receiver_does_not_stop(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies: [{match: q, flow_stop_count: 10, enforce_flow: with_active_consumers}]\n"
    )
    with connected(broker.url) as reader, Connection(broker.url) as source:
        sender = source.sender("q")
        publish(sender, 50, [])
        receiver = reader.create_receiver("q", credit=0)
        publish(sender, 50, [], first=50)
        assert queue_of(broker, "q")["flowStopped"] is False
        receiver.link.flow(1)
        flush(reader)
        await_number(broker, "q", "promised_msgs", 0)
        assert queue_of(broker, "q")["flowStopped"] is True
        detach(receiver)
        assert source.wait_until(sender.may_send, 20)


# --- queues that inherit


def test_a_bound_queue_inherits_at_once_and_gives_it_back_when_unbound(start_broker: StartBroker) -> None:
    broker = start_broker(policies=policies())
    with Connection(broker.url) as source:
        sender = source.sender("inbox")
        assert source.wait_until(sender.may_send, 20)
        publish(sender, 150, [])
        assert "bound queue inbox to topic news" in sluice(broker, "config", "bind", "news", "inbox")
        await_number(broker, "inbox", "promised_msgs", 0)
        assert queue_of(broker, "inbox")["flowStopped"] is True
        told = sluice(broker, "explain", "inbox")
        assert f"{broker.policy_file}:2:48 (by topic news)" in told
        assert not source.wait_until(sender.may_send, 0.2) or sender.credit == 0
        sluice(broker, "config", "unbind", "news", "inbox")
        assert source.wait_until(sender.may_send, 20), "no consumer had to come"
        assert number_of(broker, "inbox", "depth_msgs") == 150


@pytest.mark.parametrize(("sits", "waits"), [("inbox", "news"), ("news", "inbox")])
def test_a_bound_queue_s_producers_and_its_topic_s_publishers_lend_each_other(
    start_broker: StartBroker, sits: str, waits: str
) -> None:
    broker = start_broker(policies=policies())
    with Connection(broker.url) as idle, Connection(broker.url) as busy:
        sitting = idle.sender("inbox"), idle.sender("news")
        assert idle.wait_until(lambda: any(each.may_send() for each in sitting), 20)
        sluice(broker, "config", "bind", "news", "inbox")
        for each in sitting:
            each.close()
        sender = idle.sender(sits)
        publish(sender, 1, [])
        await_number(broker, "inbox", "promised_msgs", 99)
        assert publish(busy.sender(waits), 50, []) == []
        assert number_of(broker, "inbox", "depth_msgs") == 51
        assert number_of(broker, "inbox", "flowStoppedCount") == 0


def test_durable_bindings_survive_a_restart_with_what_they_hand_down(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    kept = "policies:\n  - {match: news, kind: topic, durable: true, flow_stop_count: 30}\n"
    args = ("--data", str(tmp_path / "kept"))
    broker = start_broker(policies=kept, args=args)
    sluice(broker, "config", "add", "topic", "news")
    sluice(broker, "config", "bind", "news", "inbox")
    with connected(broker.url) as connection:
        send(connection.create_sender("news"), *(f"{n}" for n in range(5)), durable=True)
    broker.stop()
    broker = start_broker(policies=kept, args=args)
    assert number_of(broker, "inbox", "depth_msgs") == 5
    assert number_of(broker, "inbox", "flow_stop_count") == 30
    with connected(broker.url) as connection:
        send(connection.create_sender("news"), "after", durable=True)
        assert take(connection.create_receiver("inbox", credit=10), 6) == [*"01234", "after"]
    sluice(broker, "config", "unbind", "news", "inbox")
    broker.stop()
    broker = start_broker(policies=kept, args=args)
    with connected(broker.url) as connection:
        send(connection.create_sender("news"), "nobody", durable=True)
    assert number_of(broker, "inbox", "depth_msgs") == 0


def test_a_durable_subscription_keeps_its_own_policy_over_a_restart(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    line = '{match: "news/app.keeps", kind: subscription, pending_message_limit: 3}'
    args = ("--data", str(tmp_path / "kept"))
    for round_number in range(2):
        broker = start_broker(policies=policies(line), args=args)
        with connected(broker.url, "app") as connection:
            detach(connection.create_receiver("news", name="keeps", options=LASTING, credit=0))
            send(connection.create_sender("news"), *(f"{n}" for n in range(10)), durable=True)
            wait_until(
                lambda: number_of(broker, "news/app.keeps", "depth_msgs", "subscription") == 3,  # noqa: B023
                10,
                "the backlog to be shed",
            )
        assert number_of(broker, "news/app.keeps", "dropped", "subscription") == (7, 10)[round_number]
        broker.stop()


def test_a_shared_subscription_is_known_by_its_name(start_broker: StartBroker) -> None:
    line = '{match: "news/app.work", kind: subscription, overflow: ring, max_count: 4}'
    broker = start_broker(policies=policies(line))
    shared = Asks("shared", durable=True, expiry=Terminus.EXPIRE_NEVER)
    with connected(broker.url, "app") as connection:
        receiver = connection.create_receiver("news", name="work|1", options=shared, credit=0)
        send(connection.create_sender("news"), *(f"{n}" for n in range(10)))
        receiver.link.flow(10)
        assert take(receiver, 4) == ["6", "7", "8", "9"]
