"""Messages that wait while the node they wait for goes, refuses or moves; credit that nobody used.

Nothing is lost on the way and nobody waits for ever: not a sender for its outcome, not a message unsettled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from proton import Message

from broker.client.errors import ClientTimeoutError
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ACCEPTED,
    BODY,
    DISPOSITION,
    FLOW,
    REJECTED,
    Described,
    RawPeer,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, number_of, update

pytestmark = pytest.mark.wire

SMALL = (
    "policies:\n  - {match: '*', kind: queue}\n  - {match: 'small.#', max_count: 200, flow_stop_count: 5}\n"
)
LETTERS = f"{SMALL}  - {{match: work, dead_letter_address: small}}\n"
BOUNDED = f"{SMALL}  - {{match: bounded, flow_control: false, overflow: reject, max_count: 5}}\n"


def manage(broker: RunningBroker, operation: str, name: str, kind: str = "queue", **settings: object) -> None:
    with Management(broker.url) as management:
        management.call(operation, f"org.sluice.{kind}", name, settings or None)


def move(broker: RunningBroker, source: str, target: str) -> None:
    with Management(broker.url) as management:
        management.call("move", "org.sluice.broker", body={"source": source, "target": target})


def fill(broker: RunningBroker, address: str, count: int) -> None:
    """Numbered messages, all of them accepted."""
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for number in range(count):
            sender.send(sections.binary_body(b"%d" % number), 20)
        sender.flush(20)


def drained(broker: RunningBroker, address: str, count: int) -> list[int]:
    """The numbers of that many messages; every one but those of dead letters is exactly as it was sent."""
    got: list[bytes] = []
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address, credit=count)
        with suppress(ClientTimeoutError):
            while len(got) < count:
                got += receiver.take(count, 20)
    decoded = [Message() for _ in got]
    for message, data in zip(decoded, got, strict=True):
        message.decode(data)
    return [int(_text(message.body)) for message in decoded]


def _text(body: object) -> str:
    return body if isinstance(body, str) else bytes(body).decode()  # type: ignore[call-overload]


def reject(broker: RunningBroker, address: str, count: int) -> None:
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address, credit=count, limit=count, manual=True)
        receiver.grant(count)
        rejected = 0
        while rejected < count:
            connection.wait_until(lambda: receiver.has_message(), 20)
            for delivery, _ in receiver.hand_over():
                receiver.settle(delivery, "rejected")
                rejected += 1
        connection.pump()


def to(address: str, number: int = 0) -> bytes:
    return bytes(Message(body=f"{number}", address=address).encode())


def outcomes(peer: RawPeer, kind: int, count: int) -> set[int]:
    """The deliveries that had this outcome, once it is so many."""
    found: set[int] = set()
    while len(found) < count:
        said = peer.expect(DISPOSITION, 20)
        state = said.field(4)
        if getattr(state, "descriptor", None) == kind:
            first, last = said.field(1), said.field(2)
            assert isinstance(first, int)
            found |= set(range(first, (last if isinstance(last, int) else first) + 1))
    return found


def spend(peer: RawPeer, pieces: Callable[[int], list[bytes]], count: int) -> None:
    """So many deliveries, no more than there is credit for at a time."""
    for number in range(count):
        while number >= peer.may_send():
            peer.expect(FLOW, 20)
        peer.send(*pieces(number))


def assert_all_comes_back(peer: RawPeer, limit: int) -> None:
    """None of the 105 that were sent costs the link credit for ever; the last isn't worth a flow frame."""
    while peer.may_send() < 105 + limit - 1:
        peer.expect(FLOW, 20)


# --- a node goes under a relay


def test_what_a_relay_parked_is_refused_when_its_node_goes(start_broker: StartBroker) -> None:
    broker = start_broker(policies=SMALL)
    manage(broker, "CREATE", "small")
    with RawPeer(broker.port).open().begin() as peer:
        peer.attach_sender(None)
        limit = peer.await_credit()
        peer.send(*(transfer(number, to("small", number)) for number in range(105)))
        await_number(broker, "small", "parked_msgs", 100)
        assert len(outcomes(peer, ACCEPTED, 5)) == 5
        manage(broker, "DELETE", "small")
        assert outcomes(peer, REJECTED, 100) == set(range(5, 105))
        assert_all_comes_back(peer, limit)


