"""Fields that have to be there, and values they may not have: each ends with the condition that says so.

A null in a mandatory field can't be decoded where no session exists yet, which ends the connection; within a
session it is an invalid field, which ends the session alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Described as ProtonDescribed

from tests.wire.conftest import RunningBroker
from tests.wire.frames import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    BODY,
    CLOSE,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    UByte,
    encode,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, good_neighbours

pytestmark = pytest.mark.wire
DECODE, INVALID, FRAMING = "amqp:decode-error", "amqp:invalid-field", "amqp:connection:framing-error"
TAG = b"tag"


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    """A peer with a session; around it, others' clients work before and after."""
    with good_neighbours(broker), RawPeer(broker.port) as made:
        yield made.open().begin()


@pytest.fixture
def sender(peer: RawPeer) -> RawPeer:
    """The same with a link to send on, whose receiver settles first."""
    peer.attach_sender("orders")
    peer.await_credit()
    return peer


def closed(peer: RawPeer) -> str | None:
    found = peer.expect(CLOSE)
    assert found.error[1]
    peer.await_end()
    return found.condition


def ended(peer: RawPeer) -> str | None:
    """The condition that the session ends with; another session can begin."""
    found = peer.expect(END)
    peer.send(performative(END))
    peer.begin(channel=3).attach_sender("afterwards", "later", 9, channel=3)
    assert not [frame for frame in peer.log if frame.code == CLOSE]
    return found.condition


# --- the connection


@pytest.mark.parametrize(
    ("fields", "channel", "condition"),
    [
        ((None, None, 65_536, 100), 0, DECODE),
        ((), 0, DECODE),
        ((7, None, 65_536, 100), 0, DECODE),
        (("raw", None, 65_536, 100), 1, FRAMING),
    ],
    ids=["null container-id", "no field at all", "a container-id that is a number", "another channel"],
)
def test_an_open_that_cannot_be(
    broker: RunningBroker, fields: tuple[object, ...], channel: int, condition: str
) -> None:
    with good_neighbours(broker), RawPeer(broker.port) as peer:
        peer.authenticate()
        peer.send(performative(OPEN, *fields, channel=channel))
        assert peer.read_bytes(8) == AMQP_HEADER
        assert closed(peer) == condition


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("how", ["null", "cut off", "another type"])
def test_a_begin_without_a_mandatory_field(peer: RawPeer, missing: int, how: str) -> None:
    fields: list[object] = [None, 0, 10, 10]
    if how == "cut off":
        del fields[missing:]
    else:
        fields[missing] = None if how == "null" else "ten"
    peer.send(performative(BEGIN, *fields, channel=1))
    assert closed(peer) == DECODE


# --- a session


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("handle", [None, 0])
def test_a_flow_without_a_mandatory_field(sender: RawPeer, missing: int, handle: int | None) -> None:
    fields: list[object] = [0, 10, 0, 10, handle]
    fields[missing] = None
    sender.send(performative(FLOW, *fields))
    assert ended(sender) == INVALID


def test_a_flow_may_leave_out_what_is_not_mandatory(sender: RawPeer) -> None:
    sender.send(performative(FLOW, None, 10, 0, 10, None, None, None, None, None, True))
    assert sender.expect(FLOW)


@pytest.mark.parametrize(
    "said",
    [
        performative(TRANSFER, None, 0, TAG, 0, False, payload=BODY),
        performative(TRANSFER, 0, 0, None, 0, False, payload=BODY),
        performative(TRANSFER, 0, 0, None, 0, False, True, payload=BODY),
        performative(TRANSFER, 0, 0, "text", 0, False, payload=BODY),
    ],
    ids=["no handle", "no delivery-tag", "none on the first of several", "a delivery-tag that is text"],
)
@pytest.mark.parametrize("first", [True, False], ids=["first of its session", "after another"])
def test_a_transfer_without_what_it_needs(sender: RawPeer, said: bytes, first: bool) -> None:
    if not first:
        sender.send(transfer(0))
        assert sender.expect(DISPOSITION).field(1) == 0
        said = said.replace(b"\x70\x00\x00\x00\x00\xb0", b"\x70\x00\x00\x00\x01\xb0", 1)
    sender.send(said)
    assert ended(sender) == INVALID


def test_a_later_transfer_of_a_delivery_needs_no_tag(broker: RunningBroker, sender: RawPeer) -> None:
    sender.send(transfer(0, BODY[:3], more=True), performative(TRANSFER, 0, payload=BODY[3:]))
    await_number(broker, "orders", "depth_msgs", 1)


@pytest.mark.parametrize("second", [True, False], ids=["second of three", "third of three"])
def test_a_message_format_that_changes(sender: RawPeer, second: bool) -> None:
    sender.send(transfer(0, BODY[:2], more=True))
    if not second:
        sender.send(transfer(0, BODY[2:3], more=True))
    sender.send(transfer(0, BODY[3:], message_format=9))
    assert ended(sender) == INVALID


