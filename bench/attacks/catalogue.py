"""The attacks: each is a function that goes on until a time, and begins again when the broker hangs up.

They are written against what brokers were found to suffer from: work without limit for a small frame,
memory for promises, and connections that cost more to take than to make.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from bench.attacks.hose import LOOK_S, Hose
from broker.client.errors import ClientError
from broker.client.link import Connection
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
    MODIFIED,
    OPEN,
    RECEIVER,
    SASL_HEADER,
    SASL_INIT,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    UByte,
    frame,
    performative,
    transfer,
)

Attack = Callable[[int, float], None]
RECEIVED = 0x23
# What one write takes along, so that the attacker's own work is small.
TIMES = 200


def attach(
    name: str, handle: int, role: bool, address: str | None, source: Sequence[object] = (), channel: int = 0
) -> bytes:
    """An attach frame; ``source`` is what stands behind the address of a receiver's source."""
    modes = (UByte(2), UByte(0))
    if role is RECEIVER:
        termini = (Described(SOURCE, [address, *source]), Described(TARGET))
    else:
        termini = (Described(SOURCE), Described(TARGET, [address]))
    return performative(ATTACH, name, handle, role, *modes, *termini, None, None, 0, channel=channel)


def again(attack: Callable[[RawPeer, float], None]) -> Attack:
    """The attack on one connection after the other: whoever is cut off connects again."""
    return hoarding(lambda peer, _port, until_s: attack(peer, until_s))


def hoarding(attack: Callable[[RawPeer, int, float], None]) -> Attack:
    """The same of one that needs messages to be there, and says where."""

    def run(port: int, until_s: float) -> None:
        while time.monotonic() < until_s:
            with contextlib.suppress(AssertionError, OSError, ClientError), RawPeer(port) as peer:
                attack(peer, port, until_s)

    return run


def poured(blob: bytes, *before: bytes) -> Attack:
    """An open connection with a session; what goes before once, and then the blob for ever."""

    def attack(peer: RawPeer, until_s: float) -> None:
        peer.open().begin()
        peer.send(*before)
        Hose(peer).pour(blob, until_s)

    return again(attack)


def _unauthenticated(peer: RawPeer, until_s: float) -> None:
    peer.send(SASL_HEADER + performative(OPEN, "me") + performative(BEGIN, None, 0, 10, 10))
    peer.await_end(5)


def _refused(peer: RawPeer, until_s: float) -> None:
    peer.send(SASL_HEADER + performative(SASL_INIT, Symbol("GUESS"), b"x", kind=1))
    peer.await_end(5)


def _slow(port: int, until_s: float) -> None:
    """Hundreds of connections that never get anywhere, a byte each now and then."""
    peers = [RawPeer(port) for _ in range(300)]
    try:
        at = 0
        while time.monotonic() < until_s:
            for peer in peers:
                peer.send(SASL_HEADER[at % 8 : at % 8 + 1] if at < 8 else b"\x00")
            at += 1
            time.sleep(0.1)
    finally:
        for peer in peers:
            peer.close()


def _churn(peer: RawPeer, until_s: float) -> None:
    peer.open()
    peer.send(performative(CLOSE))


def _knocks(port: int, until_s: float) -> None:
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 5).close()


def _many_links(peer: RawPeer, until_s: float) -> None:
    """As many links as there may be, and gone without a word."""
    peer.open()
    for channel in range(8):
        peer.send(performative(BEGIN, None, 0, 100, 100, 100_000, channel=channel))
        peer.send(
            b"".join(attach(f"{channel}.{n}", n, SENDER, "flooded", channel=channel) for n in range(256))
        )
    Hose(peer).pour(frame(b""), min(until_s, time.monotonic() + 1))


def _stolen(peer: RawPeer, until_s: float) -> None:
    peer.open().begin()
    blob = b"".join(attach("the same", n, SENDER, "flooded") for n in range(1, 100))
    undone = b"".join(performative(DETACH, n, True) for n in range(1, 100))
    Hose(peer).pour(blob + undone, until_s)


