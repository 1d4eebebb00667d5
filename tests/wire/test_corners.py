"""The specification's own corners, frame by frame: names, sessions, handles, windows, transfers.

Each case asserts which frame answers, with which condition and on which channel, and that what was not
at fault goes on: another link, another session, or everybody else on the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.wire.conftest import RunningBroker, SharedBroker, StartBroker
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    BODY,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    RECEIVER,
    SASL_INIT,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Frame,
    RawPeer,
    Symbol,
    UByte,
    encode,
    frame,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, good_neighbours, number_of

pytestmark = pytest.mark.wire

# The channel of the second session, which goes on.
OTHER = 1


@pytest.fixture
def broker(shared_broker: SharedBroker) -> Iterator[RunningBroker]:
    """The defaults, and no nodes."""
    with shared_broker.lent() as lent:
        yield lent


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    """A peer with two sessions; around it, others' clients work before and after."""
    with good_neighbours(broker), RawPeer(broker.port) as made:
        made.open().begin().begin(channel=OTHER)
        yield made


@pytest.fixture
def sender(peer: RawPeer) -> RawPeer:
    """The same with a link to send on: handle 0, name `out`, and credit."""
    peer.attach_sender("orders")
    peer.await_credit()
    return peer


def goes_on(peer: RawPeer, channel: int = OTHER, name: str = "later", handle: int = 9) -> bool:
    """A link attached on a session is given credit."""
    peer.attach_sender("afterwards", name, handle, channel=channel)
    return peer.await_credit(handle) > 0


def described(found: Frame) -> str | None:
    """The condition of a frame's error, which must say more than its condition."""
    assert found.condition is None or found.error[1]
    return found.condition


def ended(peer: RawPeer, channel: int = 0) -> str | None:
    """The condition that a session ends with, and only it."""
    found = peer.expect(END)
    assert found.channel == channel
    peer.send(performative(END, channel=channel))
    assert goes_on(peer)
    assert not [item for item in peer.log if item.code == CLOSE]
    return described(found)


def attach(name: str, handle: int, role: bool = SENDER, address: str = "orders", channel: int = 0) -> bytes:
    """An attach of a link that reserves nothing of what others have."""
    termini = Described(SOURCE, [address]), Described(TARGET, [address])
    return performative(
        ATTACH, name, handle, role, UByte(2), UByte(0), *termini, None, None, 0, channel=channel
    )


def lasting(name: str, handle: int, address: str) -> bytes:
    """An attach of a receiver whose source is there for longer than its connection."""
    source = Described(SOURCE, [address, 1, Symbol("never")])
    return performative(ATTACH, name, handle, RECEIVER, UByte(2), UByte(0), source, Described(TARGET))


# --- names (§2.6.1)


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["sender", "receiver"])
def test_a_name_attached_again_in_the_same_session_is_stolen(peer: RawPeer, role: bool) -> None:
    peer.send(attach("same", 3, role))
    peer.expect(ATTACH)
    peer.send(attach("same", 5, role))
    stolen = peer.expect(DETACH)
    assert (described(stolen), stolen.field(0), stolen.field(1)) == ("amqp:link:stolen", 0, True)
    peer._attached(5)
    # The peer's own detach of what was stolen, and what it still says of it, harm nobody.
    peer.send(performative(FLOW, 0, 1000, 0, 1000, 3, 0, 10), performative(DETACH, 3, True))
    if role == SENDER:
        peer.await_credit(5)
        peer.send(transfer(0, handle=5))
        assert peer.expect(DISPOSITION).field(1) == 0
    else:
        peer.attach_sender("orders", handle=6)
        peer.await_credit(6)
        peer.send(transfer(0, handle=6))
        peer.give_credit(1, 5)
        assert peer.expect(TRANSFER).payload == BODY
    # And its handle is free for another.
    assert goes_on(peer, 0, "another", 3)


def test_what_a_stolen_receiver_held_comes_to_the_thief(sender: RawPeer) -> None:
    sender.send(transfer(0))
    sender.attach_receiver("orders", "in", 3)
    sender.give_credit(1, 3)
    sender.expect(TRANSFER)
    sender.attach_receiver("orders", "in", 4)
    sender.give_credit(1, 4)
    assert sender.expect(TRANSFER).payload.endswith(BODY)