def test_a_message_format_that_is_repeated_or_left_out(broker: RunningBroker, sender: RawPeer) -> None:
    whole = [
        transfer(0, BODY[:2], more=True, message_format=7),
        performative(TRANSFER, 0, 0, None, None, None, True, payload=BODY[2:3]),
        transfer(0, BODY[3:], message_format=7),
    ]
    sender.send(*whole, transfer(1, BODY[:2], more=True), transfer(1, BODY[2:]))
    await_number(broker, "orders", "depth_msgs", 2)


def settled_second(number: int, more: bool = False) -> bytes:
    tag = number.to_bytes(4, "big")
    return performative(TRANSFER, 0, number, tag, 0, False, more, UByte(1), payload=BODY)


@pytest.mark.parametrize("more", [False, True])
def test_a_transfer_settled_second_on_a_link_settled_first(sender: RawPeer, more: bool) -> None:
    sender.send(settled_second(0, more))
    assert ended(sender) == INVALID


def test_a_transfer_settled_second_on_a_link_settled_second(broker: RunningBroker, peer: RawPeer) -> None:
    peer.attach_sender("orders", second=True)
    peer.await_credit()
    peer.send(settled_second(0), settled_second(1))
    await_number(broker, "orders", "depth_msgs", 2)


# --- a dynamic node's properties (§3.5.9)


def dynamic(peer: RawPeer, role: bool, properties: bytes) -> None:
    """Attach to a node that is made for the link; ``properties`` as they stand on the wire."""
    end = Described(SOURCE if role == RECEIVER else TARGET, [None, 0, None, 0, True, Symbol("properties!")])
    termini = (end, Described(TARGET)) if role == RECEIVER else (Described(SOURCE), end)
    whole = performative(ATTACH, "made", 0, role, UByte(2), UByte(0), *termini, None, None, 0)
    placed = encode(Symbol("properties!"))
    # As long as what it stands for, so that no size changes.
    assert len(properties) == len(placed)
    peer.send(whole.replace(placed, properties))


def a_map(*items: bytes, size: int = 16) -> bytes:
    """A map of sixteen bytes, whatever is in it: it ends with a symbol whose value is null."""
    body = b"".join(items)
    left = size - 3 - len(body)
    assert left >= 3
    body += b"\xa3" + bytes((left - 3,)) + b"x" * (left - 3) + b"\x40"
    return b"\xc1" + bytes((len(body) + 1, len(items) + 2)) + body


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["target", "source"])
@pytest.mark.parametrize(
    "properties",
    [
        b"\xa1\x0enothing so far",
        b"\xb0\x00\x00\x00\x0bno map here",
        a_map(b"\xa1\x01a", b"\x40"),
        a_map(b"\x54\x01", b"\x40"),
    ],
    ids=["a string", "binary", "a key that is a string", "a key that is a number"],
)
def test_properties_of_a_node_that_are_none(peer: RawPeer, role: bool, properties: bytes) -> None:
    dynamic(peer, role, properties)
    answer = peer.expect(ATTACH)
    assert answer.field(5 if role == RECEIVER else 6) is None
    assert peer.expect(0x16).condition == INVALID


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["target", "source"])
def test_properties_of_a_node_that_nobody_knows_are_let_be(peer: RawPeer, role: bool) -> None:
    dynamic(peer, role, a_map())
    answer = peer.expect(ATTACH)
    made = answer.field(5 if role == RECEIVER else 6)
    assert isinstance(made, ProtonDescribed)
    fields: Any = made.value
    assert str(fields[0]).startswith("$temporary/")


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["target", "source"])
@pytest.mark.parametrize(
    "policy", ["delete-on-close", Described(0x28), 7], ids=["text", "another type", "a number"]
)
def test_a_lifetime_policy_that_is_none(peer: RawPeer, role: bool, policy: object) -> None:
    key, value = encode(Symbol("lifetime-policy")), encode(policy)
    body = key + value
    properties = b"\xd1" + (len(body) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + body
    # Around it a list of a terminus, by hand: the address, durable, expiry-policy, timeout, dynamic.
    fields = encode(None) + encode(0) + encode(None) + encode(0) + encode(True) + properties
    code = SOURCE if role == RECEIVER else TARGET
    listed = b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + (6).to_bytes(4, "big") + fields
    end = b"\x00\x53" + bytes((code,)) + listed
    other = encode(Described(TARGET if role == RECEIVER else SOURCE))
    termini = end + other if role == RECEIVER else other + end
    head = b"".join(map(encode, ("made", 0, role, UByte(2), UByte(0))))
    body = head + termini + encode(None) + encode(None) + encode(0)
    whole = b"\x00\x53\x12\xd0" + (len(body) + 4).to_bytes(4, "big") + (10).to_bytes(4, "big") + body
    peer.send((len(whole) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + whole)
    assert peer.expect(0x16).condition == INVALID