def _hoard(peer: RawPeer, port: int, links: int) -> None:
    """Take 500 messages on each of so many links, and settle none."""
    with Connection(f"amqp://127.0.0.1:{port}") as connection:
        for n in range(links):
            sender = connection.sender(f"hoard.{n}", presettled=True)
            for _ in range(500):
                sender.send(BODY, 5)
    peer.open().begin(window=1 << 30)
    for n in range(links):
        peer.attach_receiver(f"hoard.{n}", f"in {n}", n)
    for n in range(links):
        peer.send(performative(FLOW, 0, 1 << 30, 0, 1 << 30, n, 0, 500))
    while sum(found.code == TRANSFER for found in peer.log) < 500 * links:
        for _ in range(500):
            peer.expect(TRANSFER, 2)


def _received_again(peer: RawPeer, port: int, until_s: float) -> None:
    """Thousands of unsettled deliveries, spoken of all at once, again and again, and never settled."""
    _hoard(peer, port, 20)
    said = performative(DISPOSITION, True, 0, 2**31 - 1, False, Described(RECEIVED, [0, 0]))
    Hose(peer).pour(said * 10, until_s)


def _settled_at_once(peer: RawPeer, port: int, until_s: float) -> None:
    _hoard(peer, port, 20)
    peer.send(performative(DISPOSITION, True, 0, 2**31 - 1, True, Described(ACCEPTED)))


def _released_again(peer: RawPeer, port: int, until_s: float) -> None:
    """Every message is given back, and comes again."""
    _hoard(peer, port, 4)
    credit = b"".join(performative(FLOW, 0, 1 << 30, 0, 1 << 30, n, 0, 1 << 30) for n in range(4))
    peer.send(credit)
    said = performative(DISPOSITION, True, 0, 2**31 - 1, True, Described(MODIFIED, [False]))
    Hose(peer).pour(said, until_s)


def _unread(peer: RawPeer, port: int, until_s: float) -> None:
    """Asks for ever so much, and reads none of it."""
    _hoard(peer, port, 4)
    echo = performative(FLOW, 0, 1 << 30, 0, 1 << 30, 1, 0, 1 << 30, None, False, True)
    Hose(peer).pour(echo * TIMES, until_s, read=False)


def _requests(peer: RawPeer, until_s: float) -> None:
    """Requests to the management node, as fast as its credit allows: everything there is, sorted."""
    peer.open().begin()
    peer.attach_receiver("$management", "answers", 1)
    peer.give_credit(1000)
    peer.attach_sender("$management", "requests", 0)
    peer.await_credit(0)
    asked = _request("QUERY", "org.sluice.queue")
    number = 0
    while time.monotonic() < until_s:
        while peer.may_send(0) <= number:
            peer.expect(FLOW, 2)
        peer.send(transfer(number, asked, settled=True))
        number += 1
        if number % 100 == 0:
            peer.send(performative(FLOW, 0, 1 << 30, number, 1 << 30, 1, number, 1000))


def _request(operation: str, kind: str) -> bytes:
    from proton import Message

    message = Message(
        properties={"operation": operation, "entityType": kind, "type": "org.amqp.management"},
        reply_to="nowhere",
        body={"attributeNames": []},
    )
    return bytes(message.encode())


def _selectors(peer: RawPeer, until_s: float) -> None:
    """The longest selector there may be, compiled again and again."""
    peer.open().begin()
    text = " OR ".join(f"p{n} = {n}" for n in range(500))[:8000].rpartition(" OR ")[0]
    said = bytearray()
    for n in range(20):
        said += _filtered(f"s{n}", n + 1, text) + performative(DETACH, n + 1, True)
    Hose(peer).pour(bytes(said), until_s)


