"""What a peer is answered that asks for more than it may: which scope ends, with which condition."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from bench.attacks.catalogue import _raw_attach as filtered
from bench.attacks.catalogue import attach
from broker.client.link import Connection
from broker.codec import sections
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    MODIFIED,
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
    frame,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, memory_kb, number_of

pytestmark = pytest.mark.wire

RECEIVED = 0x23
LIMITS = """
limits:
  max_connection_links: 20
  max_connections_per_address: 30
  max_connections_per_user: 20
  max_handshakes: 5
  max_nodes_per_user: 10
  max_sessions: 8
  max_unsettled: 50
  max_selector_length: 100
  max_selector_depth: 5
  max_depth: 8
  max_elements: 500
"""


@pytest.fixture
def limited(start_broker: StartBroker) -> RunningBroker:
    """A broker whose limits are soon reached."""
    return start_broker(LIMITS)


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    """An open connection with a session on a broker with the defaults."""
    with RawPeer(broker.port) as made:
        yield made.open().begin()


def refusals(broker: RunningBroker, limit: str) -> int:
    """How often a limit was reached, as Prometheus is told."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf'^sluice_limit_refusals_total{{limit="{limit}"}} (\d+)', text, re.MULTILINE)
    assert found is not None, text[:2000]
    return int(found[1])


def fill(broker: RunningBroker, address: str, count: int) -> None:
    """Put so many messages into a queue."""
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for number in range(count):
            sender.send(sections.text_body(str(number)), 20)
        sender.flush(20)


# --- frames