def test_a_name_attached_in_another_session_of_the_connection_is_stolen(peer: RawPeer) -> None:
    peer.attach_receiver("orders", "same", 3)
    peer.send(attach("same", 0, RECEIVER, channel=OTHER))
    found = [peer.expect(ATTACH), peer.expect(DETACH)]
    assert [item.channel for item in found] == [OTHER, 0]
    assert described(found[1]) == "amqp:link:stolen"
    peer.send(performative(DETACH, 3, True))
    assert goes_on(peer, 0)


def test_names_of_the_two_directions_are_apart(peer: RawPeer) -> None:
    peer.attach_receiver("orders", "same", 3)
    peer.attach_sender("orders", "same", 4)
    assert peer.await_credit(4)
    assert not [item for item in peer.log if item.code == DETACH]


def test_a_link_that_lasts_is_stolen_by_another_connection_of_its_container(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as one, RawPeer(broker.port) as two, RawPeer(broker.port) as stranger:
        for peer, container in ((one, "app"), (two, "app"), (stranger, "someone else")):
            peer.open(container=container).begin()
        one.send(lasting("sub", 0, "orders"))
        one.expect(ATTACH)
        stranger.send(lasting("sub", 0, "orders"))
        stranger.expect(ATTACH)
        two.send(lasting("sub", 0, "orders"))
        two._attached(0)
        assert described(one.expect(DETACH)) == "amqp:link:stolen"
        one.send(performative(DETACH, 0, True))
        assert goes_on(one, 0)
        two.attach_sender("orders", handle=1)
        two.await_credit(1)
        two.send(transfer(0, handle=1))
        stranger.send(performative(DETACH, 0, True))
        stranger.expect(DETACH)
        assert stranger.log[-1].condition is None
        two.give_credit(1, 0)
        assert two.expect(TRANSFER).payload == BODY


@pytest.mark.parametrize("container", ["", "app"], ids=["no container-id", "a shared container-id"])
def test_links_that_do_not_last_live_side_by_side(broker: RunningBroker, container: str) -> None:
    """Proton's Python clients name every link after container and address, on each connection."""
    with RawPeer(broker.port) as one, RawPeer(broker.port) as two:
        for peer in (one, two):
            peer.open(container=container).begin().attach_receiver("orders", "same")
            peer.give_credit(1)
        two.attach_sender("orders")
        two.await_credit()
        two.send(transfer(0), transfer(1))
        for peer in (one, two):
            assert peer.expect(TRANSFER)
            assert not [item for item in peer.log if item.code == DETACH]


def test_without_a_container_id_nothing_is_stolen(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as one, RawPeer(broker.port) as two:
        for peer in (one, two):
            peer.open(container="").begin().send(lasting("sub", 0, "orders"))
            peer._attached(0)
        assert goes_on(one, 0)
        assert not [item for item in one.log if item.code == DETACH]


def test_a_refused_link_may_be_attached_again_before_it_is_confirmed(peer: RawPeer) -> None:
    bad = performative(ATTACH, "x", 0, SENDER, UByte(2), UByte(0), Described(SOURCE), None, None, None, 0)
    peer.send(bad)
    assert described(peer.expect(DETACH)) == "amqp:invalid-field"
    peer.send(attach("x", 1))
    peer._attached(1)
    assert peer.await_credit(1)


# --- detach (§2.6.6)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "for now"])
@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["sender", "receiver"])
def test_a_detach_is_answered_in_kind(peer: RawPeer, role: bool, closed: bool) -> None:
    peer.send(attach("x", 0, role))
    peer.expect(ATTACH)
    peer.send(performative(DETACH, 0, closed))
    answer = peer.expect(DETACH)
    assert (answer.field(0), bool(answer.field(1)), answer.condition) == (0, closed, None)


@pytest.mark.parametrize("channel", [0, OTHER], ids=["the same session", "another session"])
def test_a_link_detached_for_now_is_attached_again(sender: RawPeer, channel: int) -> None:
    """What it held unsettled is in the queue again, and told of as tried."""
    sender.send(transfer(0))
    sender.attach_receiver("orders", "in", 3)
    sender.give_credit(1, 3)
    sender.expect(TRANSFER)
    sender.send(performative(DETACH, 3, False))
    assert not sender.expect(DETACH).field(1)
    sender.attach_receiver("orders", "in", 3, channel=channel)
    sender.send(performative(FLOW, 0, 1000, 0, 1000, 3, 0, 1, channel=channel))
    again = sender.expect(TRANSFER)
    assert again.channel == channel
    assert again.payload.endswith(BODY)
    assert again.payload != BODY


# --- sessions and what ends them (§2.5)


def test_a_handle_in_use(sender: RawPeer) -> None:
    sender.send(attach("other", 0))
    assert ended(sender) == "amqp:session:handle-in-use"


@pytest.mark.parametrize(
    "said",
    [
        transfer(0, handle=77),
        transfer(0, handle=3_000),
        performative(FLOW, 0, 10, 0, 10, 77, 0, 10),
        performative(DETACH, 77, True),
    ],
    ids=["transfer", "transfer on a high handle", "flow", "detach"],
)
def test_a_handle_that_is_not_attached(peer: RawPeer, said: bytes) -> None:
    peer.send(said)
    assert ended(peer) == "amqp:session:unattached-handle"


def test_a_flow_behind_the_links_detach_is_ignored(sender: RawPeer) -> None:
    """It may have been under way already when its sender's other thread detached: go-amqp's does that."""
    sender.send(performative(DETACH, 0, True), performative(FLOW, 0, 10, 0, 10, 0, 0, 10))
    sender.expect(DETACH)
    sender.attach_sender("orders", "again", 0)
    assert goes_on(sender, 0)


def test_a_second_detach_of_a_link_is_ignored(sender: RawPeer) -> None:
    """Two threads of one client may both answer a refused attach: fe2o3-amqp's do."""
    sender.send(performative(DETACH, 0, True), performative(DETACH, 0, True))
    sender.expect(DETACH)
    sender.attach_sender("orders", "again", 0)
    assert goes_on(sender, 0)


def test_a_transfer_behind_the_links_detach(sender: RawPeer) -> None:
    sender.send(performative(DETACH, 0, True), transfer(0))
    assert ended(sender) == "amqp:session:unattached-handle"


def test_a_transfer_on_a_link_that_was_detached_with_an_error(sender: RawPeer) -> None:
    """Until the peer has confirmed, what was under way is dropped; behind that it is an error of its own."""
    sender.send(transfer(0, tag=b"t" * 33))
    assert described(sender.expect(DETACH)) == "amqp:invalid-field"
    sender.send(transfer(1), performative(DETACH, 0, True), transfer(2))
    assert ended(sender) == "amqp:session:errant-link"


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("tag", [b"", b"\xff\xff\xff\xff"], ids=["no tag", "a tag beyond ours"])
def test_a_transfer_against_a_links_direction(
    broker: RunningBroker, peer: RawPeer, settled: bool, tag: bytes
) -> None:
    """Proton takes it for a delivery of the broker's own."""
    peer.attach_receiver("orders")
    peer.send(transfer(0, handle=1, settled=settled, tag=tag))
    assert ended(peer) == "amqp:not-allowed"
    await_number(broker, "orders", "consumers", 0)


def test_more_transfers_than_the_window_allows(sender: RawPeer) -> None:
    sender.send(transfer(0, b"", more=True) * 6000)
    assert ended(sender) == "amqp:session:window-violation"


def test_the_window_is_kept_up_for_those_who_keep_to_it(broker: RunningBroker, sender: RawPeer) -> None:
    sent = 0
    while sent < 6000:
        while sent >= min(sender.window_end, sender.may_send()):
            sender.expect(FLOW)
        upto = min(sender.window_end, sender.may_send(), 6000)
        sender.send(b"".join(transfer(number) for number in range(sent, upto)))
        sent = upto
    await_number(broker, "orders", "received", 6000)


@pytest.mark.parametrize(
    "said",
    [
        [transfer(0), transfer(7)],
        [transfer(0), transfer(0)],
        [transfer(0, BODY[:4], more=True), transfer(1)],
        [transfer(0, BODY[:4], more=True, settled=True), transfer(0, BODY[4:])],
        [performative(TRANSFER, 0, None, b"t", 0, payload=BODY)],
        [performative(DISPOSITION, True, 5, 3, True)],
        [performative(DISPOSITION, True)],
    ],
    ids=["a gap", "the same twice", "interleaved", "unsettled again", "no id", "reversed", "from nowhere"],
)
def test_delivery_ids_that_cannot_be(sender: RawPeer, said: list[bytes]) -> None:
    sender.send(*said)
    assert ended(sender) == "amqp:invalid-field"


def test_an_ended_session_hears_nothing_more_and_its_channel_is_free_again(sender: RawPeer) -> None:
    sender.send(transfer(5), *(transfer(number) for number in range(100)), attach("z", 8))
    sender.send(transfer(0, handle=99), performative(FLOW, 0, 1, 0, 1, 50), performative(END))
    sender.send(performative(BEGIN, None, 0, 1000, 1000))
    assert described(sender.expect(END)) == "amqp:invalid-field"
    sender.expect(BEGIN)
    assert goes_on(sender, 0)
    assert len([item for item in sender.log if item.code == END]) == 1


def test_the_messages_of_an_ended_session_go_to_others(sender: RawPeer) -> None:
    sender.send(transfer(0))
    sender.attach_receiver("orders", "in", 3)
    sender.give_credit(1, 3)
    sender.expect(TRANSFER)
    sender.send(performative(DETACH, 99, True))
    assert ended(sender) == "amqp:session:unattached-handle"
    sender.attach_receiver("orders", "in", 4, channel=OTHER)
    sender.send(performative(FLOW, 0, 1000, 0, 1000, 4, 0, 1, channel=OTHER))
    assert sender.expect(TRANSFER).payload.endswith(BODY)


def test_delivery_ids_and_windows_wrap_around(broker: RunningBroker) -> None:
    top = 2**32 - 2
    with RawPeer(broker.port) as peer:
        peer.open().send(performative(BEGIN, None, top, 1000, 1000))
        peer.expect(BEGIN)
        peer.attach_sender("orders")
        peer.await_credit()
        peer.send(*(transfer((top + number) % 2**32) for number in range(4)))
        await_number(broker, "orders", "received", 4)


def test_a_disposition_of_two_thousand_million_ids_costs_nothing(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        for first in (0, 5, 2**31):
            last = (first + 2**31 - 1) % 2**32
            peer.send(performative(DISPOSITION, True, first, last, True, Described(ACCEPTED)) * 100)
        # Counted one by one, they would keep the answer away for far longer than it is waited for.
        assert goes_on(peer, 0)


# --- connections and what closes them (§2.4)


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        (performative(BEGIN, None, 0, 10, 10), "amqp:not-allowed"),
        (frame(b"\x00\x53\x11\xc0\x08\x04\x60\x00\x00\x43\x52\x0a\x43", channel=5), "amqp:not-allowed"),
        (performative(BEGIN, None, 0, 10, 10, channel=1024), "amqp:connection:framing-error"),
        (performative(OPEN, "again"), "amqp:not-allowed"),
        (attach("x", 2**31), "amqp:connection:framing-error"),
        (attach("x", 0, channel=9), "amqp:not-allowed"),
        (performative(FLOW, 0, 10, 0, 10, channel=9), "amqp:not-allowed"),
        (frame(b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1), "amqp:connection:framing-error"),
        (frame(b"\x00\x53\x11\x45", kind=2), "amqp:connection:framing-error"),
    ],
    ids=[
        "a channel in use",
        "an answer to no begin",
        "beyond channel-max",
        "open again",
        "beyond handle-max",
        "attach on no session",
        "flow on no session",
        "an unknown performative",
        "SASL",
        "a type of frame",
    ],
)
def test_what_closes_a_connection(peer: RawPeer, said: bytes, condition: str) -> None:
    peer.send(said)
    assert described(peer.expect(CLOSE)) == condition
    peer.await_end()


