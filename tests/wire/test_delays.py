"""Messages that are delivered later: never early, after restarts too."""

from __future__ import annotations

import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message, int32, symbol, timestamp, ulong
from proton.utils import BlockingConnection

from broker.cli.main import main
from broker.client.errors import ClientError
from broker.client.link import Connection, Receiver, Sender
from broker.client.request import Management
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of, queue_of

pytestmark = pytest.mark.wire

DELAY = "x-opt-delivery-delay"
TIME = "x-opt-delivery-time"
ENQUEUE = "x-opt-scheduled-enqueue-time"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


def message(annotations: dict[Any, Any], body: Any = "x", **fields: Any) -> bytes:
    named = {symbol(key): value for key, value in annotations.items()}
    return bytes(Message(body=body, annotations=named, **fields).encode())


def decoded(data: bytes) -> Message:
    found = Message()
    found.decode(data)
    return found


def body_of(data: bytes) -> Any:
    """A binary body is the message's own memory: it is copied while the message is there."""
    found = decoded(data)
    body: Any = found.body
    return body if isinstance(body, str) else bytes(body)


def bodies(taken: list[bytes]) -> list[Any]:
    return [body_of(each) for each in taken]


def all_of(receiver: Receiver, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        taken = receiver.take(count - len(found), 20)
        assert taken, f"{len(found)} of {count} came"
        found += taken
    return found


def sent(sender: Sender, *messages: bytes) -> list[tuple[int, str, str]]:
    """What was refused of them, and why, once all have an outcome."""
    for each in messages:
        sender.send(each, 20)
    sender.flush(20)
    return sender.rejections


@pytest.mark.parametrize(
    ("name", "value"),
    [(DELAY, 700), (DELAY, ulong(700)), (DELAY, int32(700)), (TIME, "a time"), (ENQUEUE, "a timestamp")],
)
def test_a_message_is_delivered_when_its_time_has_come(broker: RunningBroker, name: str, value: Any) -> None:
    begun = now_ms()
    if name != DELAY:
        value = timestamp(begun + 700) if name == ENQUEUE else begun + 700
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        receiver = connection.receiver("orders")
        delayed = message({"x-opt-other": 1, name: value, "x-opt-last": "z"}, "later")
        assert sent(sender, delayed, message({}, "now")) == []
        assert bodies(receiver.take(1, 20)) == ["now"]
        (late,) = receiver.take(1, 20)
    assert now_ms() >= begun + 700
    found = decoded(late)
    assert found.body == "later"
    # A delay has become a time, so that it doesn't begin anew anywhere.
    assert found.annotations is not None
    assert DELAY not in found.annotations
    if name == DELAY:
        assert begun + 700 <= found.annotations[TIME] <= now_ms()
    assert (found.annotations["x-opt-other"], found.annotations["x-opt-last"]) == (1, "z")


@pytest.mark.parametrize("name", [DELAY, TIME, ENQUEUE])
def test_a_value_that_is_no_number_is_refused(broker: RunningBroker, name: str) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        found = sent(sender, message({name: "soon"}), message({}))
        assert [each[1] for each in found] == ["amqp:invalid-field"]
        assert (sender.rejected, sender.accepted) == (1, 1)
    assert number_of(broker, "orders", "depth_msgs") == 1


@pytest.mark.parametrize(
    "annotations",
    [
        {DELAY: 0},
        {DELAY: ulong(0)},
        {DELAY: -5},
        {DELAY: None, TIME: None, ENQUEUE: None},
        {TIME: 1_000_000_000_000},
        {ENQUEUE: timestamp(1_000_000_000_000)},
        {ENQUEUE: timestamp(0)},
        {"x-opt-delivery-delays": 5, "x-opt-note": DELAY},
    ],
)
def test_a_message_that_asks_for_no_delay_goes_out_as_it_came(
    broker: RunningBroker, annotations: dict[str, Any]
) -> None:
    data = message(annotations)
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        assert sent(sender, data) == []
        assert connection.receiver("orders").take(1, 20) == [data]


def test_one_that_is_settled_and_cannot_be_read_ends_its_link(broker: RunningBroker) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender("orders", presettled=True)
        with pytest.raises(ClientError, match=r"amqp:invalid-field"):
            sent(sender, message({DELAY: "soon"}), *[message({})] * 2000)
    assert number_of(broker, "orders", "received") == 0


@pytest.mark.parametrize("way", ["relay", "topic", "large", "durable", "durable large", "presettled"])
def test_by_whatever_way_it_comes(start_broker: StartBroker, way: str) -> None:
    config = "limits: {max_frame_size: 4KB, large_message_size: 4KB}\n"
    broker = start_broker(
        config, "policies:\n  - {match: news, kind: topic}\n  - {match: kept, durable: true}\n"
    )
    address = {"topic": "news"}.get(way, "kept" if "durable" in way else "orders")
    body = bytes(100_000) if "large" in way else b"x"
    fields: dict[str, Any] = {"address": address, "durable": "durable" in way}
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address)
        sender = connection.sender(None if way == "relay" else address, presettled=way == "presettled")
        begun = now_ms()
        later, now = (message({DELAY: delay}, body, **fields) for delay in (700, 0))
        assert sent(sender, later, now) == []
        assert DELAY in (decoded(receiver.take(1, 20)[0]).annotations or {})
        (taken,) = receiver.take(1, 20)
        assert now_ms() >= begun + 700
        assert body_of(taken) == body


