"""Clients that say anything: sequences of frames by chance, legal ones and others, over real sockets.

Afterwards the broker is up, a well-behaved client works, and nothing of theirs is left: no connection, no
link, no descriptor, no message that nobody holds. The seed is fixed; what was said is told when a test fails.
"""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.request import Management
from tests.fuzz import corpus
from tests.fuzz.mutate import mutate_frames, split_frames
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
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
    REJECTED,
    RELEASED,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    UByte,
    performative,
)
from tests.wire.seeing import await_no_half_closed, good_neighbours

pytestmark = pytest.mark.wire

SEED = 6417
PEERS = 40
FRAMES = 60
CONFIG = """
limits: {max_message_size: 256 KB, max_links: 64, max_sessions: 8, handshake_timeout: 5s}
"""
POLICIES = """
policies:
  - {match: topic, kind: topic}
  - {match: few, max_count: 5, flow_stop_count: 4, flow_resume_count: 2}
  - {match: ring, max_count: 3, overflow: ring}
  - {match: kept, durable: true}
  - {match: letters, max_delivery_count: 2, dead_letter_address: dead}
"""
NODES = ("queue", "topic", "few", "ring", "kept", "letters", "$management", None, "topic.*", "")
NUMBERS = (0, 1, 2, 3, 7, 255, 256, 2**31 - 1, 2**31, 2**32 - 1)
OUTCOMES = (
    *(Described(each) for each in (ACCEPTED, REJECTED, RELEASED, MODIFIED)),
    None,
    Described(0x23, [0, 0]),
)


