"""Named readers of a stream, with Proton's clients: they come back where they were, and producers wait."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
from proton import Described, Message, Timeout, symbol, ulong
from proton.reactor import Filter
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached

from broker.cli.main import main
from broker.client.request import Management
from broker.errors import OperatorError
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of, queue_of, update

pytestmark = pytest.mark.wire

STOP = 50
POLICIES = f"""\
policies:
  - match: "flights"
    kind: stream
    durable: true
  - match: "held"
    kind: stream
    durable: true
    flow_stop_count: {STOP}
    flow_resume_count: {STOP // 2}
  - match: "kept"
    kind: stream
    durable: true
    max_size: 4MB
    flow_stop_count: 5000
  - match: "loose"
    kind: stream
    durable: true
    max_size: 4MB
  - match: "tried"
    kind: stream
    durable: true
    max_delivery_count: 2
    dead_letter_address: letters
  - match: "lost"
    kind: stream
    durable: true
    max_delivery_count: 2
    dead_letter_address: ""
  - match: "letters"
    durable: true
    max_count: 2
    flow_control: false
    overflow: reject
"""
SIZE = 10_000
BY_SIZE = f"""\
policies:
  - match: "sized"
    kind: stream
    durable: true
    flow_stop_size: {SIZE}
    max_message_size: 1000
    byte_reservation: strict
  - match: "much"
    kind: stream
    durable: true
    flow_stop_size: 50MB
"""
OFFSET = symbol("x-opt-sluice-offset")
SPEC = symbol("rabbitmq:stream-offset-spec")


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=30)
    try:
        yield made
    finally:
        made.close()


def reader(
    client: BlockingConnection, address: str, start: str | ulong = "first", credit: int = 10
) -> BlockingReceiver:
    return client.create_receiver(
        address,
        credit=credit,
        options=Filter({SPEC: Described(SPEC, start)}),
        name=f"{address}-{time.time_ns()}",
    )


def offset_of(message: Message) -> int:
    assert message.annotations is not None
    return int(message.annotations[OFFSET])


def pump(receiver: BlockingReceiver) -> None:
    """The client says what it has settled once it waits for something."""
    with suppress(Timeout):
        receiver.connection.wait(lambda: False, timeout=0.05)


def offsets(receiver: BlockingReceiver, msgs: int, *, settle: bool = True) -> list[int]:
    found = []
    for _ in range(msgs):
        found.append(offset_of(receiver.receive(timeout=30)))
        if settle:
            receiver.accept()
    pump(receiver)
    return found


def fill(client: BlockingConnection, address: str, msgs: int) -> None:
    sender = client.create_sender(address)
    for number in range(msgs):
        sender.send(Message(body=str(number), durable=True))
    sender.close()  # type: ignore[no-untyped-call]


def committed(broker: RunningBroker, address: str) -> dict[str, tuple[int, int]]:
    """The offset and the lag of each reader."""
    with Management(broker.url) as management:
        body: Any = management.call("readers", name=address).body
    found = body["readers"]
    return {each["reader"]: (each["committed_offset"], each["lag_msgs"]) for each in found}


def await_committed(broker: RunningBroker, address: str, wanted: dict[str, tuple[int, int]]) -> None:
    deadline = time.monotonic() + 20
    while (found := committed(broker, address)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_a_reader_goes_on_where_it_was_on_another_connection(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 30)
        first = reader(client, "flights::billing")
        assert offsets(first, 12) == list(range(12))
        await_committed(broker, "flights", {"billing": (12, 18)})
        # Another name has a place of its own, and no name none.
        assert offsets(reader(client, "flights::audit"), 3) == [0, 1, 2]
        assert offsets(reader(client, "flights"), 3) == [0, 1, 2]
    with connected(broker) as client:
        # What it held unsettled comes again; the filter only says where a new reader begins.
        again = reader(client, "flights::billing", "next")
        applied = again.link.remote_source.filter
        applied.rewind()
        assert applied.next() is None, "the answer says that the filter isn't applied"
        assert offsets(again, 18) == list(range(12, 30))


def test_what_is_not_settled_comes_again(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 10)
        first = reader(client, "flights::billing")
        assert offsets(first, 4) == [0, 1, 2, 3]
        offsets(first, 3, settle=False)
    with connected(broker) as client:
        assert offsets(reader(client, "flights::billing"), 6) == list(range(4, 10))


def test_what_is_given_back_comes_again_and_holds_its_place(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 8)
        first = reader(client, "flights::billing")
        assert offsets(first, 3) == [0, 1, 2]
        for outcome in ("release", "fail", "reject"):
            assert offset_of(first.receive(timeout=10)) == 3 + ("release", "fail", "reject").index(outcome)
            if outcome == "reject":
                first.reject()
            else:
                first.release(delivered=outcome == "fail")
        pump(first)
        # What it had been sent already comes before what comes again.
        again = [first.receive(timeout=10) for _ in range(4)]
        # The one that was rejected is dealt with; neither of the others is, until it is settled otherwise.
        assert [(offset_of(each), each.delivery_count) for each in again] == [(6, 0), (7, 0), (3, 0), (4, 0)]
        assert [int(each.first_acquirer) for each in again] == [0, 0, 0, 0]
        await_committed(broker, "flights", {"billing": (3, 5)})
        for _ in range(4):
            first.accept()
        pump(first)
        await_committed(broker, "flights", {"billing": (8, 0)})


def fail_only(receiver: BlockingReceiver, times: int) -> list[int]:
    """Fail the only message there is again and again; the delivery count of each delivery of it."""
    counts = []
    for _ in range(times):
        message = receiver.receive(timeout=10)
        counts.append(int(message.delivery_count))
        assert receiver.fetcher is not None
        receiver.fetcher.unsettled[0].local.failed = True
        receiver.release(delivered=True)
        pump(receiver)
    return counts


def test_what_a_reader_failed_too_often_is_a_dead_letter_and_stays_in_the_stream(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "tried", 1)
        first = reader(client, "tried::billing")
        assert fail_only(first, 2) == [0, 1]
        fill(client, "tried", 2)
        assert offsets(first, 2) == [1, 2]
        await_committed(broker, "tried", {"billing": (3, 0)})
        assert number_of(broker, "tried", "dead_lettered") == 1
        letter = client.create_receiver("letters", credit=1).receive(timeout=10)
        assert (letter.body, offset_of(letter)) == ("0", 0)
        assert offsets(reader(client, "tried::audit"), 3) == [0, 1, 2]


def test_it_is_counted_as_dropped_where_there_is_no_place_for_dead_letters(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "lost", 1)
        first = reader(client, "lost::billing")
        assert fail_only(first, 2) == [0, 1]
        fill(client, "lost", 1)
        assert offsets(first, 1) == [1]
        assert number_of(broker, "lost", "dropped") == 1


def test_a_place_stays_before_a_dead_letter_that_has_no_room(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "letters", 2)
        fill(client, "tried", 1)
        first = reader(client, "tried::billing")
        assert fail_only(first, 4) == [0, 1, 2, 3]
        await_committed(broker, "tried", {"billing": (0, 1)})
        assert number_of(broker, "tried", "dead_lettered") == 0
        letters = client.create_receiver("letters", credit=2)
        for _ in range(2):
            letters.receive(timeout=10)
            letters.accept()
        pump(letters)
        await_number(broker, "letters", "depth_msgs", 0)
        assert fail_only(first, 1) == [4]
        fill(client, "tried", 1)
        assert offsets(first, 1) == [1]
        await_committed(broker, "tried", {"billing": (2, 0)})
        assert number_of(broker, "letters", "depth_msgs") == 1
        assert number_of(broker, "tried", "dead_lettered") == 1


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_its_place_survives_the_broker(start_broker: StartBroker, how: str) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "held", 40)
        assert offsets(reader(client, "held::billing"), 15) == list(range(15))
        await_committed(broker, "held", {"billing": (15, 25)})
    if how == "killed":
        broker.signal(signal.SIGKILL)
        broker.process.wait(20)
    broker.stop()
    again = start_broker("", POLICIES, ("--data", str(broker.config_file.parent / "data")))
    assert committed(again, "held") == {"billing": (15, 25)}
    assert number_of(again, "held", "depth_msgs") == 25
    with connected(again) as client:
        assert offsets(reader(client, "held::billing"), 25) == list(range(15, 40))


def fill_until_held(client: BlockingConnection, address: str, size: int) -> tuple[BlockingSender, int]:
    """Send until there is no credit; how much that was as it was encoded. It is sent one by one."""
    sender = client.create_sender(address)
    sent = 0
    with suppress(Timeout):
        while True:
            message = Message(body="." * (size + sent % 7), durable=True)
            sender.send(message, timeout=1.5)
            sent += len(message.encode())
    return sender, sent


@pytest.mark.parametrize("durable", [True, False])
def test_producers_wait_exactly_at_so_many_bytes(start_broker: StartBroker, durable: bool) -> None:
    broker = start_broker(policies=BY_SIZE.replace("durable: true", f"durable: {str(durable).lower()}"))
    with connected(broker) as client, connected(broker) as other:
        slow = reader(other, "sized::slow", credit=1000)
        offsets(slow, 0)
        sender, sent = fill_until_held(client, "sized", 300)
        # Each credit reserves the largest message.
        assert SIZE - 1000 < sent <= SIZE
        assert number_of(broker, "sized", "depth_bytes") == sent
        assert number_of(broker, "sized", "promised_bytes") == 0
        received = [slow.receive(timeout=10) for _ in range(int(number_of(broker, "sized", "next_offset")))]
        for _ in received:
            slow.accept()
        pump(slow)
        await_number(broker, "sized", "depth_bytes", 0)
        sender.send(Message(body="on", durable=True), timeout=10)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_the_bytes_that_a_reader_lacks_are_the_same_after_a_restart(
    start_broker: StartBroker, how: str
) -> None:
    config = "store: {journal_file_size: 1MB}\n"
    broker = start_broker(config, BY_SIZE)
    data = ("--data", str(broker.config_file.parent / "data"))
    sizes = []
    with connected(broker) as client:
        slow = reader(client, "much::slow", credit=1000)
        sender = client.create_sender("much")
        for number in range(400):
            message = Message(body="." * (20_000 + number % 11), durable=True)
            sender.send(message)
            sizes.append(len(message.encode()))
        assert number_of(broker, "much", "depth_bytes") == sum(sizes)
        assert offsets(slow, 130) == list(range(130))
        await_committed(broker, "much", {"slow": (130, 270)})
        await_number(broker, "much", "depth_bytes", sum(sizes[130:]))
    if how == "killed":
        broker.signal(signal.SIGKILL)
        broker.process.wait(20)
    broker.stop()
    again = start_broker(config, BY_SIZE, data)
    # Before anybody was served.
    shown = queue_of(again, "much")
    assert (shown["depth_bytes"], shown["flow_stopped_count"]) == (sum(sizes[130:]), 0)
    with connected(again) as client:
        slow = reader(client, "much::slow", credit=50)
        for begin, upto in pairwise((130, 140, 155, 300)):
            offsets(slow, upto - begin)
            await_number(again, "much", "depth_bytes", sum(sizes[upto:]))
        # One that begins at another place, and one that goes.
        for name, start in (("far", ulong(17)), ("near", ulong(250)), ("new", "next")):
            other = reader(client, f"much::{name}", start)
            await_number(again, "much", "depth_bytes", sum(sizes[17:]))
            other.close()  # type: ignore[no-untyped-call]
        assert main(["readers", "-b", again.url, "much", "--forget", "far"]) == 0
        await_number(again, "much", "depth_bytes", sum(sizes[250:]))
        # The threshold that is set by then counts what is there at once.
        update(again, "much", flow_stop_size="1MB", flow_resume_size="1MB")
        assert queue_of(again, "much")["flow_stopped"] is True


def await_retention(
    client: BlockingConnection,
    broker: RunningBroker,
    address: str,
    offset: int,
    send: Callable[[BlockingConnection, int], None],
) -> None:
    """Send until retention has let go of what is before an offset."""
    deadline = time.monotonic() + 60
    while number_of(broker, address, "first_offset") < offset:
        assert time.monotonic() < deadline
        send(client, 20)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_retention_by_size_lets_go_of_nothing_a_reader_lacks_over_a_restart(
    start_broker: StartBroker, how: str
) -> None:
    """Twice what is kept, over several checkpoints, as a stream shows whose producers wait for nobody."""
    config = "store: {journal_file_size: 1MB}\n"
    broker = start_broker(config, POLICIES)
    data = ("--data", str(broker.config_file.parent / "data"))
    sent = 0

    def send(client: BlockingConnection, msgs: int) -> None:
        nonlocal sent
        senders = [client.create_sender(name) for name in ("kept", "loose")]
        for _ in range(msgs):
            for sender in senders:
                sender.send(Message(body="." * 20_000, durable=True))
        sent += msgs
        for sender in senders:
            sender.close()  # type: ignore[no-untyped-call]

    with connected(broker) as client:
        send(client, 20)
        assert offsets(reader(client, "kept::billing"), 10) == list(range(10))
        await_committed(broker, "kept", {"billing": (10, 10)})
        send(client, 400)
        await_retention(client, broker, "loose", 100, send)
        assert number_of(broker, "kept", "first_offset") <= 10
    if how == "killed":
        broker.signal(signal.SIGKILL)
        broker.process.wait(20)
    broker.stop()
    broker = start_broker(config, POLICIES, data)
    with connected(broker) as client:
        assert committed(broker, "kept") == {"billing": (10, sent - 10)}
        await_retention(client, broker, "loose", number_of(broker, "loose", "first_offset") + 100, send)
        assert number_of(broker, "kept", "first_offset") <= 10
        assert offsets(reader(client, "kept::billing"), sent - 10) == list(range(10, sent))
        await_committed(broker, "kept", {"billing": (sent, 0)})
        # Nobody lacks them any more: retention goes on where it was held.
        await_retention(client, broker, "kept", 11, send)


def test_producers_wait_for_the_slowest_reader_and_why_names_it(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, connected(broker) as other:
        slow, fast = reader(other, "held::slow"), reader(other, "held::fast")
        sender = client.create_sender("held")
        sent = 0
        deadline = time.monotonic() + 30
        while sender.link.credit > 0 or sent < STOP:
            assert time.monotonic() < deadline
            sender.send(Message(body=str(sent), durable=True))
            sent += 1
            assert sent <= STOP, "credit overshoots"
        assert offsets(fast, STOP) == list(range(STOP))
        await_number(broker, "held", "flow_stopped", True)
        assert main(["why", "-b", broker.url, "held"]) == 0
        told = capsys.readouterr().out
        assert "reader 'slow' is the furthest behind" in told, told
        assert offsets(slow, 30) == list(range(30))
        await_number(broker, "held", "flow_stopped", False)
        for number in range(30):
            sender.send(Message(body=str(number), durable=True), timeout=30)
        assert number_of(broker, "held", "peak_msgs") == STOP


def test_operators_see_readers_and_forget_one(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(policies=POLICIES)
    api = Api(broker)
    with connected(broker) as client:
        fill(client, "held", 20)
        held = reader(client, "held::billing")
        assert offsets(held, 5) == [0, 1, 2, 3, 4]
        await_committed(broker, "held", {"billing": (5, 15)})
        found = api.get("/queues/held/readers")["readers"]
        assert [(each["reader"], each["lag_msgs"], bool(each["link"])) for each in found] == [
            ("billing", 15, True)
        ]
        assert main(["readers", "-b", broker.url, "held"]) == 0
        assert "billing: offset 5, 15 behind, link" in capsys.readouterr().out
        assert main(["readers", "-b", broker.url, "held", "--forget", "billing"]) == 1
        assert "has a link" in capsys.readouterr().err
    await_number(broker, "held", "consumers", 0)
    deadline = time.monotonic() + 10
    while main(["readers", "-b", broker.url, "held", "--forget", "billing"]) != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    capsys.readouterr()
    assert main(["readers", "-b", broker.url, "held", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert number_of(broker, "held", "depth_msgs") == 0


def test_metrics_say_how_far_each_reader_is_behind(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    lag = "sluice_stream_reader_lag_messages"
    with connected(broker) as client:
        fill(client, "flights", 20)
        assert lag not in Api(broker, "").get("/metrics").decode(), "no family without readers"
        assert offsets(reader(client, "flights::billing"), 5) == [0, 1, 2, 3, 4]
        held = reader(client, 'flights::a"b', "next")
        await_committed(broker, "flights", {"billing": (5, 15), 'a"b': (20, 0)})
        found = Api(broker, "").get("/metrics").decode().splitlines()
        assert f'{lag}{{stream="flights",reader="billing"}} 15' in found
        assert f'{lag}{{stream="flights",reader="a\\"b"}} 0' in found
        assert "sluice_stream_readers_left_out 0" in found
        held.close()  # type: ignore[no-untyped-call]


def test_a_name_is_one_link_s_at_a_time(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client:
        fill(client, "flights", 1)
        reader(client, "flights::billing")
        with pytest.raises(LinkDetached, match="resource-locked"):
            reader(client, "flights::billing")


def test_only_streams_have_readers(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as client, Management(broker.url) as management:
        # Elsewhere it is a name like others, as it was before there were streams.
        fill(client, "orders::billing", 2)
        receiver = client.create_receiver("orders::billing", credit=2)
        assert [receiver.receive(timeout=10).body for _ in range(2)] == ["0", "1"]
        with pytest.raises(OperatorError, match="is no stream"):
            management.call("readers", name="orders::billing")
        with pytest.raises(LinkDetached, match="control characters"):
            reader(client, "flights::bill\x1fing")
