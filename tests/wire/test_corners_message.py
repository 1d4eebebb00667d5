"""What becomes of a message's bytes on their way, and when each side forgets a delivery.

The bare message leaves as it came, whatever encodings its sender chose; of the header only what is the
broker's to say changes; delivery-annotations were for the broker and end there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.frames import (
    ACCEPTED,
    BODY,
    DETACH,
    DISPOSITION,
    MODIFIED,
    REJECTED,
    RELEASED,
    TRANSFER,
    Described,
    Frame,
    RawPeer,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, number_of

pytestmark = pytest.mark.wire

ULONG = b"\x00\x80" + bytes(7)  # a descriptor as a ulong of eight bytes
SYMBOL = b"\x00\xa3"


def list32(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body


def map32(*items: bytes) -> bytes:
    return b"\xd1" + list32(*items)[1:]


def str32(text: str) -> bytes:
    return b"\xb1" + len(text).to_bytes(4, "big") + text.encode()


def sym32(text: str) -> bytes:
    return b"\xb3" + str32(text)[1:]


# Each part in an encoding that is longer than it need be.
DURABLE = b"\x56\x00"
PRIORITY = b"\x50\x04"
TTL = b"\x70\x00\x0f\x42\x40"
HEADER = ULONG + b"\x70" + list32(DURABLE, PRIORITY)
HEADER_TTL = ULONG + b"\x70" + list32(DURABLE, PRIORITY, TTL)
DELIVERY_NOTES = ULONG + b"\x71" + map32(sym32("x-opt-for-you"), b"\x80" + (7).to_bytes(8, "big"))
NOTES = ULONG + b"\x72" + map32(sym32("x-opt-kept"), b"\x81" + bytes(8))
PROPERTIES = (
    SYMBOL
    + b"\x14amqp:properties:list"
    + list32(
        b"\x80" + (1).to_bytes(8, "big"),
        b"\xb0\x00\x00\x00\x01u",
        str32("to"),
        b"\x40",
        b"\x40",
        str32("cid"),
    )
)
APPLICATION = (
    ULONG
    + b"\x74"
    + map32(str32("n"), b"\x71" + bytes(3) + b"\x05", str32("b"), b"\x56\x01", str32("u"), b"\x70" + bytes(4))
)
VALUE = (
    ULONG + b"\x77" + list32(b"\x80" + bytes(8), b"\xe0\x02\x00\x45", b"\xd0" + bytes(3) + b"\x04" + bytes(4))
)
DATA = ULONG + b"\x75\xb0" + (3).to_bytes(4, "big") + b"abc"
SEQUENCE = ULONG + b"\x76" + list32(b"\x56\x00", b"\x71" + bytes(4))
FOOTER = ULONG + b"\x78" + map32(sym32("x-crc"), b"\x70\x00\x00\x00\x01")
BARE = PROPERTIES + APPLICATION + VALUE
WHOLE = {
    "value": BARE + FOOTER,
    "data twice": PROPERTIES + DATA + DATA + FOOTER,
    "sequences": APPLICATION + SEQUENCE + SEQUENCE,
    "body alone": VALUE,
    "large": PROPERTIES + ULONG + b"\x75\xb0" + (200_000).to_bytes(4, "big") + bytes(range(250)) * 800,
}


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    """A peer with a link to send on (0) and one to receive on (1), of the queue `orders`."""
    with RawPeer(broker.port) as made:
        made.open().begin().attach_sender("orders")
        made.await_credit()
        made.attach_receiver("orders")
        yield made


class Taking:
    """The receiving link's side: how many deliveries it has taken, each as one piece of bytes."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.taken = 0

    def take(self) -> bytes:
        """The next message, however many frames it takes."""
        fields = (0, 10_000, 0, 10_000, 1, self.taken, 1)
        self.peer.send(performative(0x13, *fields))
        payload = b""
        while True:
            found = self.peer.expect(TRANSFER)
            payload += found.payload
            if not found.field(5):
                self.taken += 1
                return payload

    def settle(self, outcome: Described) -> None:
        """Settle the last one."""
        number = self.taken - 1
        self.peer.send(performative(DISPOSITION, True, number, number, True, outcome))


