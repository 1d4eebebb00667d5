"""What is kept on disk: nobody else of the machine reads it, and what a user made stays that user's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from broker.cli import main
from broker.client.link import Connection
from broker.codec import sections
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.frames import DETACH, RawPeer
from tests.wire.seeing import number_of

pytestmark = pytest.mark.wire

POLICIES = """
policies:
  - {match: kept, durable: true}
  - {match: paged, overflow: page, memory_limit: 256KB}
"""
LARGE_BYTES = 3 << 20


def test_nobody_else_reads_what_is_stored(tmp_path: Path) -> None:
    """Journal, pages and bodies of large messages, whatever the mask of whoever starts the broker."""
    mask = os.umask(0)
    try:
        broker = RunningBroker(tmp_path / "broker", "", POLICIES, ())
    finally:
        os.umask(mask)
    with Connection(broker.url) as connection:
        kept = connection.sender("kept")
        for size in (100, LARGE_BYTES):
            kept.send(sections.binary_body(b"x" * size))
        paged = connection.sender("paged")
        for _ in range(1000):
            paged.send(sections.binary_body(b"x" * 1000))
        kept.flush(30.0)
        paged.flush(30.0)
    # Accepted once they are taken in, paged when the disk gets to it.
    wait_until(lambda: number_of(broker, "paged", "paged_msgs") > 0, 30, "messages to be paged")
    assert main.main(["store", "backup", "copy", "-b", broker.url]) == 0
    copy = tmp_path / "broker" / "data" / "backups" / "copy"
    files = [path for path in (tmp_path / "broker" / "data").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > LARGE_BYTES
    assert readable([*files, copy, *copy.rglob("*")]) == ["events.jsonl"], "a job of the same group reads it"
    assert not (tmp_path / "broker" / "data" / "events.jsonl").stat().st_mode & stat.S_IRWXO
    assert broker.stop() == 0


def readable(paths: list[Path]) -> list[str]:
    """Those that somebody else could read or write."""
    return [path.name for path in paths if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


def test_a_durable_node_is_its_makers_after_a_restart(tmp_path: Path) -> None:
    """A user has as many as may be, whether or not the broker was restarted in between."""
    config = "limits: {max_nodes_per_user: 2}\n"
    policies = "policies:\n  - {match: 'kept.>', durable: true}\n"
    first = RunningBroker(tmp_path / "one", config, policies, ())
    with RawPeer(first.port) as peer:
        peer.open().begin()
        for number in range(2):
            peer.attach_sender(f"kept.{number}", f"n{number}", number)
    first.stop()
    again = RunningBroker(tmp_path / "one", config, policies, ())
    try:
        with RawPeer(again.port) as peer:
            peer.open().begin()
            assert peer.attach_sender("kept.1", "known", 0).field(6) is not None
            assert peer.attach_sender("kept.2", "more", 1).field(6) is None
            assert peer.expect(DETACH).condition == "amqp:resource-limit-exceeded"
    finally:
        again.stop()