def _filtered(name: str, handle: int, text: str) -> bytes:
    from tests.wire.frames import encode

    key = encode(Symbol("selector"))
    symbol = encode(Symbol("apache.org:selector-filter:string"))
    value = b"\x00" + symbol + encode(text)
    filters = b"\xd1" + (len(key + value) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + key + value
    return _raw_attach(name, handle, filters)


def _raw_attach(name: str, handle: int, filters: bytes) -> bytes:
    """A receiver's attach whose filter is any bytes."""
    from tests.wire.frames import encode

    source = encode("flooded") + b"\x40" * 6 + filters
    listed = b"\x00\x53\x28\xd0" + (len(source) + 4).to_bytes(4, "big") + (8).to_bytes(4, "big") + source
    fields = encode(name) + encode(handle) + b"\x41\x50\x02\x50\x00" + listed + encode(Described(TARGET))
    body = b"\x00\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big") + (7).to_bytes(4, "big") + fields
    return frame(body)


def _huge_counts(peer: RawPeer, until_s: float) -> None:
    """Filters that are arrays of 4,000 million nulls."""
    peer.open().begin()
    array = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"
    pair = b"\xa3\x01x" + array
    filters = b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + pair
    blob = b"".join(_raw_attach(f"h{n}", n, filters) + performative(DETACH, n, True) for n in range(50))
    Hose(peer).pour(blob, until_s)


def _nodes(peer: RawPeer, until_s: float) -> None:
    """A new node with every link."""
    peer.open(container=f"nodes{time.monotonic_ns()}").begin()
    number = 0
    while time.monotonic() < until_s:
        first = time.monotonic_ns()
        blob = b"".join(
            attach(f"n{n}", n, SENDER, f"node.{first}.{n}") + performative(DETACH, n, True)
            for n in range(100)
        )
        if not Hose(peer).pour(blob, time.monotonic() + LOOK_S):
            return
        number += 1


LINK_OUT = attach("out", 0, SENDER, "flooded")
LINK_IN = attach("in", 1, RECEIVER, "flooded")
FLOW_IN = (0, 10_000, 0, 10_000, 1, 0, 10)

ATTACKS: dict[str, Attack] = {
    "AMQP before SASL is done": again(_unauthenticated),
    "mechanisms that aren't offered": again(_refused),
    "slow SASL": _slow,
    "connections opened and closed": again(_churn),
    "sockets opened and closed": _knocks,
    "begin and end": poured(
        (performative(BEGIN, None, 0, 10, 10, channel=1) + performative(END, channel=1)) * TIMES
    ),
    "attach and detach": poured((attach("x", 1, SENDER, "flooded") + performative(DETACH, 1, True)) * TIMES),
    "attaches that are refused": poured(
        (attach("x", 1, RECEIVER, "$no such node") + performative(DETACH, 1, True)) * TIMES
    ),
    "a link's name stolen": again(_stolen),
    "thousands of links, gone at once": again(_many_links),
    "a new node with every link": again(_nodes),
    "selectors": again(_selectors),
    "counts of thousands of millions": again(_huge_counts),
    "flows of a link": poured(performative(FLOW, *FLOW_IN) * TIMES, LINK_IN),
    "flows that ask for an echo": poured(performative(FLOW, *FLOW_IN, None, False, True) * TIMES, LINK_IN),
    "flows that ask for a session's echo": poured(
        performative(FLOW, 0, 10_000, 0, 10_000, None, None, None, None, False, True) * TIMES
    ),
    "drains": poured(performative(FLOW, *FLOW_IN, None, True) * TIMES, LINK_IN),
    "heartbeats": poured(frame(b"") * TIMES),
    "dispositions of nothing": poured(
        performative(DISPOSITION, True, 0, 2**31 - 1, True, Described(ACCEPTED)) * TIMES
    ),
    "dispositions of all, and never settled": hoarding(_received_again),
    "thousands settled at once": hoarding(_settled_at_once),
    "messages given back for ever": hoarding(_released_again),
    "a message of empty pieces": poured(transfer(0, b"", more=True) * TIMES, LINK_OUT),
    "a message of single bytes": poured(transfer(0, b"\x00", more=True) * TIMES, LINK_OUT),
    "a reader that reads nothing": hoarding(_unread),
    "requests to $management": again(_requests),
}