class Walk:
    """One peer's frames: mostly what a client would say next, now and then what none would."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.sent = 0
        self.channels = [0]

    def frames(self) -> list[bytes]:
        said = [
            performative(OPEN, f"walk-{self.number(9)}", None, self.dice.choice((512, 65536)), 100, 30_000)
        ]
        said.append(performative(BEGIN, None, 0, 2048, 2048, 1000))
        said += [self.attach() for _ in range(3)]
        said += [self.one() for _ in range(FRAMES)]
        if self.dice.randrange(2):
            said.append(performative(CLOSE))
        return said

    def one(self) -> bytes:
        kinds: tuple[Callable[[], bytes], ...]
        kinds = (self.transfer,) * 6 + (self.disposition, self.flow) * 3 + (self.attach, self.detach) * 2
        kinds += (self.begin, self.end, self.empty)
        return self.dice.choice(kinds)()

    def number(self, most: int) -> int:
        return self.dice.choice(NUMBERS) if self.dice.randrange(12) == 0 else self.dice.randrange(most)

    def channel(self) -> int:
        return (
            self.dice.choice((*self.channels, self.dice.randrange(10))) if self.dice.randrange(6) == 0 else 0
        )

    def attach(self) -> bytes:
        role = self.dice.choice((SENDER, RECEIVER))
        node = self.dice.choice(NODES)
        dynamic = node is None and self.dice.randrange(2) == 0
        fields: list[object] = [node, self.number(3), self.dice.choice((None, "x")), 0, dynamic or None]
        ends = (
            Described(SOURCE, fields if role == RECEIVER else []),
            Described(TARGET, fields if role == SENDER else []),
        )
        modes = UByte(self.dice.randrange(3)), UByte(self.dice.randrange(2))
        name, handle = f"link{self.number(6)}", self.number(6)
        return performative(ATTACH, name, handle, role, *modes, *ends, None, None, 0, channel=self.channel())

    def detach(self) -> bytes:
        return performative(
            DETACH, self.number(6), self.dice.choice((True, False, None)), channel=self.channel()
        )

    def begin(self) -> bytes:
        channel = self.dice.randrange(1, 9)
        self.channels.append(channel)
        return performative(BEGIN, None, self.number(5), 2048, 2048, channel=channel)

    def end(self) -> bytes:
        return performative(END, channel=self.dice.randrange(9) or 300)

    def empty(self) -> bytes:
        return b"\0\0\0\x08\2\0\0\0"

    def transfer(self) -> bytes:
        number = self.sent if self.dice.randrange(8) else self.number(20)
        more = self.dice.randrange(6) == 0
        self.sent += not more and number == self.sent
        tag = self.dice.randbytes(self.dice.choice((0, 1, 4, 32, 33)))
        payload = self.dice.choice((BODY, BODY * 50, b"", b"\xff", b"\x00\x53\x70\x45" + BODY))
        settled, aborted = self.dice.choice((True, False, None)), self.dice.randrange(20) == 0
        fields = (self.number(6), number, tag, 0, settled, more, None, None, None, aborted)
        return performative(TRANSFER, *fields, payload=payload, channel=self.channel())

    def disposition(self) -> bytes:
        first = self.number(20)
        last = self.dice.choice((None, first, first + self.number(20)))
        role = self.dice.choice((RECEIVER, RECEIVER, SENDER))
        fields = (
            role,
            first,
            last and min(last, 2**32 - 1),
            self.dice.choice((True, False)),
            self.dice.choice(OUTCOMES),
        )
        return performative(DISPOSITION, *fields, channel=self.channel())

    def flow(self) -> bytes:
        link = (self.number(6), self.number(20), self.number(30), self.number(9))
        fields = link if self.dice.randrange(5) else (None, None, None, None)
        drain, echo = self.dice.randrange(4) == 0, self.dice.randrange(4) == 0
        return performative(
            FLOW, 0, self.number(2048), 0, self.number(2048), *fields, drain, echo, channel=self.channel()
        )


def counters(broker: RunningBroker) -> dict[str, int]:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{broker.http_port}/api/v1/broker", timeout=START_SECONDS
    ) as answer:
        found = json.loads(answer.read())
    return {name: value for name, value in found.items() if isinstance(value, int)}


def descriptors(broker: RunningBroker) -> int:
    return sum(1 for _ in Path(f"/proc/{broker.pid}/fd").iterdir())


def talk(broker: RunningBroker, frames: list[bytes], dice: random.Random) -> None:
    """Say it, in pieces of any size, and go: with a word, without one, or while there is something to
    read."""
    with RawPeer(broker.port) as peer:
        peer.authenticate()
        data = b"".join(frames)
        at = 0
        while at < len(data) and not peer.is_ended:
            size = dice.choice((1, 7, 100, 1000, 10_000))
            peer.send(data[at : at + size])
            at += size
        if dice.randrange(3):
            peer.read_bytes(dice.choice((8, 100, 5000)), 0.02)


def everything_is_as_before(broker: RunningBroker, before: int) -> None:
    await_no_half_closed(broker)
    wait_until(lambda: counters(broker)["connections"] == 0, 15, "every connection to be gone")
    wait_until(
        lambda: descriptors(broker) <= before, 15, f"{descriptors(broker)} descriptors to be {before} again"
    )
    with Management(broker.url) as management:
        audit = management.call("audit", None, None).body
        assert isinstance(audit, dict)
        assert audit["breaches"] == []
    assert broker.process.poll() is None
    assert "internal error" not in broker.log
    assert "Traceback" not in broker.log


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    found = start_broker(CONFIG, POLICIES)
    found.settle()
    counters(found)
    return found


def test_what_a_client_might_say(broker: RunningBroker) -> None:
    before = descriptors(broker)
    with good_neighbours(broker):
        for number in range(PEERS):
            dice = random.Random(SEED + number)
            talk(broker, Walk(dice).frames(), dice)
    everything_is_as_before(broker, before)


def test_what_none_would(broker: RunningBroker) -> None:
    """The fuzzer's inputs and changes of them; here with SASL, sockets and whoever else is connected."""
    before = descriptors(broker)
    inputs = list(corpus.read("connection").values())
    with good_neighbours(broker):
        for number in range(PEERS):
            dice = random.Random(SEED - number)
            talk(broker, split_frames(mutate_frames(dice.choice(inputs), dice)), dice)
    everything_is_as_before(broker, before)


def test_many_at_a_time(broker: RunningBroker) -> None:
    before = descriptors(broker)
    dice = random.Random(SEED)
    with good_neighbours(broker):
        peers = [RawPeer(broker.port).authenticate() for _ in range(PEERS)]
        said = [Walk(random.Random(SEED * number)).frames() for number in range(PEERS)]
        while any(said):
            at = dice.randrange(PEERS)
            if said[at]:
                peers[at].send(said[at].pop(0))
        for peer in peers:
            peer.close()
    everything_is_as_before(broker, before)