def test_what_is_still_said_of_a_session_its_peer_has_ended_is_ignored(peer: RawPeer) -> None:
    peer.attach_sender("orders", "s", 0)
    peer.send(performative(END), performative(FLOW, 0, 10, 0, 10), performative(DETACH, 0, True))
    peer.expect(END)
    peer.begin()
    peer.attach_sender("orders", "s", 0)
    assert goes_on(peer, 0)


def test_what_is_said_before_open(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        peer.authenticate().send(performative(BEGIN, None, 0, 10, 10))
        peer.read_bytes(8)
        assert described(peer.expect(CLOSE)) == "amqp:not-allowed"
        assert [item.code for item in peer.log][-2:] == [OPEN, CLOSE]
        peer.await_end()


def test_what_is_advertised(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  max_sessions: 4\n  max_frame_size: 8 KB\n  idle_timeout: 7s\n")
    with RawPeer(broker.port) as peer:
        peer.open()
        opened = peer.log[-1]
        # Half of the time after which a silent peer is cut off (§2.4.5).
        assert [opened.field(index) for index in (2, 3, 4)] == [8192, 3, 3500]
        peer.begin()
        # Proton has no way to say fewer; what there is room for is said at each attach.
        assert peer.log[-1].field(4) == 2**31 - 1


def test_more_links_than_a_session_may_have_are_refused_one_by_one(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  max_links: 3\n")
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        for handle in range(3):
            peer.attach_sender("orders", f"x{handle}", handle)
        peer.attach_sender("orders", "x3", 3)
        assert described(peer.expect(DETACH)) == "amqp:resource-limit-exceeded"
        peer.send(performative(DETACH, 3, True), performative(DETACH, 0, True))
        peer.expect(DETACH)
        assert goes_on(peer, 0)


def test_frames_that_come_a_byte_at_a_time(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        peer.open().begin().attach_sender("orders")
        peer.await_credit()
        for byte in transfer(0) + attach("second", 2) + transfer(1, handle=0):
            peer.send(bytes((byte,)))
        peer._attached(2)
        await_number(broker, "orders", "received", 2)
        for byte in transfer(2, handle=7) + transfer(3):
            peer.send(bytes((byte,)))
        assert peer.expect(END).condition == "amqp:session:unattached-handle"


@pytest.mark.parametrize("max_frame", [1, 512, 700])
def test_a_peer_with_small_frames_gets_a_large_message_in_many(broker: RunningBroker, max_frame: int) -> None:
    """A max-frame-size below 512 counts as 512 (§2.4.1, §2.7.1)."""
    body = b"\x00\x53\x75\xb0" + (5000).to_bytes(4, "big") + bytes(range(250)) * 20
    with RawPeer(broker.port) as peer:
        peer.open(max_frame=max_frame).begin().attach_sender("orders")
        peer.await_credit()
        peer.send(transfer(0, body))
        peer.attach_receiver("orders")
        peer.give_credit(1)
        pieces = [peer.expect(TRANSFER)]
        while pieces[-1].field(5):
            pieces.append(peer.expect(TRANSFER))
        assert b"".join(item.payload for item in pieces) == body
        assert max(item.size for item in pieces) <= max(max_frame, 512)


# --- transfers (§2.6.14, §2.7.5)


@pytest.mark.parametrize("size", [33, 255, 256, 40_000])
def test_a_delivery_tag_that_is_too_long_ends_its_link(
    broker: RunningBroker, sender: RawPeer, size: int
) -> None:
    sender.attach_sender("others", "second", 2)
    sender.await_credit(2)
    sender.send(transfer(0, tag=b"t" * size), transfer(1, handle=2), transfer(2, handle=2))
    assert described(sender.expect(DETACH)) == "amqp:invalid-field"
    await_number(broker, "others", "received", 2)
    assert number_of(broker, "orders", "depth_msgs") == 0
    sender.send(performative(DETACH, 0, True))
    assert goes_on(sender, 0)


def test_the_longest_delivery_tag_an_empty_one_and_the_same_twice_are_taken(
    broker: RunningBroker, sender: RawPeer
) -> None:
    """The broker knows a delivery by its id; its sender's tags are the sender's."""
    sender.send(transfer(0, tag=b"t" * 32), transfer(1, tag=b"t" * 32), transfer(2, tag=b""))
    await_number(broker, "orders", "depth_msgs", 3)


@pytest.mark.parametrize(
    "last",
    [
        transfer(0, BODY[4:], settled=True),
        performative(TRANSFER, 0, None, None, None, None, payload=BODY[4:]),
    ],
    ids=["settled", "nothing but the payload"],
)
def test_a_deliverys_last_transfer_may_say_other_than_its_first(
    broker: RunningBroker, sender: RawPeer, last: bytes
) -> None:
    sender.send(transfer(0, BODY[:4], more=True), last, transfer(1))
    await_number(broker, "orders", "depth_msgs", 2)
    settled = [item.fields[1:3] for item in sender.log if item.code == DISPOSITION]
    assert all(item[0] in (0, 1) for item in settled)


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_an_aborted_delivery_is_none(broker: RunningBroker, sender: RawPeer, pieces: int) -> None:
    sender.send(*[transfer(0, BODY[:2], more=True)] * pieces, transfer(0, b"", aborted=True), transfer(1))
    await_number(broker, "orders", "depth_msgs", 1)
    assert sender.expect(DISPOSITION).field(1) == 1


@pytest.mark.parametrize("how", [DETACH, END, CLOSE, None], ids=["detach", "end", "close", "no word"])
def test_a_delivery_that_is_never_completed_is_none(
    broker: RunningBroker, sender: RawPeer, how: int | None
) -> None:
    sender.send(transfer(0), transfer(1, BODY[:4], more=True))
    await_number(broker, "orders", "depth_msgs", 1)
    if how is None:
        sender.close()
    else:
        sender.send(performative(how, *([0, True] if how == DETACH else [])))
    await_number(broker, "orders", "producers", 0)
    assert number_of(broker, "orders", "depth_msgs") == 1
    assert number_of(broker, "orders", "promised_msgs") == 0


def test_resumed_deliveries_are_ignored(broker: RunningBroker, sender: RawPeer) -> None:
    """§2.7.5: none of them can be in the receiver's unsettled map, which the broker doesn't keep."""

    def resumed(number: int, payload: bytes, more: bool = False) -> bytes:
        fields = (0, number, b"tag", 0, False, more, None, None, True)
        return performative(TRANSFER, *fields, payload=payload)

    sender.send(resumed(0, BODY), resumed(1, BODY[:3], more=True), transfer(1, BODY[3:]), transfer(2))
    assert sender.expect(DISPOSITION).fields[1:3] == [2, None]
    assert number_of(broker, "orders", "received") == 1


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["sender", "receiver"])
def test_an_unsettled_map_is_answered_with_none(peer: RawPeer, role: bool) -> None:
    """Null says that nothing is retained, so that the peer sends what it had unsettled anew (§2.6.13)."""
    termini = encode(Described(SOURCE, ["orders"])) + encode(Described(TARGET, ["orders"]))
    modes = encode(UByte(2)) + encode(UByte(0))
    unsettled = b"\xc1\x0b\x04\xa0\x01t\x40\xa0\x01u\x00\x53\x24\x45"
    unsettled = b"\xc1" + bytes((len(unsettled) - 2,)) + unsettled[2:]
    fields = encode("x") + encode(0) + encode(role) + modes + termini + unsettled + b"\x40" + encode(0)
    peer.send(
        frame(b"\x00\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x0a" + fields)
    )
    answer = peer._attached(0)
    assert (answer.field(0), answer.field(7)) == ("x", None)
    if role == SENDER:
        assert peer.await_credit(0)


# --- termini


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["target", "source"])
def test_a_terminus_of_an_unknown_type_is_refused(peer: RawPeer, role: bool) -> None:
    odd = Described(0x99, ["orders"])
    termini = (odd, Described(TARGET)) if role == RECEIVER else (Described(SOURCE), odd)
    peer.send(performative(ATTACH, "x", 0, role, UByte(2), UByte(0), *termini, None, None, 0))
    assert described(peer.expect(DETACH)) == "amqp:not-implemented"
    peer.send(performative(DETACH, 0, True))
    assert goes_on(peer, 0)


def test_fields_and_capabilities_nobody_knows_are_let_be(peer: RawPeer) -> None:
    source = Described(
        SOURCE, ["orders", None, None, None, False, None, Symbol("odd"), None, None, None, None, "more", 7]
    )
    peer.send(performative(ATTACH, "x", 0, RECEIVER, UByte(2), UByte(0), source, Described(TARGET)))
    answer = peer._attached(0)
    assert answer.field(5) is not None


def test_a_name_that_is_not_text(peer: RawPeer) -> None:
    peer.send(attach("AAAA", 0).replace(b"AAAA", b"\xff\xfe\xff\xfe"))
    assert ended(peer) == "amqp:decode-error"


@pytest.mark.parametrize("role", [SENDER, RECEIVER], ids=["target", "source"])
def test_an_address_that_is_not_text(peer: RawPeer, role: bool) -> None:
    ours = Described(SOURCE if role == RECEIVER else TARGET, ["AAAA"])
    termini = (ours, Described(TARGET)) if role == RECEIVER else (Described(SOURCE), ours)
    said = performative(ATTACH, "x", 0, role, UByte(2), UByte(0), *termini, None, None, 0)
    peer.send(said.replace(b"AAAA", b"\xff\xfe\xff\xfe"))
    assert described(peer.expect(DETACH)) == "amqp:decode-error"
    peer.send(performative(DETACH, 0, True))
    assert goes_on(peer, 0)


def test_a_container_id_that_is_not_text(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        peer.authenticate().send(performative(OPEN, "AAAA").replace(b"AAAA", b"\xff\xfe\xff\xfe"))
        peer.read_bytes(8)
        assert described(peer.expect(CLOSE)) == "amqp:decode-error"
        peer.await_end()


# --- echo (§2.7.4)


def settle_down(peer: RawPeer, channel: int = 0) -> None:
    """Whatever flows the broker had to send are read."""
    for handle in (40, 41):
        peer.attach_receiver("elsewhere", f"settle {handle}", handle, channel=channel)


@pytest.mark.parametrize("handle", [None, 0, 1], ids=["session", "a sender's link", "a receiver's link"])
def test_echo(sender: RawPeer, handle: int | None) -> None:
    sender.attach_receiver("orders")
    settle_down(sender)
    count = None if handle is None else 0
    credit = 7 if handle == 1 else None
    asked = performative(FLOW, 0, 1000, 0, 1000, handle, count, credit, None, False, True)
    sender.send(asked)
    answer = sender.expect(FLOW)
    assert answer.channel == 0
    assert (answer.field(0), answer.field(1)) == (0, 2048)
    if handle is not None:
        assert answer.field(4) == sender._handles[handle]
    if handle == 1:
        assert answer.field(6) == 7


def test_no_echo_no_answer(sender: RawPeer) -> None:
    settle_down(sender)
    before = len(sender.log)
    sender.send(performative(FLOW, 0, 1000, 0, 1000), performative(FLOW, 0, 1000, 0, 1000, 0, 0))
    settle_down(sender, OTHER)
    assert [item for item in sender.log[before:] if item.code == FLOW] == []


# --- noise


@pytest.mark.parametrize("seed", range(4))
def test_frames_with_a_byte_changed_harm_nobody(broker: RunningBroker, seed: int) -> None:
    """Whatever they become, read in whatever pieces: an answer or an end, and the broker goes on."""
    random = Random(seed)
    good = [
        *(transfer(number, more=number % 3 == 0) for number in range(4)),
        transfer(4, tag=b"t" * 40),
        attach("in", 1, RECEIVER),
        attach("out", 2),
        performative(FLOW, 0, 100, 0, 100, 1, 0, 10, None, False, True),
        performative(DISPOSITION, True, 0, 3, True, Described(ACCEPTED)),
        performative(DETACH, 1, True),
        performative(BEGIN, None, 0, 100, 100, channel=2),
        performative(END, channel=2),
    ]
    with good_neighbours(broker):
        for _ in range(150):
            with RawPeer(broker.port) as peer:
                peer.open().begin().attach_sender("noise")
                stream = b"".join(random.sample(good, len(good)))
                noise = bytearray(stream)
                for _ in range(random.randint(1, 4)):
                    noise[random.randrange(len(noise))] = random.choice((0, 1, 0x40, 0xA0, 0xB0, 0xC0, 0xFF))
                at = 0
                while at < len(noise):
                    step = random.choice((1, 7, 50, 1000))
                    peer.send(bytes(noise[at : at + step]))
                    at += step
                peer.send(performative(CLOSE))
        assert broker.process.poll() is None
