"""Large messages on a disk that is full: the link is told, nothing else suffers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from proton import Disposition, Link

from broker.codec import sections
from tests.crash.conftest import Broker
from tests.crash.shim import Shim
from tests.crash.watching import ready, stat
from tests.wire.conftest import wait_until
from tests.wire.streamer import AHEAD, Streamer

MB = 1 << 20
CONFIG = "limits: {max_message_size: 1 GB}\nflow: {max_size: 2 GB}\n"
POLICIES = "policies:\n  - {match: kept, durable: true}\n"


def feed(client: Streamer, link: Link, tag: str, durable: bool) -> None:
    """All of a large message, without waiting for anything."""
    client.begin(link, tag)
    link.stream(sections.header(durable=durable) + b"\x00\x53\x75\xb0" + (8 * MB).to_bytes(4, "big"))
    link.stream(bytes(8 * MB))
    link.advance()


def accepted(client: Streamer, tag: str) -> bool:
    """Whether the broker has taken responsibility for a message."""
    return tag in client.outcomes and client.outcomes[tag].remote_state == Disposition.ACCEPTED


def test_a_disk_that_is_full_under_a_large_message(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", POLICIES, CONFIG)
    shim = Shim(tmp_path, broker.data)
    broker.start(env=shim.env)
    try:
        with Streamer(broker.port) as client:
            link = client.sender("plain")
            feed(client, link, "before", False)
            client.until(lambda: "before" in client.outcomes, "the outcome")
            shim.on("full")
            feed(client, link, "refused", False)
            client.until(lambda: link.name in client.errors, "the link to be detached")
            shim.off("full")
            condition, text = client.errors[link.name]
            assert condition == "amqp:resource-limit-exceeded"
            assert "no room on disk" in text
            wait_until(lambda: len(list((broker.data / "large").iterdir())) == 1, 10, "one file to be left")
            feed(client, client.sender("plain"), "taken", False)
            client.until(lambda: "taken" in client.outcomes, "the outcome")
            assert stat(broker)["depth_msgs"] == 2
    finally:
        broker.kill()


def test_a_durable_one_waits_for_room_or_is_refused(tmp_path: Path) -> None:
    """The store itself may notice first, and then grants no credit until there is room."""
    broker = Broker(tmp_path / "broker", POLICIES, CONFIG)
    shim = Shim(tmp_path, broker.data)
    broker.start(env=shim.env)
    try:
        with Streamer(broker.port) as client:
            link = client.sender("kept")
            shim.on("full")
            feed(client, link, "big", True)
            client.until(lambda: link.name in client.errors or link.credit <= 0, "an answer")
            assert not accepted(client, "big")
            shim.off("full")
            client.until(lambda: link.name in client.errors or "big" in client.outcomes, "an answer")
            taken = accepted(client, "big")
            assert stat(broker)["depth_msgs"] == taken
            wait_until(lambda: len(list((broker.data / "large").iterdir())) == taken, 10, "its file")
    finally:
        broker.kill()


@pytest.mark.timeout(300)
def test_a_slow_disk_bounds_what_memory_holds(tmp_path: Path) -> None:
    """Its connection is left unread; others go on, and so does it."""
    broker = Broker(tmp_path / "broker", POLICIES, CONFIG)
    shim = Shim(tmp_path, broker.data)
    shim.on("slow", "400000")
    broker.start(env=shim.env)
    try:
        with Streamer(broker.port) as client, Streamer(broker.port) as other:
            link, small = client.sender("kept"), other.sender("plain")
            assert broker.process is not None
            # A broker that has just begun is loading what its HTTP port serves, gives back what it freed
            # while it started, and takes it again.
            wait_until(lambda: ready(broker) == (200, "ready\n"), 60, "the broker to say that it is ready")
            for number in range(400):
                other.send(small, f"w{number}", sections.binary_body(bytes(1 << 14)))
            other.until(lambda: "w399" in other.outcomes, "the last outcome")
            before = resident(broker.process.pid)
            # Whoever waits for the disk waits for all of its first sync: longer than a busy machine stalls.
            shim.on("slow", "12000000")
            behind = False
            for turn in range(3 * 1024):
                # Three messages of 64 MB, one behind the other.
                if turn % 1024 == 0:
                    if turn:
                        link.advance()
                    client.begin(link, f"big{turn}")
                    client.feed(link, sections.header(durable=True) + b"\x00\x53\x75\xb0\x04\x00\x00\x00")
                client.feed(link, bytes(1 << 16))
                looks = 0
                while looks == 0 if turn % 64 == 0 else client.session.outgoing_bytes >= AHEAD:
                    took = answered(other, small, f"s{turn}-{looks}")
                    assert took < 10, f"{took:.1f} s, as long as the disk does"
                    looks += 1
                    if looks == 20 and not behind:
                        behind = True
                        shim.on("slow", "400000")
                    client.turn(0.05)
            assert behind, "the disk kept nothing waiting"
            link.advance()
            client.until(lambda: "big2048" in client.outcomes, "the outcome")
            assert resident(broker.process.pid) - before < 24 * MB
    finally:
        broker.kill()


def answered(client: Streamer, link: Link, tag: str) -> float:
    """How long a small message takes to be accepted."""
    begun = time.monotonic()
    client.send(link, tag, sections.binary_body(b"small"))
    client.until(lambda: tag in client.outcomes, "it")
    return time.monotonic() - begun


def resident(pid: int) -> int:
    """The most memory the process ever had."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024
