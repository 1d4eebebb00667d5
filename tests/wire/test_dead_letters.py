"""What can't be delivered, what expired and what came twice, with Proton's own clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, BlockingReceiver

from broker.client.link import Connection, Receiver
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of, numbers_of, queue_of
from tests.wire.terminus import connected as hosted
from tests.wire.terminus import flush
from tests.wire.vanishing import crashing, handed_over

pytestmark = pytest.mark.wire

REASON = symbol("x-opt-sluice-dead-letter-reason")
ADDRESS = symbol("x-opt-sluice-original-address")
TIME = symbol("x-opt-sluice-dead-letter-time")
COUNT = symbol("x-opt-sluice-dead-letter-count")

POLICIES = """\
policies:
  - match: "#"
    dead_letter_address: dead
  - match: "small"
    max_count: 1
    flow_control: false
    overflow: dead_letter
  - match: "once"
    duplicate_window: 2
"""


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=10)
    try:
        yield made
    finally:
        made.close()


def taken(receiver: BlockingReceiver) -> Message:
    """The next message, accepted."""
    message = receiver.receive(timeout=10)
    receiver.accept()
    return message


def told_by(letter: Message) -> dict[object, Any]:
    """What a dead letter tells of itself."""
    assert letter.annotations is not None
    return dict(letter.annotations)


def fail(receiver: BlockingReceiver) -> Message:
    """The next message, handed back as a delivery that failed (AMQP 1.0 §3.4.5)."""
    message = receiver.receive(timeout=10)
    assert receiver.fetcher is not None
    receiver.fetcher.unsettled[0].local.failed = True
    receiver.settle(Delivery.MODIFIED)
    return message


def test_a_rejected_message_is_a_dead_letter(start_broker: StartBroker) -> None:
    before_ms = time.time() * 1000
    with connected(start_broker(policies=POLICIES)) as connection:
        sent = Message(body="x", id="1", durable=True, ttl=3600, annotations={symbol("x-opt-k"): 5})
        connection.create_sender("orders").send(sent)
        receiver = connection.create_receiver("orders", credit=1)
        receiver.receive(timeout=10)
        receiver.reject()
        letter = taken(connection.create_receiver("dead", credit=1))
    assert (letter.body, letter.id, letter.durable, letter.ttl) == ("x", "1", True, 0)
    told = told_by(letter)
    assert before_ms - 1 <= told.pop(TIME) <= time.time() * 1000 + 1
    assert told.pop(symbol("x-opt-sluice-original-ttl")) == 3_600_000
    assert told == {REASON: "rejected", ADDRESS: "orders", COUNT: 1, symbol("x-opt-k"): 5}


def test_ten_failed_deliveries_make_a_dead_letter_which_is_never_dropped(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=POLICIES)) as connection:
        connection.create_sender("orders").send(Message(body="x"))
        orders = connection.create_receiver("orders", credit=1)
        assert [fail(orders).delivery_count for _ in range(10)] == list(range(10))
        dead = connection.create_receiver("dead", credit=1)
        # The pattern that sends letters there matches that place as well, and limits nothing in it.
        letters = [fail(dead) for _ in range(12)]
        assert [letter.delivery_count for letter in letters] == list(range(12))
        assert told_by(letters[0])[REASON] == "max-delivery-count"
        assert taken(dead).body == "x"


@pytest.mark.parametrize("when", ["ttl", "absolute"])
def test_an_expired_message_is_a_dead_letter_and_stays_one(start_broker: StartBroker, when: str) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        connection.create_sender("dead")
        soon = time.time() + 0.3
        message = Message(body="x", ttl=0.3) if when == "ttl" else Message(body="x", expiry_time=soon)
        message.properties = {"kept": "as it was"}  # type: ignore[assignment]
        connection.create_sender("orders").send(message)
        await_number(broker, "dead", "depth_msgs", 1)
        # A client such as Qpid JMS throws away unread what says that it has expired.
        letter = taken(connection.create_receiver("dead", credit=1))
    assert (told_by(letter)[REASON], told_by(letter)[ADDRESS]) == ("expired", "orders")
    assert (letter.expiry_time, letter.ttl) == (0, 0)
    kept = {"ttl": "x-opt-sluice-original-ttl", "absolute": "x-opt-sluice-original-expiry-time"}[when]
    assert told_by(letter)[symbol(kept)] in (300, int(soon * 1000))
    assert letter.properties == {
        "sluice_dead_letter_reason": "expired",
        "sluice_dead_letter_origin": "orders",
        "sluice_dead_letter_count": 1,
        "kept": "as it was",
    }


def test_what_finds_no_room_is_a_dead_letter(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=POLICIES)) as connection:
        sender = connection.create_sender("small")
        for body in ("first", "second"):
            sender.send(Message(body=body))
        letter = taken(connection.create_receiver("dead", credit=1))
        assert (letter.body, told_by(letter)[REASON]) == ("second", "overflow")
        assert taken(connection.create_receiver("small", credit=1)).body == "first"


def test_a_ttl_reads_what_is_left_of_it(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=POLICIES)) as connection:
        connection.create_sender("orders").send(Message(body="x", ttl=600))
        time_passes(0.2)
        message = taken(connection.create_receiver("orders", credit=1))
    assert 500 < message.ttl <= 599.8


@pytest.mark.parametrize("expiry_ms", [2**42, 2**50, 2**62, 2**63 - 1])
def test_what_expires_far_away_is_delivered(start_broker: StartBroker, expiry_ms: int) -> None:
    """Some clients write the largest number for "never", and 0 for no ttl."""
    header = b"\x00\x53\x70\xc0\x04\x03\x41\x40\x43"
    properties = b"\x00\x53\x73\xc0\x12\x09" + 8 * b"\x40" + b"\x83" + expiry_ms.to_bytes(8, "big")
    data = header + properties + b"\x00\x53\x77\xa1\x01x"
    broker = start_broker(policies=POLICIES)
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        sender.send(data, timeout_s=10)
        sender.flush(10)
        (delivered,) = connection.receiver("orders", credit=1).take(1, timeout_s=10)
    assert delivered.endswith(data[len(header) :])
    assert "Traceback" not in broker.log


def time_passes(seconds: float) -> None:
    """The one thing there is nothing to wait for but the clock."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 5, "the clock")


