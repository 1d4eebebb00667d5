"""Peers that break the protocol, stall or vanish: the smallest scope ends, everybody else goes on.

Around every case a well-behaved pair works on the same broker, before and after; afterwards no socket is
left half closed and the log holds no traceback.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.link import Connection
from broker.codec import sections
from tests.wire.conftest import RunningBroker, SharedBroker, StartBroker, wait_until
from tests.wire.frames import (
    ACCEPTED,
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    BODY,
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    OPEN,
    REJECTED,
    RELEASED,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
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
from tests.wire.seeing import (
    await_no_half_closed,
    await_number,
    good_neighbours,
    memory_kb,
    number_of,
)

pytestmark = pytest.mark.wire

MEGABYTE = 1 << 20
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"
CONFIG = """
limits:
  max_message_size: 1 MB
  max_frame_size: 16 KB
"""
POLICIES = """
policies:
  - match: hundred
    flow_stop_count: 100
  - match: closed
    auto_create: false
"""


@pytest.fixture
def broker(shared_broker: SharedBroker) -> Iterator[RunningBroker]:
    """Strict limits."""
    with shared_broker.lent() as lent:
        yield lent


@pytest.fixture(autouse=True)
def everybody_else_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    if "broker" not in request.fixturenames:
        yield
        return
    broker: RunningBroker = request.getfixturevalue("broker")
    with good_neighbours(broker):
        yield
    await_no_half_closed(broker)


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    """A peer that has said nothing yet."""
    with RawPeer(broker.port) as made:
        yield made


@pytest.fixture
def hurried(start_broker: StartBroker) -> Iterator[RawPeer]:
    """The same at a broker that waits three seconds for it: whoever else comes there must be as quick."""
    broker = start_broker(f"{CONFIG}  handshake_timeout: 3s\n", POLICIES)
    with good_neighbours(broker):
        with RawPeer(broker.port) as made:
            yield made
        broker.wait_for_log("no AMQP connection within the time for it")
    await_no_half_closed(broker)


@pytest.fixture
def session(peer: RawPeer) -> RawPeer:
    """A peer with an open connection and session."""
    return peer.open().begin()


def detached(peer: RawPeer) -> str | None:
    """The condition the next link is detached with."""
    return peer.expect(DETACH).condition


def still_usable(peer: RawPeer, address: str = "afterwards") -> bool:
    """The connection lives: another link can be attached and is given credit."""
    peer.attach_sender(address, f"link to {address}", handle=9)
    return peer.await_credit(handle=9) > 0


def outcome(found: Frame) -> int:
    """What a disposition says became of its deliveries."""
    return int(found.field(4).descriptor)  # type: ignore[attr-defined]


def told_of(found: Frame) -> int:
    """How many deliveries a disposition is about."""
    first, last = found.field(1), found.field(2)
    assert isinstance(first, int)
    return last - first + 1 if isinstance(last, int) else 1


def rejection(found: Frame) -> str:
    """The condition of a disposition that rejects."""
    state = found.field(4)
    assert int(state.descriptor) == REJECTED  # type: ignore[attr-defined]
    return str(state.value[0].value[0])  # type: ignore[attr-defined]


# --- before AMQP


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 64,
        b"\xff" * 5000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["http", "zeros", "ones", "tls"],
)
def test_garbage_is_answered_with_the_supported_header(peer: RawPeer, garbage: bytes) -> None:
    peer.send(garbage)
    assert peer.read_bytes(8) == SASL_HEADER
    assert peer.read_bytes(1) == b""


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x02\x00\x00"]
)
def test_a_wrong_protocol_header_is_answered_with_the_supported_one(peer: RawPeer, header: bytes) -> None:
    peer.send(header)
    assert peer.read_bytes(8) == SASL_HEADER
    assert peer.read_bytes(1) == b""


def test_amqp_before_sasl_has_finished_reaches_nobody(broker: RunningBroker, peer: RawPeer) -> None:
    """The hole of Proton 0.40: open, begin and attach right behind the SASL header."""
    with Connection(broker.url) as owner:
        sender = owner.sender("secrets")
        sender.send(sections.text_body("for friends"), 20)
        sender.flush(20)
        await_number(broker, "secrets", "depth_msgs", 1)
        peer.send(
            SASL_HEADER,
            AMQP_HEADER,
            performative(OPEN, "thief"),
            performative(BEGIN, None, 0, 100, 100),
            performative(ATTACH, "t", 0, True, UByte(2), UByte(0), Described(SOURCE, ["secrets"])),
            performative(FLOW, 0, 100, 0, 100, 0, 0, 10),
        )
        assert peer.read_bytes(8) == SASL_HEADER
        peer.await_end()
        assert [item.code for item in peer.log] == [SASL_MECHANISMS, SASL_OUTCOME]
        assert peer.log[1].field(0) == 1
        assert number_of(broker, "secrets", "unsettled_msgs") == 0


def test_amqp_frames_between_outcome_and_header_end_the_connection(peer: RawPeer) -> None:
    peer.send(SASL_HEADER, performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1), performative(OPEN, "hasty"))
    assert peer.read_bytes(8) == SASL_HEADER
    assert peer.expect(SASL_OUTCOME).field(0) == 0
    assert peer.read_bytes(8) == AMQP_HEADER
    assert peer.read_bytes(1) == b""


@pytest.mark.parametrize("said", [b"", SASL_HEADER, b"AMQ"], ids=["nothing", "header", "half a header"])
def test_silence_before_authentication_has_a_deadline(hurried: RawPeer, said: bytes) -> None:
    hurried.send(said)
    hurried.socket.settimeout(30)
    while hurried.socket.recv(100):
        pass


def test_an_authenticated_peer_that_never_opens_has_a_deadline(hurried: RawPeer) -> None:
    hurried.authenticate()
    hurried.await_end(30)


def test_an_oversized_sasl_frame(peer: RawPeer) -> None:
    peer.send(SASL_HEADER, frame(bytes(100_000), kind=1))
    assert peer.read_bytes(8) == SASL_HEADER
    assert peer.expect(SASL_OUTCOME).field(0) == 1
    peer.await_end()


def test_sasl_byte_by_byte_is_fine(broker: RunningBroker, peer: RawPeer) -> None:
    for byte in SASL_HEADER + performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1) + AMQP_HEADER:
        peer.send(bytes((byte,)))
    peer.send(performative(OPEN, "slow"))
    assert peer.read_bytes(8) == SASL_HEADER
    assert peer.expect(SASL_OUTCOME).field(0) == 0
    assert peer.read_bytes(8) == AMQP_HEADER
    assert peer.expect(OPEN)


# --- frames


def test_a_frame_larger_than_max_frame_size(session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0, BODY + bytes(20_000)))
    assert session.expect(CLOSE).condition == "amqp:connection:framing-error"
    session.await_end()


@pytest.mark.parametrize(
    "bad",
    [
        frame(encode(Described(FLOW)), doff=200),
        frame(encode(Described(FLOW)), doff=1),
        frame(b"", size=3),
        frame(b"", size=0),
        frame(b"\xff\xff\xff\xff"),
        frame(b"\x00\x53\x99\x45"),
        frame(b"\x00\x53\x12\xc0\x20\x09"),
        frame(b"\x00\x80" + b"\xff" * 8 + b"\x45"),
    ],
    ids=["doff beyond", "doff 1", "size 3", "size 0", "no type", "unknown", "cut off", "domain"],
)
def test_a_malformed_frame_closes_its_connection(session: RawPeer, bad: bytes) -> None:
    session.send(bad)
    session.await_end()
    closes = [item.condition for item in session.log if item.code == CLOSE]
    assert closes
    assert closes[0] in ("amqp:connection:framing-error", "amqp:decode-error", "amqp:invalid-field")


def test_frames_for_channels_and_handles_that_are_not_there(broker: RunningBroker) -> None:
    for nonsense in (
        transfer(0, handle=77),
        performative(DETACH, 77, True),
        performative(FLOW, 0, 10, 0, 10, 77, 0, 10),
        performative(TRANSFER, 0, 0, b"t", 0, payload=BODY, channel=55),
        performative(DISPOSITION, True, 5, 900_000, True),
        performative(ATTACH, "same", 0, SENDER, channel=55),
    ):
        with RawPeer(broker.port) as peer:
            peer.open().begin().send(nonsense, performative(CLOSE))
            peer.await_end()


def test_too_many_links_and_sessions(broker: RunningBroker, session: RawPeer) -> None:
    for channel in range(1, 1100):
        session.send(performative(BEGIN, None, 0, 10, 10, channel=channel))
    session.await_end()
    assert any(item.code == CLOSE for item in session.log)


# --- credit


def test_two_hundred_thousand_transfers_on_a_credit_of_a_hundred(
    broker: RunningBroker, session: RawPeer
) -> None:
    session.attach_sender("hundred")
    assert session.await_credit() == 100
    first = transfer(0)
    at = first.index(b"\x70\x00\x00\x00\x00\xb0") + 1
    for start in range(0, 200_000, 1000):
        while start + 1000 > session.window_end:
            session.expect(FLOW)
        numbers = (number.to_bytes(4, "big") for number in range(start, start + 1000))
        session.send(b"".join(first[:at] + number + first[at + 4 :] for number in numbers))
    ends = [item for item in session.log if item.code == DETACH]
    assert [item.condition for item in ends] == ["amqp:link:transfer-limit-exceeded"]
    assert still_usable(session)
    outcomes = Counter({ACCEPTED: 0, REJECTED: 0, RELEASED: 0})
    for item in (each for each in session.log if each.code == DISPOSITION):
        outcomes[outcome(item)] += told_of(item)
    while outcomes.total() < 200_000:
        item = session.expect(DISPOSITION)
        outcomes[outcome(item)] += told_of(item)
    # Each has one; most of them in ranges, or the answers to a flood would be more than the flood.
    assert outcomes == {ACCEPTED: 100, REJECTED: 10_000, RELEASED: 200_000 - 10_100}
    assert number_of(broker, "hundred", "peak_msgs") == 100
    assert number_of(broker, "hundred", "received") == 100


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "pre-settled"])
def test_a_transfer_without_credit(broker: RunningBroker, session: RawPeer, settled: bool) -> None:
    with Connection(broker.url) as filler:
        sender = filler.sender("hundred")
        for _ in range(100):
            sender.send(sections.text_body("full"), 20)
        sender.flush(20)
        session.attach_sender("hundred")
        session.send(transfer(0, settled=settled))
        assert detached(session) == "amqp:link:transfer-limit-exceeded"
        told = [rejection(item) for item in session.log if item.code == DISPOSITION]
        assert told == ([] if settled else ["amqp:link:transfer-limit-exceeded"])
        assert still_usable(session)
        assert number_of(broker, "hundred", "received") == 100


def test_pieces_without_credit_are_not_kept(broker: RunningBroker, session: RawPeer) -> None:
    """Memory is promised with credit, and a message begins with its first frame."""
    with Connection(broker.url) as filler:
        sender = filler.sender("hundred")
        for _ in range(100):
            sender.send(sections.text_body("full"), 20)
        sender.flush(20)
        session.attach_sender("hundred")
        session.send(transfer(0, BODY, more=True))
        assert detached(session) == "amqp:link:transfer-limit-exceeded"
        assert still_usable(session)


# --- sizes


def test_a_message_larger_than_max_message_size_in_pieces(broker: RunningBroker, session: RawPeer) -> None:
    assert session.attach_sender("orders").field(10) == MEGABYTE
    session.await_credit()
    for number in range(200):
        session.send(transfer(0, bytes(10_000), more=number < 199))
    session.send(transfer(1))
    assert detached(session) == "amqp:link:message-size-exceeded"
    session.send(transfer(2))
    # What is behind it on its link has an outcome too: some clients read a settlement without one as success.
    told = [session.expect(DISPOSITION) for _ in range(3)]
    assert {item.field(1) for item in told} == {0, 1, 2}
    assert {rejection(item) for item in told} == {"amqp:link:message-size-exceeded"}
    assert still_usable(session)
    assert number_of(broker, "orders", "received") == 0


def test_an_endless_delivery_takes_no_memory(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    before = memory_kb(broker)
    for _ in range(6000):
        session.send(transfer(0, bytes(10_000), more=True))
        if session.is_ended:
            break
    assert memory_kb(broker) - before < 20_000
    assert detached(session) == "amqp:link:message-size-exceeded"


def test_a_message_of_empty_pieces_forever(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    for sent in range(0, 10_000, 500):
        # Within the session's window: beyond it, that would be what ends the connection (§2.5.6).
        while sent + 501 > session.window_end:
            session.expect(FLOW)
        session.send(transfer(0, b"", more=True) * 500)
    session.send(transfer(0, BODY))
    await_number(broker, "orders", "depth_msgs", 1)


def test_an_aborted_delivery_leaves_nothing(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0, BODY[:4], more=True), transfer(0, b"", aborted=True), transfer(1, BODY))
    await_number(broker, "orders", "received", 1)
    assert number_of(broker, "orders", "depth_msgs") == 1


# --- attaching


@pytest.mark.parametrize(
    ("what", "target", "condition"),
    [
        ("a node nobody may create", Described(TARGET, ["closed"]), "amqp:not-found"),
        ("a name with a control character", Described(TARGET, ["a\nb"]), "amqp:invalid-field"),
        ("an endless name", Described(TARGET, ["a" * 5000]), "amqp:invalid-field"),
    ],
)
def test_targets_that_are_refused(session: RawPeer, what: str, target: Described, condition: str) -> None:
    attach = ("out", 0, SENDER, UByte(2), UByte(0), Described(SOURCE), target, None, None, 0)
    session.send(performative(ATTACH, *attach))
    assert session.expect(ATTACH).field(6) is None, what
    assert detached(session) == condition
    session.send(performative(DETACH, 0, True))
    assert still_usable(session)


@pytest.mark.parametrize(
    ("what", "source", "condition"),
    [
        ("no source, and nothing known by the link's name", None, "amqp:not-found"),
        ("a source without an address, which Proton takes for none", Described(SOURCE), "amqp:not-found"),
        ("a node nobody may create", Described(SOURCE, ["closed"]), "amqp:not-found"),
        ("a name with a control character", Described(SOURCE, ["a\x07b"]), "amqp:invalid-field"),
    ],
)
def test_sources_that_are_refused(
    session: RawPeer, what: str, source: Described | None, condition: str
) -> None:
    session.send(performative(ATTACH, "in", 1, True, UByte(2), UByte(0), source, Described(TARGET)))
    assert session.expect(ATTACH).field(5) is None, what
    assert detached(session) == condition
    assert still_usable(session)


def test_a_target_that_is_null_is_refused(session: RawPeer) -> None:
    """Only an empty target asks for the anonymous relay; a null one says there is none."""
    session.send(
        performative(ATTACH, "out", 0, SENDER, UByte(2), UByte(0), Described(SOURCE), None, None, None, 0)
    )
    session.expect(ATTACH)
    assert detached(session) == "amqp:invalid-field"
    assert still_usable(session)


# --- messages


@pytest.mark.parametrize(
    "malformed",
    [b"hello", b"", BODY[:-1], BODY + BODY, b"\x00\x53\x75\xb0\xff\xff\xff\xff"],
    ids=["text", "empty", "cut off", "two bodies", "huge size"],
)
def test_a_malformed_message_is_rejected(broker: RunningBroker, session: RawPeer, malformed: bytes) -> None:
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0, malformed))
    assert rejection(session.expect(DISPOSITION)) == "amqp:decode-error"
    session.send(transfer(1, BODY))
    await_number(broker, "orders", "depth_msgs", 1)


def test_a_malformed_pre_settled_message_ends_its_link(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders", mode=1)
    session.await_credit()
    session.send(transfer(0, b"hello", settled=True))
    assert detached(session) == "amqp:decode-error"
    assert still_usable(session)


def test_malformed_messages_use_credit_and_it_is_renewed(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("hundred")
    credit = session.await_credit()
    for number in range(3 * credit):
        session.send(transfer(number, b"hello"))
        assert rejection(session.expect(DISPOSITION)) == "amqp:decode-error"
    assert number_of(broker, "hundred", "depth_msgs") == 0
    session.send(transfer(3 * credit, BODY))
    await_number(broker, "hundred", "depth_msgs", 1)


def test_a_header_that_counts_to_the_end(broker: RunningBroker, session: RawPeer) -> None:
    """delivery-count is the sender's to fill: its largest value must not break the next delivery."""
    header = encode(Described(0x70, [None, None, None, None, 2**32 - 1]))
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0, header + BODY))
    await_number(broker, "orders", "depth_msgs", 1)
    for _ in range(2):
        with RawPeer(broker.port) as taker:
            taker.open().begin().attach_receiver("orders")
            taker.give_credit(1)
            assert taker.expect(TRANSFER)
    await_number(broker, "orders", "unsettled_msgs", 0)