def send(peer: RawPeer, message: bytes, number: int = 0) -> None:
    """In frames that the broker takes."""
    for start in range(0, len(message), 30_000):
        piece = message[start : start + 30_000]
        peer.send(transfer(number, piece, more=start + 30_000 < len(message)))


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("before", [b"", HEADER, NOTES, HEADER + NOTES], ids=["", "header", "notes", "both"])
def test_what_comes_is_what_leaves(peer: RawPeer, kind: str, before: bytes) -> None:
    send(peer, before + WHOLE[kind])
    taking = Taking(peer)
    assert taking.take() == before + WHOLE[kind]


@pytest.mark.parametrize("durable", [b"\x41", b"\x56\x01"], ids=["true", "long true"])
def test_and_what_was_on_disk(start_broker: StartBroker, durable: bytes) -> None:
    broker = start_broker(policies="policies:\n  - match: orders\n    durable: true\n")
    message = ULONG + b"\x70" + list32(durable, PRIORITY) + NOTES + BARE + FOOTER
    with RawPeer(broker.port) as peer:
        peer.open().begin().attach_sender("orders")
        peer.await_credit()
        send(peer, message)
        peer.expect(DISPOSITION)
        peer.attach_receiver("orders")
        assert Taking(peer).take() == message


@pytest.mark.parametrize("before", [b"", HEADER, HEADER_TTL], ids=["nothing", "header", "header with ttl"])
def test_delivery_annotations_end_here(peer: RawPeer, before: bytes) -> None:
    send(peer, before + DELIVERY_NOTES + NOTES + BARE + FOOTER)
    taken = Taking(peer).take()
    assert taken.endswith(NOTES + BARE + FOOTER)
    assert b"x-opt-for-you" not in taken
    if before != HEADER_TTL:
        assert taken == before + NOTES + BARE + FOOTER


def test_of_the_header_only_what_is_ours_changes(peer: RawPeer) -> None:
    """delivery-count and first-acquirer once it was delivered, and what remains of the ttl (§3.2.1)."""
    send(peer, HEADER_TTL + NOTES + BARE + FOOTER)
    taking = Taking(peer)
    first = taking.take()
    assert first.endswith(NOTES + BARE + FOOTER)
    header = first[: -len(NOTES + BARE + FOOTER)]
    assert DURABLE + PRIORITY in header
    left = header.partition(DURABLE + PRIORITY)[2]
    assert left[0] == 0x70
    assert 900_000 < int.from_bytes(left[1:5], "big") <= 1_000_000
    taking.settle(Described(MODIFIED, [True]))
    again = taking.take()
    assert again.endswith(NOTES + BARE + FOOTER)
    tail = again[: -len(NOTES + BARE + FOOTER)].partition(DURABLE + PRIORITY)[2][5:]
    # first-acquirer false, delivery-count 1.
    assert tail == b"\x42\x52\x01"


@pytest.mark.parametrize(
    ("outcome", "count"),
    [(Described(RELEASED), 0), (Described(MODIFIED), 0), (Described(MODIFIED, [True]), 1)],
    ids=["released", "modified", "delivery-failed"],
)
def test_what_counts_as_a_failed_delivery(peer: RawPeer, outcome: Described, count: int) -> None:
    send(peer, BARE)
    taking = Taking(peer)
    assert taking.take() == BARE
    taking.settle(outcome)
    again = taking.take()
    assert again.endswith(BARE)
    fields = again[: -len(BARE)]
    expected = b"\x52\x01" if count else b"\x43"
    assert fields == b"\x00\x53\x70\xc0" + bytes((len(fields) - 5, 5)) + b"\x40\x40\x40\x42" + expected


def test_annotations_of_a_modified_outcome_leave_the_bare_message_alone(peer: RawPeer) -> None:
    send(peer, HEADER + BARE + FOOTER)
    taking = Taking(peer)
    taking.take()
    fields = b"\x41\x43\x43\x41" + b"\x00\x53\x27\xc0\x0a\x03\x41\x42\xc1\x05\x02\xa3\x01k\x41"
    peer.send(
        (len(fields) + 14).to_bytes(4, "big")
        + b"\x02\x00\x00\x00\x00\x53\x15\xc0"
        + bytes((len(fields) + 1, 5))
        + fields
    )
    again = taking.take()
    assert again.endswith(BARE + FOOTER)
    assert b"\xa3\x01k\x41" in again[: -len(BARE + FOOTER)]


def test_the_message_format_is_not_kept(peer: RawPeer) -> None:
    """Proton neither tells the format of a transfer nor lets one say it: every message leaves as format 0."""
    peer.send(transfer(0, BODY, message_format=0x7B))
    peer.send(performative(0x13, 0, 10_000, 0, 10_000, 1, 0, 1))
    assert peer.expect(TRANSFER).field(3) == 0