def test_a_message_that_comes_twice_is_kept_once(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        sender = connection.create_sender("once")
        for id_ in ("a", "b", "a", "c", "a"):
            sender.send(Message(body=id_, id=id_))
        sender.send(Message(body="no id"))
        sender.send(Message(body="no id"))
        assert number_of(broker, "once", "depth_msgs") == 6
        receiver = connection.create_receiver("once", credit=10)
        # A window of two: by the third "a" the first is forgotten.
        assert [taken(receiver).body for _ in range(6)] == ["a", "b", "c", "a", "no id", "no id"]


# --- without a word in any policy


def put(broker: RunningBroker, address: str, bodies: Iterable[str], durable: bool = False) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for body in bodies:
            sender.send(sections.header(durable=durable) + sections.text_body(body), timeout_s=20)
        sender.flush(20)


def told_to(connection: Connection, receiver: Receiver, count: int) -> list[tuple[int, str]]:
    """So many messages, each with the number to settle it by."""
    return [(number, sections.shown(data)) for number, data in handed_over(connection, receiver, count)]


def letters_in(broker: RunningBroker, address: str, count: int) -> list[tuple[object, object, object]]:
    """So many dead letters, accepted: body, reason and origin of each."""
    with connected(broker) as connection:
        receiver = connection.create_receiver(address, credit=count)
        letters = [taken(receiver) for _ in range(count)]
    return [(each.body, told_by(each)[REASON], told_by(each)[ADDRESS]) for each in letters]


def is_there(broker: RunningBroker, name: str) -> bool:
    return name in numbers_of(broker, "depth_msgs")


def test_without_a_policy_a_message_that_fails_ten_times_goes_to_dlq(broker: RunningBroker) -> None:
    with connected(broker) as connection:
        sender = connection.create_sender("orders")
        sender.send(Message(body="poison"))
        sender.send(Message(body="next"))
        orders = connection.create_receiver("orders", credit=1)
        assert [fail(orders).delivery_count for _ in range(10)] == list(range(10))
        assert taken(orders).body == "next"
        flush(connection)
    assert (number_of(broker, "orders", "depth_msgs"), number_of(broker, "orders", "dead_lettered")) == (0, 1)
    assert queue_of(broker, "DLQ")["durable"] is True
    assert letters_in(broker, "DLQ", 1) == [("poison", "max-delivery-count", "orders")]


def test_a_rejected_message_goes_to_dlq_and_an_expired_one_nowhere(broker: RunningBroker) -> None:
    with connected(broker) as connection:
        sender = connection.create_sender("orders")
        sender.send(Message(body="late", ttl=0.05))
        await_number(broker, "orders", "expired", 1)
        assert not is_there(broker, "DLQ")
        sender.send(Message(body="wrong"))
        receiver = connection.create_receiver("orders", credit=1)
        receiver.receive(10)
        receiver.reject()
        flush(connection)
        await_number(broker, "orders", "depth_msgs", 0)
    assert letters_in(broker, "DLQ", 1) == [("wrong", "rejected", "orders")]
    assert number_of(broker, "DLQ", "depth_msgs") == 0


@pytest.mark.parametrize("expired", [True, False])
def test_expired_messages_go_where_the_policy_says(start_broker: StartBroker, expired: bool) -> None:
    policy = f"{{match: orders, dead_letter_address: dead, dead_letter_expired: {str(expired).lower()}}}"
    broker = start_broker(policies=f"policies:\n  - {policy}\n")
    with connected(broker) as connection:
        connection.create_sender("dead")
        connection.create_sender("orders").send(Message(body="late", ttl=0.05))
    await_number(broker, "orders", "expired", 1)
    assert number_of(broker, "dead", "depth_msgs") == expired


def test_a_count_of_nothing_is_endless(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: orders, max_delivery_count: 0}\n")
    with connected(broker) as connection:
        connection.create_sender("orders").send(Message(body="x"))
        orders = connection.create_receiver("orders", credit=1)
        assert [fail(orders).delivery_count for _ in range(25)] == list(range(25))
    assert number_of(broker, "orders", "depth_msgs") == 1


def test_an_empty_address_keeps_no_letters(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: orders, dead_letter_address: ''}\n")
    with connected(broker) as connection:
        connection.create_sender("orders").send(Message(body="x"))
        orders = connection.create_receiver("orders", credit=1)
        assert [fail(orders).delivery_count for _ in range(12)] == list(range(12))
        orders.receive(10)
        orders.reject()
        flush(connection)
        await_number(broker, "orders", "depth_msgs", 0)
    assert not is_there(broker, "DLQ")


def test_dlq_is_made_where_clients_may_make_nothing(start_broker: StartBroker) -> None:
    policies = "policies:\n  - {match: orders, auto_create: true}\n  - {match: '#', kind: topic}\n"
    broker = start_broker("auto_create: false\n", f"{policies}  - {{match: orders.>, kind: queue}}\n")
    with connected(broker) as connection:
        with Management(broker.url) as management:
            management.call("CREATE", "org.sluice.queue", "orders.new", {})
        connection.create_sender("orders.new").send(Message(body="x"))
        orders = connection.create_receiver("orders.new", credit=1)
        orders.receive(10)
        orders.reject()
        flush(connection)
        wait_until(lambda: is_there(broker, "DLQ"), 10, "DLQ to be made")
    found = queue_of(broker, "DLQ")
    assert (found["kind"], found["durable"]) == ("queue", True)
    assert letters_in(broker, "DLQ", 1) == [("x", "rejected", "orders.new")]


@pytest.mark.parametrize("place", ["DLQ", "dead"])
def test_a_dead_letter_outlives_the_ttl_of_a_wide_pattern(start_broker: StartBroker, place: str) -> None:
    named = "" if place == "DLQ" else "  - {match: orders, dead_letter_address: dead}\n"
    wide = "policies:\n  - {match: '#', message_ttl: 300ms, durable: false}\n"
    broker = start_broker(policies=wide + named)
    with connected(broker) as connection:
        sender = connection.create_sender("orders")
        receiver = connection.create_receiver("orders", credit=1)
        sender.send(Message(body="letter"))
        receiver.receive(timeout=10)
        receiver.reject()
        flush(connection)
        await_number(broker, place, "depth_msgs", 1)
        # One that waits as long as the letter does is gone.
        connection.create_sender("other").send(Message(body="x"))
        await_number(broker, "other", "expired", 1)
        assert taken(connection.create_receiver(place, credit=1)).body == "letter"


def test_dead_letters_of_one_id_are_both_kept(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: '#', duplicate_window: 10}\n")
    with connected(broker) as connection:
        for name in ("a", "b"):
            connection.create_sender(name).send(Message(body=name, id="same"))
            receiver = connection.create_receiver(name, credit=1)
            receiver.receive(timeout=10)
            receiver.reject()
        flush(connection)
        await_number(broker, "DLQ", "depth_msgs", 2)
        letters = connection.create_receiver("DLQ", credit=2)
        assert [taken(letters).body, taken(letters).body] == ["a", "b"]


@pytest.mark.parametrize("place", ["DLQ", "box", "$temporary"])
@pytest.mark.parametrize("first", [True, False])
def test_what_fails_in_a_place_of_dead_letters_stays_there(
    start_broker: StartBroker, place: str, first: bool
) -> None:
    broker = start_broker(policies="policies:\n  - {match: '#', max_delivery_count: 3}\n")

    def name_box() -> None:
        with Management(broker.url) as management:
            management.call("CREATE", "org.sluice.queue", "work", {"dead_letter_address": "box"})

    with connected(broker) as connection:
        if not first:
            name_box()
        if place == "$temporary":
            receiver = connection.create_receiver(None, dynamic=True, credit=1)
            place = str(receiver.link.remote_source.address)
        else:
            receiver = connection.create_receiver(place, credit=1)
        if first:
            name_box()
        connection.create_sender(place).send(Message(body="x"))
        assert [fail(receiver).delivery_count for _ in range(12)] == list(range(12))
        assert taken(receiver).body == "x"


def test_a_place_of_dead_letters_that_is_none_any_more_has_its_default_again(broker: RunningBroker) -> None:
    with Management(broker.url) as management:

        def told() -> object:
            body = management.call("READ", "org.sluice.queue", "box").body
            assert isinstance(body, dict)
            return body["dead_letter_address"], body["max_delivery_count"]

        management.call("CREATE", "org.sluice.queue", "box", {})
        assert told() == ("DLQ", 10)
        for name in ("one", "two"):
            management.call("CREATE", "org.sluice.queue", name, {"dead_letter_address": "box"})
            assert told() == ("", 0)
        management.call("DELETE", "org.sluice.queue", "one")
        assert told() == ("", 0)
        management.call("UPDATE", "org.sluice.queue", "two", {"dead_letter_address": "elsewhere"})
        assert told() == ("DLQ", 10)


def test_each_virtual_host_has_its_dlq(start_broker: StartBroker) -> None:
    broker = start_broker("virtual_hosts: [shop]\n")
    for host in ("shop", "elsewhere"):
        with hosted(broker.url, host=host) as connection:
            connection.create_sender("orders").send(Message(body=host))
            receiver = connection.create_receiver("orders", credit=1)
            receiver.receive(10)
            receiver.reject()
            dead = connection.create_receiver("DLQ", credit=1)
            assert [fail(dead).body for _ in range(12)] == [host] * 12
            assert taken(dead).body == host
    assert {"DLQ", "shop/DLQ"} <= set(numbers_of(broker, "depth_msgs"))


def test_a_subscription_has_the_default_too(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: news, kind: topic}\n")
    with connected(broker) as connection:
        receiver = connection.create_receiver("news", credit=1)
        connection.create_sender("news").send(Message(body="x"))
        assert [fail(receiver).delivery_count for _ in range(10)] == list(range(10))
        flush(connection)
        wait_until(lambda: is_there(broker, "DLQ"), 10, "DLQ to be made")
    assert letters_in(broker, "DLQ", 1) == [("x", "max-delivery-count", "news")]


def test_a_consumer_that_crashes_on_one_message_loses_that_one_alone(broker: RunningBroker) -> None:
    """It takes a hundred at a time, accepts what it has done and crashes on the same one each time."""
    put(broker, "orders", [f"{number}" for number in range(100)])
    crashes = 0
    while not is_there(broker, "DLQ"):
        with crashing(broker.port, "orders", 100) as (connection, receiver):
            for number, body in told_to(connection, receiver, 100 if crashes == 0 else 70):
                if body == "30":
                    break
                receiver.settle(number, "accepted")
            connection.wait(lambda: number_of(broker, "orders", "depth_msgs") == 70, 20, "what it accepted")
        crashes += 1
        await_number(broker, "orders", "unsettled_msgs", 0)
        assert crashes <= 10
    assert crashes == 10
    with crashing(broker.port, "orders", 100) as (connection, receiver):
        rest = told_to(connection, receiver, 69)
        assert [body for _, body in rest] == [f"{number}" for number in range(31, 100)]
    assert letters_in(broker, "DLQ", 1) == [("30", "max-delivery-count", "orders")]


def test_a_consumer_that_always_crashes_spares_what_it_never_began(broker: RunningBroker) -> None:
    put(broker, "orders", [f"{number}" for number in range(1000)])
    for _ in range(21):
        with crashing(broker.port, "orders", 1000) as (connection, receiver):
            told_to(connection, receiver, 998)
        await_number(broker, "orders", "unsettled_msgs", 0)
    assert number_of(broker, "orders", "depth_msgs") == 998
    assert [body for body, _, _ in letters_in(broker, "DLQ", 2)] == ["0", "1"]
    with connected(broker) as connection:
        orders = connection.create_receiver("orders", credit=1)
        # It has been the first once; the 1 that it read before was no failure of its own.
        assert [fail(orders).delivery_count for _ in range(9)] == list(range(2, 11))
        assert [fail(orders).delivery_count for _ in range(10)] == list(range(1, 11))
        assert taken(orders).body == "4"
    assert [body for body, _, _ in letters_in(broker, "DLQ", 2)] == ["2", "3"]


def test_the_first_that_was_sent_counts_not_the_first_in_line(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: orders, max_delivery_count: 1}\n")
    put(broker, "orders", "ab")
    with crashing(broker.port, "orders", 1) as (one, first):
        [(number, body)] = told_to(one, first, 1)
        assert body == "a"
        with crashing(broker.port, "orders", 2) as (two, second):
            assert [body for _, body in told_to(two, second, 1)] == ["b"]
            first.settle(number, "released")
            first.close(10)
            # It is ahead in the queue, and behind what this consumer has already.
            assert [body for _, body in told_to(two, second, 1)] == ["a"]
    assert [body for body, _, _ in letters_in(broker, "DLQ", 1)] == ["b"]
    await_number(broker, "orders", "unsettled_msgs", 0)
    assert number_of(broker, "orders", "depth_msgs") == 1


def test_a_stop_of_the_broker_counts_against_nobody(start_broker: StartBroker, tmp_path: Path) -> None:
    config = "limits: {shutdown_timeout: 1ms}\n"
    policies = "policies:\n  - {match: orders, durable: true, max_delivery_count: 2}\n"
    place = ["--data", str(tmp_path / "data")]
    broker = start_broker(config, policies, place)
    put(broker, "orders", "ab", durable=True)
    for _ in range(3):
        with crashing(broker.port, "orders", 10) as (connection, receiver):
            told_to(connection, receiver, 2)
            assert broker.stop() == 0
        broker = start_broker(config, policies, place)
    assert number_of(broker, "orders", "depth_msgs") == 2
    assert not is_there(broker, "DLQ")


class Rejecting(MessagingHandler):
    """Fills a queue, then rejects each of its messages on credit that it gives once; ``come`` counts them."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.come = self.accepted = 0
        self._url, self._queue, self._count, self._sent = url, queue, count, 0

    def on_start(self, event: Any) -> None:
        self._connection = event.container.connect(self._url)
        event.container.create_sender(self._connection, self._queue)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < self._count:
            event.sender.send(Message(body="x" * 2000))
            self._sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self._count:
            receiver = event.container.create_receiver(self._connection, self._queue)
            receiver.flow(2 * self._count)

    def on_message(self, event: Any) -> None:
        self.come += 1
        event.delivery.update(Delivery.REJECTED)
        event.delivery.settle()

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()


def test_a_paged_backlog_is_read_on_when_letters_that_waited_for_room_have_gone(
    start_broker: StartBroker,
) -> None:
    """Nothing is read ahead while many wait, and nobody has to send or give credit for it to go on."""
    count = 2500
    broker = start_broker(
        policies="""policies:
  - {match: paged, overflow: page, memory_limit: 1MB, dead_letter_address: few, max_delivery_count: 1}
  - {match: few, flow_stop_count: 50}
"""
    )
    rejecting = Rejecting(broker.url, "paged", count)
    container = Container(rejecting)
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    wait_until(lambda: rejecting.come >= 1000, 60, "letters that wait")
    time.sleep(1)
    assert rejecting.come < count, "the queue wasn't paged"
    with connected(broker) as connection:
        receiver = connection.create_receiver("few", credit=100)
        for _ in range(count):
            receiver.receive(timeout=30)
            receiver.accept()
        assert rejecting.come == count
    container.stop()
    thread.join(30)