def test_annotations_that_proton_cannot_decode(broker: RunningBroker, session: RawPeer) -> None:
    """A symbol that is not ASCII, and a consumer that modifies the message: one's fault, not the other's."""
    annotations = b"\x00\x53\x72\xc1\x06\x02\xa3\x02\xc3\xa4\x41"
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0, annotations + BODY))
    await_number(broker, "orders", "depth_msgs", 1)
    with RawPeer(broker.port) as taker:
        taker.open().begin().attach_receiver("orders")
        taker.give_credit(2)
        taker.expect(TRANSFER)
        added = b"\xc1\x05\x02\xa3\x01k\x41"
        modified = b"\x00\x53\x27\xc0" + bytes((len(added) + 3, 3)) + b"\x41\x42" + added
        fields = b"\x41\x43\x43\x41" + modified
        taker.send(frame(b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 5)) + fields))
        again = taker.expect(TRANSFER)
    assert BODY in again.payload
    assert b"\xa3\x01k\x41" in again.payload
    assert b"\xa3\x02\xc3\xa4\x41" in again.payload


def test_an_outcome_that_is_no_outcome(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0))
    await_number(broker, "orders", "depth_msgs", 1)
    session.attach_receiver("orders")
    session.give_credit(1)
    session.expect(TRANSFER)
    session.send(performative(DISPOSITION, True, 0, 0, True, Described(0x99)))
    session.send(performative(CLOSE))
    session.await_end()