# --- who settles first (§2.6.12)


def second_modes(found: Frame) -> tuple[object, object]:
    """The settle modes of an attach."""
    return found.field(3), found.field(4)


@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "durable"])
def test_a_sender_whose_receiver_settles_second(start_broker: StartBroker, durable: bool) -> None:
    """The broker says the outcome and keeps the delivery until the sender has settled it."""
    broker = start_broker(policies=f"policies:\n  - match: orders\n    durable: {str(durable).lower()}\n")
    message = b"\x00\x53\x70\xc0\x02\x01\x41" + BODY if durable else BODY
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        assert second_modes(peer.attach_sender("orders", second=True)) == (2, 1)
        peer.await_credit()
        for number in range(3):
            peer.send(transfer(number, message))
            said = peer.expect(DISPOSITION)
            assert (said.field(0), said.field(1), said.field(3)) == (True, number, None)
            assert int(said.field(4).descriptor) == ACCEPTED  # type: ignore[attr-defined]
        peer.send(performative(DISPOSITION, False, 0, 2, True, Described(ACCEPTED)))
        peer.send(transfer(3, message))
        assert peer.expect(DISPOSITION).field(1) == 3
        assert [item.field(1) for item in peer.log if item.code == DISPOSITION] == [0, 1, 2, 3]
    await_number(broker, "orders", "producers", 0)
    # Accepted is accepted, whether or not the sender lived to settle it.
    assert number_of(broker, "orders", "depth_msgs") == 4


def test_a_refusal_too_waits_for_the_sender(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: orders, max_count: 1, flow_control: false, overflow: reject}\n"
    )
    with RawPeer(broker.port) as peer:
        peer.open().begin().attach_sender("orders", second=True)
        peer.await_credit()
        peer.send(transfer(0) + transfer(1))
        # Of what was read at once, a refusal leaves first: it stands in no range of others.
        told = [peer.expect(DISPOSITION) for _ in range(2)]
        [refused] = [each for each in told if each.field(1) == 1]
        assert [each.field(3) for each in told] == [None, None]
        assert int(refused.field(4).descriptor) == REJECTED  # type: ignore[attr-defined]
        peer.send(performative(DISPOSITION, False, 0, 1, True), transfer(2, b"malformed"))
        refused = peer.expect(DISPOSITION)
        assert (refused.field(1), refused.field(3)) == (2, None)


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, MODIFIED, REJECTED])
def test_a_receiver_that_settles_second(peer: RawPeer, outcome: int) -> None:
    """It says an outcome without settling; the broker settles, and tells it so."""
    peer.attach_receiver("orders", "second", 2, second=True)
    send(peer, BODY)
    peer.expect(DISPOSITION)
    peer.send(performative(0x13, 0, 10_000, 0, 10_000, 2, 0, 1))
    peer.expect(TRANSFER)
    peer.send(performative(DISPOSITION, True, 0, 0, False, Described(outcome)))
    said = peer.expect(DISPOSITION)
    assert (said.field(0), said.field(1), said.field(3)) == (False, 0, True)


def test_an_outcome_counts_when_it_is_said(broker: RunningBroker) -> None:
    """A receiver lost between its outcome and the broker's settlement: what it accepted is gone from here."""
    with RawPeer(broker.port) as sender:
        sender.open().begin().attach_sender("orders")
        sender.await_credit()
        sender.send(transfer(0), transfer(1))
        await_number(broker, "orders", "depth_msgs", 2)
        with RawPeer(broker.port) as receiver:
            receiver.open().begin().attach_receiver("orders", second=True)
            receiver.give_credit(2)
            receiver.expect(TRANSFER)
            receiver.expect(TRANSFER)
            receiver.send(performative(DISPOSITION, True, 0, 0, False, Described(ACCEPTED)))
            receiver.expect(DISPOSITION)
        await_number(broker, "orders", "ready_msgs", 1)
        assert number_of(broker, "orders", "depth_msgs") == 1


def test_a_state_that_is_no_outcome_leaves_the_delivery_where_it_is(
    broker: RunningBroker, peer: RawPeer
) -> None:
    send(peer, BODY)
    taking = Taking(peer)
    taking.take()
    peer.send(performative(DISPOSITION, True, 0, 0, False, Described(0x23, [0])))
    peer.send(performative(DETACH, 1, True))
    peer.expect(DETACH)
    await_number(broker, "orders", "ready_msgs", 1)