def test_the_open_and_the_link_offer_it(broker: RunningBroker) -> None:
    """JMS clients set no delivery delay where neither does."""
    connection = BlockingConnection(broker.url, timeout=20)
    try:
        assert connection.conn is not None
        assert "DELAYED_DELIVERY" in [str(each) for each in connection.conn.remote_offered_capabilities]
    finally:
        connection.close()


KEPT = """policies:
  - {match: kept, durable: true, redelivery_delay: 2s}
  - {match: later, durable: true}
"""


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_durable_ones_wait_on_after_a_restart(start_broker: StartBroker, tmp_path: Path, how: str) -> None:
    config = "limits: {max_frame_size: 4KB, large_message_size: 4KB}\n"
    data = ("--data", str(tmp_path / "kept"))
    broker = start_broker(config, KEPT, data)
    due = now_ms() + 4000
    with Connection(broker.url) as connection:
        sender = connection.sender("kept")
        kept = [message({TIME: due}, body, durable=True) for body in (b"a", b"b" * 50_000, b"c")]
        assert sent(sender, *kept, message({TIME: due}, b"lost")) == []
    assert number_of(broker, "kept", "delayed_msgs") == 4
    stopped(broker, how)
    again = start_broker(config, KEPT, data)
    assert number_of(again, "kept", "delayed_msgs") == 3
    with Connection(again.url) as connection:
        found = all_of(connection.receiver("kept"), 3)
        assert now_ms() >= due
        assert [each[:1] for each in bodies(found)] == [b"a", b"b", b"c"]
        assert [decoded(each).delivery_count for each in found] == [0, 0, 0]


def stopped(broker: RunningBroker, how: str) -> None:
    if how == "killed":
        broker.signal(signal.SIGKILL)
        broker.process.wait(20)
    broker.stop()


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_a_failed_delivery_waits_on_after_a_restart(
    start_broker: StartBroker, tmp_path: Path, how: str
) -> None:
    data = ("--data", str(tmp_path / "kept"))
    broker = start_broker("", KEPT, data)
    with Connection(broker.url) as connection:
        assert sent(connection.sender("kept"), message({}, "x", durable=True)) == []
    blocking = BlockingConnection(broker.url, timeout=20)
    receiver = blocking.create_receiver("kept", credit=1)
    receiver.receive(20)
    assert receiver.fetcher is not None
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    failed = now_ms()
    blocking.close()
    await_number(broker, "kept", "delayed_msgs", 1)
    with Connection(broker.url) as connection:
        # Nobody is told when a failed delivery is on disk, but all before an accepted message is.
        assert sent(connection.sender("later"), message({}, "y", durable=True)) == []
    stopped(broker, how)
    again = start_broker("", KEPT, data)
    with Connection(again.url) as connection:
        (found,) = connection.receiver("kept").take(1, 20)
    # The broker counted from when it heard of it, a little after we said it.
    assert now_ms() >= failed + 1500
    assert decoded(found).delivery_count == 1


def test_a_receiver_says_when_it_wants_a_message_again(broker: RunningBroker) -> None:
    with Connection(broker.url) as connection:
        assert sent(connection.sender("orders"), message({}, "x"), message({}, "y")) == []
    blocking = BlockingConnection(broker.url, timeout=20)
    receiver = blocking.create_receiver("orders", credit=2)
    assert receiver.receive(20).body == "x"
    assert receiver.fetcher is not None
    delivery = receiver.fetcher.unsettled.popleft()
    due = now_ms() + 700
    delivery.local.annotations = {symbol(TIME): due}
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    assert receiver.receive(20).body == "y"
    receiver.accept()
    receiver.flow(1)
    again = receiver.receive(20)
    assert now_ms() >= due
    assert (again.body, again.delivery_count) == ("x", 1)
    assert again.annotations is not None
    assert again.annotations[TIME] == due
    receiver.accept()
    blocking.close()


