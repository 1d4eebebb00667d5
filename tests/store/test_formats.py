"""Data directories that brokers left open, of each format: this broker reads each, and raises its format.

``formats/format-N.tar.gz`` is of a store of format N that was killed: five logs with the same messages,
thirty of them in pages and ten in the journal, of which some came back and some were done with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.store.check import check
from broker.store.disk import DiskStore
from broker.store.port import DURABLE, REDELIVERED
from tests.store.replicas import Held, held_by
from tools.archives import unpack

FORMATS = Path(__file__).with_name("formats")


def left() -> dict[str, list[Held]]:
    """Return what is in each of them."""
    logs: dict[str, dict[int, Held]] = {
        f"q{number}": {
            seq: (seq, DURABLE, 0, 1234 if seq == 31 else 0, bytes([64 + seq]) * 200) for seq in range(1, 41)
        }
        for number in range(5)
    }
    for name, seq, count in (("q1", 3, 2), ("q3", 32, 1), ("q3", 4, 1)):
        logs[name][seq] = (seq, DURABLE | REDELIVERED, count, 0, logs[name][seq][4])
    for name, gone in (("q2", range(1, 11)), ("q0", (1, 31))):
        for seq in gone:
            del logs[name][seq]
    return {name: list(messages.values()) for name, messages in logs.items()}


@pytest.mark.parametrize("number", [3, 4])
def test_a_directory_of_each_format_is_read(tmp_path: Path, number: int) -> None:
    unpack(FORMATS / f"format-{number}.tar.gz", tmp_path)
    data = tmp_path / "data"
    assert sum(each.messages for each in check(data).shelves) == 188
    for seq in (50, 51):
        store = DiskStore.open(data, file_bytes=1 << 20)
        shelves, notes = held_by(store)
        assert {name: messages for name, _, _, messages in shelves.values()} == left()
        assert notes == {"a note": b"says", "another": b"1"}
        # What this broker writes stands beside what was there.
        for each in store.recovered.shelves:
            each.shelf.append(seq, DURABLE, 0, 0, b"new")
        store.seal()
        for each in store.recovered.shelves:
            each.shelf.forget(seq, 3)
        store.close()
    assert sum(each.messages for each in check(data).shelves) == 188