# --- peers that vanish or stall


def test_a_peer_that_vanishes_mid_message(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    session.send(transfer(0, bytes(5000), more=True), transfer(0, bytes(5000), more=True)[:100])
    session.close()
    await_number(broker, "orders", "producers", 0)
    assert number_of(broker, "orders", "promised_msgs") == 0
    assert number_of(broker, "orders", "depth_msgs") == 0


def test_a_peer_that_shuts_its_side_down(broker: RunningBroker, session: RawPeer) -> None:
    session.attach_sender("orders")
    session.await_credit()
    session.socket.shutdown(socket.SHUT_WR)
    session.await_end()
    await_number(broker, "orders", "producers", 0)


def test_errors_followed_by_a_half_closed_socket_leave_nothing(broker: RunningBroker) -> None:
    for _ in range(20):
        with RawPeer(broker.port) as peer:
            peer.open().begin().send(frame(b"\xff\xff\xff\xff"))
            peer.socket.shutdown(socket.SHUT_WR)
            peer.await_end()
    await_no_half_closed(broker)


def test_a_peer_that_never_reads(broker: RunningBroker, session: RawPeer) -> None:
    """Its messages stop where its socket is full; the same queue's other consumer takes the rest."""
    body = sections.binary_body(bytes(8_000))
    with Connection(broker.url) as good:
        sender = good.sender("orders")
        session.attach_receiver("orders", mode=1)
        session.give_credit(1_000_000)
        before = memory_kb(broker)
        for _ in range(3000):
            sender.send(body, 20)
        sender.flush(20)
        assert number_of(broker, "orders", "depth_msgs") > 1000
        receiver = good.receiver("orders")
        left = number_of(broker, "orders", "depth_msgs")
        assert left == 0 or receiver.take(1, 20)
        await_number(broker, "orders", "depth_msgs", 0) if left == 0 else None
        got = 1
        while number_of(broker, "orders", "ready_msgs") or receiver.has_message():
            got += len(receiver.take(1000, 20))
        assert got > 1000
        assert memory_kb(broker) - before < 60_000


def test_a_silent_peer_is_cut_off(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  idle_timeout: 1s\n")
    with RawPeer(broker.port) as peer:
        peer.open()
        assert peer.log[-1].code == OPEN
        assert peer.expect(CLOSE, 10).condition == "amqp:resource-limit-exceeded"
        peer.await_end()


def test_a_peer_with_an_idle_timeout_is_kept_from_silence(peer: RawPeer) -> None:
    peer.open(idle_ms=200)
    heard = b""

    def listen() -> bool:
        nonlocal heard
        peer.socket.settimeout(10)
        heard += peer.socket.recv(4096)
        return len(heard) >= 3 * 8

    wait_until(listen, 10, "three empty frames")
    # However many of them one read brings.
    assert heard.replace(EMPTY, b"") == b""


# --- the broker's own beginning and end


def test_a_port_that_is_taken(broker: RunningBroker, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "broker.cli.main", "serve", "--data", str(tmp_path / "other")]
    listen = ["--listen", broker.url, "--http", "127.0.0.1:0"]
    done = subprocess.run([*command, *listen], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{broker.port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_end_is_announced(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawPeer(broker.port) as peer, RawPeer(broker.port) as unnamed, RawPeer(broker.port) as silent:
        peer.open(properties={Symbol("product"): "raw"}).begin()
        unnamed.open().begin()
        broker.signal(signal.SIGTERM)
        assert peer.expect(CLOSE).condition == "amqp:connection:forced"
        peer.send(performative(CLOSE))
        peer.await_end()
        assert silent.read_bytes(1) == b""
        # Proton for Python would not be aware of the end after a close.
        unnamed.await_end()
        assert all(frame.code != CLOSE for frame in unnamed.log)
    assert broker.stop() == 0
    assert "Traceback" not in broker.log