@pytest.mark.parametrize("again_in_ms", [0, HOUR_MS])
def test_a_move_takes_along_what_a_receiver_added_and_drops_what_the_target_knows(
    start_broker: StartBroker, again_in_ms: int
) -> None:
    policies = "policies:\n  - {match: orders.aside, duplicate_window: 100}\n"
    broker = start_broker(policies=policies)
    due = now_ms() + again_in_ms
    # A time that has passed means at once.
    added = {symbol("seen-by"): "us", symbol(TIME): due}
    blocking = BlockingConnection(broker.url, timeout=20)
    sender = blocking.create_sender("orders")
    for name in ("known", "new", "new"):
        sender.send(Message(body=name, id=name, annotations={symbol("seen-by"): "nobody"}))
    blocking.create_sender("orders.aside").send(Message(body="first", id="known"))
    receiver = blocking.create_receiver("orders", credit=3)
    assert receiver.fetcher is not None
    for _ in range(3):
        receiver.receive(20)
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.annotations = added
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
    receiver.close()  # type: ignore[no-untyped-call]
    await_number(broker, "orders", "delayed_msgs" if again_in_ms else "ready_msgs", 3)
    assert main(["move", "-b", broker.url, "orders", "orders.aside"]) == 0
    await_number(broker, "orders", "depth_msgs", 0)
    assert number_of(broker, "orders.aside", "depth_msgs") == 2
    assert number_of(broker, "orders.aside", "duplicated") == 2
    if again_in_ms:
        with Management(broker.url) as management:
            given = {"name": "orders.aside"}
            found = management.call("delayed", "org.sluice.broker", body=given).body
        assert isinstance(found, dict)
        (moved,) = found["messages"]
        assert moved["due_ms"] == due
        message_moved = decoded(bytes(moved["message"]))
    else:
        reader = blocking.create_receiver("orders.aside", credit=2)
        assert reader.receive(20).body == "first"
        message_moved = reader.receive(20)
    assert message_moved.body == "new"
    assert message_moved.annotations == {"seen-by": "us", TIME: due}
    blocking.close()


def test_operators_list_and_cancel_them(broker: RunningBroker) -> None:
    hour = now_ms() + HOUR_MS
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        assert sent(sender, *[message({TIME: hour + each}, str(each)) for each in (2, 0, 1)]) == []
    seen = queue_of(broker, "orders")
    assert (seen["depth_msgs"], seen["ready_msgs"], seen["delayed_msgs"]) == (3, 0, 3)
    assert datetime.fromisoformat(str(seen["delayed_next"])).timestamp() * 1000 == pytest.approx(hour, abs=1)
    with Management(broker.url) as management:

        def asked(operation: str, **given: object) -> Any:
            return management.call(operation, "org.sluice.broker", body=given).body

        listed = asked("delayed", name="orders")
        assert [each["due_ms"] - hour for each in listed["messages"]] == [0, 1, 2]
        found = asked("delayed", name="orders", offset=1, count=1)
        assert found["total"] == 3
        asked("cancel", name="orders", number=found["messages"][0]["number"])
        (why,) = asked("why", address="orders")["answers"]
    assert "2 messages of its depth wait for their time: the next is due in" in why["sentence"]
    assert number_of(broker, "orders", "dropped") == 1


def test_a_broker_that_is_killed_in_a_wave_loses_none_and_doubles_none(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = ("--data", str(tmp_path / "kept"))
    broker = start_broker("", KEPT, data)
    first = now_ms() + 3000
    with Connection(broker.url) as connection:
        # Due over three seconds, all of which the broker is killed in.
        made = [message({TIME: first + each}, str(each), durable=True) for each in range(3000)]
        assert sent(connection.sender("kept"), *made) == []
    for life in range(3):
        wait_until(lambda: now_ms() > first + 300 + 800 * life, 20, "the wave")  # noqa: B023
        stopped(broker, "killed")
        broker = start_broker("", KEPT, data)
        assert number_of(broker, "kept", "depth_msgs") == 3000
    with Connection(broker.url) as connection:
        found = [int(each) for each in bodies(all_of(connection.receiver("kept"), 3000))]
    assert sorted(found) == list(range(3000))
    assert number_of(broker, "kept", "depth_msgs") <= 1000