def test_an_open_that_is_larger_than_the_least_frame_closes_the_connection(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        peer.authenticate().send(performative(OPEN, "x" * 600))
        peer.read_bytes(8)
        assert peer.expect(CLOSE).condition == "amqp:connection:framing-error"
        peer.await_end()
    assert refusals(broker, "max_first_frame_size") == 1


def nested(levels: int) -> bytes:
    """Lists within lists."""
    value = b"\x45"
    for _ in range(levels):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + value
    return value


ARRAY_OF_NULLS = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"
MAP_OF_NOTHING = b"\xd1\x00\x00\x00\x04\xff\xff\xff\xff"
BEYOND = b"\xb0\xff\xff\xff\xff"


@pytest.mark.parametrize(
    "value",
    [nested(40), b"\x00\x40" * 40 + b"\x40", ARRAY_OF_NULLS, MAP_OF_NOTHING, BEYOND, b"\xc0\x7f\x7f\x40"],
    ids=[
        "lists in lists",
        "described in described",
        "4,000 million elements of no size",
        "4,000 million pairs",
        "a size without bytes",
        "a count without elements",
    ],
)
def test_values_no_decoder_should_see_close_the_connection(
    broker: RunningBroker, peer: RawPeer, value: bytes
) -> None:
    pair = b"\xa3\x01x" + value
    peer.send(filtered("x", 0, b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + pair))
    assert peer.expect(CLOSE).condition == "amqp:decode-error"
    peer.await_end()
    assert refusals(broker, "max_depth") == 1


@pytest.mark.parametrize(
    "value", [nested(60_000), b"\x00\x40" * 30_000 + b"\x40", ARRAY_OF_NULLS, MAP_OF_NOTHING]
)
def test_a_request_no_decoder_should_see_is_ignored(
    broker: RunningBroker, peer: RawPeer, value: bytes
) -> None:
    peer.attach_sender("$management")
    peer.await_credit()
    request = b"\x00\x53\x77" + value
    pieces = [request[at : at + 60_000] for at in range(0, len(request), 60_000)]
    for number, piece in enumerate(pieces, 1):
        peer.send(transfer(0, piece, more=number < len(pieces)))
    assert peer.expect(DISPOSITION).field(4) is not None
    peer.attach_sender("afterwards", "next", handle=3)


def test_an_attach_larger_than_one_read_arrives_whole(peer: RawPeer) -> None:
    capabilities = [Symbol(f"capability-{n}") for n in range(1000)]
    source = Described(SOURCE, ["orders", None, None, None, None, None, None, None, None, None, capabilities])
    said = performative(ATTACH, "big", 5, RECEIVER, UByte(2), UByte(0), source, Described(TARGET))
    assert len(said) > 16_384
    for at in range(0, len(said), 5000):
        peer.send(said[at : at + 5000])
    assert peer.expect(ATTACH).field(0) == "big"


def test_a_peers_symbols_are_forgotten(broker: RunningBroker, peer: RawPeer) -> None:
    def attaches(first: int) -> None:
        for number in range(first, first + 150):
            symbols = [Symbol(f"{number}-{n}-" + "x" * 100) for n in range(300)]
            source = Described(SOURCE, ["orders", *[None] * 9, symbols])
            peer.send(performative(ATTACH, "s", 5, RECEIVER, UByte(2), UByte(0), source, Described(TARGET)))
            peer.expect(ATTACH)
            peer.send(performative(DETACH, 5, True))
            peer.expect(DETACH)

    attaches(0)
    before_kb = memory_kb(broker)
    attaches(1000)
    # 150 * 300 symbols of 110 bytes and more are 5 MB, and as objects twice that.
    assert memory_kb(broker) - before_kb < 3000


# --- deliveries


def take(peer: RawPeer, address: str, count: int, first_handle: int) -> None:
    """Receive so many messages, a thousand a link, and settle none."""
    handles = range(first_handle, first_handle - (-count // 1000))
    for handle in handles:
        peer.attach_receiver(address, f"in {handle}", handle)
    for handle in handles:
        peer.send(performative(FLOW, 0, 1 << 30, 0, 1 << 30, handle, 0, 1000))
    for _ in range(count):
        peer.expect(TRANSFER, 30)


def test_a_disposition_of_thousands_settles_each_of_them(broker: RunningBroker) -> None:
    fill(broker, "orders", 3000)
    with RawPeer(broker.port) as peer:
        peer.open().begin(window=1 << 30)
        take(peer, "orders", 3000, 1)
        assert number_of(broker, "orders", "unsettled_msgs") == 3000
        said = performative(DISPOSITION, True, 0, 2**31 - 1, False, Described(RECEIVED, [0, 0]))
        peer.send(said * 50)
        peer.send(performative(DISPOSITION, True, 0, 2**31 - 1, True, Described(ACCEPTED)))
        await_number(broker, "orders", "depth_msgs", 0)
        peer.attach_sender("afterwards", "next", handle=30)


def test_what_is_said_of_a_part_leaves_the_others_alone(broker: RunningBroker) -> None:
    fill(broker, "orders", 3000)
    with RawPeer(broker.port) as peer:
        peer.open().begin(window=1 << 30)
        take(peer, "orders", 3000, 1)
        peer.send(performative(DISPOSITION, True, 100, 2599, True, Described(ACCEPTED)))
        await_number(broker, "orders", "depth_msgs", 500)


def test_deliveries_a_peer_never_settles_end_their_link(limited: RunningBroker) -> None:
    with RawPeer(limited.port) as peer:
        peer.open().begin()
        peer.attach_sender("orders", second=True)
        peer.await_credit()
        peer.send(*(transfer(number) for number in range(60)))
        assert peer.expect(DETACH).condition == "amqp:resource-limit-exceeded"
        await_number(limited, "orders", "received", 51)
    assert refusals(limited, "max_unsettled") == 1


def test_who_settles_second_in_time_goes_on(limited: RunningBroker) -> None:
    with RawPeer(limited.port) as peer:
        peer.open().begin()
        peer.attach_sender("orders", second=True)
        peer.await_credit()
        for number in range(90):
            peer.send(transfer(number))
            peer.expect(DISPOSITION)
            peer.send(performative(DISPOSITION, False, number, None, True))
        await_number(limited, "orders", "received", 90)


def test_a_message_of_single_bytes_takes_no_more_than_its_bytes(broker: RunningBroker, peer: RawPeer) -> None:
    peer.attach_sender("orders")
    peer.await_credit()
    before_kb = memory_kb(broker)
    sent = 0
    while sent < 60_000:
        upto = min(peer.window_end, sent + 2000)
        if upto == sent:
            peer.expect(FLOW)
            continue
        peer.send(b"".join(transfer(0, b"\x00", more=True) for _ in range(sent, upto)))
        sent = upto
    peer.attach_sender("others", "next", handle=3)
    # An object for each byte would take 60,000 times 60.
    assert memory_kb(broker) - before_kb < 2000


def test_annotations_that_consumers_add_for_ever_are_bounded(broker: RunningBroker) -> None:
    fill(broker, "orders", 1)
    with RawPeer(broker.port) as peer:
        peer.open().begin(window=1 << 30)
        peer.attach_receiver("orders")
        peer.give_credit(100)
        sizes = []
        for number in range(40):
            found = peer.expect(TRANSFER)
            sizes.append(found.size)
            key = f"x-{number}-".ljust(200, "k")
            pair = encode(Symbol(key)) + encode("v" * 3000)
            notes = b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + pair
            state = (
                b"\x00\x53\x27\xd0"
                + (len(notes) + 6).to_bytes(4, "big")
                + b"\x00\x00\x00\x03\x40\x40"
                + notes
            )
            listed = b"\x41" + encode(number) + encode(number) + b"\x41" + state
            body = b"\x00\x53\x15\xd0" + (len(listed) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x05" + listed
            peer.send(frame(body))
    assert MODIFIED == 0x27
    assert sizes[10] > sizes[1] + 3000
    assert max(sizes) <= 65_536 + 2000


# --- links, sessions, nodes


def test_a_burst_of_attaches_is_answered_in_its_order(peer: RawPeer) -> None:
    names = [f"link {number}" for number in range(300)]
    peer.send(b"".join(attach(name, number, SENDER, "orders") for number, name in enumerate(names)))
    assert [peer.expect(ATTACH).field(0) for _ in names] == names
    peer.attach_sender("orders", "one more", handle=999)
    peer.await_credit(999)


def test_links_of_all_sessions_together_are_bounded(limited: RunningBroker) -> None:
    with RawPeer(limited.port) as peer:
        peer.open()
        for channel in range(4):
            peer.begin(channel=channel)
            for handle in range(5):
                peer.attach_sender("orders", f"{channel}.{handle}", handle, channel=channel)
        assert peer.attach_sender("orders", "one more", 9, channel=0).field(6) is None
        assert peer.expect(DETACH).condition == "amqp:resource-limit-exceeded"
        peer.send(performative(DETACH, 9, True), performative(DETACH, 0, True))
        peer.expect(DETACH)
        peer.attach_sender("orders", "now", 9)
        peer.await_credit(9)
    assert refusals(limited, "max_connection_links") == 1


def test_one_session_too_many_closes_the_connection(limited: RunningBroker) -> None:
    with RawPeer(limited.port) as peer:
        peer.open().send(performative(BEGIN, None, 0, 10, 10, channel=8))
        assert peer.expect(CLOSE).condition == "amqp:connection:framing-error"
    assert refusals(limited, "max_sessions") == 1


def test_nodes_that_a_user_makes_are_bounded(limited: RunningBroker) -> None:
    with RawPeer(limited.port) as peer:
        peer.open().begin()
        for number in range(10):
            peer.attach_sender(f"node {number}", f"n{number}", number)
        assert peer.attach_sender("one more", "more", 11).field(6) is None
        assert peer.expect(DETACH).condition == "amqp:resource-limit-exceeded"
        peer.attach_sender("node 3", "again", 12)
        peer.await_credit(12)
    assert refusals(limited, "max_nodes_per_user") == 1


@pytest.mark.parametrize("text", ["a = " + "1" * 200, "((((((a = 1))))))"], ids=["long", "deep"])
def test_a_selector_beyond_its_bounds_is_refused(limited: RunningBroker, text: str) -> None:
    key = encode(Symbol("selector"))
    value = b"\x00" + encode(Symbol("apache.org:selector-filter:string")) + encode(text)
    pair = key + value
    with RawPeer(limited.port) as peer:
        peer.open().begin()
        peer.send(filtered("s", 0, b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + pair))
        assert peer.expect(DETACH).condition == "amqp:invalid-field"
    assert refusals(limited, "max_selector_length") == 1


# --- connections


def test_connections_of_one_user_are_bounded(limited: RunningBroker) -> None:
    peers = [RawPeer(limited.port).open() for _ in range(20)]
    with RawPeer(limited.port) as more:
        more.authenticate().send(performative(OPEN, "more"))
        more.read_bytes(8)
        assert more.expect(CLOSE).condition == "amqp:resource-limit-exceeded"
    peers.pop().close()
    for peer in peers[:2]:
        peer.send(performative(CLOSE))
        peer.await_end()

    def opens() -> bool:
        with RawPeer(limited.port) as again:
            again.authenticate().send(performative(OPEN, "again"), performative(CLOSE))
            again.read_bytes(8)
            # An open comes first either way; who isn't let in is closed with the reason for it.
            return again.expect(CLOSE).condition is None

    wait_until(opens, 30, "one that closed to make room")
    assert refusals(limited, "max_connections_per_user") >= 1
    for peer in peers:
        peer.close()


def test_for_one_more_that_knocks_the_oldest_that_has_not_opened_goes(limited: RunningBroker) -> None:
    with RawPeer(limited.port) as opened:
        opened.open()
        silent = [RawPeer(limited.port) for _ in range(8)]
        for peer in silent[:3]:
            peer.await_end()
        with RawPeer(limited.port) as latest:
            latest.open().begin()
        opened.begin()
        for peer in silent:
            peer.close()
    assert refusals(limited, "max_handshakes") >= 3


def test_connections_from_one_address_are_bounded(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  max_connections_per_address: 3\n")
    peers = [RawPeer(broker.port).open() for _ in range(3)]
    with RawPeer(broker.port) as more:
        more.await_end()
    peers[0].close()

    def opens() -> bool:
        with RawPeer(broker.port) as again:
            again.send(b"AMQP\x03\x01\x00\x00")
            return len(again.read_bytes(8)) == 8

    wait_until(opens, 30, "room for another")
    assert refusals(broker, "max_connections_per_address") >= 1
    for peer in peers:
        peer.close()


def test_a_reader_that_takes_nothing_is_cut_off(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  send_timeout: 500ms\n")
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        for _ in range(400):
            sender.send(sections.binary_body(bytes(50_000)), 20)
        with RawPeer(broker.port) as peer:
            peer.open().begin(window=1 << 30)
            peer.attach_receiver("orders")
            peer.give_credit(1000)
            broker.wait_for_log("it takes nothing of what is written to it")
        await_number(broker, "orders", "unsettled_msgs", 0)
    assert refusals(broker, "send_timeout") == 1


def test_answers_nobody_reads_do_not_pile_up(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        attached = attach("x", 1, SENDER, "orders") + performative(DETACH, 1, True)
        before_kb = memory_kb(broker)
        peer.socket.settimeout(0.5)
        try:
            for _ in range(200):
                peer.socket.sendall(attached * 500)
        except TimeoutError:
            pass
        else:
            pytest.fail("the broker went on reading a peer that reads nothing")
        assert memory_kb(broker) - before_kb < 40_000
    with RawPeer(broker.port) as other:
        other.open().begin()