def test_a_delivery_settled_after_its_node_went_harms_nobody(start_broker: StartBroker) -> None:
    """What the deliveries of the one pointed to was memory of the other's messages."""
    broker = start_broker(policies=SMALL)
    manage(broker, "CREATE", "small")
    manage(broker, "CREATE", "small.two")
    with (
        RawPeer(broker.port).open(container="one").begin() as one,
        RawPeer(broker.port).open().begin() as two,
    ):
        for peer in (one, two):
            peer.attach_sender(None)
            peer.await_credit()
        one.send(*(transfer(number, to("small")) for number in range(105)))
        await_number(broker, "small", "parked_msgs", 100)
        manage(broker, "DELETE", "small")
        two.send(*(transfer(number, to("small.two", number)) for number in range(105)))
        await_number(broker, "small.two", "parked_msgs", 100)
        one.send(performative(DISPOSITION, False, 5, 104, True, Described(ACCEPTED)))
        one.send(transfer(105, to("other")))
        await_number(broker, "other", "depth_msgs", 1)
        assert sorted(drained(broker, "small.two", 105)) == list(range(105))
        assert outcomes(two, ACCEPTED, 105) == set(range(105))


def test_presettled_messages_that_wait_go_with_their_node(start_broker: StartBroker) -> None:
    broker = start_broker(policies=SMALL)
    manage(broker, "CREATE", "small")
    with RawPeer(broker.port).open().begin() as peer:
        peer.attach_sender(None)
        limit = peer.await_credit()
        peer.send(*(transfer(number, to("small"), settled=True) for number in range(105)))
        await_number(broker, "small", "parked_msgs", 100)
        manage(broker, "DELETE", "small")
        assert_all_comes_back(peer, limit)


def test_what_a_channel_holds_back_is_settled_when_its_topic_goes(start_broker: StartBroker) -> None:
    channel = '{"name": "feed", "topic": "ticks", "to": "127.0.0.1:9", "max_rate": 1000}'
    broker = start_broker(f"channels:\n  - {channel}\n", "policies:\n  - {match: ticks, kind: topic}\n")
    with RawPeer(broker.port).open().begin() as peer:
        peer.attach_sender(None)
        peer.await_credit()
        data = bytes(Message(body=bytes(1000), address="ticks").encode())
        peer.send(*(transfer(number, data) for number in range(20)))
        await_number(broker, "ticks", "received", 20, "topic")
        manage(broker, "DELETE", "ticks", "topic")
        assert outcomes(peer, ACCEPTED, 20) == set(range(20))


# --- messages on their way to another node


def test_a_move_whose_target_goes_leaves_the_rest_where_it_was(start_broker: StartBroker) -> None:
    broker = start_broker(policies=SMALL)
    fill(broker, "source", 30)
    manage(broker, "CREATE", "small")
    move(broker, "source", "small")
    await_number(broker, "source", "unsettled_msgs", 25)
    manage(broker, "DELETE", "small")
    assert drained(broker, "source", 25) == list(range(5, 30))


def test_a_move_whose_source_goes_brings_no_more_over(start_broker: StartBroker) -> None:
    broker = start_broker(policies=SMALL)
    fill(broker, "source", 30)
    manage(broker, "CREATE", "small")
    move(broker, "source", "small")
    await_number(broker, "source", "unsettled_msgs", 25)
    manage(broker, "DELETE", "source")
    await_number(broker, "small", "producers", 0)
    assert drained(broker, "small", 5) == list(range(5))
    assert number_of(broker, "small", "depth_msgs") == 0


@pytest.mark.parametrize("target", ["large", "small"])
def test_a_move_of_several_windows_goes_to_its_end(start_broker: StartBroker, target: str) -> None:
    """Of messages in memory, while nobody else does anything with the source; or as a target has room."""
    broker = start_broker(policies=SMALL)
    fill(broker, "source", 3500)
    manage(broker, "CREATE", target)
    move(broker, "source", target)
    if target == "large":
        await_number(broker, target, "depth_msgs", 3500)
    assert drained(broker, target, 3500) == list(range(3500))
    assert number_of(broker, "source", "depth_msgs") == 0


def test_a_move_ends_where_its_target_refuses(start_broker: StartBroker) -> None:
    broker = start_broker(policies=BOUNDED)
    fill(broker, "source", 30)
    move(broker, "source", "bounded")
    await_number(broker, "bounded", "depth_msgs", 5)
    assert drained(broker, "source", 25) == list(range(5, 30))
    assert drained(broker, "bounded", 5) == list(range(5))
    with Management(broker.url) as management:
        events = management.call("events", "org.sluice.broker", body={"count": 1000}).body
    assert isinstance(events, dict)
    told = [each for each in map(json.loads, events["events"]) if each["event"] == "move_stopped"]
    assert [(each["node"], each["target"], each["moved"]) for each in told] == [("source", "bounded", 5)]
    assert told[0]["reason"] == "'bounded' is at its hard limit"


def test_letters_whose_queue_goes_are_handed_out_again(start_broker: StartBroker) -> None:
    broker = start_broker(policies=LETTERS)
    fill(broker, "work", 20)
    reject(broker, "work", 20)
    await_number(broker, "small", "depth_msgs", 5)
    await_number(broker, "work", "unsettled_msgs", 15)
    manage(broker, "DELETE", "small")
    assert drained(broker, "work", 15) == list(range(5, 20))


def test_letters_that_wait_go_to_a_new_address(start_broker: StartBroker) -> None:
    broker = start_broker(policies=LETTERS)
    fill(broker, "work", 20)
    reject(broker, "work", 20)
    await_number(broker, "small", "depth_msgs", 5)
    update(broker, "work", dead_letter_address="roomy")
    wait_until(lambda: number_of(broker, "work", "depth_msgs") == 0, 10, "the letters to go")
    assert drained(broker, "small", 5) == list(range(5))
    assert drained(broker, "roomy", 15) == list(range(5, 20))


@pytest.mark.parametrize("window", ["", ", duplicate_window: 100"])
def test_letters_that_are_refused_wait_for_room(start_broker: StartBroker, window: str) -> None:
    dead = f"{{match: dead, flow_control: false, overflow: reject, max_count: 5{window}}}"
    policies = f"policies:\n  - {{match: work, dead_letter_address: dead}}\n  - {dead}\n"
    broker = start_broker(policies=policies)
    with Connection(broker.url) as connection:
        sender = connection.sender("work")
        for number in range(12):
            sender.send(bytes(Message(id=str(number), body=b"%d" % number).encode()), 20)
        sender.flush(20)
    reject(broker, "work", 12)
    await_number(broker, "dead", "depth_msgs", 5)
    await_number(broker, "work", "unsettled_msgs", 7)
    assert drained(broker, "dead", 5) == list(range(5))
    await_number(broker, "work", "unsettled_msgs", 2)
    assert drained(broker, "dead", 7) == list(range(5, 12))
    assert number_of(broker, "work", "depth_msgs") == 0


def test_a_letter_that_will_never_fit_is_dropped_and_counted(start_broker: StartBroker) -> None:
    dead = "{match: dead, flow_control: false, overflow: reject, max_size: 1000}"
    broker = start_broker(policies=f"policies:\n  - {{match: work, dead_letter_address: dead}}\n  - {dead}\n")
    with Connection(broker.url) as connection:
        sender = connection.sender("work")
        sender.send(sections.binary_body(bytes(2000)), 20)
        sender.flush(20)
    reject(broker, "work", 1)
    await_number(broker, "work", "depth_msgs", 0)
    assert number_of(broker, "work", "dropped") == 1


# --- credit that was used for nothing


@pytest.mark.parametrize("address", [None, "$management", "orders", "rejecting"])
@pytest.mark.parametrize("how", ["aborted", "malformed"])
def test_credit_that_brought_no_message_is_renewed(
    start_broker: StartBroker, address: str | None, how: str
) -> None:
    """Twice what any link holds at once."""
    broker = start_broker(policies="policies:\n  - {match: rejecting, kind: queue, when_full: reject}\n")

    def aborted(number: int) -> list[bytes]:
        return [transfer(number, BODY[:2], more=True), transfer(number, b"", aborted=True)]

    def malformed(number: int) -> list[bytes]:
        return [transfer(number, b"\x00\x53")]

    with RawPeer(broker.port).open().begin() as peer:
        peer.attach_sender(address)
        peer.await_credit()
        spend(peer, aborted if how == "aborted" else malformed, 1100)


@pytest.mark.parametrize(
    ("address", "ahead"),
    [("small", 3), ("small", 25), ("small", 2_000_000_000), ("rejecting", 600), (None, 2_000_000_000)],
)
def test_a_delivery_count_that_goes_on_by_itself_gives_credit_up(
    start_broker: StartBroker, address: str | None, ahead: int
) -> None:
    policies = f"{SMALL}  - {{match: rejecting, when_full: reject}}\n"
    broker = start_broker(policies=policies)
    with RawPeer(broker.port).open().begin() as peer:
        peer.attach_sender(address)
        credit = peer.await_credit()
        peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 0, ahead, 0))
        assert peer.await_credit() == credit
        assert peer.may_send() == ahead + credit
        if address == "small":
            assert number_of(broker, "small", "promised_msgs") == credit
            update(broker, "small", flow_stop_count=2)
            await_number(broker, "small", "promised_msgs", 2)
            while peer.may_send() != ahead + 2:
                peer.expect(FLOW)
        flows = [item.field(6) for item in peer.log if item.code == FLOW and item.field(6) is not None]
        assert all(isinstance(each, int) and each <= 1000 for each in flows)
